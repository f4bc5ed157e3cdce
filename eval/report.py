"""Reports of results: Markdown, terminal tables and model-card metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import tabulate
from huggingface_hub import EvalResult
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from modeling_tmde.eval.results import ACCURACY_OF, CONTROL, Cell, TaskResult, group_cells, summarize
from modeling_tmde.eval.statistics import Difference

MAX_CELL_COLUMNS = 6
METRICS = {
    "accuracy": "Accuracy (%)",
    "contrast_accuracy": "Accuracy (%)",
    "precision_at_1": "Precision at 1 (%)",
    "spearman": "Spearman correlation × 100",
}
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
AXES = {  # what the rows and columns of a matrix are
    "accuracy": ("trained on", "tested on"),
    "contrast_accuracy": ("sentence", "chooses in"),
    "precision_at_1": ("query", "found in"),
    "spearman": ("first text", "second text"),
}
# For the Hub: task type and name, metric type and name.
HUB_NAMES = {
    "accuracy": ("text-classification", "Text classification", "accuracy", "Accuracy"),
    "contrast_accuracy": ("sentence-similarity", "Contrastive minimal pairs", "accuracy", "Accuracy"),
    "precision_at_1": ("translation-retrieval", "Translation retrieval", "precision_at_1", "Precision at 1"),
    "spearman": ("sentence-similarity", "Sentence similarity", "spearmanr", "Spearman correlation"),
}
HUB_EXTRAS = {
    "macro_f1": ("f1", "Macro F1"),
    "mrr": ("mrr", "Mean reciprocal rank"),
    "recall_at_10": ("recall_at_10", "Recall at 10"),
    "precision_at_1_margin": ("precision_at_1_margin", "Precision at 1 by margin"),
    "error_rate": ("error_rate", "Error rate by margin"),
    "pearson": ("pearsonr", "Pearson correlation"),
}
Pair = tuple[str, str]


def percent(value: float | None) -> str:
    """A share in percent, such as `83.1`; `<0.1` if it would round to zero, `–` for None."""
    if value is None:
        return "–"
    return "<0.1" if 0 < value < 0.0005 else f"{100 * value:.1f}"


def markdown_escape(text: str) -> str:
    """Escapes text for Markdown and HTML, table cells included."""
    text = re.sub(r"([\\`*_|\[\]~$])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a Markdown table; the first `left` columns are left-aligned, the others right-aligned."""
    align = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate.tabulate(rows, header, "pipe", colalign=align, disable_numparse=True).split("\n")


def number_range(counts: Sequence[int]) -> str:
    """`1,000`, or `980 to 1,000` where the counts differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class Section:
    """One section of the report: all systems measured on one task with the same data, protocol and metric.

    Args:
        results: In the order given, with TF-IDF after the models.
        labels: System names as shown in tables. A system that occurs twice also shows the settings that differ.
    """

    results: list[TaskResult]
    labels: list[str]

    @property
    def metric(self) -> str:
        return self.results[0].cells[0].metric

    @property
    def title(self) -> str:
        return METRICS.get(self.metric, self.metric)

    @property
    def pairs(self) -> list[Pair]:
        """(source, target) of all cells of all systems."""
        return list(dict.fromkeys(pair for result in self.results for pair in cells_by_pair(result)))

    @property
    def is_matrix(self) -> bool:
        """Whether the cells are more than one row, one column or one diagonal of a matrix."""
        sources, targets = (len({pair[side] for pair in self.pairs}) for side in (0, 1))
        return min(sources, targets) > 1 and len(self.pairs) > max(sources, targets)

    def columns(self) -> dict[str, list[Pair]]:
        """Summary columns by title, each with the cells that it averages.

        `Same`, `Cross` and `All` (thesis 4.4.2) unless they repeat another column, then the single cells if there
        are at most `MAX_CELL_COLUMNS`.
        """
        pairs = self.pairs
        single = {f"{source} → {target}": [(source, target)] for source, target in pairs}
        if len(pairs) == 1:
            return single
        by_pair = {pair: cell for result in self.results for pair, cell in cells_by_pair(result).items()}
        groups = group_cells([by_pair[pair] for pair in pairs])
        means = {title: [pairs[place] for place in places] for title, places in groups.items()}
        if len(means) < 3:
            means.pop("All")  # it equals the other one
        if len(pairs) > MAX_CELL_COLUMNS:
            return means
        return {title: members for title, members in means.items() if len(members) > 1} | single

    def column(self, result: TaskResult, title: str, members: Sequence[Pair]) -> dict[str, Any] | None:
        """One summary column of one system, or None if none of its cells was measured."""
        by_pair = cells_by_pair(result)
        cells = [by_pair[pair] for pair in members if pair in by_pair]
        if not cells:
            return None
        extra = [name for name in cells[0].extra if all(name in cell.extra for cell in cells)]
        return {
            "title": title,
            "value": float(np.mean([cell.value for cell in cells])),
            "std": deviation(cells),
            "interval": cells[0].interval if len(cells) == 1 else result.intervals.get(title),
            **{name: mean_over(values, members) for name, values in self.baselines.items()},
            "extra": {name: float(np.mean([cell.extra[name] for cell in cells])) for name in extra},
        }

    @cached_property
    def baselines(self) -> dict[str, dict[Pair, float]]:
        """By cell, the score of guessing: `chance` (uniformly) or `majority` (always the most frequent class)."""
        found: dict[str, dict[Pair, float]] = {"chance": {}, "majority": {}}
        for pair, cell in (item for result in self.results for item in cells_by_pair(result).items()):
            for name, value in (("chance", cell.chance), ("majority", cell.extra.get("majority"))):
                if value is not None:
                    found[name].setdefault(pair, value)
        return found

    def labeled(self) -> Iterator[tuple[TaskResult, str]]:
        """Results with their labels."""
        return zip(self.results, self.labels, strict=True)

    def rows(self, text: Callable[[dict[str, Any] | None], str]) -> tuple[list[list[str]], list[list[str]]]:
        """Summary rows of the systems and of the baselines: a label, then one text per column."""
        columns = self.columns()
        systems = [
            [label, *(text(self.column(result, *column)) for column in columns.items())]
            for result, label in self.labeled()
        ]
        baselines = [
            [name, *(percent(mean_over(values, members)) for members in columns.values())]
            for name, values in self.baselines.items()
            if values
        ]
        return systems, baselines


def sections(results: Sequence[TaskResult]) -> list[Section]:
    """Groups results by task, protocol, metric and data."""
    groups: dict[tuple, list[TaskResult]] = {}
    for result in results:
        key = (result.task, result.protocol, result.cells[0].metric, result.data.get("fingerprint"))
        groups.setdefault(key, []).append(result)
    ordered = (sorted(group, key=lambda result: result.system.startswith("TF-IDF")) for group in groups.values())
    return [Section(group, _labels(group)) for group in ordered]


def _labels(results: Sequence[TaskResult]) -> list[str]:
    """The system's name; where a system occurs with several settings, also those that differ."""
    names = []
    for result in results:
        others = [dict(_flatten(other.settings)) for other in results if other.system == result.system]
        own = dict(_flatten(result.settings))
        differing = [key for key in own if any(other.get(key) != own[key] for other in others)]
        suffix = ", ".join(f"{key} {own[key]}" for key in differing)
        names.append(f"{result.system} ({suffix})" if suffix else result.system)
    return names


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flattens nested settings to dotted names; a key that repeats its parent (`head.head`) is shortened to it."""
    for key, value in settings.items():
        name = f"{prefix}.{key}" if prefix and prefix.rpartition(".")[2] != key else prefix or key
        if isinstance(value, Mapping):
            yield from _flatten(value, name)
        else:
            yield name, value


def languages_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Source and target languages; those that are both come in the same order."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    found = dict.fromkeys(target for _, target in pairs)
    return sources, [source for source in sources if source in found] + [name for name in found if name not in sources]


def cells_by_pair(result: TaskResult) -> dict[Pair, Cell]:
    return {(cell.source, cell.target): cell for cell in result.cells}


def mean_over(values: Mapping[Pair, float], members: Sequence[Pair]) -> float | None:
    """Mean over the members that have a value; None if none has."""
    found = [values[pair] for pair in members if pair in values]
    return float(np.mean(found)) if found else None


def deviation(cells: Sequence[Cell]) -> float | None:
    """Standard deviation (n - 1) over seeds of the mean of the cells; None unless all were run with the same seeds.

    Cells of one seed are correlated, so this is computed from `seed_values` and not from the cells' deviations.
    """
    runs = {len(cell.seed_values) for cell in cells}
    if len(runs) == 1 and runs.pop() > 1:
        return float(np.mean([cell.seed_values for cell in cells], axis=0).std(ddof=1))
    return cells[0].std if len(cells) == 1 else None


def summary_records(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """Summary columns and `model-index` entries of each result, as JSON values."""
    records: dict[int, dict[str, Any]] = {}
    for section in sections(results):
        for result in section.results:
            columns = [section.column(result, *column) for column in section.columns().items()]
            records[id(result)] = {
                "metric": section.metric,
                "metric_name": section.title,
                "baseline": result.truncated is None,
                "columns": [column for column in columns if column is not None],
                "model_index": [vars(entry) for entry in eval_results([result])],
            }
    return [records[id(result)] for result in results]


def eval_results(results: Sequence[TaskResult]) -> list[EvalResult]:
    """Entries of one system for the `model-index` of a model card.

    Each task gives the means `Same` and `Cross` (thesis 4.4.2), and its cells if there are at most
    `MAX_CELL_COLUMNS`. Values are shares (0 to 1) or correlations. The dataset config of a cell is
    `<source>-<target>`. Data from outside the Hub are named after the task. Values that are not finite are skipped,
    because the Hub rejects them.
    """
    made = []
    for result in results:
        few = len(result.cells) <= MAX_CELL_COLUMNS
        groups = group_cells(result.cells)
        for group in ("Same", "Cross"):
            members = [result.cells[place] for place in groups.get(group, [])]
            if len(members) > (1 if few else 0):  # a mean of one cell is that cell
                made += _entries(result, group, members)
        for cell in result.cells if few else ():
            made += _entries(result, f"{cell.source}-{cell.target}", [cell])
    return [entry for entry in made if np.isfinite(entry.metric_value)]


def _entries(result: TaskResult, config: str, cells: Sequence[Cell]) -> list[EvalResult]:
    task_type, task_name, *metric = HUB_NAMES[cells[0].metric]
    values = {tuple(metric): [cell.value for cell in cells]}
    for key, names in HUB_EXTRAS.items():
        if all(key in cell.extra for cell in cells):
            values[names] = [cell.extra[key] for cell in cells]
    settings = dict(_flatten(result.settings))
    chosen = {key: settings[key] for key in ("head", "scoring") if key in settings}
    return [
        EvalResult(
            task_type=task_type,
            task_name=task_name,
            dataset_type=result.data.get("hub_id") or re.sub(r"\W+", "-", result.task),
            dataset_name=result.task,
            dataset_config=config,
            dataset_split=result.data.get("split"),
            metric_type=metric_type,
            metric_name=metric_name,
            metric_value=round(float(np.mean(numbers)), 6),
            metric_args={"protocol": result.protocol, **chosen},
        )
        for (metric_type, metric_name), numbers in values.items()
    ]


def markdown_report(results: Sequence[TaskResult], published: bool = True) -> str:
    """Markdown report with a section per task: provenance, scores and baselines, further measures, matrices.

    Args:
        results: Results of any tasks and systems.
        published: Also print matching tables from the papers next to the measured numbers.
    """
    from modeling_tmde.eval.published import published_lines  # it draws its tables with this module

    lines = ["# Evaluation", ""]
    for section in sections(results):
        first = section.results[0]
        lines += [f"## {markdown_escape(first.task)}: {first.protocol}", "", _provenance(first.data), ""]
        lines += _summary(section) + _further_measures(section)
        if published:
            lines += published_lines(section)
        if section.is_matrix:
            for result, label in section.labeled():
                lines += _matrix(section, result, label)
        lines += _how_measured(section)
    return "\n".join(lines).rstrip() + "\n"


def print_report(results: Sequence[TaskResult], console: Console) -> None:
    """Prints a summary table per task: systems, then baselines."""
    for section in sections(results):
        first, columns = section.results[0], section.columns()
        how = [first.protocol, *filter(None, [first.settings.get("head", {}).get("head")])]
        if first.settings.get("seeds"):
            how.append(f"mean of {len(first.settings['seeds'])} seeds")
        table = Table(title=escape(f"{first.task}: {', '.join(how)}, {section.title}"), title_justify="left")
        table.add_column("System", overflow="fold")
        for column in columns:
            table.add_column(column, justify="right")
        systems, baselines = section.rows(lambda column: percent(column and column["value"]))
        for label, *values in systems:
            table.add_row(escape(label), *values)
        for row in baselines:
            table.add_row(*row, style="dim")
        console.print(table)
        for note in _warnings(section):
            console.print(escape(note), style="yellow")


def _provenance(data: dict[str, Any]) -> str:
    url = data.get("url") or (f"https://huggingface.co/datasets/{data['hub_id']}" if data.get("hub_id") else None)
    places = [f"`{data['source']}`" if data.get("source") else "", f"<{url}>" if url else ""]
    texts = {
        "Data: {}.": markdown_escape((data.get("citation") or "").rstrip(".")),
        "License: {}.": markdown_escape((data.get("licence") or "").rstrip(".")),
        "Source: {}.": ", ".join(filter(None, places)),
        "Tested on the split `{}`.": data.get("split"),
        "Rows: {}.": _rows(data["rows"]) if data.get("rows") else None,
        "Fingerprint: `{}`.": data.get("fingerprint"),
    }
    return " ".join(template.format(value) for template, value in texts.items() if value) or "Data: unknown."


def _rows(rows: dict[str, Any]) -> str:
    """Row counts by language, or by language and split, such as `train 1,000, dev 200 in each of de, en`."""
    if isinstance(next(iter(rows.values())), dict):
        splits = dict.fromkeys(name for counts in rows.values() for name in counts)
        ranges = {name: number_range([counts[name] for counts in rows.values() if name in counts]) for name in splits}
        text = ", ".join(f"{name} {counts}" for name, counts in ranges.items())
    else:
        text = number_range(list(rows.values()))
    return f"{text} in {'each of ' if len(rows) > 1 else ''}{', '.join(rows)}"


def _summary(section: Section) -> list[str]:
    systems, baselines = section.rows(_with_uncertainty)
    rows = [[markdown_escape(label), *values] for label, *values in systems]
    rows += [[f"*{label}*", *values] for label, *values in baselines]
    caption = [section.title]
    cells = [cell for result in section.results for cell in result.cells]
    if any(cell.std is not None for cell in cells):
        caption.append("± standard deviation over seeds (of a mean over cells: of that mean)")
    if any(cell.interval for cell in cells):
        caption.append("in brackets the 95% bootstrap interval over test items")
    total = len(section.pairs)
    notes = [
        f"{label} was measured on {len(result.cells)} of {total} pairs of languages; its means are over those."
        for result, label in section.labeled()
        if len(result.cells) < total
    ]
    return [", ".join(caption) + ".", "", *markdown_table(["System", *section.columns()], rows), "", *_notes(notes)]


def _notes(notes: Sequence[str]) -> list[str]:
    return [f"**Note:** {markdown_escape(note)}\n" for note in notes]


def _with_uncertainty(column: Mapping[str, Any] | None) -> str:
    """`83.1 ± 0.4<br>[81.9, 84.2]`."""
    if column is None:
        return "–"
    text = percent(column["value"])
    if column["std"] is not None:
        text += f" ± {percent(column['std'])}"
    if column["interval"] is not None:
        text += "<br>[{}, {}]".format(*map(percent, column["interval"]))
    return text


def _further_measures(section: Section) -> list[str]:
    """One row per measure and system, with the columns of the summary."""
    columns = section.columns()
    found = dict.fromkeys(name for result in section.results for cell in result.cells for name in cell.extra)
    titles = {
        name: title.format(name.removeprefix(prefix).replace("_", " "))
        for name in found
        for prefix, title in GROUPS.items()
        if name.startswith(prefix)
    }
    rows = []
    for name, title in (titles | EXTRAS).items():
        for result, label in section.labeled():
            values = {pair: cell.extra[name] for pair, cell in cells_by_pair(result).items() if name in cell.extra}
            if values:
                means = (percent(mean_over(values, members)) for members in columns.values())
                rows.append([title, markdown_escape(label), *means])
    if not rows:
        return []
    return ["Further measures:", "", *markdown_table(["Measure", "System", *columns], rows, left=2), ""]


def _matrix(section: Section, result: TaskResult, label: str) -> list[str]:
    """All cells of one system, with source languages as rows."""
    sources, targets = languages_of(section.pairs)
    rows = []
    for source in sources:
        found = [section.column(result, "", [(source, target)]) for target in targets]
        rows.append([f"**{markdown_escape(source)}**", *map(_with_uncertainty, found)])
    of_rows, of_columns = AXES[section.metric]
    heading = f"### {markdown_escape(label)}: {of_rows} (rows), {of_columns} (columns)"
    return [heading, "", f"{section.title}.", "", *markdown_table(["", *targets], rows), ""]


def _how_measured(section: Section) -> list[str]:
    """Shared settings, then each system's own with its fingerprint and time, then notes on the numbers."""
    flat = [{key: value for key, value in result.settings.items() if key != "folds"} for result in section.results]
    flat = [dict(_flatten(settings)) for settings in flat]
    common = {key: value for key, value in flat[0].items() if all(other.get(key) == value for other in flat)}
    lines = ["### How it was measured", ""]
    if common:
        lines += [f"Settings: {_settings(common)}.", ""]
    notes: dict[str, list[str]] = {}
    for (result, label), settings in zip(section.labeled(), flat, strict=True):
        own = {key: value for key, value in settings.items() if key not in common}
        parts = [_settings(own)] if own else []
        if result.system_fingerprint:
            parts.append(f"fingerprint `{result.system_fingerprint}`")
        if result.seconds:
            parts.append(", ".join(f"{name} {seconds:,.1f} s" for name, seconds in result.seconds.items()))
        lines.append(f"- {markdown_escape(label)}: {'; '.join(parts)}")
        for note in _result_notes(result):
            notes.setdefault(note, []).append(label)
    grouped = [f"{', '.join(labels)}: {note}" for note, labels in notes.items()]
    return [*lines, "", *_notes([*grouped, *_warnings(section)])]


def _settings(settings: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    return ", ".join(f"`{key}: {text(value)}`" for key, value in settings.items() if value not in (None, [], ()))


def _result_notes(result: TaskResult) -> Iterator[str]:
    """Notes on the folds, on rows left out, and on constant similarities."""
    folds = result.settings.get("folds") or {}
    if "left_out" in folds:
        yield f"the folds of the paired t-test were not run: {folds['left_out']}"
    elif folds:
        details = [
            f"{name.replace('_', ' ')}: {value}" for name, value in folds.items() if name not in ("draws", "size")
        ]
        size = f"{folds['draws']} draws of {folds['size']:,} items, each halved into train and test and back"
        yield f"folds of the paired t-test (thesis 4.6): {'; '.join([size, *details])}."
    counts = [int(cell.extra["left_out"]) for cell in result.cells if "left_out" in cell.extra]
    if any(counts):
        pairs = " in each of the pairs of languages" if len(counts) > 1 else ""
        yield f"rows left out because they repeat a text of an earlier row: {number_range(counts)}{pairs}."
    if names := [f"{cell.source}-{cell.target}" for cell in result.cells if cell.extra.get("constant")]:
        yield f"all similarities of {', '.join(names)} are equal, so there is no correlation; it is given as 0."


def _warnings(section: Section) -> list[str]:
    """Systems no better than the majority class, and systems whose texts were truncated."""
    below, cut = [], []
    for result, label in section.labeled():
        if all("majority" in cell.extra for cell in result.cells):
            means = summarize(result.cells)
            majority = summarize([replace(cell, value=cell.extra["majority"]) for cell in result.cells])
            if names := [name for name in means if means[name] <= majority[name]]:
                below.append(f"{label}: no better than always guessing the most frequent class ({', '.join(names)}).")
        if result.truncated is not None and result.truncated[0]:
            limit = result.settings.get("system", {}).get("max_length")
            longest = f"{limit:,} tokens" if limit else "the limit of the model"
            counts = "{:,} of {:,}".format(*result.truncated)
            cut.append(f"{label}: {counts} texts were longer than {longest} and were cut (TF-IDF reads whole texts).")
    return below + cut


@dataclass(frozen=True)
class Comparison:
    """Table of the differences between two systems: one row per task and group of cells."""

    name: str  # `<second> - <first>`
    differences: Sequence[Difference]

    @property
    def note(self) -> str:
        folds = "p (folds): paired t-test over ten folds (thesis 4.6), on Cross of classification. "
        return (
            f"p: approximate randomization over test items. {folds if self._has_folds else ''}"
            "Not corrected for the number of comparisons."
        )

    @property
    def _has_folds(self) -> bool:
        return any(difference.fold_p is not None for difference in self.differences)

    @property
    def header(self) -> list[str]:
        names = ["task", "cells", "first", "second", "difference", "95% interval", "p"]
        return [*names, "p (folds)"] if self._has_folds else names

    def rows(self) -> list[list[str]]:
        rows = []
        for difference in self.differences:
            values = asdict(difference)
            low, high = difference.interval
            row = [difference.task, difference.group, *(f"{100 * values[side]:.1f}" for side in "ab")]
            row += [f"{100 * difference.difference:+.1f}", f"[{100 * low:+.1f}, {100 * high:+.1f}]"]
            row.append(_p_value(difference.p))
            rows.append([*row, _p_value(difference.fold_p)] if self._has_folds else row)
        return rows

    def markdown(self) -> str:
        """As a part of the report."""
        rows = [[markdown_escape(text) for text in row] for row in self.rows()]
        heading = f"### {markdown_escape(self.name)} (x 100)"
        return "\n".join([heading, "", *markdown_table(self.header, rows, left=2), "", self.note, ""])

    def table(self) -> Table:
        """For the terminal."""
        table = Table(title=escape(f"{self.name} (x 100)"), caption=self.note)
        for number, title in enumerate(self.header):
            table.add_column(title, justify="left" if number < 2 else "right", no_wrap=number > 0, overflow="fold")
        for row in self.rows():
            table.add_row(*map(escape, row))
        return table


def _p_value(p: float | None) -> str:
    if p is None:
        return "–"
    return "≤0.0001" if p <= 0.0001 else f"{p:.4f}"
