"""Results for people: Markdown for a repository or a model card, and a short table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from modeling_tmde.eval.beside_published import published_lines
from modeling_tmde.eval.markdown import markdown_escape, markdown_table, number_range, percent
from modeling_tmde.eval.results import ACCURACY_OF, CONTROL, Cell, TaskResult, group_cells
from modeling_tmde.eval.sections import (
    AXES,
    METRICS,
    Section,
    cells_by_pair,
    column_value,
    deviation,
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
    "ties": "Ties (%), which count as half",
}
GROUPS = {ACCURACY_OF: "Accuracy: {} (%)", CONTROL: "Control, not in the mean: {} (%)"}


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
        settings = section.results[0].settings
        how = [section.protocol, *filter(None, [settings.get("head", {}).get("head")])]
        if settings.get("seeds"):
            how.append(f"mean of {len(settings['seeds'])} seeds")
        title = f"{section.task}: {', '.join(how)}, {METRICS.get(section.metric, section.metric)}"
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
        for note in [*_below_majority(section), *_truncations(section)]:
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
    if data.get("split"):
        parts.append(f"Tested on the split `{data['split']}`.")
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
        notes.append("± standard deviation over seeds (of a mean over cells: of that mean)")
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
    """`83.1 ± 0.4<br>[81.9, 84.2]` of one cell, which has its own interval, or of the mean of several."""
    if not cells:
        return "–"
    if len(cells) == 1:
        interval = cells[0].interval
    text, std = percent(float(np.mean([cell.value for cell in cells]))), deviation(cells)
    if std is not None:
        text += f" ± {percent(std)}"
    return text if interval is None else f"{text}<br>[{percent(interval[0])}, {percent(interval[1])}]"


def _extras(section: Section) -> list[str]:
    """The further measures, a row a measure and system, in the columns of the summary."""
    columns = section.columns()
    rows = []
    for name, title in (_group_titles(section) | EXTRAS).items():
        for result, label in zip(section.results, section.labels, strict=True):
            values = {pair: cell.extra[name] for pair, cell in cells_by_pair(result).items() if name in cell.extra}
            if values:
                means = (percent(mean_over(values, members)) for members in columns.values())
                rows.append([title, markdown_escape(label), *means])
    if not rows:
        return []
    return ["Further measures:", "", *markdown_table(["Measure", "System", *columns], rows, left=2), ""]


def _group_titles(section: Section) -> dict[str, str]:
    """Titles of the further measures that are the value on a group of the items."""
    names = dict.fromkeys(name for result in section.results for cell in result.cells for name in cell.extra)
    return {
        name: title.format(name.removeprefix(prefix).replace("_", " "))
        for name in names
        for prefix, title in GROUPS.items()
        if name.startswith(prefix)
    }


def _matrix(section: Section, result: TaskResult, label: str, metric: str) -> list[str]:
    """All cells of one system, sources as rows."""
    sources, targets = languages_of(section.pairs)
    cells = cells_by_pair(result)
    rows = []
    for source in sources:
        found = [[cells[source, target]] if (source, target) in cells else [] for target in targets]
        rows.append([f"**{markdown_escape(source)}**", *(_with_uncertainty(chosen, None) for chosen in found)])
    of_rows, of_columns = AXES.get(section.metric, ("source", "target"))
    heading = f"### {markdown_escape(label)}: {of_rows} (rows), {of_columns} (columns)"
    return [heading, "", f"{metric}.", "", *markdown_table(["", *targets], rows), ""]


def _measured_how(section: Section) -> list[str]:
    """Common settings, and each system's own: fingerprint, time; then folds and whatever limits the numbers."""
    flat = [
        dict(flatten({key: value for key, value in result.settings.items() if key != "folds"}))
        for result in section.results
    ]
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
            parts.append(", ".join(f"{name} {seconds:,.1f} s" for name, seconds in result.seconds.items()))
        lines.append(f"- {markdown_escape(label)}: {'; '.join(parts)}")
    notes = [text for about in (_folds, _left_out, _constant) for text in _grouped(section, about)]
    notes += [*_below_majority(section), *_truncations(section)]
    return lines + [""] + [f"**Note:** {markdown_escape(note)}\n" for note in notes]


def _settings(settings: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return ", ".join(f"`{key}: {text(value)}`" for key, value in settings.items() if value not in (None, [], ()))


def _grouped(section: Section, about: Callable[[TaskResult], str | None]) -> list[str]:
    """What `about` says of the results, once for all systems of which it says the same."""
    systems: dict[str, list[str]] = {}
    for result, label in zip(section.results, section.labels, strict=True):
        if text := about(result):
            systems.setdefault(text, []).append(label)
    return [f"{', '.join(names)}: {text}" for text, names in systems.items()]


def _folds(result: TaskResult) -> str | None:
    folds = result.settings.get("folds")
    if not folds:
        return None
    if "left_out" in folds:
        return f"the folds of the paired t-test were not run: {folds['left_out']}"
    told = [f"{name.replace('_', ' ')}: {value}" for name, value in folds.items() if name not in ("draws", "size")]
    size = f"{folds['draws']} draws of {folds['size']:,} items, each halved into train and test and back"
    return f"folds of the paired t-test (thesis 4.6): {'; '.join([size, *told])}."


def _left_out(result: TaskResult) -> str | None:
    counts = [int(cell.extra["left_out"]) for cell in result.cells if "left_out" in cell.extra]
    if not any(counts):
        return None
    pairs = " in each of the pairs of languages" if len(counts) > 1 else ""
    return f"rows left out because a text of theirs repeats an earlier row's: {number_range(counts)}{pairs}."


def _constant(result: TaskResult) -> str | None:
    names = [f"{cell.source}-{cell.target}" for cell in result.cells if cell.extra.get("constant")]
    if not names:
        return None
    return f"all similarities of {', '.join(names)} are equal, so that there is no correlation; it is given as 0."


def _below_majority(section: Section) -> list[str]:
    notes = []
    for result, label in zip(section.results, section.labels, strict=True):
        if any("majority" not in cell.extra for cell in result.cells):
            continue
        below = [
            name
            for name, places in group_cells(result.cells).items()
            if np.mean([result.cells[place].value - result.cells[place].extra["majority"] for place in places]) <= 0
        ]
        if below:
            notes.append(f"{label}: no better than always guessing the most frequent class ({', '.join(below)}).")
    return notes


def _truncations(section: Section) -> list[str]:
    notes = []
    for result, label in zip(section.results, section.labels, strict=True):
        if result.truncated is not None and result.truncated[0]:
            limit = result.settings.get("system", {}).get("max_length")
            longest = f"{limit:,} tokens" if limit else "the limit of the model"
            counts = "{:,} of {:,}".format(*result.truncated)
            notes.append(
                f"{label}: {counts} texts were longer than {longest} and were cut (TF-IDF reads whole texts)."
            )
    return notes
