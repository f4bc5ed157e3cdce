"""Loads the tables, and says which measured number belongs into which of their columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from typing import Any

import yaml

from modeling_tmde.eval.markdown import number_range
from modeling_tmde.eval.results import Cell, TaskResult, summarize

SUMMARIES = ("Same", "Cross", "All")


class PublishedError(ValueError):
    """A YAML file of this folder that is no collection of tables."""


@dataclass(frozen=True)
class PublishedRow:
    """One row: its labels, and by column the printed value (a number, text such as `<0.0001`, None for empty)."""

    labels: tuple[str, ...]
    values: dict[str, float | str | None]


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed.

    Args:
        key: `<file>-<number>`, and `-<part>` of a table that is split by task.
        number, section, page, caption: In the paper; the page is None where the source has no page numbers.
        citation, short: Of the paper: in full, and as `Li, 2021`.
        task, protocol, metric: As in a `TaskResult`; values are in % (but for the metric `p`).
        labels: What the labels of a row are, as `("Model", "β")`.
        rows: Top to bottom.
        measures: By column, in order, what it is among the cells of `sources` x `targets`: `en -> de`, or their mean
            `Same`, `Cross` or `All`; None for a column that an evaluation does not measure.
        sources, targets: Training and test languages (query and candidates) of the measures.
        head, rows_of_splits: Classifier, and by split the rows of each language, that a comparable measurement has;
            None and empty where any does.
        notes, inconsistent: Remarks on the table, and on numbers in it that contradict each other.
    """

    key: str
    number: str
    section: str
    caption: str
    citation: str
    short: str
    task: str
    protocol: str
    metric: str
    labels: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    measures: dict[str, str | None]
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    head: str | None = None
    rows_of_splits: dict[str, int] = field(default_factory=dict)
    page: int | None = None
    notes: tuple[str, ...] = field(default=())
    inconsistent: tuple[str, ...] = field(default=())

    def measured(self, cells: Sequence[Cell]) -> dict[str, float] | None:
        """The columns of this table computed from measured cells, in %; None unless every pair of languages is there.

        Cells of other languages are left aside, so that eight measured languages compare with five published ones.
        """
        wanted = set(product(self.sources, self.targets))
        chosen = {(cell.source, cell.target): cell for cell in cells if (cell.source, cell.target) in wanted}
        if not wanted or set(chosen) != wanted:
            return None
        values = summarize(list(chosen.values()))
        values |= {f"{source} -> {target}": cell.value for (source, target), cell in chosen.items()}
        return {column: 100 * values[measure] for column, measure in self.measures.items() if measure is not None}

    def differences(self, result: TaskResult) -> list[str]:
        """What was measured otherwise than published, as `test 200 instead of 4,000`; empty if it compares.

        A number of rows that the result does not tell counts as unlike.
        """
        found = []
        of_languages = result.data.get("rows")
        for split, expected in self.rows_of_splits.items():
            languages = self.sources if split == "train" else self.targets
            sizes = [_rows(of_languages, language, split) for language in languages]
            unlike = [size for size in sizes if size != expected]
            if unlike:
                known = [size for size in unlike if size is not None]
                found.append(f"{split} {number_range(known) if known else 'of unknown size'} instead of {expected:,}")
        head = result.settings.get("head", {}).get("head")
        if self.head is not None and head != self.head:
            found.append(f"head {head or 'unknown'}, published {self.head}")
        return found


def _rows(rows: Any, language: str, split: str) -> int | None:
    """From the rows of a result's data, by language and split; None if they do not tell."""
    splits = rows.get(language) if isinstance(rows, Mapping) else None
    return splits.get(split) if isinstance(splits, Mapping) else None


@functools.cache
def _load() -> dict[str, PublishedTable]:
    tables = {}
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".yaml"):
            continue
        paper = yaml.safe_load(file.read_text(encoding="utf-8"))
        for record in paper["tables"]:
            table = _table(
                file.name, {name: paper[name] for name in ("citation", "short")}, record, paper.get("conditions", {})
            )
            if table.key in tables:
                raise PublishedError(f"{file.name}: found table {table.key} twice, expected it once")
            tables[table.key] = table
    return tables


def published_tables() -> dict[str, PublishedTable]:
    """All tables by key, in the order of the files.

    Raises:
        PublishedError: A row that does not fit its table's columns, or an unknown measure.
    """
    return dict(_load())


def published_for(task: str) -> list[PublishedTable]:
    """The tables of a task, which may be none."""
    return [table for table in _load().values() if table.task == task]


def _table(file: str, paper: dict[str, str], record: dict[str, Any], conditions: dict[str, Any]) -> PublishedTable:
    """One table of a file; `conditions` by task."""
    name = f"{file}, table {record['number']}"
    labels, columns = tuple(record["labels"]), record["columns"]
    pairs = [f"{a} -> {b}" for a, b in product(record.get("sources", ()), record.get("targets", ()))]
    for column, measure in columns.items():
        if measure is not None and measure not in (*SUMMARIES, *pairs):
            raise PublishedError(
                f"{name}, {column}: found measure {measure!r}, expected one of {[*SUMMARIES, *pairs]}"
            )
    rows = []
    for number, row in enumerate(record["rows"], start=1):
        if len(row) != len(labels) + len(columns):
            expected = f"{len(labels)} labels and {len(columns)} values"
            raise PublishedError(f"{name}, row {number}: found {len(row)} entries, expected {expected}")
        values = dict(zip(columns, row[len(labels) :], strict=True))
        rows.append(PublishedRow(tuple(row[: len(labels)]), values))
    key = "-".join(filter(None, (file.removesuffix(".yaml"), record["number"], record.get("part", "").lower())))
    lists = {name: tuple(record.get(name, ())) for name in ("sources", "targets", "notes", "inconsistent")}
    plain = ("number", "section", "caption", "task", "protocol", "metric", "page")
    condition = conditions.get(record["task"], {})
    return PublishedTable(
        key=key,
        labels=labels,
        rows=tuple(rows),
        measures=dict(columns),
        head=condition.get("head"),
        rows_of_splits=dict(condition.get("rows", {})),
        **paper,
        **lists,
        **{name: record.get(name) for name in plain},
    )
