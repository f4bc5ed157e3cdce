"""What a run is measured against: the packaged model, and the model that the run began with."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import datasets

from tmde.data.io import write_atomically
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.dev_retrieval import dev_retrieval
from tmde.hub_cards.run_records import read_json
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.evaluation import retrieval_mean_of

if TYPE_CHECKING:
    from tmde.training.trainer import TmdeTrainer

RUN_RECORD = "run.json"
PACKAGED = "packaged"  # The key in `run.json` and in `results.json`.


def record_packaged_scores(
    folder: Path,
    dev_sets: Mapping[str, datasets.Dataset],
    languages: list[str],
    args: TmdeTrainingArguments,
) -> None:
    """Measure the packaged model on the dev rows of a run, and write that to `run.json`.

    Args:
        folder: The folder of the run, which has `run.json`.
        dev_sets: The dev sets by name.
        languages: The languages of the run, all of which the packaged model has.
        args: The training arguments.
    """
    embedder = DocumentEmbedder.from_pretrained()
    record = read_json(folder / RUN_RECORD)
    record[PACKAGED] = retrieval_scores(embedder, dev_sets, languages, args)
    write_atomically(folder / RUN_RECORD, json.dumps(record, indent=2))


def retrieval_scores(
    embedder: DocumentEmbedder,
    dev_sets: Mapping[str, datasets.Dataset],
    languages: list[str],
    args: TmdeTrainingArguments,
) -> dict[str, float]:
    """Return the retrieval on dev rows by the names that the trainer's evaluation gives it.

    Args:
        embedder: A model.
        dev_sets: The dev sets by name.
        languages: The languages of the run.
        args: The training arguments.

    Returns:
        `eval_<set>_<measure>`, and the means `eval_retrieval` and `eval_document_retrieval`.
    """
    scores: dict[str, float] = {}
    values_by_mean: dict[str, list[float]] = defaultdict(list)
    for set_name, rows in dev_sets.items():
        for measure, value in dev_retrieval(embedder, rows, languages, args).items():
            scores[f"eval_{set_name}_{measure}"] = round(value, 6)
            values_by_mean[retrieval_mean_of(measure)].append(value)
    for mean, values in values_by_mean.items():
        scores[f"eval_{mean}"] = round(fmean(values), 6)
    return scores


def baseline_results(trainer: TmdeTrainer, folder: Path) -> dict[str, Any]:
    """Return what `results.json` says of the models that a run is measured against.

    Args:
        trainer: The trainer after the run.
        folder: The folder of the run.

    Returns:
        `start`, the evaluation before the first step, and `packaged`, the scores of the packaged
        model. A value is None if the run did not measure it. A resumed run has those of its first
        part.
    """
    start = None
    for entry in trainer.state.log_history:
        if "eval_minutes" in entry and entry["step"] == 0:
            start = entry
    record = read_json(folder / RUN_RECORD)
    return {"start": start, PACKAGED: record.get(PACKAGED)}
