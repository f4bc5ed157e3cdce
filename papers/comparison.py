"""What a comparison file says: the systems to train, how they are measured, and the claims.

    description: ...
    # Keys of recipes and their values, as on the command line of `tmde train`.
    shared:
      # For every training. A system's own overrides go before its architecture's block, and that
      # before `all`; --train, --dev and the seed go before everything.
      all: {max_cpu_minutes: 6}
      laser: {model.d_model: 256}
    # Trained once, with `seed` or the first of `seeds`. A start may begin with one before it.
    start:
      bag: {recipe: bag, overrides: {max_cpu_minutes: 4}}
    # The start whose tokenizer all systems take; without this key, each has its own.
    tokenizer: bag
    systems:
      tmde: {recipe: tmde, start: bag, seeds: [1, 2, 3], overrides: {warmup_steps: 50}}
      laser: {recipe: laser_6, start: bag}
    # Of systems that name none; the table has mean ± std, and the first is tested.
    seeds: [42]
    # All others are tested against this system; without this key, against the first.
    reference: tmde
    # Pairs to test, the one that is expected to be better first.
    contrasts: [[tmde, laser]]
    # As `tmde eval --tasks` takes them; without this key, all.
    tasks: [sib200, sentence_retrieval=FILE]
    task_options: {sentence_retrieval.max_rows: 1000}  # as `tmde eval --set`
    max_length: 512                                    # as `tmde eval --max-length`
    long_documents: truncate                           # as `tmde eval --long-documents`
    folds: false  # whether classification runs the ten folds of Li (2021), too
    tfidf: true   # whether TF-IDF of characters is measured, too
    titles: {sib200: SIB-200, tmde: T-MDE}  # of tasks and systems in the table
    protocol: zero-shot                     # as `tmde eval --protocol`
    # Further evaluations, in which some systems take part.
    evaluations:
      long: {tasks: [topic_documents], max_length: 750, systems: [tmde, laser]}
    # Claims on which verdicts are passed; `claims.json` in the folder of the comparison has them.
    claims:
      tmde-above-laser:
        paper: "Li, 2021"
        place: table 4.3
        sentence: T-MDE outperforms it by 3.2% in cross-lingual tests ('Cross').
        verbatim: true
        figure: 73.5 against 70.3
        better: tmde
        worse: laser
        equal: rows
        measures:           # the first decides, the others are shown beside it
          - {title: Cross, tasks: [sib200], group: Cross}
          - {title: training words per second, cost: words_per_second}
      another:
        paper: "Gong et al., 2021"
        place: section 6.2
        sentence: ...
        verbatim: false
        why_not: No data.

`max_cpu_minutes` limits each training by itself, a start too. What a system may take is their sum,
as in the table. The clock stops with the last training step: the evaluation after it does not
count.

A file with `base: claims` takes from that comparison what it lacks itself; entries of mappings,
such as single systems, are replaced one by one.

The source of a task, `sentence_retrieval=FILE`, is looked for in `--eval-data` first.

`tmde.papers.verdicts` has the rules of verdicts.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from typing_extensions import Self

from modeling_tmde import TmdeError
from tmde.papers.verdicts import FEWEST_SEEDS
from tmde.training.packaged_files import yaml_files
from tmde.training.recipe import unknown_name_message
from tmde.training.recipe.loading import read_yaml

MAIN_EVALUATION = "eval"  # The evaluation in which all systems take part.
VALUE = "value"  # The value of a cell, and not one of its further measures.
FOLDS = "folds"  # Cross in the ten folds of Li (2021), section 4.6.


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
        for key, value in self.task_options.items():
            options += ["--set", f"{key}={json.dumps(value)}"]
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

    def options_by_task(self) -> dict[str, dict[str, Any]]:
        """Return the options of tasks by the names of the tasks.

        Raises:
            TmdeError: A key is not `TASK.OPTION`.
        """
        options: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, value in self.task_options.items():
            task, _, option = key.partition(".")
            if not option:
                raise TmdeError(f"task_options: found {key!r}, expected TASK.OPTION")
            options[task][option] = value
        return options


class FurtherEvaluation(EvaluationSettings):
    """An evaluation of some systems beside that of all.

    Attributes:
        systems: The names of the systems.
    """

    systems: list[str]


# ---- Claims


class Measure(BaseModel):
    """A number of every training: the quality of its vectors, or what it costs.

    Attributes:
        title: What the page calls it.
        tasks: The tasks, by their names in a report; the number is the mean over them.
        group: The cells of a task over which the mean is taken. `Best source` takes, for each test
            language, the cell of the other language that is best as training language.
        value: `value`, `folds` (the mean of `Cross` over the ten folds), or the name of a further
            measure of the cells, such as `precision_at_1_margin`.
        evaluation: One of the file's further evaluations; None for that of all systems.
        cost: What a system costs, in place of tasks: `words_per_second` (words of training text in
            a CPU second), `cpu_minutes` (of training, without evaluations), `peak_memory_mib` (of
            training, as `results.json` has it), or `texts_per_second` (texts embedded in a CPU
            second). Costs are compared as ratios; where less is better, the claim says so.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    title: str
    tasks: list[str] = []
    group: Literal["Same", "Cross", "All", "Best source"] = "All"
    value: str = VALUE
    evaluation: str | None = None
    cost: (
        Literal["words_per_second", "cpu_minutes", "peak_memory_mib", "texts_per_second"] | None
    ) = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.cost is None) == (not self.tasks):
            raise TmdeError(
                f"measure {self.title!r}: found tasks={self.tasks} and cost={self.cost}, expected "
                "one of both"
            )
        return self


class Claim(BaseModel):
    """A claim of a paper.

    Attributes:
        paper: The paper, by author and year; None if the claim is not of a paper.
        place: The section, table or figure.
        sentence: What the paper says.
        verbatim: Whether `sentence` is the paper's, word for word.
        figure: The paper's figures; None if it has none.
        why_not: The reason why the claim is not tested; None if it is.
        better: The system that is better according to the paper.
        worse: The system that it is compared with; the same one if two measures are compared.
        measures: The measures. The first decides; the others are shown beside it.
        worse_measures: The measures of `worse`, where they are others than those of `better`.
        columns: What the page calls two measures of the same system, in place of its name.
        less_is_better: Whether the paper says that the measure of `better` is smaller.
        margin: If the paper says that both are about equal, the largest difference that counts as
            equal, in the unit of the first measure: 0.02 of an accuracy, 0.1 of the natural
            logarithm of a cost.
        equal: What was held equal: the rows, the CPU minutes, or the model itself.
        experiment: What else a reader must know of the experiment.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    paper: str | None = None
    place: str
    sentence: str
    verbatim: bool
    figure: str | None = None
    why_not: str | None = None
    better: str | None = None
    worse: str | None = None
    measures: list[Measure] = []
    worse_measures: list[Measure] | None = None
    columns: list[str] | None = None
    less_is_better: bool = False
    margin: float | None = None
    equal: Literal["rows", "CPU minutes", "the model", "nothing"] | None = None
    experiment: str | None = None

    @model_validator(mode="after")
    def _check_experiment(self) -> Self:
        has_experiment = None not in (self.better, self.worse, self.equal) and bool(self.measures)
        if self.is_tested != has_experiment:
            raise TmdeError("expected either why_not, or all of better, worse, measures and equal")
        if self.worse_measures is not None and len(self.worse_measures) != len(self.measures):
            raise TmdeError(
                f"worse_measures: found {len(self.worse_measures)}, expected one for each of the "
                f"{len(self.measures)} measures"
            )
        needs_columns = self.better is not None and self.better == self.worse
        if needs_columns != (self.columns is not None and len(self.columns) == 2):
            raise TmdeError(
                f"columns: found {self.columns}, expected two titles where better and worse are "
                "the same system, and none elsewhere"
            )
        return self

    @property
    def is_tested(self) -> bool:
        """Whether there is an experiment."""
        return self.why_not is None

    @property
    def systems(self) -> list[str]:
        """The systems that are compared, each once; none of a claim that is not tested."""
        if self.better is None or self.worse is None:
            return []
        return list(dict.fromkeys([self.better, self.worse]))

    @property
    def measure_pairs(self) -> list[tuple[Measure, Measure]]:
        """The measures of `better` and of `worse` that are compared."""
        return list(zip(self.measures, self.worse_measures or self.measures, strict=True))

    def evaluations_of(self, system: str) -> set[str]:
        """Return the further evaluations that the measures of a system need."""
        measures: list[Measure] = []
        if system == self.better:
            measures += self.measures
        if system == self.worse:
            measures += self.worse_measures or self.measures
        return {measure.evaluation for measure in measures if measure.evaluation is not None}


# ---- The file


class ComparisonFile(EvaluationSettings):
    """A comparison file, as the module's documentation shows one.

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


def read_comparison(name_or_path: str) -> ComparisonFile:
    """Read and check a comparison file.

    Args:
        name_or_path: The name of a comparison of the package, or a YAML file.

    Raises:
        TmdeError: There is no such file, or a key, name or value does not fit.
    """
    content = _read_with_base(name_or_path)
    try:
        return _validate(content)
    except TmdeError as error:
        raise TmdeError(f"{name_or_path}: {error}") from error


def _read_with_base(name_or_path: str) -> dict[str, Any]:
    """Return the content of a comparison file on top of that of its `base`.

    A key of the file takes the place of that of the base. Mappings, such as `systems`, are merged:
    each of their entries takes the place of that of the base.
    """
    packaged_files = yaml_files("tmde.papers", "comparisons")
    content = read_yaml(name_or_path, packaged_files, "Comparison")
    base = content.pop("base", None)
    if base is None:
        return content
    merged = read_yaml(str(base), packaged_files, "Comparison")
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merged[key] | value
        else:
            merged[key] = value
    return merged


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
        kind = "key"
        if place:
            owner = ".".join(place[1:])
            kind = f"{owner}: key"
        return unknown_name_message(kind, name, _fields_at(place))
    return f"{key}: found {problem['input']!r}, {problem['msg']}"


def _fields_at(place: Sequence[str]) -> Collection[str]:
    """Return the keys that are known at a place of the file."""
    if not place:
        return ComparisonFile.model_fields
    if place[0] == "claims" and len(place) == 2:
        return Claim.model_fields
    if place[0] == "claims":
        return Measure.model_fields
    if place[0] == "evaluations":
        return FurtherEvaluation.model_fields
    return Entry.model_fields


def _check_seeds(file: ComparisonFile) -> None:
    has_seeds = all(file.seeds_of(system) for system in file.systems)
    if not file.systems or not has_seeds:
        raise TmdeError("found no systems or no seeds, expected at least one of each")


def _check_names(file: ComparisonFile) -> None:
    """Check that all systems and starts that are named exist."""
    if file.reference is not None:
        _check_known("system", file.reference, file.systems)
    for pair in file.contrasts:
        if len(pair) != 2:
            raise TmdeError(f"contrasts: found {pair}, expected pairs of systems")
        for system in pair:
            _check_known("system", system, file.systems)
    for start in (file.tokenizer, *(entry.start for entry in file.systems.values())):
        if start is not None:
            _check_known("start", start, file.start)
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
            _check_known(f"evaluations.{name}: system", system, file.systems)
    for claim_id, claim in file.claims.items():
        place = f"claims.{claim_id}"
        for system in claim.systems:
            _check_known(f"{place}: system", system, file.systems)
            seeds = file.seeds_of(system)
            if len(seeds) < FEWEST_SEEDS:
                raise TmdeError(
                    f"{place}: found the seeds {seeds} of {system}, expected at least "
                    f"{FEWEST_SEEDS}: the seed is the unit of the test"
                )
            for name in claim.evaluations_of(system):
                kind = f"{place}: evaluation of {system}"
                _check_known(kind, name, file.evaluations_of(system))


def _check_known(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise TmdeError(unknown_name_message(kind, name, known))
