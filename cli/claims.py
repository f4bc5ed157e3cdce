"""What a comparison file says of a claim: the sentence of a paper, and how it is tested."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import Self

from modeling_tmde import TmdeError

VALUE = "value"  # The value of a cell, and not one of its further measures.
FOLDS = "folds"  # Cross in the ten folds of thesis 4.6.


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
        paper: The number of the paper, or what else names it.
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
