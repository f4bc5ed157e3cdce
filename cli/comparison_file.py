"""The file of a comparison, and the trainings that it asks for."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from modeling_tmde import TmdeError
from tmde.cli.claims import Claim, Measure
from tmde.cli.evaluation_options import find_tasks
from tmde.eval.results import EVAL_NAME
from tmde.eval.verdicts import FEWEST_SEEDS
from tmde.training.recipe import Recipe, load_recipe, read_yaml, unknown_name_message, with_settings
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.run import check_trainable
from tmde.training.starts.packaged import without_automatic_start

COMPARISONS = "tmde.training.comparisons"  # the package of the files that come with tmde
MAIN_EVALUATION = "eval"  # the evaluation in which all systems take part
RESULTS_NAME = "results.json"  # what a training leaves when it is finished


class Entry(BaseModel):
    """A system, or a run that systems begin with.

    Attributes:
        recipe: The name of a recipe or the path of a YAML file.
        overrides: Recipe keys and their values.
        start: The run that it begins with, by its name.
        seeds: The seeds of a system; those of the file by default.
        seed: The seed of a start; the first of the file by default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    recipe: str
    overrides: dict[str, Any] | None = None
    start: str | None = None
    seeds: list[int] | None = None
    seed: int | None = None


class EvaluationSettings(BaseModel):
    """What is measured, and how.

    Attributes:
        tasks: The tasks, as `tmde eval run` takes them. A relative source of a task is looked for
            in the folder of `--eval-data` first.
        task_options: The options of tasks, by `TASK.OPTION`.
        folds: Whether the ten folds of the thesis are run.
        max_length: The longest input, as `tmde eval run` takes it.
        long_documents: What becomes of longer documents, as `tmde eval run` takes it.
        protocol: What a classifier is tuned on, as `tmde eval run` takes it.
        tfidf: Whether TF-IDF of characters is measured beside the systems.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tasks: list[str] = ["all"]
    task_options: dict[str, Any] = {}
    folds: bool = False
    max_length: int | None = None
    long_documents: str | None = None
    protocol: str = "zero-shot"
    tfidf: bool = True

    def eval_options(self, folder: Path, data: Path | None) -> list[str]:
        """Return the options of `tmde eval run` for all systems.

        Args:
            folder: The folder of the comparison.
            data: The folder of the files of tasks.
        """
        options = []
        if data is not None:
            options += ["--data", str(data)]
        if self.max_length is not None:
            options += ["--max-length", str(self.max_length)]
        if self.long_documents is not None:
            options += ["--long-documents", self.long_documents]
        options += ["--cache-dir", str(folder / "cache")]
        for task in self.located_tasks(data):
            options += ["--tasks", task]
        for setting in self.task_settings():
            options += ["--set", setting]
        if self.protocol != "zero-shot":
            options += ["--protocol", self.protocol]
        if not self.tfidf:
            options.append("--no-tfidf")
        options.append("--no-figures")
        options.append("--folds" if self.folds else "--no-folds")
        return options

    def located_tasks(self, data: Path | None) -> list[str]:
        """Return the tasks with the paths of those sources that lie in the folder `data`."""
        located = []
        for spec in self.tasks:
            name, _, source = spec.partition("=")
            if source and data is not None and (data / source).exists():
                spec = f"{name}={data / source}"
            located.append(spec)
        return located

    def task_settings(self) -> list[str]:
        """Return the options of tasks as `--set` takes them."""
        return [f"{key}={json.dumps(value)}" for key, value in self.task_options.items()]


class FurtherEvaluation(EvaluationSettings):
    """An evaluation of some systems beside that of all.

    Attributes:
        systems: The names of the systems.
    """

    systems: list[str]


class ComparisonFile(EvaluationSettings):
    """A comparison file; `training/comparisons/__init__.py` shows an example.

    Attributes:
        systems: The systems by name.
        description: The heading of the table.
        shared: Keys of recipes and their values: `all`, then those of the recipe's architecture.
        start: Runs that systems begin with, by name.
        tokenizer: The start whose tokenizer all systems and all other starts take.
        reference: The system that the others are tested against; the first by default.
        contrasts: Pairs of systems of which the first is expected to be the better one.
        seeds: The seeds of systems that name none.
        titles: What the table calls systems and tasks.
        evaluations: Further evaluations by name, in which some systems take part.
        claims: The claims on which the comparison passes verdicts, by their ids.
    """

    systems: dict[str, Entry] = {}
    description: str = "Comparison"
    shared: dict[str, dict[str, Any]] = {}
    start: dict[str, Entry] = {}
    tokenizer: str | None = None
    reference: str | None = None
    contrasts: list[list[str]] = []
    seeds: list[int] = [42]
    titles: dict[str, str] = {}
    evaluations: dict[str, FurtherEvaluation] = {}
    claims: dict[str, Claim] = {}

    def seeds_of(self, system: str) -> list[int]:
        """Return the seeds of a system."""
        seeds = self.systems[system].seeds
        return self.seeds if seeds is None else seeds

    def evaluations_of(self, system: str) -> list[str]:
        """Return the names of all evaluations in which a system takes part."""
        names = [MAIN_EVALUATION]
        for name, evaluation in self.evaluations.items():
            if system in evaluation.systems:
                names.append(name)
        return names

    def options_of_evaluations(self, folder: Path, data: Path | None) -> dict[str, list[str]]:
        """Return the options of `tmde eval run` of each evaluation; see `eval_options`."""
        options = {MAIN_EVALUATION: self.eval_options(folder, data)}
        for name, evaluation in self.evaluations.items():
            options[name] = evaluation.eval_options(folder, data)
        return options


@dataclass
class Training:
    """One training: a start, or a system with one seed.

    Attributes:
        name: The name of its folders, `SYSTEM-SEED` of a system.
        recipe: Its recipe.
        folder: The folder of the comparison.
        system: The system of which it is a seed; None for a start.
        start: The start whose model it begins with.
        tokenizer: The start whose tokenizer it takes.
        evaluations: The names of the evaluations in which it takes part.
    """

    name: str
    recipe: Recipe
    folder: Path
    system: str | None = None
    start: str | None = None
    tokenizer: str | None = None
    evaluations: Sequence[str] = ()

    @property
    def run(self) -> Path:
        """The folder of the training run."""
        return self.folder / self._kind / self.name

    @property
    def seed(self) -> int:
        """The seed of the training."""
        return self.recipe.seed

    @property
    def evaluation(self) -> Path:
        """The folder of the evaluation in which all systems take part."""
        return self.evaluation_folder(MAIN_EVALUATION)

    def evaluation_folder(self, evaluation: str) -> Path:
        """Return the folder of an evaluation."""
        if evaluation == MAIN_EVALUATION:
            return self.folder / MAIN_EVALUATION / self.name
        return self.folder / "evaluations" / evaluation / self.name

    @property
    def recipe_path(self) -> Path:
        """The file of its recipe."""
        return self.folder / "recipes" / self._kind / f"{self.name}.yaml"

    @property
    def needed_starts(self) -> set[str]:
        """The starts that have to be finished before."""
        return {name for name in (self.start, self.tokenizer) if name is not None}

    def is_measured(self, evaluation: str = MAIN_EVALUATION) -> bool:
        """Return whether an evaluation is finished."""
        return (self.evaluation_folder(evaluation) / EVAL_NAME).is_file()

    @property
    def _kind(self) -> str:
        return "start" if self.system is None else "runs"


def cpu_minutes_of(run: Path) -> float:
    """Return the CPU minutes of a run, evaluations included; 0 if it is not finished."""
    path = run / RESULTS_NAME
    if not path.is_file():
        return 0.0
    minutes: float = json.loads(path.read_text(encoding="utf-8"))["cpu_minutes"]
    return minutes


def load_comparison(
    name_or_path: str, folder: Path, data: dict[str, Any], eval_data: Path | None
) -> tuple[ComparisonFile, list[Training]]:
    """Load a comparison with the recipe of each training, starts first.

    Args:
        name_or_path: The name of a comparison of the package, or a YAML file.
        folder: The folder of the comparison.
        data: Keys of the data section that all recipes get.
        eval_data: The folder of the files of tasks.

    Raises:
        TmdeError: There is no such file or folder, or a key, name or value does not fit.
    """
    if eval_data is not None and not eval_data.is_dir():
        raise TmdeError(
            f"--eval-data: found no folder {str(eval_data)!r}, expected one with the tasks' files"
        )
    content = _read_with_base(name_or_path)
    try:
        file = _validate(content)
        trainings = _plan_trainings(file, folder, data)
    except TmdeError as error:
        raise TmdeError(f"{name_or_path}: {error}") from error
    if any(training.recipe.data.train is None for training in trainings):
        raise TmdeError(
            f"{name_or_path}: found no training data; give --train, also when you run the command "
            "again"
        )
    for settings in (file, *file.evaluations.values()):
        _check_tasks(name_or_path, settings, eval_data)
    return file, trainings


def trainings_of_claims(
    file: ComparisonFile, trainings: Sequence[Training], claim_ids: Sequence[str]
) -> list[Training]:
    """Return the trainings of the systems of some claims, after the starts that they need.

    They take part in the evaluations that the claims need, and in that of all systems.

    Args:
        file: The comparison.
        trainings: All its trainings, starts first.
        claim_ids: The ids of the claims.

    Raises:
        TmdeError: There is no such claim, or it is not tested.
    """
    needed_evaluations: dict[str, set[str]] = {}  # By system.
    for claim_id in claim_ids:
        if claim_id not in file.claims:
            raise TmdeError(unknown_name_message("--only: claim", claim_id, file.claims))
        claim = file.claims[claim_id]
        if not claim.is_tested:
            raise TmdeError(f"--only {claim_id}: the claim is not tested: {claim.why_not}")
        for system in claim.systems:
            needed = needed_evaluations.setdefault(system, {MAIN_EVALUATION})
            needed |= claim.evaluations_of(system)
    chosen = []
    for training in trainings:
        if training.system is None:
            chosen.append(training)
        elif training.system in needed_evaluations:
            needed = needed_evaluations[training.system]
            evaluations = [name for name in training.evaluations if name in needed]
            chosen.append(replace(training, evaluations=evaluations))
    return chosen


def _read_with_base(name_or_path: str) -> dict[str, Any]:
    """Return the content of a comparison file on top of that of its `base`.

    A key of the file takes the place of that of the base. Mappings, such as `systems`, are merged:
    each of their entries takes the place of that of the base.
    """
    content = read_yaml(name_or_path, COMPARISONS, "Comparison")
    base = content.pop("base", None)
    if base is None:
        return content
    merged = read_yaml(str(base), COMPARISONS, "Comparison")
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merged[key] | value
        else:
            merged[key] = value
    return merged


def _check_tasks(name_or_path: str, settings: EvaluationSettings, eval_data: Path | None) -> None:
    """Check that every task of an evaluation has data."""
    tasks = settings.located_tasks(eval_data)
    for planned in find_tasks(tasks, eval_data, settings.task_settings()):
        if planned.source is None:
            raise TmdeError(
                f"{name_or_path}: found no data for the task {planned.task.name}; give "
                "--eval-data, or name its source as NAME=SOURCE"
            )


# ---- Checks


def _validate(content: Mapping[str, Any]) -> ComparisonFile:
    """Return the content of a file, checked."""
    try:
        file = ComparisonFile.model_validate(content)
    except ValidationError as error:
        raise TmdeError(_describe_problem(error)) from error
    _check_seeds(file)
    _check_names(file)
    _check_claims(file)
    return file


def _describe_problem(error: ValidationError) -> str:
    """Return a sentence for the first problem that pydantic found."""
    problem = error.errors()[0]
    *place, name = [str(part) for part in problem["loc"]]
    key = ".".join([*place, name])
    if problem["type"] == "value_error":  # A check of this package.
        return f"{key}: {problem['ctx']['error']}"
    if problem["type"] == "extra_forbidden":
        owner = f"{'.'.join(place[1:])}: " if place else ""
        return unknown_name_message(f"{owner}key", name, _fields_at(place))
    return f"{key}: found {problem['input']!r}, {problem['msg']}"


def _fields_at(place: Sequence[str]) -> Collection[str]:
    """Return the keys that are known at a place of the file."""
    if not place:
        return ComparisonFile.model_fields
    if place[0] == "claims":
        return Claim.model_fields if len(place) == 2 else Measure.model_fields
    if place[0] == "evaluations":
        return FurtherEvaluation.model_fields
    return Entry.model_fields


def _check_seeds(file: ComparisonFile) -> None:
    has_seeds = all(file.seeds_of(system) for system in file.systems)
    if not file.systems or not has_seeds:
        raise TmdeError("found no systems or no seeds, expected at least one of each")


def _check_names(file: ComparisonFile) -> None:
    """Check that all systems and starts that are named exist."""
    systems = []
    if file.reference is not None:
        systems.append(file.reference)
    for pair in file.contrasts:
        if len(pair) != 2:
            raise TmdeError(f"contrasts: found {pair}, expected pairs of systems")
        systems += pair
    for system in systems:
        if system not in file.systems:
            raise TmdeError(unknown_name_message("system", system, file.systems))
    starts = [file.tokenizer, *(entry.start for entry in file.systems.values())]
    for start in starts:
        if start is not None and start not in file.start:
            raise TmdeError(unknown_name_message("start", start, file.start))
    earlier_starts: list[str] = []
    for name, entry in file.start.items():
        if entry.start is not None and entry.start not in earlier_starts:
            raise TmdeError(
                f"start.{name}: found start: {entry.start}, expected one that comes before {name}: "
                f"{', '.join(earlier_starts) or 'none does'}"
            )
        earlier_starts.append(name)


def _check_claims(file: ComparisonFile) -> None:
    """Check the systems, seeds and evaluations that claims and evaluations name."""
    for name, evaluation in file.evaluations.items():
        for system in evaluation.systems:
            _check_system(file, f"evaluations.{name}", system)
    for claim_id, claim in file.claims.items():
        place = f"claims.{claim_id}"
        for system in claim.systems:
            _check_system(file, place, system)
            seeds = file.seeds_of(system)
            if len(seeds) < FEWEST_SEEDS:
                raise TmdeError(
                    f"{place}: found the seeds {seeds} of {system}, expected at least "
                    f"{FEWEST_SEEDS}: the seed is the unit of the test"
                )
            _check_evaluations(file, place, system, claim.evaluations_of(system))
        _check_equal_seeds(file, place, claim)


def _check_equal_seeds(file: ComparisonFile, place: str, claim: Claim) -> None:
    """Check that differences can be taken seed by seed."""
    for system in claim.systems:
        seeds = file.seeds_of(system)
        first_system = claim.systems[0]
        first_seeds = file.seeds_of(first_system)
        if set(seeds) != set(first_seeds):
            raise TmdeError(
                f"{place}: found the seeds {first_seeds} of {first_system} and {seeds} of "
                f"{system}, expected the same: differences are taken seed by seed"
            )


def _check_system(file: ComparisonFile, place: str, system: str) -> None:
    if system not in file.systems:
        raise TmdeError(unknown_name_message(f"{place}: system", system, file.systems))


def _check_evaluations(
    file: ComparisonFile, place: str, system: str, evaluations: Iterable[str]
) -> None:
    """Check that a system takes part in evaluations."""
    known = file.evaluations_of(system)
    for evaluation in evaluations:
        if evaluation != MAIN_EVALUATION and evaluation not in known:
            raise TmdeError(
                unknown_name_message(f"{place}: evaluation of {system}", evaluation, known)
            )


# ---- Recipes


def _plan_trainings(file: ComparisonFile, folder: Path, data: dict[str, Any]) -> list[Training]:
    """Return the trainings of a comparison, starts first."""
    trainings = []
    for name, entry in file.start.items():
        seed = file.seeds[0] if entry.seed is None else entry.seed
        recipe = _make_recipe(entry, file.shared, data | {"training.seed": seed})
        tokenizer = None if name == file.tokenizer else file.tokenizer
        recipe = with_settings(recipe, _start_settings(recipe, folder, entry, tokenizer))
        trainings.append(Training(name, recipe, folder, start=entry.start, tokenizer=tokenizer))
    for system, entry in file.systems.items():
        for seed in file.seeds_of(system):
            recipe = _make_recipe(entry, file.shared, data | {"training.seed": seed})
            recipe = with_settings(recipe, _start_settings(recipe, folder, entry, file.tokenizer))
            training = Training(
                name=f"{system}-{seed}",
                recipe=recipe,
                folder=folder,
                system=system,
                start=entry.start,
                tokenizer=file.tokenizer,
                evaluations=file.evaluations_of(system),
            )
            trainings.append(training)
    return trainings


def _make_recipe(entry: Entry, shared: dict[str, dict[str, Any]], fixed: dict[str, Any]) -> Recipe:
    """Return the recipe of an entry.

    Its keys are set by what all systems share, by what its architecture shares, by its own
    overrides, and by `fixed`, in this order.
    """
    recipe = load_recipe(entry.recipe)
    overrides = entry.overrides or {}
    architecture = overrides.get("model.architecture", recipe.architecture)
    for settings in (shared.get("all", {}), shared.get(architecture, {}), overrides, fixed):
        recipe = with_settings(recipe, settings)
    # All systems begin as the file says, with the languages that it says: nothing is chosen later.
    recipe = without_automatic_start(recipe)
    recipe = with_settings(recipe, {"data.languages": recipe.data.languages})
    check_trainable(recipe, Path("unused"))  # Mistakes are found now, and not after hours.
    return recipe


def _start_settings(
    recipe: Recipe, folder: Path, entry: Entry, tokenizer: str | None
) -> dict[str, str]:
    """Return the settings by which a run begins with its start, and takes the tokenizer of one."""
    starts = folder / "start"
    settings = {}
    if entry.start is not None:
        settings["warm_start.checkpoint"] = str(starts / entry.start)
    if tokenizer is not None and recipe.architecture != ADAPTED:  # Its encoder has a tokenizer.
        settings["tokenizer.path"] = str(starts / tokenizer)
    return settings
