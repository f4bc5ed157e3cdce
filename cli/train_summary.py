"""What `tmde train` prints at the end of a run: its scores and those of the reference models."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from huggingface_hub.constants import ENDPOINT
from tabulate import tabulate

from tmde.data import DOCUMENT_ID
from tmde.training.trainer import TmdeTrainer

MEAN = "eval_retrieval"
MISSING = "-"

Scores = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A model in the closing table.

    Attributes:
        title: The heading of the column.
        scores: Its scores by measure, between 0 and 1; None if it was not measured.
    """

    title: str
    scores: Scores | None

    def percent(self, measure: str) -> str:
        """Return a score in percent, with one decimal."""
        value = (self.scores or {}).get(measure)
        return MISSING if value is None else f"{100 * value:.1f}"


def summarize(trainer: TmdeTrainer, output: Path) -> None:
    """Print the best checkpoint's measures, what they mean, and where the model is.

    Args:
        trainer: The trainer after the run.
        output: The folder of the run.
    """
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    warmup_steps = trainer.args.get_warmup_steps(trainer.state.max_steps)
    for line in closing_lines(results, warmup_steps, _sets_with_documents(trainer)):
        typer.echo(line)
    typer.echo(f"{describe_time(results)}; the model is in {output}")
    if trainer.hub_model_id is not None:
        typer.echo(f"On the Hub: {ENDPOINT}/{trainer.hub_model_id}")


def _sets_with_documents(trainer: TmdeTrainer) -> set[str]:
    """Return the dev sets whose rows name their documents."""
    names = set()
    for name, rows in (trainer.eval_dataset or {}).items():
        if DOCUMENT_ID not in rows.column_names:
            continue
        # The column of a source that names no documents is empty.
        if any(document_id is not None for document_id in rows[DOCUMENT_ID]):
            names.add(name)
    return names


def describe_time(results: Mapping[str, Any]) -> str:
    """Return the number of steps and the minutes of training, evaluations and teachers.

    Args:
        results: The content of `results.json`.
    """
    minutes = results["minutes"]
    evaluation_minutes = results.get("evaluation_minutes", 0.0)
    teacher_minutes = results.get("teacher_minutes", 0.0)
    training_minutes = minutes - evaluation_minutes - teacher_minutes
    parts = [f"{training_minutes:.2f} minutes of training"]
    if evaluation_minutes > 0:
        parts.append(f"{evaluation_minutes:.2f} of evaluation")
    if teacher_minutes > 0:
        parts.append(f"{teacher_minutes:.2f} of computing teacher vectors")
    time = parts[0]
    if len(parts) > 1:
        time = f"{', '.join(parts[:-1])} and {parts[-1]}"
    if len(parts) > 2:
        time += f"; {minutes:.2f} in all"
    return f"{results['steps']:,} steps in {time}"


def closing_lines(
    results: Mapping[str, Any], warmup_steps: int, sets_with_documents: Collection[str] = ()
) -> list[str]:
    """Return the table of scores, and sentences about a run without improvement.

    Args:
        results: The content of `results.json`.
        warmup_steps: The number of steps in which the learning rate rises from 0.
        sets_with_documents: The dev sets whose rows name their documents. The scores of others'
            documents, which are just consecutive rows, are not shown.
    """
    best = results["best"]
    lines = []
    if best is not None:
        packaged = Column("packaged model", results.get("packaged"))
        start = Column("start", results.get("start"))
        trained = Column("yours", best)
        table = _table(packaged, start, trained, sets_with_documents)
        if table:
            lines.append(table)
        lines.extend(_comparison(packaged, start, trained))
    steps = results["steps"]
    if steps <= max(warmup_steps, 1):
        lines.append(
            f"The run ended after {steps:,} step{'' if steps == 1 else 's'}, while the learning "
            "rate was still warming up, so the model has hardly learned anything. Train longer "
            "(--minutes, --steps)."
        )
    return lines


def _table(
    packaged: Column, start: Column, trained: Column, sets_with_documents: Collection[str]
) -> str:
    """Return the table; empty if nothing was measured."""
    columns = [column for column in (packaged, start) if column.scores is not None]
    columns.append(trained)
    rows = []
    for measure in _measures(trained, sets_with_documents):
        rows.append([_title(measure), *(column.percent(measure) for column in columns)])
    if not rows:
        return ""
    titles = ["On the dev rows, %", *(column.title for column in columns)]
    alignment = ("left", *("right" for _ in columns))
    return tabulate(rows, titles, colalign=alignment, disable_numparse=True)


def _measures(trained: Column, sets_with_documents: Collection[str]) -> list[str]:
    """Return the measures that the table shows: retrieval, its mean first, then accuracies.

    They are sorted, because a resumed run has its scores in another order.
    """
    sentences = []
    documents = []
    accuracies = []
    for measure in sorted(trained.scores or ()):
        dev_set, is_of_documents, _ = measure.removeprefix("eval_").partition("_doc_p1_")
        if is_of_documents:
            if dev_set in sets_with_documents:
                documents.append(measure)
        elif "_p1_" in measure:
            sentences.append(measure)
        elif "cross" in measure or "accuracy" in measure:
            accuracies.append(measure)
    measures = [*sentences, *documents, *accuracies]
    if MEAN in (trained.scores or ()):
        measures.insert(0, MEAN)
    return measures


def _title(measure: str) -> str:
    """Return what the table calls a measure: `dev_p1_de-en` is P@1 of the pair de-en."""
    if measure == MEAN:
        return "P@1, mean"
    name = measure.removeprefix("eval_")
    dev_set, is_retrieval, pair = name.rpartition("_p1_")
    if not is_retrieval:
        return name
    kind = ""
    if dev_set.endswith("_doc"):
        dev_set = dev_set.removesuffix("_doc")
        kind = " documents"
    return f"P@1, {dev_set}{kind} {pair}"


def _comparison(packaged: Column, start: Column, trained: Column) -> list[str]:
    """Return sentences about a model that is worse than the packaged one, or than its start."""
    lines = []
    if _is_worse(trained, packaged):
        lines.append(
            "This model is worse than the packaged one on your dev rows "
            f"({trained.percent(MEAN)} < {packaged.percent(MEAN)}). Train longer, lower the "
            "learning rate, or use the packaged model (`-m default`)."
        )
    if _is_worse(trained, start) and start.percent(MEAN) != packaged.percent(MEAN):
        lines.append(
            "This model is worse than the one it was initialized from "
            f"({trained.percent(MEAN)} < {start.percent(MEAN)}). Lower the learning rate, or train "
            "longer."
        )
    return lines


def _is_worse(trained: Column, other: Column) -> bool:
    """Return whether a model is worse than another by at least the last digit that is shown."""
    values = (trained.percent(MEAN), other.percent(MEAN))
    return MISSING not in values and float(values[0]) < float(values[1])
