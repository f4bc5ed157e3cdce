"""Results for people: Markdown for a repository or a model card, and a short table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from modeling_tmde.eval.beside_published import published_lines
from modeling_tmde.eval.markdown import markdown_escape, markdown_table, number_range, percent
from modeling_tmde.eval.results import Cell, TaskResult
from modeling_tmde.eval.sections import (
    AXES,
    METRICS,
    Section,
    cells_by_pair,
    column_value,
    flatten,
    languages_of,
    mean_over,
    sections,
)
from modeling_tmde.eval.significance import summary_intervals

BASELINES = ("chance", "majority")
EXTRAS = {
    "macro_f1": "Macro F1 (%)",
    "precision_at_1_margin": "P@1 by margin (%)",
    "error_rate": "Error rate by margin (%, lower is better)",
    "mrr": "MRR (%)",
    "recall_at_10": "R@10 (%)",
    "pearson": "Pearson correlation × 100",
}


def markdown_report(results: Sequence[TaskResult], published: bool = True) -> str:
    """One section a task: provenance, systems and baselines, further measures, published tables, matrices.

    Args:
        results: Of any tasks and systems.
        published: Print the published tables that fit beside the measured numbers.

    Raises:
        ValueError: A result without cells.
    """
    lines = ["# Evaluation", ""]
    for section in sections(results):
        metric = METRICS.get(section.metric, section.metric)
        lines += [f"## {markdown_escape(section.task)}: {section.protocol}", ""]
        lines += [f"{_provenance(section.results[0].data)}", ""]
        lines += _summary(section, metric)
        lines += _extras(section)
        if published:
            lines += published_lines(section)
        if section.is_matrix:
            for result, label in zip(section.results, section.labels, strict=True):
                lines += _matrix(section, result, label, metric)
        lines += _measured_how(section)
    return "\n".join(lines).rstrip() + "\n"


def print_report(results: Sequence[TaskResult], console: Console) -> None:
    """The summary of each task as a table: systems, then the baselines."""
    for section in sections(results):
        columns = section.columns()
        title = f"{section.task}: {section.protocol}, {METRICS.get(section.metric, section.metric)}"
        table = Table(title=escape(title), title_justify="left")
        table.add_column("System", overflow="fold")
        for column in columns:
            table.add_column(column, justify="right")
        for result, label in zip(section.results, section.labels, strict=True):
            table.add_row(escape(label), *(percent(column_value(result, members)) for members in columns.values()))
        for name in BASELINES:
            if values := section.baseline(name):
                means = (percent(mean_over(values, members)) for members in columns.values())
                table.add_row(name, *means, style="dim")
        console.print(table)
        for note in _truncations(section):
            console.print(escape(note), style="yellow")


def _provenance(data: dict[str, Any]) -> str:
    parts = []
    if data.get("citation"):
        parts.append(f"Data: {markdown_escape(data['citation'].rstrip('.'))}.")
    if data.get("licence"):
        parts.append(f"Licence: {markdown_escape(data['licence'].rstrip('.'))}.")
    url = data.get("url") or (f"https://huggingface.co/datasets/{data['hub_id']}" if data.get("hub_id") else None)
    source = f"`{data['source']}`" if data.get("source") else ""
    page = f"<{url}>" if url else ""
    if source or page:
        parts.append(f"Source: {', '.join(filter(None, (source, page)))}.")
    if data.get("rows"):
        parts.append(f"Rows: {_rows(data['rows'])}.")
    if data.get("fingerprint"):
        parts.append(f"Fingerprint: `{data['fingerprint']}`.")
    return " ".join(parts) or "Data: unknown."


def _rows(rows: int | dict[str, Any]) -> str:
    """`train 1,000, dev 200 in each of 2 (de, en)`: of a number, by language, or by language and split."""
    if not isinstance(rows, dict):
        return f"{rows:,}"
    first = next(iter(rows.values()))
    if isinstance(first, dict):
        splits = dict.fromkeys(name for counts in rows.values() for name in counts)
        each = (
            f"{name} {number_range([counts[name] for counts in rows.values() if name in counts])}" for name in splits
        )
        text = ", ".join(each)
    else:
        text = number_range(list(rows.values()))
    return f"{text} in each of {', '.join(rows)}" if len(rows) > 1 else f"{text} in {next(iter(rows))}"


def _summary(section: Section, metric: str) -> list[str]:
    columns = section.columns()
    rows = []
    for result, label in zip(section.results, section.labels, strict=True):
        cells, intervals = cells_by_pair(result), _intervals(result)
        row = [markdown_escape(label)]
        for title, members in columns.items():
            chosen = [cells[pair] for pair in members if pair in cells]
            row.append(_with_uncertainty(chosen, intervals.get(title)))
        rows.append(row)
    for name in BASELINES:
        if values := section.baseline(name):
            rows.append([f"*{name}*", *(percent(mean_over(values, members)) for members in columns.values())])
    notes = [f"{metric}"]
    cells = [cell for result in section.results for cell in result.cells]
    if any(cell.std is not None for cell in cells):
        notes.append("± standard deviation over seeds")
    if any(cell.interval for cell in cells):
        notes.append("in brackets the 95% bootstrap interval over test items")
    lines = [", ".join(notes) + ".", "", *markdown_table(["System", *columns], rows), ""]
    for result, label in zip(section.results, section.labels, strict=True):
        if len(result.cells) < len(section.pairs):
            note = f"{markdown_escape(label)} was measured on {len(result.cells)} of {len(section.pairs)} pairs of"
            lines += [f"**Note:** {note} languages, and its means are over those alone.", ""]
    return lines


def _intervals(result: TaskResult) -> dict[str, tuple[float, float]]:
    """Of the means over cells, where those of cells are wanted too."""
    if not any(cell.interval for cell in result.cells):
        return {}
    samples, seed = result.settings.get("bootstrap_samples", 2000), result.settings.get("seed", 0)
    return summary_intervals(result.cells, samples=samples, seed=seed)


def _with_uncertainty(cells: Sequence[Cell], interval: tuple[float, float] | None) -> str:
    """`83.1 ± 0.4<br>[81.9, 84.2]` of one cell, or of the mean of several, which has no deviation over seeds."""
    if not cells:
        return "–"
    if len(cells) > 1:
        text = percent(float(np.mean([cell.value for cell in cells])))
    else:
        text, interval = _value(cells[0]), cells[0].interval
    return text if interval is None else f"{text}<br>[{percent(interval[0])}, {percent(interval[1])}]"


def _value(cell: Cell) -> str:
    return percent(cell.value) + ("" if cell.std is None else f" ± {percent(cell.std)}")


def _extras(section: Section) -> list[str]:
    found = {key for result in section.results for cell in result.cells for key in cell.extra}
    names = [key for key in EXTRAS if key in found]
    if not names:
        return []
    rows = []
    for result, label in zip(section.results, section.labels, strict=True):
        row = [markdown_escape(label)]
        for name in names:
            values = {(cell.source, cell.target): cell.extra[name] for cell in result.cells if name in cell.extra}
            row.append(percent(mean_over(values, list(values))))
        rows.append(row)
    count = len(section.pairs)
    over = f", means over all {count} pairs of languages" if count > 1 else ""
    return [f"Further measures{over}:", "", *markdown_table(["System", *(EXTRAS[name] for name in names)], rows), ""]


def _matrix(section: Section, result: TaskResult, label: str, metric: str) -> list[str]:
    """All cells of one system, sources as rows."""
    sources, targets = languages_of(section.pairs)
    cells = cells_by_pair(result)
    rows = []
    for source in sources:
        found = (cells.get((source, target)) for target in targets)
        rows.append([f"**{markdown_escape(source)}**", *("–" if cell is None else _value(cell) for cell in found)])
    of_rows, of_columns = AXES.get(section.metric, ("source", "target"))
    heading = f"### {markdown_escape(label)}: {of_rows} (rows), {of_columns} (columns)"
    return [heading, "", f"{metric}.", "", *markdown_table(["", *targets], rows), ""]


def _measured_how(section: Section) -> list[str]:
    """Common settings, and each system's own: fingerprint, time, truncated texts."""
    flat = [dict(flatten(result.settings)) for result in section.results]
    common = {key: value for key, value in flat[0].items() if all(other.get(key) == value for other in flat)}
    lines = ["### How it was measured", ""]
    if common:
        lines += [f"Settings: {_settings(common)}.", ""]
    for result, label, settings in zip(section.results, section.labels, flat, strict=True):
        own = {key: value for key, value in settings.items() if key not in common}
        parts = [_settings(own)] if own else []
        if result.system_fingerprint:
            parts.append(f"fingerprint `{result.system_fingerprint}`")
        if result.seconds:
            parts.append(f"{sum(result.seconds.values()):,.1f} s")
        lines.append(f"- {markdown_escape(label)}: {'; '.join(parts)}")
    notes = _truncations(section)
    return lines + [""] + [f"**Note:** {markdown_escape(note)}\n" for note in notes]


def _settings(settings: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return ", ".join(f"`{key}: {text(value)}`" for key, value in settings.items() if value not in (None, [], ()))


def _truncations(section: Section) -> list[str]:
    return [
        f"{label}: {result.truncated[0]:,} of {result.truncated[1]:,} texts were longer than the limit of the model "
        "and were cut."
        for result, label in zip(section.results, section.labels, strict=True)
        if result.truncated is not None and result.truncated[0]
    ]
