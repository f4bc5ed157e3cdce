"""The results of the claims of a comparison: `claims.json`, from which a page is made."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from tmde.data.io import write_atomically
from tmde.eval.environment import environment
from tmde.eval.results import TaskResult, group_cells, read_results
from tmde.eval.statistics import holm
from tmde.eval.tasks import VectorGeometry
from tmde.eval.training_log import LOG_NAME, read_log
from tmde.papers.comparison import (
    FOLDS,
    MAIN_EVALUATION,
    VALUE,
    Claim,
    ComparisonFile,
    Measure,
)
from tmde.papers.trainings import Training
from tmde.papers.verdicts import (
    NOT_RUN,
    NOT_TESTED,
    SeedDifference,
    seed_difference,
    verdict_of,
)

CLAIMS_NAME = "claims.json"


# ---- What is measured


class MeasuredRun:
    """A training that may be finished and measured.

    Args:
        training: The training.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self._results: dict[str, dict[str, TaskResult]] = {}

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """What the run recorded when it was finished; None before."""
        return self.training.record

    def value_of(self, measure: Measure) -> float | None:
        """Return the number of a measure; None if it is not measured yet, or undefined."""
        results = self._results_of(measure.evaluation or MAIN_EVALUATION)
        if measure.cost is not None:
            return self._cost(measure.cost, results)
        values = []
        for task in measure.tasks:
            if task not in results:
                return None
            value = _value_of_result(results[task], measure)
            if value is None:
                return None
            values.append(value)
        return fmean(values)

    def _cost(self, cost: str, results: Mapping[str, TaskResult]) -> float | None:
        """Return what a measure calls `cost`."""
        if cost == "texts_per_second":
            return _texts_per_second(results.values())
        if self.record is None:
            return None
        if cost == "words_per_second":
            return words_per_second(self.record)
        if cost == "peak_memory_mib":
            return self.record.get("peak_memory_mib")
        return training_cpu_minutes(self.record)

    def _results_of(self, evaluation: str) -> dict[str, TaskResult]:
        """Return the results of the system in an evaluation, by task."""
        if evaluation not in self._results:
            results = {}
            if self.training.is_measured(evaluation):
                for result in read_results(self.training.evaluation_folder(evaluation)):
                    if result.system == self.training.name:
                        results[result.task] = result
            self._results[evaluation] = results
        return self._results[evaluation]


BEST_SOURCE = "Best source"


def _value_of_result(result: TaskResult, measure: Measure) -> float | None:
    """Return the mean of a measure over its cells; None if a cell lacks it."""
    if measure.value == FOLDS:
        return fmean(result.folds) if result.folds else None
    group = "Cross" if measure.group == BEST_SOURCE else measure.group
    values = []
    values_of_target = defaultdict(list)
    for position in group_cells(result.cells).get(group, []):
        cell = result.cells[position]
        value = cell.value if measure.value == VALUE else cell.extra.get(measure.value)
        if value is None or not math.isfinite(value):
            return None
        values.append(value)
        values_of_target[cell.target].append(value)
    if measure.group == BEST_SOURCE:
        values = [max(of_sources) for of_sources in values_of_target.values()]
    return fmean(values) if values else None


def training_cpu_minutes(record: Mapping[str, Any]) -> float:
    """Return the CPU minutes of a run without those of its evaluations."""
    return float(record["cpu_minutes"] - record["evaluation_cpu_minutes"])


def words_per_second(record: Mapping[str, Any]) -> float:
    """Return the words of both sides of all pairs that a run read in a CPU second."""
    words = record["seen"]["source_words"] + record["seen"]["target_words"]
    return float(words / (60 * training_cpu_minutes(record)))


def _texts_per_second(results: Iterable[TaskResult]) -> float | None:
    """Return the texts that were embedded in a CPU second, of the tasks that embedded any.

    The vectors of a task may come from the cache, and then took no time.
    """
    texts = 0
    seconds = 0.0
    for result in results:
        embedding_seconds = result.seconds.get("embedding on CPU cores", 0.0)
        if result.truncated is not None and embedding_seconds > 0:
            texts += result.truncated[1]
            seconds += embedding_seconds
    return texts / seconds if seconds else None


# ---- Learning curves


CURVE_MEASURES = ("retrieval", "document_retrieval")


def learning_curve(run: Path, minutes_per_step: float) -> list[dict[str, float]]:
    """Return the evaluations of a run in the order of steps, from its log.

    A point has the step, the rows and the CPU minutes of training so far, and the means of
    development measures over dev sets and pairs of languages. Between two lines of the log, rows
    are in proportion to the steps.

    Args:
        run: The folder of the run.
        minutes_per_step: The CPU minutes of a step. The log has the minutes of the clock, which
            other programs lengthen.
    """
    if not (run / LOG_NAME).is_file():
        return []
    # The log has rows and losses every few steps. An evaluation may lie between two of these lines.
    logged_steps = [0]
    logged_rows = [0]
    evaluations = []
    for line in read_log(run):
        if "loss" in line:
            logged_steps.append(int(line["step"]))
            logged_rows.append(int(line["rows"]))
        elif "eval_minutes" in line:
            evaluations.append(line)
    points = []
    for line in evaluations:
        step = int(line["step"])
        rows = round(float(np.interp(step, logged_steps, logged_rows)))
        point = {"step": step, "rows": rows, "minutes": round(step * minutes_per_step, 3)}
        for name in CURVE_MEASURES:
            if f"eval_{name}" in line:
                point[name] = line[f"eval_{name}"]
        points.append(point)
    return points


# ---- Claims


@dataclass
class MeasuredPair:
    """A measure of both systems of a claim.

    Attributes:
        title: What the page calls the measure.
        unit: `share`, `count` or `ratio`; a ratio is that of the two values.
        better: The values of the better system by seed.
        worse: Those of the other one.
        difference: Their difference, or the logarithm of their ratio; None before there are two
            seeds.
    """

    title: str
    unit: str
    better: dict[int, float]
    worse: dict[int, float]
    difference: SeedDifference | None


@dataclass
class ClaimResult:
    """A claim and what was found.

    Attributes:
        claim_id: The id of the claim.
        claim: The claim.
        pairs: The measures of both systems, the deciding one first; none of a claim that is not
            tested.
        seeds: The numbers of seeds that are planned, of the better system and the other one.
        verdict: One of the verdicts of `tmde.papers.verdicts`.
        corrected_p: The p-value that decides; None without a verdict.
    """

    claim_id: str
    claim: Claim
    pairs: list[MeasuredPair] = field(default_factory=list)
    seeds: tuple[int, int] = (0, 0)
    verdict: str = NOT_TESTED
    corrected_p: float | None = None

    @property
    def seeds_done(self) -> tuple[int, int]:
        """The numbers of seeds with the deciding measure, of the better system and the other."""
        if not self.pairs:
            return (0, 0)
        return len(self.pairs[0].better), len(self.pairs[0].worse)

    @property
    def deciding_difference(self) -> SeedDifference | None:
        """The difference of the deciding measure; None before all seeds of both systems have it."""
        if not self.pairs or self.seeds_done != self.seeds:
            return None
        return self.pairs[0].difference


COUNTS = ("components_90", "debiased_rank", "median_rank")  # Measures that are no shares.


def claim_results(
    file: ComparisonFile, runs: Mapping[str, Sequence[MeasuredRun]]
) -> list[ClaimResult]:
    """Return all claims with their verdicts.

    Args:
        file: The comparison.
        runs: The trainings of each system.
    """
    results = [_measure_claim(claim_id, claim, runs) for claim_id, claim in file.claims.items()]
    tested = [result for result in results if result.claim.is_tested]
    p_values = []
    for result in tested:
        difference = result.deciding_difference
        p_values.append(1.0 if difference is None else difference.p)
    for result, p in zip(tested, holm(p_values), strict=True):
        difference = result.deciding_difference
        if difference is not None:
            result.corrected_p = p
            result.verdict = verdict_of(difference, p, result.claim.margin)
    return results


def _measure_claim(
    claim_id: str,
    claim: Claim,
    runs: Mapping[str, Sequence[MeasuredRun]],
) -> ClaimResult:
    if claim.better is None or claim.worse is None:
        return ClaimResult(claim_id, claim)
    better_runs = runs[claim.better]
    worse_runs = runs[claim.worse]
    pairs: list[MeasuredPair] = []
    for measure, worse_measure in claim.measure_pairs:
        better = _values_by_seed(better_runs, measure)
        worse = _values_by_seed(worse_runs, worse_measure)
        unit = _unit_of(measure)
        # The first measure decides; the margin is in its unit.
        margin = None if pairs else claim.margin
        difference = _difference(better, worse, unit, claim, margin)
        pairs.append(MeasuredPair(measure.title, unit, better, worse, difference))
    seeds = (len(better_runs), len(worse_runs))
    return ClaimResult(claim_id, claim, pairs, seeds, verdict=NOT_RUN)


def _values_by_seed(runs: Iterable[MeasuredRun], measure: Measure) -> dict[int, float]:
    values = {}
    for run in runs:
        value = run.value_of(measure)
        if value is not None:
            values[run.training.seed] = value
    return values


def _unit_of(measure: Measure) -> str:
    if measure.cost is not None:
        return "ratio"
    return "count" if measure.value in COUNTS else "share"


def _difference(
    better: dict[int, float],
    worse: dict[int, float],
    unit: str,
    claim: Claim,
    margin: float | None,
) -> SeedDifference | None:
    """Return the difference of a measure in the direction of the claim."""
    if unit == "ratio":
        better = _logarithms(better)
        worse = _logarithms(worse)
    if claim.less_is_better:
        better, worse = worse, better
    return seed_difference(better, worse, margin, is_paired=claim.better == claim.worse)


def _logarithms(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: math.log(value) for seed, value in values.items()}


# ---- The file


def write_claims(
    file: ComparisonFile, trainings: Sequence[Training], shown: Sequence[str] | None = None
) -> str:
    """Write `claims.json` of what is measured so far.

    Args:
        file: The comparison.
        trainings: All its trainings, starts first.
        shown: The ids of the claims whose verdicts are returned; None for all.

    Returns:
        A line with the verdict of each claim.
    """
    runs: dict[str, list[MeasuredRun]] = {system: [] for system in file.systems}
    for training in trainings:
        if training.system is not None:
            runs[training.system].append(MeasuredRun(training))
    results = claim_results(file, runs)
    content = {
        **environment(),
        "description": file.description,
        "cpu_hours": sum(training.cpu_minutes for training in trainings) / 60,
        "runs": _count_runs(runs),
        "titles": file.titles,
        "seeds": file.seeds,
        "systems": {system: _describe_system(of_system) for system, of_system in runs.items()},
        "claims": [_describe_claim(result) for result in results],
    }
    folder = trainings[0].folder
    write_atomically(folder / CLAIMS_NAME, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    lines = []
    for result in results:
        if shown is None or result.claim_id in shown:
            lines.append(f"{result.claim_id}: {_summary_of(result)}")
    return "\n".join(lines)


def _summary_of(result: ClaimResult) -> str:
    if result.verdict == NOT_RUN:
        return f"{NOT_RUN} ({sum(result.seeds_done)} of {sum(result.seeds)} values)"
    return result.verdict


def _count_runs(runs: Mapping[str, Sequence[MeasuredRun]]) -> dict[str, int]:
    """Return how many runs are planned, and how many are measured."""
    planned = 0
    measured = 0
    for of_system in runs.values():
        planned += len(of_system)
        measured += sum(run.training.is_measured() for run in of_system)
    return {"planned": planned, "measured": measured}


def _describe_system(runs: Sequence[MeasuredRun]) -> dict[str, Any]:
    """Return rows, time, learning curve and vectors of a system, of the runs that are finished."""
    by_seed: dict[int, dict[str, Any]] = {}
    curves = []
    for run in runs:
        record = run.record
        if record is None:
            continue
        minutes = training_cpu_minutes(record)
        curves.append(learning_curve(run.training.run, minutes / record["steps"]))
        by_seed[run.training.seed] = {
            "steps": record["steps"],
            "best_step": record["best_step"],
            "rows": record["seen"]["rows"],
            "training_cpu_minutes": round(minutes, 3),
            "words_per_second": round(words_per_second(record), 1),
        }
    return {
        "seeds": by_seed,
        "curve": _mean_curve(curves),
        "geometry": _mean_geometry(runs),
    }


GEOMETRY_VALUES = (
    VALUE,
    "language_accuracy_debiased",
    "debiased_rank",
    "components_90",
    "precision_at_1_cosine",
    "precision_at_1_euclidean",
    "precision_at_1_debiased",
)


def _mean_geometry(runs: Sequence[MeasuredRun]) -> dict[str, float]:
    """Return the measures of the task `vector_geometry`, means over the seeds that have them."""
    means = {}
    for name in GEOMETRY_VALUES:
        measure = Measure(title=name, tasks=[VectorGeometry.name], value=name)
        values = [run.value_of(measure) for run in runs]
        measured = [value for value in values if value is not None]
        if measured:
            key = "language_accuracy" if name == VALUE else name
            means[key] = fmean(measured)
    return means


def _mean_curve(curves: Sequence[Sequence[Mapping[str, float]]]) -> list[dict[str, float]]:
    """Return the means over seeds at the steps that all seeds have evaluated."""
    points_at_step = defaultdict(list)
    for curve in curves:
        for point in curve:
            points_at_step[point["step"]].append(point)
    means = []
    for _, points in sorted(points_at_step.items()):
        if len(points) < len(curves):
            continue
        mean_point = {}
        for name in points[0]:
            mean_point[name] = fmean(point[name] for point in points)
        means.append(mean_point)
    return means


def _describe_claim(result: ClaimResult) -> dict[str, Any]:
    return {
        "id": result.claim_id,
        **result.claim.model_dump(exclude={"measures", "worse_measures"}),
        "measures": [asdict(pair) for pair in result.pairs],
        "seeds_done": result.seeds_done,
        "seeds": result.seeds,
        "corrected_p": result.corrected_p,
        "verdict": result.verdict,
    }
