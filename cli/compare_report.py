"""`table.md` and `table.json` of a comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from modeling_tmde.cli.compare_costs import ended_early, unlike_runs
from modeling_tmde.cli.compare_file import Comparison
from modeling_tmde.cli.compare_folder import TFIDF, ComparisonFolder
from modeling_tmde.cli.compare_table import (
    Column,
    Contrast,
    Differences,
    Measured,
    Row,
    add_differences,
    chance_of,
    columns_of,
    make_contrasts,
    make_rows,
    read_measured,
    value_of,
)
from modeling_tmde.data.io import environment, write_atomically
from modeling_tmde.eval.report import markdown_escape, markdown_table, percent

TABLE_NAME, DATA_NAME = "table.md", "table.json"
DIFFERENCES_NAME = "differences.json"
LEVEL = 0.05
BETTER, WORSE = "▲", "▼"
COSTS = ("CPU minutes", "words of pairs / CPU s", "parameters")


def write_table(
    comparison: Comparison, folder: ComparisonFolder, failures: Sequence[str] = (), test: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Writes `table.md` and `table.json` of what is measured so far.

    Args:
        failures: What went wrong, which both tell.
        test: Whether differences are tested, which takes seconds for each pair of systems.

    Returns:
        Header and rows of the table, as text.
    """
    measured = read_measured(comparison, folder)
    columns = columns_of(measured, comparison.task_titles)
    rows = make_rows(comparison, folder, measured, columns)
    contrasts: list[Contrast] = []
    if test:
        differences = Differences(measured, folder.path / "cache" / DIFFERENCES_NAME)
        reference = next(row for row in rows if row.system == comparison.reference)
        add_differences(reference, rows, columns, differences)
        contrasts = make_contrasts(comparison.contrasts, rows, columns, differences)
    unequal = [*comparison.budget_notes(), *ended_early(comparison, folder), *unlike_runs(comparison, folder)]
    problems = [*unequal, *failures, *measured.problems]
    header, body = table_rows(rows, measured, columns)
    text = _markdown(comparison, header, body, rows, contrasts, measured, problems)
    write_atomically(folder.path / TABLE_NAME, text)
    content = _content(comparison, rows, columns, contrasts, measured, problems)
    write_atomically(folder.path / DATA_NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return header, body


def table_rows(
    rows: Sequence[Row], measured: Measured, columns: Sequence[Column]
) -> tuple[list[str], list[list[str]]]:
    """TF-IDF, the systems in their order, and chance."""
    nothing = ["–"] * len(COSTS)
    body = [[row.title, *(_cell(row, column) for column in columns), *_costs(row.costs)] for row in rows]
    if measured.tfidf:
        values = [percent(value_of(measured.tfidf.get(column.task), column.group)) for column in columns]
        body.insert(0, [TFIDF, *values, *nothing])
    if columns:
        body.append(["chance", *(percent(chance_of(measured, column)) for column in columns), *nothing])
    return ["system", *(column.title for column in columns), *COSTS], body


def _cell(row: Row, column: Column) -> str:
    """`93.1 ± 0.2 ▲`."""
    values = row.values.get(column)
    if not values:
        return "–"
    text = percent(float(np.mean(values)))
    if len(values) > 1:
        text += f" ± {100 * float(np.std(values, ddof=1)):.1f}"
    found = row.differences.get(column)
    if found is not None and found["p"] < LEVEL:
        text += f" {BETTER if found['difference'] > 0 else WORSE}"
    return text


def _costs(costs: dict[str, Any]) -> list[str]:
    minutes, words, parameters = (costs.get(key) for key in ("cpu_minutes", "words_per_cpu_second", "parameters"))
    return [
        "–" if minutes is None else f"{minutes:.1f}",
        "–" if words is None else f"{words:,.0f}",
        "–" if parameters is None else f"{parameters / 1e6:.2f} M",
    ]


def _markdown(
    comparison: Comparison,
    header: Sequence[str],
    body: Sequence[Sequence[str]],
    rows: Sequence[Row],
    contrasts: Sequence[Contrast],
    measured: Measured,
    problems: Sequence[str],
) -> str:
    lines = [f"# {markdown_escape(comparison.description or 'Comparison')}", ""]
    escaped = [[markdown_escape(text) for text in row] for row in (header, *body)]
    lines += [*markdown_table(escaped[0], escaped[1:]), "", *_notes(comparison, rows), ""]
    if any(contrast.measures for contrast in contrasts):
        lines += ["## Contrasts", "", *_contrasts(comparison.titles, contrasts), ""]
    if truncated := _truncations(measured, comparison.titles):
        lines += [f"Texts that were cut: {'; '.join(truncated)}.", ""]
    if missing := [name for row in rows for name in row.missing]:
        lines += [f"**Not measured:** {', '.join(map(markdown_escape, missing))}.", ""]
    if problems:
        lines += ["## What to know", "", *(f"- {markdown_escape(text)}" for text in problems), ""]
    return "\n".join(lines).rstrip() + "\n"


def _notes(comparison: Comparison, rows: Sequence[Row]) -> list[str]:
    """Paragraphs under the table: how values and costs are to be read."""
    reference = comparison.titles.get(comparison.reference, comparison.reference)
    values = [
        f"All in %. {BETTER} and {WORSE}: above and below {markdown_escape(reference)} with p < {LEVEL} (approximate "
        "randomisation over test items, not corrected for the number of comparisons).",
        "Same: labels in the language of the test; Cross: in another.",
        *_seed_notes(rows),
    ]
    costs = [
        "CPU minutes: of all threads, a first stage and the start that a system begins with included, each up to its "
        "last training step: evaluations on the way count, the last one does not.",
        "Words of pairs / CPU s: the words of both sides of all text pairs that a system trained on (texts that "
        "train_max_length cut counted whole), by the CPU seconds of its own training, without first stage and start. "
        "They are not what its encoder reads: a plain translation system reads one side of most pairs and writes the "
        "other, while the distance constraint and contrastive losses read both.",
    ]
    paragraphs = [" ".join(values), " ".join(costs), *_language_notes(rows)]
    return [line for paragraph in paragraphs for line in (paragraph, "")][:-1]


def _seed_notes(rows: Sequence[Row]) -> list[str]:
    single = [row for row in rows if len(row.seeds) == 1]
    several = [row for row in rows if len(row.seeds) > 1]
    notes = []
    if several:
        notes.append("±: standard deviation over seeds. Tests and costs are those of the first seed.")
    if single:
        of = f"The values of {_titles(single)} are" if several else "All values are"
        notes.append(f"{of} of one seed; what another would change is not known, and p does not tell it.")
    return notes


def _language_notes(rows: Sequence[Row]) -> list[str]:
    """A system that knows the language of a text has an easier task than one that must find it out."""
    measured = [row for row in rows if row.seeds]
    told = [row for row in measured if row.told_languages]
    if not told:
        return []
    others = "; those of the others are not" if len(told) < len(measured) else ""
    return [f"The models of {_titles(told)} are told the language of every text, those of the tests too{others}."]


def _titles(rows: Sequence[Row]) -> str:
    return ", ".join(markdown_escape(row.title) for row in rows)


def _contrasts(titles: dict[str, str], contrasts: Sequence[Contrast]) -> list[str]:
    """A row a contrast; the intervals are in `table.json`."""
    columns = list(dict.fromkeys(column for contrast in contrasts for column in contrast.measures))
    body = []
    for contrast in contrasts:
        names = [titles.get(name, name) for name in (contrast.better, contrast.worse)]
        cells = [_contrast_cell(contrast.measures.get(column)) for column in columns]
        body.append([markdown_escape(" - ".join(names)), *cells])
    note = f"In points; in brackets p, bold where it is below {LEVEL}."
    if any(found["pairs_of_seeds"] > 1 for contrast in contrasts for found in contrast.measures.values()):
        note += " Of several seeds the mean, and how many differences have the sign of the first, whose p it is."
    header = ["difference", *(markdown_escape(column.title) for column in columns)]
    return [*markdown_table(header, body), "", note]


def _contrast_cell(found: dict[str, Any] | None) -> str:
    """`**+1.2** (0.003, 3/3)`."""
    if found is None:
        return "–"
    p, text = found["p"], f"{100 * found['mean_difference']:+.1f}"
    told = "≤0.0001" if p <= 0.0001 else f"{p:.2g}"
    if found["pairs_of_seeds"] > 1:
        told += f", {found['pairs_that_agree']}/{found['pairs_of_seeds']}"
    return f"**{text}** ({told})" if p < LEVEL else f"{text} ({told})"


def _truncations(measured: Measured, titles: dict[str, str]) -> list[str]:
    """`tmde 245 of 7,000 on topic_documents`, of the first seed."""
    told: dict[tuple[str, str], str] = {}
    for (system, _), results in measured.results.items():
        for result in results.values():
            if result.truncated is not None and result.truncated[0]:
                count, total = result.truncated
                text = f"{markdown_escape(titles.get(system, system))} {count:,} of {total:,} on "
                told.setdefault((system, result.task), text + markdown_escape(result.task))
    return list(told.values())


def _content(
    comparison: Comparison,
    rows: Sequence[Row],
    columns: Sequence[Column],
    contrasts: Sequence[Contrast],
    measured: Measured,
    problems: Sequence[str],
) -> dict[str, Any]:
    """The numbers unrounded, with versions, and the fingerprints of the training and test data."""
    tfidf = {column: value_of(measured.tfidf.get(column.task), column.group) for column in columns}
    return {
        **environment(),
        "description": comparison.description,
        "reference": comparison.reference,
        "columns": [asdict(column) for column in columns],
        "tasks": {result.task: result.data for result in measured.all_results()},
        "tfidf": _by_title(tfidf),
        "chance": _by_title({column: chance_of(measured, column) for column in columns}),
        "systems": {
            row.system: {
                "title": row.title,
                "seeds": row.seeds,
                "told_languages": row.told_languages,
                "values": _by_title(row.values),
                "differences_from_reference": _by_title(row.differences),
                **row.costs,
            }
            for row in rows
        },
        "contrasts": [{**vars(contrast), "measures": _by_title(contrast.measures)} for contrast in contrasts],
        "problems": list(problems),
    }


def _by_title(values: dict[Column, Any]) -> dict[str, Any]:
    return {column.title: value for column, value in values.items()}
