"""Reports of results, in Markdown and in the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tabulate
from rich.console import Console
from rich.markdown import Markdown

from tmde.eval.published import PublishedTable, published_tables
from tmde.eval.results import (
    ACCURACY_OF,
    CONTROL,
    EXTRAS,
    METRICS,
    Cell,
    TaskResult,
    summary_columns,
)
from tmde.eval.statistics import Difference, single_sample_t_test

UNCERTAINTY = (
    "±: standard deviation over seeds. In brackets: 95% bootstrap interval over test items."
)
GROUPS = {ACCURACY_OF: "Accuracy: {} (%)", CONTROL: "Control, not in the mean: {} (%)"}


def percent(value: float | None) -> str:
    """A share in percent, such as `83.1`; `<0.1` if it would round to zero, `–` for None."""
    if value is None:
        return "–"
    return "<0.1" if 0 < value < 0.0005 else f"{100 * value:.1f}"


def markdown_escape(text: str) -> str:
    """Escapes text for Markdown and HTML, table cells included."""
    text = re.sub(r"([\\`*_|\[\]~$])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1
) -> list[str]:
    """Lines of a Markdown table; the first `left` columns are left-aligned, the others right-aligned."""
    align = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate.tabulate(rows, header, "pipe", colalign=align, disable_numparse=True).split(
        "\n"
    )


@dataclass(frozen=True)
class Section:
    """One section of the report: all systems measured on the same cells of one task.

    Args:
        results: In the order given, with TF-IDF after the models.
        labels: System names as shown in tables, in Markdown. A system that occurs twice also shows the settings that
            differ.
        columns: Of each result, its [`summary_columns`].
    """

    results: list[TaskResult]
    labels: list[str]
    columns: list[list[dict[str, Any]]]


def sections(results: Sequence[TaskResult]) -> list[Section]:
    """Groups results by task, protocol, metric, data and pairs of languages."""
    groups: dict[tuple, list[TaskResult]] = {}
    for result in results:
        pairs = tuple(cell.pair for cell in result.cells)
        key = (result.task, result.protocol, result.metric, result.data.get("fingerprint"), pairs)
        groups.setdefault(key, []).append(result)
    found = []
    for group in groups.values():
        group.sort(key=lambda result: result.system.startswith("TF-IDF"))
        found.append(Section(group, _labels(group), list(map(summary_columns, group))))
    return found


def _labels(results: Sequence[TaskResult]) -> list[str]:
    names = []
    for result in results:
        others = [
            dict(_flatten(other.settings)) for other in results if other.system == result.system
        ]
        own = _flatten(
            {key: value for key, value in result.settings.items() if key != "folds"}
        )  # a measure
        differing = [
            f"{key} {value}"
            for key, value in own
            if any(other.get(key) != value for other in others)
        ]
        names.append(
            markdown_escape(
                f"{result.system} ({', '.join(differing)})" if differing else result.system
            )
        )
    return names


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens nested settings to dotted names; a key that repeats its parent (`head.head`) is shortened to it."""
    for key, value in settings.items():
        name = prefix if key == prefix else f"{prefix}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            yield from _flatten(value, name)
        else:
            yield name, value


def markdown_report(results: Sequence[TaskResult]) -> str:
    """Markdown report with a section per task: provenance, scores and baselines, further measures, published tables,
    matrices, and how it was measured."""
    lines = ["# Evaluation", ""]
    for section in sections(results):
        first = section.results[0]
        lines += _summary(section, lambda column: _interval(**column)) + [
            UNCERTAINTY,
            "",
            _provenance(first.data),
            "",
        ]
        lines += _further_measures(section) + _published(section)
        sources, targets = ({cell.pair[side] for cell in first.cells} for side in (0, 1))
        if min(len(sources), len(targets)) > 1 and len(first.cells) > max(
            len(sources), len(targets)
        ):
            for result, label in zip(section.results, section.labels, strict=True):
                lines += _matrix(result, label)
        lines += _how_measured(section)
    return "\n".join(lines).rstrip() + "\n"


def print_report(results: Sequence[TaskResult], console: Console) -> None:
    """Prints a summary table per task, without intervals."""
    for section in sections(results):
        lines = _summary(section, lambda column: percent(column["value"]))
        console.print(Markdown("\n".join(lines + _notes(section))))


def _provenance(data: Mapping[str, Any]) -> str:
    url = data.get("url") or (
        f"https://huggingface.co/datasets/{data['hub_id']}" if data.get("hub_id") else None
    )
    rows: dict[str, set[int]] = {}  # by split
    for counts in (data.get("rows") or {}).values():
        for name, count in counts.items() if isinstance(counts, dict) else [("", counts)]:
            rows.setdefault(name, set()).add(count)
    ranges = {
        name: " to ".join(f"{count:,}" for count in sorted({min(x), max(x)}))
        for name, x in rows.items()
    }
    counts = ", ".join(f"{name} {text}".strip() for name, text in ranges.items())
    facts = {
        "Data": markdown_escape((data.get("citation") or "unknown").rstrip(".")),
        "License": markdown_escape((data.get("licence") or "").rstrip(".")),
        "Source": ", ".join(
            filter(None, [data.get("source") and f"`{data['source']}`", url and f"<{url}>"])
        ),
        "Split": data.get("split"),
        "Rows": rows and f"{counts} in each of {', '.join(data['rows'])}",
        "Fingerprint": data.get("fingerprint"),
    }
    return " ".join(f"{name}: {value}." for name, value in facts.items() if value)


def _summary(section: Section, text: Callable[[dict[str, Any]], str]) -> list[str]:
    """Heading and table of the scores of the systems, and of guessing."""
    first = section.results[0]
    how = [first.protocol, first.settings.get("head", {}).get("head"), METRICS[first.metric].title]
    rows = [
        [label, *map(text, columns)]
        for label, columns in zip(section.labels, section.columns, strict=True)
    ]
    for name in ("chance", "majority"):  # guessing uniformly, and the most frequent class
        values = [column[name] for column in section.columns[0]]
        rows += [] if values == [None] * len(values) else [[name, *map(percent, values)]]
    heading = f"## {markdown_escape(first.task)}: {', '.join(filter(None, how))}"
    return [
        heading,
        "",
        *markdown_table(["System", *(column["title"] for column in section.columns[0])], rows),
        "",
    ]


def _interval(
    value: float, std: float | None, interval: tuple[float, float] | None, **_: Any
) -> str:
    """`83.1 ± 0.4<br>[81.9, 84.2]`."""
    text = percent(value) + (f" ± {percent(std)}" if std is not None else "")
    return text + ("<br>[{}, {}]".format(*map(percent, interval)) if interval else "")


def _further_measures(section: Section) -> list[str]:
    """One row per measure and system, with the columns of the summary."""
    titles = {
        name: title.format(name.removeprefix(prefix).replace("_", " "))
        for name in section.results[0].cells[0].extra
        for prefix, title in GROUPS.items()
        if name.startswith(prefix)
    }
    titles |= {name: title for name, (title, *_) in EXTRAS.items()} | {
        "ties": "Ties (%), which count as half"
    }
    rows = [
        [title, label, *(percent(column["extra"].get(name)) for column in columns)]
        for name, title in titles.items()
        for label, columns in zip(section.labels, section.columns, strict=True)
        if any(name in column["extra"] for column in columns)
    ]
    if not rows:
        return []
    header = ["Measure", "System", *(column["title"] for column in section.columns[0])]
    return ["Further measures:", "", *markdown_table(header, rows, left=2), ""]


def _published(section: Section) -> list[str]:
    """Every published table that the cells can be compared with, and the systems measured under other conditions."""
    lines, papers = [], {}
    others: dict[
        tuple[str, str], tuple[dict, dict]
    ] = {}  # by paper and system: tables, and what differs
    for table in published_tables():
        rows, titles = [], []
        for result, label in zip(section.results, section.labels, strict=True):
            values = table.measured(result)
            if values and (differences := table.differences(result)):
                numbers, found = others.setdefault((table.short, label), ({}, {}))
                numbers[table.number] = None
                found.update(dict.fromkeys(differences))
            elif values:
                titles = list(values)
                rows.append(
                    [f"**{label} (measured)**", *(f"{value:.1f}" for value in values.values())]
                )
        if rows:
            for label, values in table.printed():
                if any(values[title] is not None for title in titles):
                    cells = (
                        "–" if values[title] is None else str(values[title]) for title in titles
                    )
                    rows.append([markdown_escape(label), *map(markdown_escape, cells)])
            page = f", page {table.page}" if table.page else ""
            remark = f"{table.caption.rstrip('.')} (section {table.section}{page})."
            lines += [f"### Beside table {table.number} of {markdown_escape(table.short)}", ""]
            lines += [*markdown_table(["System", *titles], rows), ""]
            lines += [markdown_escape(" ".join([remark, *table.notes, *table.inconsistent])), ""]
            lines += _fold_tests(section, table)
            papers[table.short] = table.citation
    for (short, label), (numbers, found) in others.items():
        place = f"{markdown_escape(short)}, table {', '.join(numbers)}"
        lines += [f"Not comparable with {place}: {label} ({'; '.join(found)}).", ""]
    return lines + [
        f"{markdown_escape(short)}: {markdown_escape(text)}.\n" for short, text in papers.items()
    ]


def _fold_tests(section: Section, table: PublishedTable) -> list[str]:
    """p of the single-sample t-test (thesis 3.3) of the six folds of every system against every printed accuracy."""
    rows = []
    for result, label in zip(section.results, section.labels, strict=True):
        folds = (
            {}
            if table.differences(result)
            else result.settings.get("folds", {}).get("accuracies", {})
        )
        for name, printed in table.printed() if folds else ():
            tests = (
                single_sample_t_test(folds[measure], printed[title] / 100)
                for title, measure in table.columns.items()
            )
            rows.append([label, markdown_escape(name), *(f"{p:.2g}" for p in tests)])
    title = "p of the single-sample t-test of the six folds against the printed accuracy:"
    return (
        [title, "", *markdown_table(["System", "Against", *table.columns], rows, left=2), ""]
        if rows
        else []
    )


def languages_of(cells: Iterable[Cell]) -> tuple[list[str], list[str]]:
    """Source and target languages; those that are both come in the same order."""
    sources = dict.fromkeys(cell.source for cell in cells)
    targets = dict.fromkeys(cell.target for cell in cells)
    return list(sources), [
        *(name for name in sources if name in targets),
        *(name for name in targets if name not in sources),
    ]


def _matrix(result: TaskResult, label: str) -> list[str]:
    """All cells of one system, with source languages as rows."""
    sources, targets = languages_of(result.cells)
    texts = {cell.pair: _interval(cell.value, cell.std, cell.interval) for cell in result.cells}
    rows = [
        [
            f"**{markdown_escape(source)}**",
            *(texts.get((source, target), "–") for target in targets),
        ]
        for source in sources
    ]
    metric = METRICS[result.metric]
    heading = f"### {label}: {metric.rows} (rows), {metric.columns} (columns)"
    return [heading, "", f"{metric.title}.", "", *markdown_table(["", *targets], rows), ""]


def _how_measured(section: Section) -> list[str]:
    """A table of the settings, with a column per system, then notes on the numbers."""
    settings = []
    for result in section.results:
        seconds = {
            f"seconds of {name}": f"{seconds:,.1f}" for name, seconds in result.seconds.items()
        }
        settings.append(
            dict(_flatten(result.settings)) | {"fingerprint": result.system_fingerprint} | seconds
        )
    rows = [
        [f"`{key}`", *(markdown_escape(str(own.get(key, "–"))) for own in settings)]
        for key in dict.fromkeys(key for own in settings for key in own)
    ]
    return [
        "### How it was measured",
        "",
        *markdown_table(["", *section.labels], rows),
        "",
        *_notes(section),
    ]


def _notes(section: Section) -> list[str]:
    """Systems no better than the majority class, truncated texts, constant similarities, and rows left out."""
    notes = []
    for result, label, columns in zip(
        section.results, section.labels, section.columns, strict=True
    ):
        below = [
            x["title"] for x in columns if x["majority"] is not None and x["value"] <= x["majority"]
        ]
        if below:
            notes.append(
                f"{label}: no better than always guessing the most frequent class ({', '.join(below)})."
            )
        if result.truncated and result.truncated[0]:
            limit = result.settings.get("system", {}).get("max_length")
            longest = f"{limit:,} tokens" if limit else "the limit of the model"
            count = "{:,} of {:,}".format(*result.truncated)
            notes.append(
                f"{label}: {count} texts were longer than {longest} and were cut (TF-IDF reads whole texts)."
            )
        if names := ["-".join(cell.pair) for cell in result.cells if cell.extra.get("constant")]:
            notes.append(
                f"{label}: all similarities of {', '.join(names)} are equal; the correlation counts as 0."
            )
    if count := max(cell.extra.get("left_out", 0) for cell in section.results[0].cells):
        notes.append(
            f"Left out because they repeat a text of an earlier row: up to {count:,.0f} rows per pair."
        )
    return [f"**Note:** {note}\n" for note in notes]


def differences_table(name: str, differences: Sequence[Difference]) -> str:
    """Markdown table of the differences between two systems: one row per task and group of cells.

    Args:
        name: `<second> - <first>`.
    """
    header = ["task", "cells", "first", "second", "difference", "95% interval", "p", "p (folds)"]
    rows = []
    for each in differences:
        row = [
            markdown_escape(each.task),
            markdown_escape(each.group),
            percent(each.a),
            percent(each.b),
        ]
        row += [
            f"{100 * each.difference:+.1f}",
            "{:+.1f} to {:+.1f}".format(*(100 * x for x in each.interval)),
        ]
        rows.append([*row, *("–" if p is None else f"{p:.2g}" for p in (each.p, each.fold_p))])
    note = (
        "p: approximate randomization over test items. p (folds): paired t-test over ten folds (thesis 4.6; rcv: "
        "six, 3.3), on Cross of classification. Not corrected for the number of comparisons."
    )
    return "\n".join(
        [
            f"### {markdown_escape(name)} (x 100)",
            "",
            *markdown_table(header, rows, left=2),
            "",
            note,
            "",
        ]
    )
