"""What `tmde eval` prints and writes beside the report: comparisons, figures, model-card metadata."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.figures import draw_accuracy_matrix, draw_embedding_space
from modeling_tmde.eval.markdown import markdown_escape, markdown_table
from modeling_tmde.eval.model_index import write_model_index
from modeling_tmde.eval.report import markdown_report
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.runner import EvaluationOptions, LoadedTask
from modeling_tmde.eval.significance import Difference
from modeling_tmde.eval.storage import write_results
from modeling_tmde.eval.systems import EmbeddingSystem, System
from modeling_tmde.eval.tasks import ClassificationData

logger = logging.getLogger(__name__)

DRAWN_DOCUMENTS = 150
Differences = Sequence[tuple[str, Difference]]  # each with `<second> - <first>`, the names of its systems


def comparison_tables(differences: Differences) -> list[Table]:
    """For the terminal: one for each pair of systems."""
    tables = []
    for pair in dict.fromkeys(name for name, _ in differences):
        chosen = [difference for name, difference in differences if name == pair]
        table = Table(title=escape(f"{pair} (x 100)"), caption=_note(chosen))
        for number, header in enumerate(_header(chosen)):
            table.add_column(header, justify="left" if number < 2 else "right", no_wrap=number > 0, overflow="fold")
        for difference in chosen:
            table.add_row(*map(escape, _row(difference, chosen)))
        tables.append(table)
    return tables


def comparison_markdown(differences: Differences) -> str:
    """As a section of the report."""
    lines = ["## Differences", ""]
    for pair in dict.fromkeys(name for name, _ in differences):
        chosen = [difference for name, difference in differences if name == pair]
        rows = [[markdown_escape(text) for text in _row(difference, chosen)] for difference in chosen]
        lines += [f"### {markdown_escape(pair)} (x 100)", "", *markdown_table(_header(chosen), rows, left=2), ""]
        lines += [_note(chosen), ""]
    return "\n".join(lines)


def _has_folds(differences: Sequence[Difference]) -> bool:
    return any(difference.fold_p is not None for difference in differences)


def _note(differences: Sequence[Difference]) -> str:
    text = "p: approximate randomisation over test items. "
    if _has_folds(differences):
        text += "p (folds): paired t-test over ten folds (thesis 4.6), on Cross of classification. "
    return text + "Not corrected for the number of comparisons."


def _header(differences: Sequence[Difference]) -> list[str]:
    names = ["task", "cells", "first", "second", "difference", "95% interval", "p"]
    return [*names, "p (folds)"] if _has_folds(differences) else names


def _row(difference: Difference, among: Sequence[Difference]) -> list[str]:
    low, high = difference.interval
    texts = [
        difference.task,
        difference.group,
        f"{100 * difference.a:.1f}",
        f"{100 * difference.b:.1f}",
        f"{100 * difference.difference:+.1f}",
        f"[{100 * low:+.1f}, {100 * high:+.1f}]",
        _p_value(difference.p),
    ]
    if _has_folds(among):
        texts.append("–" if difference.fold_p is None else _p_value(difference.fold_p))
    return texts


def _p_value(p: float) -> str:
    return "≤0.0001" if p <= 0.0001 else f"{p:.4f}"


def write_output(
    folder: Path,
    results: Sequence[TaskResult],
    differences: Differences,
    tasks: Sequence[LoadedTask],
    models: Sequence[EmbeddingSystem],
    figures: bool,
    options: EvaluationOptions,
    command: Sequence[str],
) -> None:
    """Writes `eval.json`, `outcomes.npz`, `report.md`, one `model_index` file a model, and the figures of the models.

    `options` and `command` (the arguments after `tmde`) are kept in `eval.json`, to repeat the evaluation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("model_index-*.yaml", "figures/*-matrix.png", "figures/*-space.png"):
        for stale in folder.glob(pattern):  # of an earlier evaluation, maybe of other models
            stale.unlink()
    info = {"command": ["tmde", *command], "options": asdict(options)}
    info["models"] = {system.name: repr(system.embedder) for system in models}
    write_results(folder, list(results), json.loads(json.dumps(info)))
    report = markdown_report(results)
    if differences:
        report += "\n" + comparison_markdown(differences)
    for name in dict.fromkeys(result.system for result in results if result.truncated is not None):
        chosen = [result for result in results if result.system == name]
        write_model_index(folder / f"model_index-{_file_name(name)}.yaml", chosen, name)
    if figures:
        draw_figures(folder / "figures", results, tasks, models, options.seed)
        pictures = sorted(path.name for path in (folder / "figures").glob("*.png"))
        report += "\n## Figures\n\n" + "\n\n".join(f"![{name}](figures/{name})" for name in pictures) + "\n"
    write_atomically(folder / "report.md", report)


def draw_figures(
    folder: Path, results: Sequence[TaskResult], tasks: Sequence[LoadedTask], systems: Sequence[System], seed: int
) -> None:
    """Accuracy matrices by task, and t-SNE maps of the test documents by task and system (from the cache)."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        data = task.data
        matrices = {result.system: result.cells for result in results if result.task == task.name}
        whole = all(len({cell.source for cell in cells}) > 1 for cells in matrices.values())
        if matrices and whole and all(result.protocol != "leave-one-out" for result in results):
            draw_accuracy_matrix(folder / f"{_file_name(task.name)}-matrix.png", matrices, task.name)
        if isinstance(data, ClassificationData) and data.splits[data.languages[0]]["test"].second_texts is None:
            for system in systems:
                path = folder / f"{_file_name(task.name)}-{_file_name(system.name)}-space.png"
                try:
                    _draw_space(path, task, system, seed)
                except ValueError as error:  # too few documents for t-SNE
                    logger.warning("%s is not drawn: %s", path.name, error)


def _draw_space(path: Path, task: LoadedTask, system: System, seed: int) -> None:
    vectors, labels, languages, ids = [], [], [], []
    for language, splits in task.data.splits.items():
        split = splits["test"]
        vectors.append(system.represent(split.texts, split.texts, language))
        labels += split.labels
        languages += [language] * len(split)
        ids += split.ids
    title = f"{task.name}: test documents, {system.name}"
    draw_embedding_space(
        path, np.concatenate(vectors), labels, languages, ids, title, seed, max_documents=DRAWN_DOCUMENTS
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
