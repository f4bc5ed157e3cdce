"""Published numbers beside measured ones, as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tmde.eval.markdown import markdown_escape, markdown_table
from tmde.eval.published import PublishedTable, published_tables
from tmde.eval.results import TaskResult
from tmde.eval.statistics import single_sample_t_test


@dataclass(frozen=True)
class TableComparison:
    """A published table with the measured systems on top.

    Args:
        published: The published table.
        lines: The lines of the Markdown table.
        fold_tests: The lines of the table of `_fold_tests`; empty if no system was run on folds.
    """

    published: PublishedTable
    lines: list[str]
    fold_tests: list[str]

    @property
    def remark(self) -> str:
        """The caption, where it is printed, and what must be known of the numbers."""
        table = self.published
        page = f", page {table.page}" if table.page else ""
        caption = f"{table.caption.rstrip('.')} (section {table.section}{page})."
        return " ".join([caption, *table.notes, *table.inconsistent])


@dataclass
class OtherConditions:
    """A system that was measured under other conditions than the tables of a paper.

    Args:
        paper: The short citation of the paper.
        label: The label of the system, in Markdown.
        tables: The numbers of the tables.
        differences: What differs.
    """

    paper: str
    label: str
    tables: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def add(self, table: PublishedTable, differences: Sequence[str]) -> None:
        """Add a table and what differs from it, unless they are known already."""
        if table.number not in self.tables:
            self.tables.append(table.number)
        for difference in differences:
            if difference not in self.differences:
                self.differences.append(difference)


@dataclass
class PublishedComparison:
    """Everything that was published on a task, beside the systems that were measured on it.

    Args:
        tables: The published tables that some system compares with.
        not_comparable: The systems that were measured under other conditions.
        citations: The full citations of the papers of `tables`, by short citation.
    """

    tables: list[TableComparison] = field(default_factory=list)
    not_comparable: list[OtherConditions] = field(default_factory=list)
    citations: dict[str, str] = field(default_factory=dict)


def compare_with_published(
    results: Sequence[TaskResult], labels: Sequence[str]
) -> PublishedComparison:
    """Compare systems with every published table of their task.

    Args:
        results: The results of the systems, on the same cells of one task.
        labels: The labels of the systems, in Markdown.
    """
    comparison = PublishedComparison()
    other_conditions: dict[tuple[str, str], OtherConditions] = {}
    for table in published_tables():
        comparable: list[tuple[str, TaskResult]] = []
        for result, label in zip(results, labels, strict=True):
            if not table.measured(result):
                continue
            differences = table.differences(result)
            if differences:
                key = (table.short, label)
                conditions = other_conditions.setdefault(key, OtherConditions(*key))
                conditions.add(table, differences)
            else:
                comparable.append((label, result))
        if comparable:
            lines = _comparison_table(table, comparable)
            fold_tests = _fold_tests(table, comparable)
            comparison.tables.append(TableComparison(table, lines, fold_tests))
            comparison.citations[table.short] = table.citation
    comparison.not_comparable = list(other_conditions.values())
    return comparison


def _comparison_table(
    table: PublishedTable, comparable: Sequence[tuple[str, TaskResult]]
) -> list[str]:
    """Return the lines of a table with the measured systems, then the published ones."""
    rows: list[list[str]] = []
    titles: list[str] = []
    for label, result in comparable:
        values = table.measured(result)
        titles = list(values)
        numbers = [f"{value:.1f}" for value in values.values()]
        rows.append([f"**{label} (measured)**", *numbers])
    for label, printed in table.printed():
        values_in_columns = [printed[title] for title in titles]
        if all(value is None for value in values_in_columns):
            continue
        texts = ["–" if value is None else str(value) for value in values_in_columns]
        rows.append([markdown_escape(text) for text in (label, *texts)])
    return markdown_table(["System", *titles], rows)


def _fold_tests(table: PublishedTable, comparable: Sequence[tuple[str, TaskResult]]) -> list[str]:
    """Return the lines of a table of single-sample t-tests (thesis 3.3).

    They compare the accuracies of each system on the six folds with every printed accuracy.
    """
    rows: list[list[str]] = []
    for label, result in comparable:
        accuracies = result.settings.get("folds", {}).get("accuracies", {})
        if accuracies:
            rows.extend(_rows_of_fold_tests(table, label, accuracies))
    if not rows:
        return []
    return markdown_table(["System", "Against", *table.columns], rows, left=2)


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
            p = single_sample_t_test(accuracies[measure], published / 100)
            p_values.append(f"{p:.2g}")
        yield [label, markdown_escape(name), *p_values]
