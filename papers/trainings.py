"""The trainings that a comparison file asks for, with their recipes and folders."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modeling_tmde import TmdeError
from tmde.eval.planning import plan_tasks
from tmde.eval.results import EVAL_NAME
from tmde.papers.comparison import (
    MAIN_EVALUATION,
    ComparisonFile,
    Entry,
    EvaluationSettings,
    read_comparison,
)
from tmde.training.recipe import Recipe, load_recipe, unknown_name_message, with_settings
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.run import check_trainable
from tmde.training.run_folder import RESULTS_NAME
from tmde.training.starts.packaged import without_automatic_start


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
    def record(self) -> dict[str, Any] | None:
        """What the run recorded when it was finished; None before."""
        path = self.run / RESULTS_NAME
        if not path.is_file():
            return None
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    @property
    def cpu_minutes(self) -> float:
        """The CPU minutes of the run, evaluations included; 0 before it is finished."""
        record = self.record
        return 0.0 if record is None else record["cpu_minutes"]

    @property
    def _kind(self) -> str:
        return "start" if self.system is None else "runs"


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
    file = read_comparison(name_or_path)
    try:
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


def _check_tasks(name_or_path: str, settings: EvaluationSettings, eval_data: Path | None) -> None:
    """Check that every task of an evaluation has data."""
    tasks = settings.located_tasks(eval_data)
    for planned in plan_tasks(tasks, eval_data, settings.options_by_task()):
        if planned.source is None:
            raise TmdeError(
                f"{name_or_path}: found no data for the task {planned.task.name}; give "
                "--eval-data, or name its source as NAME=SOURCE"
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
