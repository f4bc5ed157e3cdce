"""What a comparison found: values and costs of each system, tests against the reference, and contrasts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from modeling_tmde.cli.compare_costs import costs_of, is_told_languages, read_json
from modeling_tmde.cli.compare_file import Comparison
from modeling_tmde.cli.compare_folder import TFIDF, ComparisonFolder
from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.results import EVAL_NAME, TaskResult, group_cells, read_results
from modeling_tmde.eval.statistics import ComparisonError, compare

# What the measures are called where the comparison file has no title; the source of a task follows.
NAMES = {
    "document_retrieval": "documents",
    "sentence_retrieval": "sentences",
    "sib200": "SIB-200",
    "topic_documents": "topics",
    "mldoc": "MLDoc",
    "xnli": "XNLI",
    "word_order": "word order",
}
Key = tuple[str, int]  # a system and a seed


@dataclass(frozen=True)
class Column:
    """The mean over the cells of one task that are of one language (`Same`) or of two (`Cross`)."""

    task: str
    group: str
    title: str


@dataclass
class Row:
    """A system: its values by column, one a seed, differences from the reference, and what its trainings cost.

    Attributes:
        told_languages: Whether its model is told the language of every text.
    """

    system: str
    title: str
    seeds: list[int] = field(default_factory=list)
    values: dict[Column, list[float]] = field(default_factory=dict)
    differences: dict[Column, dict[str, Any]] = field(default_factory=dict)
    costs: dict[str, Any] = field(default_factory=dict)
    told_languages: bool = False
    missing: list[str] = field(default_factory=list)


@dataclass
class Contrast:
    """Two systems, of which the first is expected to be the better one, and what was found in each column."""

    better: str
    worse: str
    measures: dict[Column, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Measured:
    """What is in the folder: results and fingerprints of evaluations, and the results of TF-IDF, each by task."""

    results: dict[Key, dict[str, TaskResult]] = field(default_factory=dict)
    fingerprints: dict[Key, str] = field(default_factory=dict)
    tfidf: dict[str, TaskResult] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def all_results(self) -> Iterator[TaskResult]:
        for results in [*self.results.values(), self.tfidf]:
            yield from results.values()


def read_measured(comparison: Comparison, folder: ComparisonFolder) -> Measured:
    """All evaluations that there are; a damaged one is told of and left out."""
    measured = Measured()
    for training in comparison.trainings:
        if training.is_start or not folder.has_evaluation(training):
            continue
        place, key = folder.evaluation(training), (training.system, training.seed)
        try:
            results = read_results(place)
        except ValueError as error:
            measured.problems.append(str(error))
            continue
        measured.results[key] = {result.task: result for result in results if result.system == training.name}
        measured.fingerprints[key] = json.loads((place / EVAL_NAME).read_text(encoding="utf-8"))["fingerprint"]
        for result in results:
            if result.system == TFIDF:
                measured.tfidf.setdefault(result.task, result)
    return measured


def columns_of(measured: Measured, titles: dict[str, str]) -> list[Column]:
    """`Same` and `Cross` of each task that was measured, those that it has."""
    first: dict[str, TaskResult] = {}
    for result in measured.all_results():
        first.setdefault(result.task, result)
    columns = []
    for task, result in first.items():
        groups = [name for name in group_cells(result.cells) if name != "All"]
        kind, _, source = task.partition("/")
        name = " ".join(filter(None, [NAMES.get(kind, kind), source]))
        name = titles.get(task, f"P@1 {name}" if result.protocol == "retrieval" else name)
        columns += [Column(task, group, f"{name} {group}" if len(groups) > 1 else name) for group in groups]
    return columns


def value_of(result: TaskResult | None, group: str, of: str = "value") -> float | None:
    """Mean over the cells of a group of their values, or of their `chance`; None if there are none."""
    if result is None:
        return None
    values = [getattr(result.cells[place], of) for place in group_cells(result.cells).get(group, [])]
    return float(np.mean(values)) if values and None not in values else None


def chance_of(measured: Measured, column: Column) -> float | None:
    """Of guessing uniformly."""
    result = next((each for each in measured.all_results() if each.task == column.task), None)
    return value_of(result, column.group, "chance")


class Differences:
    """Tests between two evaluations, kept in a file: a table that is made again need not draw them again."""

    def __init__(self, measured: Measured, path: Path):
        self.measured, self.path = measured, path
        self.known: dict[str, list[dict[str, Any]]] = read_json(path)

    def between(self, a: Key, b: Key, column: Column) -> dict[str, Any] | None:
        """Of b from a: difference, interval and p; None where one was not measured or they cannot be compared."""
        first, second = (self.measured.results.get(key, {}).get(column.task) for key in (a, b))
        if first is None or second is None:
            return None
        key = "|".join([self.measured.fingerprints[a], self.measured.fingerprints[b], column.task])
        if key not in self.known:
            try:
                found = compare(first, second)
            except ComparisonError as error:
                self.measured.problems.append(str(error))
                found = []
            self.known[key] = json.loads(json.dumps([asdict(each) for each in found]))
            if found:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self.path, json.dumps(self.known))
        return next((each for each in self.known[key] if each["group"] == column.group), None)


def make_rows(
    comparison: Comparison, folder: ComparisonFolder, measured: Measured, columns: Sequence[Column]
) -> list[Row]:
    """A row for each system of the file, in its order, measured or not."""
    rows = {name: Row(name, comparison.titles.get(name, name)) for name in comparison.systems}
    for training in comparison.trainings:
        if training.is_start:
            continue
        row, results = rows[training.system], measured.results.get((training.system, training.seed))
        if results is None:
            row.missing.append(training.name)
            continue
        row.seeds.append(training.seed)
        row.costs = row.costs or costs_of(training, comparison, folder)
        row.told_languages = is_told_languages(training)
        for column in columns:
            value = value_of(results.get(column.task), column.group)
            if value is not None:
                row.values.setdefault(column, []).append(value)
    return list(rows.values())


def add_differences(reference: Row, rows: Sequence[Row], columns: Sequence[Column], differences: Differences) -> None:
    """Each system against the reference, the first seeds of both."""
    for row in rows:
        if row is reference or not row.seeds or not reference.seeds:
            continue
        keys = [(each.system, each.seeds[0]) for each in (reference, row)]
        found = {column: differences.between(*keys, column) for column in columns}
        row.differences = {column: each for column, each in found.items() if each is not None}


def make_contrasts(
    pairs: Sequence[tuple[str, str]], rows: Sequence[Row], columns: Sequence[Column], differences: Differences
) -> list[Contrast]:
    """Of each pair and column: how far the first system is above the second.

    The test is of the first seeds; `mean_difference` is over all; of several seeds it is counted in how many of the
    pairs (first with first, second with second ...) the difference has the sign of the one that was tested.
    """
    by_system = {row.system: row for row in rows}
    contrasts = []
    for better, worse in pairs:
        first, second = by_system[better], by_system[worse]
        contrast = Contrast(better, worse)
        for column in columns if first.seeds and second.seeds else ():
            found = differences.between((worse, second.seeds[0]), (better, first.seeds[0]), column)
            if found is not None:
                values = [row.values[column] for row in (first, second)]
                contrast.measures[column] = {**found, **_over_seeds(*values, found["difference"])}
        contrasts.append(contrast)
    return contrasts


def _over_seeds(better: Sequence[float], worse: Sequence[float], tested: float) -> dict[str, Any]:
    """A single seed is set against each of several."""
    count = max(len(better), len(worse)) if 1 in (len(better), len(worse)) else min(len(better), len(worse))
    pairs = [(better[place % len(better)], worse[place % len(worse)]) for place in range(count)]
    agreeing = sum(bool(np.sign(a - b) == np.sign(tested)) for a, b in pairs)
    return {
        "mean_difference": float(np.mean(better) - np.mean(worse)),
        "pairs_of_seeds": count,
        "pairs_that_agree": agreeing,
    }
