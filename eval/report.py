"""Results for people: Markdown for a repository, a table for the terminal, metadata for a model card."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
BASELINES = ("chance", "majority")
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
    """A share as `83.1`; `<0.1` for what would round to nothing, `–` for None."""
    if value is None:
        return "–"
    return "<0.1" if 0 < value < 0.0005 else f"{100 * value:.1f}"


def markdown_escape(text: str) -> str:
    """Text that Markdown and HTML show as it is, also in the cell of a table."""
    text = re.sub(r"([\\`*_|\[\]~$])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table; the first `left` columns are aligned to the left, the others to the right."""
    align = ["left" if column < left else "right" for column in range(len(header))]
    return tabulate.tabulate(rows, header, "pipe", colalign=align, disable_numparse=True).split("\n")


def number_range(counts: Sequence[int]) -> str:
    """`1,000`, or `980 to 1,000` where the counts differ."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


@dataclass(frozen=True)
class Section:
    """Systems on one task, with the same data, protocol and metric: a section of the report.

    Args:
        results: In the order given, TF-IDF after the models.
        labels: Name of each in tables: the system, with the settings that differ where it occurs twice.
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
        """By title, the cells whose mean is a column of the summary.

        `Same`, `Cross` and `All` (thesis 4.4.2), without those that repeat another column; then the cells themselves
        if they are few.
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

    def baseline(self, name: str) -> dict[Pair, float]:
        """By cell, the value of guessing: `chance` (uniformly) or `majority` (always the most frequent class)."""
        values: dict[Pair, float] = {}
        for cell in (cell for result in self.results for cell in result.cells):
            value = cell.chance if name == "chance" else cell.extra.get(name)
            if value is not None:
                values.setdefault((cell.source, cell.target), value)
        return values


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
    """Nested settings as dotted names and values; a name that repeats its parent's (`head.head`) is the parent's."""
    for key, value in settings.items():
        name = f"{prefix}.{key}" if prefix and prefix.rpartition(".")[2] != key else prefix or key
        if isinstance(value, Mapping):
            yield from _flatten(value, name)
        else:
            yield name, value


def languages_of(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Sources and targets; those that are both come in the same order."""
    sources = list(dict.fromkeys(source for source, _ in pairs))
    found = dict.fromkeys(target for _, target in pairs)
    return sources, [source for source in sources if source in found] + [name for name in found if name not in sources]


def cells_by_pair(result: TaskResult) -> dict[Pair, Cell]:
    return {(cell.source, cell.target): cell for cell in result.cells}


def mean_over(values: Mapping[Pair, float], members: Sequence[Pair]) -> float | None:
    """Mean of the values that are there; None if none is."""
    found = [values[pair] for pair in members if pair in values]
    return float(np.mean(found)) if found else None


def deviation(cells: Sequence[Cell]) -> float | None:
    """Standard deviation (n - 1) over seeds of the mean of the cells; None unless all were run with the same seeds.

    The deviations of single cells do not tell how far they move together, so it is computed from `seed_values`.
    """
    runs = {len(cell.seed_values) for cell in cells}
    if len(runs) == 1 and runs.pop() > 1:
        return float(np.mean([cell.seed_values for cell in cells], axis=0).std(ddof=1))
    return cells[0].std if len(cells) == 1 else None


def _column(section: Section, result: TaskResult, title: str, members: Sequence[Pair]) -> dict[str, Any] | None:
    """What a column of the summary says of one system; None if it has none of the cells."""
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
        **{name: mean_over(section.baseline(name), members) for name in BASELINES},
        "extra": {name: float(np.mean([cell.extra[name] for cell in cells])) for name in extra},
    }


def summary_records(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """For every result the columns of the summary table, and its `model-index` entries, as JSON values."""
    records: dict[int, dict[str, Any]] = {}
    for section in sections(results):
        for result in section.results:
            columns = [_column(section, result, *column) for column in section.columns().items()]
            records[id(result)] = {
                "metric": section.metric,
                "metric_name": section.title,
                "baseline": result.truncated is None,
                "columns": [column for column in columns if column is not None],
                "model_index": [vars(entry) for entry in eval_results([result])],
            }
    return [records[id(result)] for result in results]


def eval_results(results: Sequence[TaskResult]) -> list[EvalResult]:
    """The numbers of one system for the `model-index` of a model card.

    Of each task the means `Same` and `Cross` (thesis 4.4.2), then the cells if they are few. Values are shares (0 to
    1) and correlations. The languages of a cell are its dataset config, `<source>-<target>`. Data that are no Hub
    dataset are called by the task's name. Numbers that are not finite are left out: the Hub refuses them.
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
    """One section a task: provenance, systems and baselines, further measures, published tables, matrices.

    Args:
        results: Of any tasks and systems.
        published: Print the published tables that fit beside the measured numbers.
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
            for result, label in zip(section.results, section.labels, strict=True):
                lines += _matrix(section, result, label)
        lines += _how_measured(section)
    return "\n".join(lines).rstrip() + "\n"


def print_report(results: Sequence[TaskResult], console: Console) -> None:
    """The summary of each task as a table: systems, then the baselines."""
    for section in sections(results):
        first, columns = section.results[0], section.columns()
        how = [first.protocol, *filter(None, [first.settings.get("head", {}).get("head")])]
        if first.settings.get("seeds"):
            how.append(f"mean of {len(first.settings['seeds'])} seeds")
        table = Table(title=escape(f"{first.task}: {', '.join(how)}, {section.title}"), title_justify="left")
        table.add_column("System", overflow="fold")
        for column in columns:
            table.add_column(column, justify="right")
        for result, label in zip(section.results, section.labels, strict=True):
            found = [_column(section, result, *column) for column in columns.items()]
            table.add_row(escape(label), *(percent(column and column["value"]) for column in found))
        for name in BASELINES:
            if values := section.baseline(name):
                means = (percent(mean_over(values, members)) for members in columns.values())
                table.add_row(name, *means, style="dim")
        console.print(table)
        for note in [*_below_majority(section), *_truncations(section)]:
            console.print(escape(note), style="yellow")


def _provenance(data: dict[str, Any]) -> str:
    parts = []
    for name, title in (("citation", "Data"), ("licence", "License")):
        if data.get(name):
            parts.append(f"{title}: {markdown_escape(data[name].rstrip('.'))}.")
    url = data.get("url") or (f"https://huggingface.co/datasets/{data['hub_id']}" if data.get("hub_id") else None)
    places = [f"`{data['source']}`" if data.get("source") else "", f"<{url}>" if url else ""]
    if any(places):
        parts.append(f"Source: {', '.join(filter(None, places))}.")
    if data.get("split"):
        parts.append(f"Tested on the split `{data['split']}`.")
    if data.get("rows"):
        parts.append(f"Rows: {_rows(data['rows'])}.")
    if data.get("fingerprint"):
        parts.append(f"Fingerprint: `{data['fingerprint']}`.")
    return " ".join(parts) or "Data: unknown."


def _rows(rows: dict[str, Any]) -> str:
    """`train 1,000, dev 200 in each of de, en`: counts by language, or by language and split."""
    if isinstance(next(iter(rows.values())), dict):
        splits = dict.fromkeys(name for counts in rows.values() for name in counts)
        ranges = {name: number_range([counts[name] for counts in rows.values() if name in counts]) for name in splits}
        text = ", ".join(f"{name} {counts}" for name, counts in ranges.items())
    else:
        text = number_range(list(rows.values()))
    return f"{text} in {'each of ' if len(rows) > 1 else ''}{', '.join(rows)}"


def _summary(section: Section) -> list[str]:
    columns = section.columns()
    rows, notes = [], []
    for result, label in zip(section.results, section.labels, strict=True):
        found = [_column(section, result, *column) for column in columns.items()]
        rows.append([markdown_escape(label), *map(_with_uncertainty, found)])
        if len(result.cells) < len(section.pairs):
            note = f"{markdown_escape(label)} was measured on {len(result.cells)} of {len(section.pairs)} pairs of"
            notes += [f"**Note:** {note} languages, and its means are over those alone.", ""]
    for name in BASELINES:
        if values := section.baseline(name):
            rows.append([f"*{name}*", *(percent(mean_over(values, members)) for members in columns.values())])
    caption = [section.title]
    cells = [cell for result in section.results for cell in result.cells]
    if any(cell.std is not None for cell in cells):
        caption.append("± standard deviation over seeds (of a mean over cells: of that mean)")
    if any(cell.interval for cell in cells):
        caption.append("in brackets the 95% bootstrap interval over test items")
    return [", ".join(caption) + ".", "", *markdown_table(["System", *columns], rows), "", *notes]


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
    """A row a measure and system, in the columns of the summary."""
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
        for result, label in zip(section.results, section.labels, strict=True):
            values = {pair: cell.extra[name] for pair, cell in cells_by_pair(result).items() if name in cell.extra}
            if values:
                means = (percent(mean_over(values, members)) for members in columns.values())
                rows.append([title, markdown_escape(label), *means])
    if not rows:
        return []
    return ["Further measures:", "", *markdown_table(["Measure", "System", *columns], rows, left=2), ""]


def _matrix(section: Section, result: TaskResult, label: str) -> list[str]:
    """All cells of one system, sources as rows."""
    sources, targets = languages_of(section.pairs)
    rows = []
    for source in sources:
        found = [_column(section, result, "", [(source, target)]) for target in targets]
        rows.append([f"**{markdown_escape(source)}**", *map(_with_uncertainty, found)])
    of_rows, of_columns = AXES[section.metric]
    heading = f"### {markdown_escape(label)}: {of_rows} (rows), {of_columns} (columns)"
    return [heading, "", f"{section.title}.", "", *markdown_table(["", *targets], rows), ""]


def _how_measured(section: Section) -> list[str]:
    """Common settings, each system's own with its fingerprint and time, and whatever limits the numbers."""
    flat = [
        dict(_flatten({key: value for key, value in result.settings.items() if key != "folds"}))
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
    notes = [note for about in (_folds, _left_out, _constant) for note in _grouped(section, about)]
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
    details = [f"{name.replace('_', ' ')}: {value}" for name, value in folds.items() if name not in ("draws", "size")]
    size = f"{folds['draws']} draws of {folds['size']:,} items, each halved into train and test and back"
    return f"folds of the paired t-test (thesis 4.6): {'; '.join([size, *details])}."


def _left_out(result: TaskResult) -> str | None:
    counts = [int(cell.extra["left_out"]) for cell in result.cells if "left_out" in cell.extra]
    if not any(counts):
        return None
    pairs = " in each of the pairs of languages" if len(counts) > 1 else ""
    return f"rows left out because they repeat a text of an earlier row: {number_range(counts)}{pairs}."


def _constant(result: TaskResult) -> str | None:
    names = [f"{cell.source}-{cell.target}" for cell in result.cells if cell.extra.get("constant")]
    if not names:
        return None
    return f"all similarities of {', '.join(names)} are equal, so there is no correlation; it is given as 0."


def _below_majority(section: Section) -> list[str]:
    notes = []
    for result, label in zip(section.results, section.labels, strict=True):
        if all("majority" in cell.extra for cell in result.cells):
            majority = {pair: cell.extra["majority"] for pair, cell in cells_by_pair(result).items()}
            groups = group_cells(result.cells)
            below = [
                name
                for name, value in summarize(result.cells).items()
                if value <= np.mean([list(majority.values())[place] for place in groups[name]])
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


@dataclass(frozen=True)
class Comparison:
    """The differences of one pair of systems, as a table: a row a task and group of cells."""

    name: str  # `<second> - <first>`
    differences: Sequence[Difference]

    @property
    def note(self) -> str:
        text = "p: approximate randomization over test items. "
        if self._has_folds:
            text += "p (folds): paired t-test over ten folds (thesis 4.6), on Cross of classification. "
        return text + "Not corrected for the number of comparisons."

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
