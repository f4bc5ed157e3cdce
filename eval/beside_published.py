"""Published numbers beside measured ones."""

from __future__ import annotations

from modeling_tmde.eval.markdown import markdown_escape, markdown_table
from modeling_tmde.eval.published import PublishedTable, published_for
from modeling_tmde.eval.published.tables import SUMMARIES
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.sections import Section


def published_lines(section: Section) -> list[str]:
    """Markdown of every published table whose columns the section's cells give.

    Tables over the same languages share one. A system is compared over the languages of the published table, whatever
    else was measured; one that lacks some of them is left out, and one that was measured under other conditions is
    named with what differs.
    """
    of_task = [
        table
        for table in published_for(section.task.partition("/")[0])
        if (table.protocol, table.metric) == (section.protocol, section.metric)
    ]
    fitting = [table for table in of_task if any(_comparable(table, result) for result in section.results)]
    groups: dict[tuple, list[PublishedTable]] = {}
    for table in fitting:
        groups.setdefault((table.sources, table.targets), []).append(table)
    lines: list[str] = []
    for (sources, targets), tables in groups.items():
        first = "trained and tested" if sources == targets else f"trained on {', '.join(sources)}, tested"
        heading = f"### Beside published numbers: {first} on {', '.join(targets)}"
        lines += [heading, "", *_table(section, tables), ""]
        lines += [f"- {_remark(table)}" for table in tables] + [""]
    lines += _not_comparable(section, of_task)
    papers = dict.fromkeys((table.short, table.citation) for table in fitting)
    return lines + [f"{markdown_escape(short)}: {markdown_escape(citation)}.\n" for short, citation in papers]


def _comparable(table: PublishedTable, result: TaskResult) -> dict[str, float] | None:
    """The measured columns of the table, if the result has them and was measured as published."""
    return table.measured(result.cells) if not table.differences(result) else None


def _not_comparable(section: Section, tables: list[PublishedTable]) -> list[str]:
    """A line for the systems of each way in which the measurement differs from the published one."""
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
    found = dict.fromkeys(column for table in tables for column, measure in table.measures.items() if measure)
    columns = [column for column in found if column not in SUMMARIES]
    columns += [column for column in SUMMARIES if column in found]
    rows = []
    for result, label in zip(section.results, section.labels, strict=True):
        values: dict[str, float] = {}
        for table in tables:
            values |= _comparable(table, result) or {}
        if values:
            rows.append(
                [f"**{markdown_escape(label)}**", "**measured**", *(_number(values.get(name)) for name in columns)]
            )
    for table in tables:
        for row in table.rows:
            more = (f"{name} = {label}" for name, label in zip(table.labels[1:], row.labels[1:], strict=True))
            label = markdown_escape(", ".join((row.labels[0], *more)))
            rows.append(
                [label, f"published, table {table.number}", *(_number(row.values.get(name)) for name in columns)]
            )
    titles = [column.replace("->", "→") for column in columns]
    return markdown_table(["System", "From", *titles], rows, left=2)


def _number(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.1f}"


def _remark(table: PublishedTable) -> str:
    page = f", page {table.page}" if table.page else ""
    text = f"Table {table.number}: {table.caption.rstrip('.')} ({table.short}, section {table.section}{page})."
    return markdown_escape(" ".join((text, *table.notes, *table.inconsistent)))
