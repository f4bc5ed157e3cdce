"""Published tables from `published_tables/*.yaml`, and how measured numbers compare with them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import product

import yaml

from modeling_tmde.eval.report import Section, markdown_escape, markdown_table, number_range
from modeling_tmde.eval.results import Cell, TaskResult, summarize

SUMMARIES = ("Same", "Cross", "All")


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed.

    Args:
        number, section, page, caption: As in the paper; the page is None if the source has no page numbers.
        citation, short: Full citation of the paper, and a short one such as `Li, 2021`.
        task, protocol, metric: As in a `TaskResult`; values are in % (except for the metric `p`).
        labels: Names of the label columns, such as `("Model", "β")`.
        columns: Meaning of each column by title, among the cells of `sources` x `targets`: `en -> de`, or the mean
            `Same`, `Cross` or `All`; None for a column that an evaluation does not measure.
        rows: Top to bottom: the labels, then one value a column (a number, text such as `<0.0001`, None for empty).
        sources, targets: Training and test languages (query and candidate languages).
        part: Part of a table that is split by task.
        notes, inconsistent: Remarks on the table, and on numbers in it that contradict each other.
        conditions: `head` (classifier) and `rows` (by split) required of a comparable measurement.
    """

    number: str
    section: str
    caption: str
    citation: str
    short: str
    task: str
    protocol: str
    metric: str
    labels: tuple[str, ...]
    columns: dict[str, str | None]
    rows: tuple[Sequence[float | str | None], ...]
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    part: str | None = None
    page: int | None = None
    notes: tuple[str, ...] = ()
    inconsistent: tuple[str, ...] = ()
    conditions: Mapping = field(default_factory=dict)

    def measured(self, cells: Sequence[Cell]) -> dict[str, float] | None:
        """The columns of this table from measured cells, in %; None unless every pair of languages was measured.

        Cells of other languages are ignored, so that eight measured languages compare with five published ones.
        """
        wanted = set(product(self.sources, self.targets))
        chosen = [cell for cell in cells if (cell.source, cell.target) in wanted]
        if not wanted or len(chosen) != len(wanted):
            return None
        values = summarize(chosen) | {f"{cell.source} -> {cell.target}": cell.value for cell in chosen}
        return {column: 100 * values[measure] for column, measure in self.columns.items() if measure is not None}

    def differences(self, result: TaskResult) -> list[str]:
        """Differences from the published conditions, such as `test 200 instead of 4,000`; empty if comparable."""
        found = []
        of_languages = result.data.get("rows") or {}
        for split, expected in self.conditions.get("rows", {}).items():
            counts = [of_languages.get(code) for code in (self.sources if split == "train" else self.targets)]
            sizes = [count.get(split) if isinstance(count, Mapping) else None for count in counts]
            if unlike := [size for size in sizes if size != expected]:
                known = [size for size in unlike if size is not None]
                found.append(f"{split} {number_range(known) if known else 'of unknown size'} instead of {expected:,}")
        head, expected = result.settings.get("head", {}).get("head"), self.conditions.get("head")
        if expected is not None and head != expected:
            found.append(f"head {head or 'unknown'}, published {expected}")
        return found

    def comparable(self, result: TaskResult) -> dict[str, float] | None:
        """`measured`, or None if the measurement differs from the published one."""
        return None if self.differences(result) else self.measured(result.cells)


@functools.cache
def published_tables() -> tuple[PublishedTable, ...]:
    """All tables, in the order of the files."""
    tables = []
    folder = resources.files("modeling_tmde.eval") / "published_tables"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        paper = yaml.safe_load(file.read_text(encoding="utf-8"))
        for record in paper["tables"]:
            lists = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
            conditions = paper.get("conditions", {}).get(record["task"], {})
            about = {"citation": paper["citation"], "short": paper["short"], "conditions": conditions}
            tables.append(PublishedTable(**record | lists | about))
    return tuple(tables)


def published_lines(section: Section) -> list[str]:
    """Markdown of every published table that the section's cells can be compared with.

    Tables over the same languages are shown as one. Systems are compared over the languages of the published table.
    Systems measured under other conditions are listed with the differences.
    """
    task, protocol = section.results[0].task.partition("/")[0], section.results[0].protocol
    of_task = [
        table
        for table in published_tables()
        if (table.task, table.protocol, table.metric) == (task, protocol, section.metric)
    ]
    fitting = [table for table in of_task if any(map(table.comparable, section.results))]
    groups: dict[tuple, list[PublishedTable]] = {}
    for table in fitting:
        groups.setdefault((table.sources, table.targets), []).append(table)
    lines: list[str] = []
    for (sources, targets), tables in groups.items():
        trained = "trained and tested" if sources == targets else f"trained on {', '.join(sources)}, tested"
        heading = f"### Beside published numbers: {trained} on {', '.join(targets)}"
        lines += [heading, "", *_table(section, tables), "", *map(_remark, tables), ""]
    lines += _not_comparable(section, of_task)
    papers = dict.fromkeys((table.short, table.citation) for table in fitting)
    return lines + [f"{markdown_escape(short)}: {markdown_escape(citation)}.\n" for short, citation in papers]


def _not_comparable(section: Section, tables: list[PublishedTable]) -> list[str]:
    """One line per set of differences from the published conditions, naming the systems it applies to."""
    systems: dict[tuple[str, ...], list[str]] = {}
    for result, label in zip(section.results, section.labels, strict=True):
        having = [table for table in tables if table.measured(result.cells)]
        differences = tuple(dict.fromkeys(text for table in having for text in table.differences(result)))
        if differences:
            systems.setdefault(differences, []).append(label)
    return [
        f"Not comparable with the published numbers: {markdown_escape(', '.join(names))} "
        f"({markdown_escape('; '.join(differences))}).\n"
        for differences, names in systems.items()
    ]


def _table(section: Section, tables: list[PublishedTable]) -> list[str]:
    found = dict.fromkeys(column for table in tables for column, measure in table.columns.items() if measure)
    columns = [column for column in found if column not in SUMMARIES]
    columns += [column for column in SUMMARIES if column in found]
    rows = []
    for result, label in zip(section.results, section.labels, strict=True):
        values: dict[str, float] = {}
        for table in tables:
            values |= table.comparable(result) or {}
        if values:
            measured = [_number(values.get(name)) for name in columns]
            rows.append([f"**{markdown_escape(label)}**", "**measured**", *measured])
    for table in tables:
        for row in table.rows:
            labels, printed = row[: len(table.labels)], dict(zip(table.columns, row[len(table.labels) :], strict=True))
            more = (f"{name} = {label}" for name, label in zip(table.labels[1:], labels[1:], strict=True))
            name = markdown_escape(", ".join((labels[0], *more)))
            rows.append([name, f"published, table {table.number}", *(_number(printed.get(each)) for each in columns)])
    titles = [column.replace("->", "→") for column in columns]
    return markdown_table(["System", "From", *titles], rows, left=2)


def _number(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.1f}"


def _remark(table: PublishedTable) -> str:
    page = f", page {table.page}" if table.page else ""
    text = f"Table {table.number}: {table.caption.rstrip('.')} ({table.short}, section {table.section}{page})."
    return f"- {markdown_escape(' '.join((text, *table.notes, *table.inconsistent)))}"
