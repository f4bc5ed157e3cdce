"""Published tables, and measured numbers beside those that they compare with."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import yaml

from tmde.eval.markdown import markdown_escape, markdown_table
from tmde.eval.report import Section, sections
from tmde.eval.results import Cell, TaskResult, summarize
from tmde.eval.statistics import paired_t_test
from tmde.training.packaged_files import yaml_files

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
        value_of_measure = {}
        for cell in cells:
            value_of_measure[f"{cell.source} -> {cell.target}"] = cell.value
        if len(cells) == len(self.pairs):
            value_of_measure |= summarize(cells)
        values = {}
        for title, measure in self.columns.items():
            if measure in value_of_measure:
                values[title] = 100 * value_of_measure[measure]
        return values

    @property
    def remark(self) -> str:
        """The caption, where it is printed, and what must be known of the numbers."""
        page = f", page {self.page}" if self.page else ""
        caption = f"{self.caption.rstrip('.')} (section {self.section}{page})."
        return " ".join([caption, *self.notes, *self.inconsistent])

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
    for file in yaml_files("tmde.papers", "published_tables").values():
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


# ---- Beside measured numbers


def published_markdown(results: Sequence[TaskResult]) -> str:
    """Return the published tables that measured systems compare with, in Markdown.

    A measurement under other conditions than a paper's is named with what differs.

    Args:
        results: The results of systems.

    Returns:
        A chapter with a section for each task; "" if nothing was published on any of them.
    """
    blocks = []
    for section in sections(results):
        blocks_of_section = _blocks_of_section(section)
        if blocks_of_section:
            blocks.append(f"### {markdown_escape(section.results[0].task)}")
            blocks += blocks_of_section
    if not blocks:
        return ""
    return "\n\n".join(["## Published results", *blocks]) + "\n"


def _blocks_of_section(section: Section) -> list[str]:
    """Return the paragraphs and tables on a task."""
    blocks = []
    citations = {}
    for table in published_tables():
        comparable = []
        for result, label, _ in section.rows():
            if table.measured(result) and not table.differences(result):
                comparable.append((label, result))
        if comparable:
            citations[markdown_escape(table.short)] = markdown_escape(table.citation)
            blocks.append(f"#### Beside table {table.number} of {markdown_escape(table.short)}")
            blocks.append("\n".join(_table_with_measured(table, comparable)))
            blocks.append(markdown_escape(table.remark))
            blocks += _fold_tests(table, comparable)
    blocks += _other_conditions(section)
    for short, citation in citations.items():
        blocks.append(f"{short}: {citation}.")
    return blocks


def _other_conditions(section: Section) -> list[str]:
    """Return a sentence for each paper and system that was measured under other conditions."""
    numbers: dict[tuple[str, str], list[str]] = defaultdict(list)
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for table in published_tables():
        for result, label, _ in section.rows():
            if not table.measured(result):
                continue
            differences = table.differences(result)
            if differences:
                numbers[table.short, label].append(table.number)
                reasons[table.short, label] += differences
    sentences = []
    for short, label in numbers:
        tables = ", ".join(dict.fromkeys(numbers[short, label]))
        why = "; ".join(dict.fromkeys(reasons[short, label]))
        paper = f"{markdown_escape(short)}, table {tables}"
        sentences.append(f"Not comparable with {paper}: {label} ({why}).")
    return sentences


def _table_with_measured(
    table: PublishedTable, comparable: Sequence[tuple[str, TaskResult]]
) -> list[str]:
    """Return the lines of a table with the measured systems, then the published ones."""
    rows: list[list[str]] = []
    titles: list[str] = []
    for label, result in comparable:
        values = table.measured(result)
        titles = list(values)
        row = [f"**{label} (measured)**"]
        for measured in values.values():
            row.append(f"{measured:.1f}")
        rows.append(row)
    for label, printed in table.printed():
        row = [markdown_escape(label)]
        has_values = False
        for title in titles:
            value = printed[title]
            if value is None:
                row.append("–")
                continue
            has_values = True
            row.append(markdown_escape(str(value)))
        if has_values:
            rows.append(row)
    return markdown_table(["System", *titles], rows)


def _fold_tests(table: PublishedTable, comparable: Sequence[tuple[str, TaskResult]]) -> list[str]:
    """Return a table of t-tests of each system's six folds, and its title; nothing without folds.

    They compare the accuracies on the folds with every printed accuracy, as in section 3.3 of Li
    (2021).
    """
    rows: list[list[str]] = []
    for label, result in comparable:
        accuracies = result.settings.get("folds", {}).get("accuracies", {})
        if accuracies:
            rows.extend(_rows_of_fold_tests(table, label, accuracies))
    if not rows:
        return []
    lines = markdown_table(["System", "Against", *table.columns], rows, left=2)
    title = "p of the single-sample t-test of the six folds against the printed accuracy:"
    return [title, "\n".join(lines)]


def _rows_of_fold_tests(
    table: PublishedTable, label: str, accuracies: dict[str, list[float]]
) -> Iterator[list[str]]:
    for name, printed in table.printed():
        p_values = []
        for title, measure in table.columns.items():
            published = printed[title]
            if measure is None or not isinstance(published, int | float):
                p_values.append("–")
                continue
            folds = accuracies[measure]
            p = paired_t_test([published / 100] * len(folds), folds)
            p_values.append(f"{p:.2g}")
        yield [label, markdown_escape(name), *p_values]
