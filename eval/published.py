"""Published tables from `published_tables/*.yaml`, and whether measured numbers compare with them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import product

import yaml

from tmde.eval.results import Cell, TaskResult, summarize


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table as printed.

    Args:
        number, section, page, caption: As in the paper; the page is None if the source has no page numbers.
        citation, short: Full citation of the paper, and a short one such as `Li, 2021`.
        task, protocol, metric: As in a `TaskResult`, or a metric of `Cell.extra`; empty if no evaluation measures it.
            Values are in % (except for the metric `p`).
        labels: Names of the label columns, such as `["Model", "β"]`.
        columns: Meaning of each column by title, among the cells of `pairs`: `en -> de`, or the mean `Same`, `Cross`
            or `All`; None for a column that an evaluation of the task does not measure.
        rows: Top to bottom: the labels, then one value a column (a number, text such as `<0.0001`, None for empty).
        sources, targets: Training and test languages (query and candidate languages).
        part: Part of a table that is split by task.
        notes, inconsistent: Remarks on the table, and on numbers in it that contradict each other.
        conditions: Required of a comparable measurement: `rows` (by split; a number for aligned texts and pairs of
            texts), and settings by name, `head` being the classifier.
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
    rows: list[list[float | str | None]]
    sources: Sequence[str] = ()
    targets: Sequence[str] = ()
    part: str | None = None
    page: int | None = None
    notes: Sequence[str] = ()
    inconsistent: Sequence[str] = ()
    conditions: Mapping = field(default_factory=dict)

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """The published pairs of languages: `sources` x `targets`, or else those that columns name."""
        named = {
            tuple(measure.split(" -> "))
            for measure in self.columns.values()
            if measure and " -> " in measure
        }
        return set(product(self.sources, self.targets)) or named

    def cells(self, result: TaskResult) -> list[Cell]:
        """The measured cells of this task, protocol and metric in the published languages."""
        if (self.task, self.protocol) != (result.task.partition("/")[0], result.protocol):
            return []
        chosen = [cell for cell in result.cells if cell.pair in self.pairs]
        if self.metric == result.metric:
            return chosen
        return [
            replace(cell, value=cell.extra[self.metric])
            for cell in chosen
            if self.metric in cell.extra
        ]

    def measured(self, result: TaskResult) -> dict[str, float]:
        """The columns of this table that were measured, in %; means only if every published pair was."""
        cells = self.cells(result)
        values = {f"{cell.source} -> {cell.target}": cell.value for cell in cells}
        if len(cells) == len(self.pairs):
            values |= summarize(cells)
        return {
            column: 100 * values[measure]
            for column, measure in self.columns.items()
            if measure in values
        }

    def printed(self) -> list[tuple[str, dict[str, float | str | None]]]:
        """Label and values by column of each row."""
        count = len(self.labels)
        names = ["", *(f"{name} = " for name in self.labels[1:])]
        return [
            (
                ", ".join(map("{}{}".format, names, row[:count])),
                dict(zip(self.columns, row[count:], strict=True)),
            )
            for row in self.rows
        ]

    def differences(self, result: TaskResult) -> list[str]:
        """Differences from the published conditions, such as `en: test 200 instead of 4,000`; empty if comparable."""
        expected, rows = self.conditions.get("rows", {}), result.data.get("rows") or {}
        counts: dict[str, tuple[int | str, int]] = {}  # found and published, by name
        for pair in (cell.pair for cell in self.cells(result)):
            if isinstance(expected, int):
                name = "-".join(pair)
                counts[f"{name}:"] = (
                    rows.get(name) or min(rows.get(code, 0) for code in pair),
                    expected,
                )
                continue
            for split, count in expected.items():
                language = pair[0] if split == "train" else pair[1]
                counts[f"{language}: {split}"] = rows.get(language, {}).get(split, "unknown"), count
        found = [
            f"{name} {count} instead of {right}"
            for name, (count, right) in counts.items()
            if count != right
        ]
        settings = result.settings | {"head": result.settings.get("head", {}).get("head")}
        for name, right in self.conditions.items():
            if name != "rows" and settings.get(name) != right:
                found.append(f"{name} {settings.get(name)}, published {right}")
        return found


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """All tables, in the order of the files; one a task of those whose columns are tasks."""
    tables = []
    folder = resources.files("tmde.eval") / "published_tables"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        paper = yaml.safe_load(file.read_text(encoding="utf-8"))
        about = {"citation": paper["citation"], "short": paper["short"]}
        for record in paper["tables"]:
            columns, own = record.pop("columns"), record.pop("conditions", {})
            columns = dict.fromkeys(columns) if isinstance(columns, list) else columns
            tasks = record.pop("tasks", None)
            for title, task in tasks.items() if tasks else [(None, record.pop("task", ""))]:
                of_task = {
                    column: "en -> en" if column == title else columns[column] for column in columns
                }
                conditions = paper.get("conditions", {}).get(task, {}) | own
                tables.append(
                    PublishedTable(
                        **record, **about, task=task, columns=of_task, conditions=conditions
                    )
                )
    return tuple(tables)
