"""Reports of results, in Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console
from rich.markdown import Markdown

from tmde.eval.markdown import markdown_escape, markdown_table, percent
from tmde.eval.results import (
    ACCURACY_OF,
    CONTROL,
    EXTRAS,
    METRICS,
    Metric,
    SummaryColumn,
    TaskResult,
    languages_of,
    pairs_of,
    summary_columns,
)
from tmde.eval.statistics import Difference, compare

TEMPLATE = Path(__file__).with_name("report.md.jinja")

# The terminal shows intervals in a table of at most so many columns: more do not fit.
MAX_INTERVAL_COLUMNS = 3

# Titles of the measures whose names have these prefixes; the rest of the name goes into the braces.
TITLES_OF_GROUPS = {
    ACCURACY_OF: "Accuracy: {} (%)",
    CONTROL: "Control, not in the mean: {} (%)",
}


@dataclass(frozen=True)
class Section:
    """A section of the report: all systems that were measured on the same cells of one task.

    Args:
        results: The results, with TF-IDF after the models.
        labels: The names of the systems in tables, in Markdown. A system that occurs twice also
            shows the settings that differ.
        columns: The summary columns of each result.
    """

    results: list[TaskResult]
    labels: list[str]
    columns: list[list[SummaryColumn]]

    @property
    def titles(self) -> list[str]:
        """The titles of the summary columns."""
        return [column.title for column in self.columns[0]]

    def rows(self) -> Iterator[tuple[TaskResult, str, list[SummaryColumn]]]:
        """Yield result, label and summary columns of each system."""
        yield from zip(self.results, self.labels, self.columns, strict=True)


@dataclass(frozen=True)
class Matrix:
    """The Markdown table of all cells of one system."""

    label: str
    lines: list[str]


@dataclass(frozen=True)
class SectionTexts:
    """The texts of a section, as the template takes them; tables are lists of lines."""

    heading: str
    summary: list[str]
    provenance: str
    further_measures: list[str]
    metric: Metric
    matrices: list[Matrix]
    settings: list[str]
    notes: list[str]


def markdown_report(results: Sequence[TaskResult]) -> str:
    """Return a report in Markdown with one section per task."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["markdown"] = markdown_escape
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    texts = list(map(_section_texts, sections(results)))
    return template.render(sections=texts).rstrip() + "\n"


def print_report(results: Sequence[TaskResult], console: Console) -> None:
    """Print a summary table per task; one of few columns has 95% intervals."""
    for section in sections(results):
        text_of = _value_alone
        if len(section.titles) <= MAX_INTERVAL_COLUMNS:
            text_of = _value_and_interval
        table = "\n".join(_summary_table(section, text_of))
        blocks = [_heading(section), table, *_notes(section)]
        console.print(Markdown("\n\n".join(blocks)))


def sections(results: Sequence[TaskResult]) -> list[Section]:
    """Group results by task, protocol, metric, data and pairs of languages."""
    groups: dict[tuple, list[TaskResult]] = {}
    for result in results:
        pairs = tuple(pairs_of(result.cells))
        key = (result.task, result.protocol, result.metric, result.data.get("fingerprint"), pairs)
        groups.setdefault(key, []).append(result)
    grouped = []
    for group in groups.values():
        group.sort(key=lambda result: result.system.startswith("TF-IDF"))
        columns = list(map(summary_columns, group))
        grouped.append(Section(group, _labels(group), columns))
    return grouped


def _labels(results: Sequence[TaskResult]) -> list[str]:
    labels = []
    for result in results:
        differing = _differing_settings(result, results)
        label = f"{result.system} ({', '.join(differing)})" if differing else result.system
        labels.append(markdown_escape(label))
    return labels


def _differing_settings(result: TaskResult, results: Sequence[TaskResult]) -> list[str]:
    """Return the settings of a result that other results of the same system do not share."""
    settings_of_namesakes = []
    for other_result in results:
        if other_result.system == result.system:
            settings_of_namesakes.append(dict(_flatten(other_result.settings)))
    # What is stored of folds are measures, not settings.
    settings = dict(result.settings)
    settings.pop("folds", None)
    differing = []
    for name, value in _flatten(settings):
        if any(namesake.get(name) != value for namesake in settings_of_namesakes):
            differing.append(f"{name} {value}")
    return differing


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings by dotted names. A name that repeats its parent's is shortened to it.

    The setting `{"head": {"head": "svm"}}` is called `head`, not `head.head`.
    """
    for key, value in settings.items():
        name = prefix if key == prefix else f"{prefix}.{key}".lstrip(".")
        if isinstance(value, Mapping):
            yield from _flatten(value, name)
        else:
            yield name, value


# ---- Texts of a section


def _section_texts(section: Section) -> SectionTexts:
    first = section.results[0]
    matrices = []
    if _has_matrix(first):
        for result, label, _ in section.rows():
            matrices.append(Matrix(label, _matrix_table(result)))
    return SectionTexts(
        heading=_heading(section),
        summary=_summary_table(section, _column_text),
        provenance=_provenance(first.data),
        further_measures=_further_measures_table(section),
        metric=METRICS[first.metric],
        matrices=matrices,
        settings=_settings_table(section),
        notes=_notes(section),
    )


def _heading(section: Section) -> str:
    first = section.results[0]
    parts = [first.protocol, METRICS[first.metric].title]
    if first.head:
        parts.insert(1, first.head)
    protocol = ", ".join(parts)
    return f"## {markdown_escape(first.task)}: {protocol}"


def _summary_table(section: Section, text_of: Callable[[SummaryColumn], str]) -> list[str]:
    """Return a table of the scores of the systems, and of guessing.

    Args:
        section: The section.
        text_of: Returns the text of a score.
    """
    rows = []
    for _, label, columns in section.rows():
        rows.append([label, *map(text_of, columns)])
    columns = section.columns[0]
    chances = [column.chance for column in columns]
    majorities = [column.majority for column in columns]
    for name, scores in (("chance", chances), ("majority", majorities)):
        if any(score is not None for score in scores):
            rows.append([name, *map(percent, scores)])
    return markdown_table(["System", *section.titles], rows)


def _value_alone(column: SummaryColumn) -> str:
    return percent(column.value)


def _value_and_interval(column: SummaryColumn) -> str:
    """Return a text such as `83.1 [81.9, 84.2]`, in one line for a terminal."""
    return _value_text(column.value, None, column.interval).replace("<br>", " ")


def _column_text(column: SummaryColumn) -> str:
    return _value_text(column.value, column.std, column.interval)


def _value_text(value: float, std: float | None, interval: tuple[float, float] | None) -> str:
    """Return a text such as `83.1 ± 0.4<br>[81.9, 84.2]`."""
    text = percent(value)
    if std is not None:
        text += f" ± {percent(std)}"
    if interval:
        low, high = interval
        text += f"<br>[{percent(low)}, {percent(high)}]"
    return text


def _provenance(data: Mapping[str, Any]) -> str:
    """Return a paragraph on the data."""
    facts = {
        "Data": markdown_escape((data.get("citation") or "unknown").rstrip(".")),
        "License": markdown_escape((data.get("licence") or "").rstrip(".")),
        "Source": _source_text(data),
        "Split": data.get("split"),
        "Rows": _rows_text(data.get("rows") or {}),
        "Fingerprint": data.get("fingerprint"),
    }
    sentences = []
    for name, value in facts.items():
        if value:
            sentences.append(f"{name}: {value}.")
    return " ".join(sentences)


def _source_text(data: Mapping[str, Any]) -> str:
    parts = []
    if data.get("source"):
        parts.append(f"`{data['source']}`")
    if data.get("url"):
        parts.append(f"<{data['url']}>")
    elif data.get("hub_id"):
        parts.append(f"<https://huggingface.co/datasets/{data['hub_id']}>")
    return ", ".join(parts)


def _rows_text(rows: Mapping[str, int | Mapping[str, int]]) -> str:
    """Return a text such as `train 1,000, test 200 to 400 in each of de, en`.

    Args:
        rows: By language or pair of languages, the number of rows, or their numbers by split.
    """
    if not rows:
        return ""
    counts_of_split: dict[str, list[int]] = {}
    for counts in rows.values():
        by_split = counts if isinstance(counts, Mapping) else {"": counts}
        for split, count in by_split.items():
            counts_of_split.setdefault(split, []).append(count)
    texts = []
    for split, split_counts in counts_of_split.items():
        fewest = min(split_counts)
        most = max(split_counts)
        text = f"{fewest:,}"
        if most > fewest:
            text += f" to {most:,}"
        texts.append(f"{split} {text}".strip())
    return f"{', '.join(texts)} in each of {', '.join(rows)}"


def _further_measures_table(section: Section) -> list[str]:
    """Return a table with one row per measure and system, and the columns of the summary."""
    rows = []
    for name, title in _titles_of_measures(section.results[0]).items():
        for _, label, columns in section.rows():
            scores = [column.extra.get(name) for column in columns]
            if any(score is not None for score in scores):
                texts = [_further_measure_text(name, score) for score in scores]
                rows.append([title, label, *texts])
    if not rows:
        return []
    return markdown_table(["Measure", "System", *section.titles], rows, left=2)


def _further_measure_text(name: str, score: float | None) -> str:
    """Return a share in percent, and a mean count with one decimal."""
    if score is not None and name in EXTRAS and not EXTRAS[name].is_share:
        return f"{score:.1f}"
    return percent(score)


def _titles_of_measures(result: TaskResult) -> dict[str, str]:
    """Return the titles of the further measures, by their names in `Cell.extra`."""
    titles = {}
    for name in result.cells[0].extra:
        for prefix, title in TITLES_OF_GROUPS.items():
            if name.startswith(prefix):
                group = name.removeprefix(prefix).replace("_", " ")
                titles[name] = title.format(group)
    for name, measure in EXTRAS.items():
        titles[name] = measure.title
    titles["ties"] = "Ties (%), which count as half"
    return titles


def _has_matrix(result: TaskResult) -> bool:
    """Return whether the cells fill more than one row or column of a matrix."""
    sources, targets = languages_of(result.cells)
    if len(sources) == 1 or len(targets) == 1:
        return False
    return len(result.cells) > max(len(sources), len(targets))


def _matrix_table(result: TaskResult) -> list[str]:
    """Return a table of all cells of one system, with source languages as rows."""
    sources, targets = languages_of(result.cells)
    texts = {}
    for cell in result.cells:
        texts[cell.pair] = _value_text(cell.value, cell.std, cell.interval)
    rows = []
    for source in sources:
        texts_of_row = [texts.get((source, target), "–") for target in targets]
        rows.append([f"**{markdown_escape(source)}**", *texts_of_row])
    return markdown_table(["", *targets], rows)


def _settings_table(section: Section) -> list[str]:
    """Return a table of the settings, with a column per system."""
    settings_of_systems = []
    for result in section.results:
        settings = dict(_flatten(result.settings))
        settings["fingerprint"] = result.system_fingerprint
        for part, seconds in result.seconds.items():
            settings[f"seconds of {part}"] = f"{seconds:,.1f}"
        settings_of_systems.append(settings)
    names: dict[str, None] = {}  # a set in the order of insertion
    for settings in settings_of_systems:
        names |= dict.fromkeys(settings)
    rows = []
    for name in names:
        texts = [str(settings.get(name, "–")) for settings in settings_of_systems]
        rows.append([f"`{name}`", *map(markdown_escape, texts)])
    return markdown_table(["", *section.labels], rows)


# ---- Notes


def _notes(section: Section) -> list[str]:
    """Return what a reader of the numbers must know, one paragraph each."""
    notes: list[str] = []
    for result, label, columns in section.rows():
        notes.extend(_notes_on_system(result, label, columns))
    left_out = max(cell.extra.get("left_out", 0) for cell in section.results[0].cells)
    if left_out:
        notes.append(
            "Left out because they repeat a text of an earlier row: "
            f"up to {left_out:,.0f} rows per pair."
        )
    unanswered = max(cell.extra.get("unanswered", 0) for cell in section.results[0].cells)
    if unanswered:
        notes.append(
            "Left out because the other language lacks their paragraph: "
            f"up to {unanswered:,.0f} questions per pair."
        )
    images_left_out = max(cell.extra.get("images_left_out", 0) for cell in section.results[0].cells)
    if images_left_out:
        notes.append(
            "Left out because they fill no fold of images that are searched together: "
            f"the last {images_left_out:,.0f} test images."
        )
    return [f"**Note:** {note}" for note in notes]


def _notes_on_system(
    result: TaskResult, label: str, columns: Sequence[SummaryColumn]
) -> Iterator[str]:
    not_better = []
    for column in columns:
        if column.majority is not None and column.value <= column.majority:
            not_better.append(column.title)
    if not_better:
        yield (
            f"{label}: no better than always guessing the most frequent class "
            f"({', '.join(not_better)})."
        )
    if result.truncated and result.truncated[0]:
        yield _note_on_truncation(result, label, result.truncated)
    constant = []
    for cell in result.cells:
        if cell.extra.get("constant"):
            constant.append("-".join(cell.pair))
    if constant:
        yield (
            f"{label}: all similarities of {', '.join(constant)} are equal; "
            "the correlation counts as 0."
        )


def _note_on_truncation(result: TaskResult, label: str, counts: tuple[int, int]) -> str:
    limit = result.settings.get("system", {}).get("max_length")
    limit_text = f"{limit:,} tokens" if limit else "the limit of the model"
    truncated, total = counts
    return (
        f"{label}: {truncated:,} of {total:,} texts were longer than {limit_text} and were "
        "truncated (TF-IDF reads whole texts)."
    )


# ---- Differences of two systems


def differences_markdown(
    a: Sequence[TaskResult], b: Sequence[TaskResult], **options: Any
) -> str | None:
    """Return a table of the differences of system B from A on the tasks that they share.

    Args:
        a: The results of one system.
        b: The results of another one.
        options: Options of `tmde.eval.statistics.compare`.

    Returns:
        Markdown; None if they share no task.
    """
    first_results = {result.task: result for result in a}
    differences = []
    for result in b:
        if result.task in first_results:
            differences += compare(first_results[result.task], result, **options)
    if not differences:
        return None
    return differences_table(f"{b[0].system} - {a[0].system}", differences)


def differences_table(name: str, differences: Sequence[Difference]) -> str:
    """Return a Markdown table of the differences between two systems.

    Args:
        name: The heading, `<second> - <first>`.
        differences: The differences; each becomes a row.
    """
    header = ["task", "cells", "first", "second", "difference", "95% interval", "p", "p (folds)"]
    table = markdown_table(header, list(map(_difference_row, differences)), left=2)
    notes = [
        "p: the probability of a difference this large if both systems are equally good "
        "(randomization test over the test items)."
    ]
    if any(difference.fold_p is not None for difference in differences):
        notes.append(
            "p (folds): the same from a paired t-test over classifiers trained and tested on ten "
            "other splits of the documents (rcv: six). It covers only Cross, the mean over the "
            "languages that a classifier was not trained on."
        )
    notes.append("No p-value is corrected for multiple comparisons.")
    note = " ".join(notes)
    blocks = [f"### {markdown_escape(name)} (x 100)", "\n".join(table), note]
    return "\n\n".join(blocks) + "\n"


def _difference_row(difference: Difference) -> list[str]:
    low, high = difference.interval
    return [
        markdown_escape(difference.task),
        markdown_escape(difference.group),
        percent(difference.a),
        percent(difference.b),
        f"{100 * difference.difference:+.1f}",
        f"{100 * low:+.1f} to {100 * high:+.1f}",
        _p_text(difference.p),
        _p_text(difference.fold_p),
    ]


def _p_text(p: float | None) -> str:
    return "–" if p is None else f"{p:.2g}"
