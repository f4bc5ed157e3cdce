"""Published tables from `published_tables`, and whether measured numbers compare with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import product
from typing import Any

import yaml

from tmde.eval.results import Cell, TaskResult, summarize

Value = float | str | None


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table as printed.

    Args:
        number: The number of the table.
        section: The number of its section.
        caption: Its caption.
        citation: The full citation of the paper.
        short: A short citation, such as `Li, 2021`.
        task: The task, as in a `TaskResult`; empty if no evaluation measures the table.
        protocol: The protocol, as in a `TaskResult`.
        metric: The metric, as in a `TaskResult` or in `Cell.extra`. Values are in %, except for the
            metric `p`.
        labels: The names of the label columns, such as `["Model", "β"]`.
        columns: What each column means, by title: a cell of `pairs`, such as `en -> de`, or the
            mean `Same`, `Cross` or `All`; None if an evaluation of the task does not measure it.
        rows: The rows from top to bottom. Each has the labels, then one value per column: a number,
            text such as `<0.0001`, or None for an empty place.
        sources: The languages of training or of queries.
        targets: The languages of tests or of candidates.
        part: The part of a table that is split by task.
        page: The page; None if the source has no page numbers.
        notes: Remarks on the table.
        inconsistent: Remarks on numbers that contradict each other.
        conditions: What a comparable measurement must have. `rows` are the numbers of rows by
            split, or one number for aligned texts and for pairs of texts. The other keys are
            settings by name, of which `head` is the classifier.
    """

    number: str
    section: str
    caption: str
    citation: str
    short: str
    task: str = ""
    protocol: str = ""
    metric: str = ""
    labels: list[str]
    columns: dict[str, str | None]
    rows: list[list[Value]]
    sources: Sequence[str] = ()
    targets: Sequence[str] = ()
    part: str | None = None
    page: int | None = None
    notes: Sequence[str] = ()
    inconsistent: Sequence[str] = ()
    conditions: Mapping = field(default_factory=dict)

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """The published pairs of languages: `sources` x `targets`, or those of the columns."""
        if self.sources and self.targets:
            return set(product(self.sources, self.targets))
        pairs = set()
        for measure in self.columns.values():
            if measure and " -> " in measure:
                source, target = measure.split(" -> ")
                pairs.add((source, target))
        return pairs

    def cells(self, result: TaskResult) -> list[Cell]:
        """Return the measured cells of this task, protocol and metric in the published languages.

        If the metric is one of `Cell.extra`, it is the `value` of the returned cells.
        """
        task, _, _ = result.task.partition("/")
        if task != self.task or result.protocol != self.protocol:
            return []
        published_pairs = self.pairs
        cells = [cell for cell in result.cells if cell.pair in published_pairs]
        if self.metric == result.metric:
            return cells
        cells = [cell for cell in cells if self.metric in cell.extra]
        return [replace(cell, value=cell.extra[self.metric]) for cell in cells]

    def measured(self, result: TaskResult) -> dict[str, float]:
        """Return the columns that were measured, in %; means only if every published pair was."""
        cells = self.cells(result)
        value_of_measure = {f"{cell.source} -> {cell.target}": cell.value for cell in cells}
        if len(cells) == len(self.pairs):
            value_of_measure |= summarize(cells)
        values = {}
        for title, measure in self.columns.items():
            if measure in value_of_measure:
                values[title] = 100 * value_of_measure[measure]
        return values

    def printed(self) -> list[tuple[str, dict[str, Value]]]:
        """Return the label of each row, and its values by column."""
        printed_rows = []
        for row in self.rows:
            labels = row[: len(self.labels)]
            values = row[len(self.labels) :]
            parts = [str(labels[0])]
            for name, label in zip(self.labels[1:], labels[1:], strict=True):
                parts.append(f"{name} = {label}")
            printed_rows.append((", ".join(parts), dict(zip(self.columns, values, strict=True))))
        return printed_rows

    def differences(self, result: TaskResult) -> list[str]:
        """Return how a measurement differs from the published conditions.

        Returns:
            Texts such as `en: test 200 instead of 4,000`; none if the numbers are comparable.
        """
        differences = list(dict.fromkeys(self._differences_of_rows(result)))
        settings = result.settings | {"head": result.head}
        for name, published in self.conditions.items():
            if name != "rows" and settings.get(name) != published:
                differences.append(f"{name} {settings.get(name)}, published {published}")
        return differences

    def _differences_of_rows(self, result: TaskResult) -> Iterator[str]:
        published_rows = self.conditions.get("rows", {})
        measured_rows = result.data.get("rows") or {}
        for cell in self.cells(result):
            if isinstance(published_rows, int):
                count = _rows_of_pair(measured_rows, cell.pair)
                if count != published_rows:
                    name = "-".join(cell.pair)
                    yield f"{name}: {count} instead of {published_rows}"
                continue
            for split, published_count in published_rows.items():
                language = cell.source if split == "train" else cell.target
                count = measured_rows.get(language, {}).get(split, "unknown")
                if count != published_count:
                    yield f"{language}: {split} {count} instead of {published_count}"


def _rows_of_pair(rows: Mapping[str, int], pair: tuple[str, str]) -> int:
    """Return the number of rows of a pair of languages, or else of its smaller language."""
    name = "-".join(pair)
    if rows.get(name):
        return rows[name]
    return min(rows.get(language, 0) for language in pair)


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Return all tables in the order of the files.

    A table whose columns are tasks is returned once for each of these tasks.
    """
    tables: list[PublishedTable] = []
    folder = resources.files("tmde.eval") / "published_tables"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        paper = yaml.safe_load(file.read_text(encoding="utf-8"))
        for record in paper["tables"]:
            tables.extend(_tables_of_record(record, paper))
    return tuple(tables)


def _tables_of_record(record: dict[str, Any], paper: Mapping[str, Any]) -> Iterator[PublishedTable]:
    """Yield the tables of a record of a file."""
    record = dict(record)
    conditions = record.pop("conditions", {})
    columns = record.pop("columns")
    if isinstance(columns, list):
        columns = dict.fromkeys(columns)
    task = record.pop("task", "")
    task_of_column = record.pop("tasks", {})

    def make_table(task: str, columns: dict[str, str | None]) -> PublishedTable:
        conditions_of_task = paper.get("conditions", {}).get(task, {})
        return PublishedTable(
            **record,
            citation=paper["citation"],
            short=paper["short"],
            task=task,
            columns=columns,
            conditions=conditions_of_task | conditions,
        )

    if not task_of_column:
        yield make_table(task, columns)
    for title, task_name in task_of_column.items():
        # The tasks whose results are columns of one table are all in English.
        yield make_table(task_name, columns | {title: "en -> en"})
