"""Results in the order of a report: one section a task, its systems as rows, its cells and their means as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from modeling_tmde.eval.results import Cell, TaskResult, group_cells

MAX_CELL_COLUMNS = 6
METRICS = {
    "accuracy": "Accuracy (%)",
    "contrast_accuracy": "Accuracy (%)",
    "precision_at_1": "Precision at 1 (%)",
    "spearman": "Spearman correlation × 100",
}
AXES = {  # what a row and a column of a matrix of this metric are
    "accuracy": ("trained on", "tested on"),
    "contrast_accuracy": ("sentence", "chooses in"),
    "precision_at_1": ("query", "found in"),
    "spearman": ("first text", "second text"),
}
Pair = tuple[str, str]


@dataclass(frozen=True)
class Section:
    """Systems on one task: same data, protocol and metric.

    Args:
        results: In the order given, TF-IDF after the models.
        labels: Name of each in tables: the system, with the settings that tell it apart where it is there twice.
    """

    results: list[TaskResult]
    labels: list[str]

    @property
    def task(self) -> str:
        return self.results[0].task

    @property
    def protocol(self) -> str:
        return self.results[0].protocol

    @property
    def metric(self) -> str:
        return self.results[0].cells[0].metric

    @property
    def pairs(self) -> list[Pair]:
        """(source, target) of all cells of all systems."""
        return list(dict.fromkeys((cell.source, cell.target) for result in self.results for cell in result.cells))

    @property
    def is_matrix(self) -> bool:
        """Whether the cells make more of a matrix than one row, one column or one diagonal."""
        sources, targets = {source for source, _ in self.pairs}, {target for _, target in self.pairs}
        return min(len(sources), len(targets)) > 1 and len(self.pairs) > max(len(sources), len(targets))

    def columns(self) -> dict[str, list[Pair]]:
        """By title, the cells that a column of the summary is the mean of.

        `Same`, `Cross` and `All` as in thesis 4.4.2, without those that would repeat another column; then the cells
        themselves if they are few.
        """
        by_pair = {pair: cell for result in self.results for pair, cell in cells_by_pair(result).items()}
        pairs = list(by_pair)
        groups = group_cells(list(by_pair.values()))
        means = {title: [pairs[place] for place in places] for title, places in groups.items()}
        if len(means) < 3:
            means.pop("All")  # it is the other one
        single = {f"{source} → {target}": [(source, target)] for source, target in pairs}
        if len(pairs) == 1:
            return single
        if len(pairs) > MAX_CELL_COLUMNS:
            return means
        return {title: members for title, members in means.items() if len(members) > 1} | single

    def baseline(self, name: str) -> dict[Pair, float]:
        """By cell, the value of guessing: `chance` (uniformly) or `majority` (always the commonest class)."""
        values: dict[Pair, float] = {}
        for cell in (cell for result in self.results for cell in result.cells):
            value = cell.chance if name == "chance" else cell.extra.get(name)
            if value is not None:
                values.setdefault((cell.source, cell.target), value)
        return values


def sections(results: Sequence[TaskResult]) -> list[Section]:
    """Groups results by task, protocol, metric and data.

    Raises:
        ValueError: A result without cells.
    """
    groups: dict[tuple, list[TaskResult]] = {}
    for result in results:
        if not result.cells:
            raise ValueError(f"{result.task}, {result.system}: found no cells, expected at least one measured number")
        key = (result.task, result.protocol, result.cells[0].metric, result.data.get("fingerprint"))
        groups.setdefault(key, []).append(result)
    made = []
    for group in groups.values():
        group.sort(key=lambda result: result.system.startswith("TF-IDF"))  # stable
        made.append(Section(group, labels(group)))
    return made


def labels(results: Sequence[TaskResult]) -> list[str]:
    """The system's name; of a system that is there with several settings, also those that differ."""
    names = []
    for result in results:
        others = [other for other in results if other.system == result.system]
        flat = [dict(flatten(other.settings)) for other in others]
        own = dict(flatten(result.settings))
        differing = [key for key in own if any(other.get(key) != own[key] for other in flat)]
        suffix = ", ".join(f"{key} {own[key]}" for key in differing)
        names.append(f"{result.system} ({suffix})" if suffix else result.system)
    return names


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names and values; a name that repeats its parent's (`head.head`) is the parent's."""
    for key, value in settings.items():
        name = f"{prefix}.{key}" if prefix and prefix.rpartition(".")[2] != key else prefix or key
        if isinstance(value, Mapping):
            yield from flatten(value, name)
        else:
            yield name, value


def languages_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Sources and targets, those that are both in the same order."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    found = dict.fromkeys(target for _, target in pairs)
    return sources, [source for source in sources if source in found] + [name for name in found if name not in sources]


def mean_over(values: Mapping[Pair, float], members: Sequence[Pair]) -> float | None:
    """Mean of the values that are there; None if none is."""
    found = [values[pair] for pair in members if pair in values]
    return float(np.mean(found)) if found else None


def cells_by_pair(result: TaskResult) -> dict[Pair, Cell]:
    return {(cell.source, cell.target): cell for cell in result.cells}


def deviation(cells: Sequence[Cell]) -> float | None:
    """Standard deviation (n - 1) over seeds of the mean of the cells; None unless all were run with the same seeds.

    Of several cells it takes their `seed_values`: their own deviations do not tell how far they move together.
    """
    runs = {len(cell.seed_values) for cell in cells}
    if len(runs) == 1 and runs.pop() > 1:
        return float(np.mean([cell.seed_values for cell in cells], axis=0).std(ddof=1))
    return cells[0].std if len(cells) == 1 else None


def column_value(result: TaskResult, members: Sequence[Pair]) -> float | None:
    """Mean of a result's cells in a column of `Section.columns`, of those that it has; None if it has none."""
    return mean_over({pair: cell.value for pair, cell in cells_by_pair(result).items()}, members)
