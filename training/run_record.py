"""The records of a run: its data for `run.json`, and at its end model, results and card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import datasets
from transformers.utils import logging

from tmde.data.io import write_atomically
from tmde.eval.dev_retrieval import retrieval_pools
from tmde.eval.tasks import ClassificationData, data_fingerprint
from tmde.hub_cards import (
    check_license,
    describe_start,
    describe_teachers,
    inherited_license,
    license_chain,
    write_model_card,
)
from tmde.training.baselines import baseline_results
from tmde.training.lora import ADAPTERS_NAME
from tmde.training.recipe.sections import CardSection
from tmde.training.run_data import RunData
from tmde.training.trainer import DATA_STATE_NAME, OBJECTIVES_NAME, TmdeTrainer

logger = logging.get_logger("tmde.training")


# ---- At the beginning


def describe_data(data: RunData, eval_tasks: Mapping[str, ClassificationData]) -> dict[str, Any]:
    """Return the `data` of `run.json`: rows and fingerprints."""
    return {
        "train": _describe_rows(data.train),
        "dev": {name: _describe_rows(rows) for name, rows in data.dev.items()},
        "eval_task": {name: _describe_task(task) for name, task in eval_tasks.items()},
    }


def tell_licenses(
    origins: Mapping[str, Any],
    sources: Sequence[Mapping[str, Any]] = (),
    card: CardSection | None = None,
    is_pushed: bool = False,
) -> None:
    """Say what the licenses of a run's start, data and teachers ask of the trained model.

    Args:
        origins: What `describe_origins` returns.
        sources: What `licensed_sources` returns.
        card: What the recipe states for the card of the model.
        is_pushed: Whether the run pushes its model at its end.

    Raises:
        TmdeError: The run would push a model whose license is not one that they allow.
    """
    chain = license_chain(origins["begun_with"], sources)
    for sentence in [*describe_start(chain), *describe_teachers(origins.get("teachers", ()))]:
        logger.warning(sentence)
    if is_pushed:
        card = card or CardSection()
        check_license(card.license or inherited_license(chain), chain, card.license_override)


def _describe_rows(rows: datasets.Dataset | datasets.IterableDataset) -> dict[str, Any]:
    """Return the rows and the fingerprint of a dataset, or the shards of a stream."""
    if isinstance(rows, datasets.Dataset):
        return {"rows": len(rows), "fingerprint": rows._fingerprint}
    return {"rows": None, "streaming": True, "shards": rows.num_shards}


def _describe_task(task: ClassificationData) -> dict[str, Any]:
    return {"source": task.provenance.source, "fingerprint": data_fingerprint(task)}


# ---- At the end


def save_best(trainer: TmdeTrainer, folder: Path) -> None:
    """Put the best model at the top of the folder, complete before it gets its name.

    Every process must call it: each may hold a share of the weights.
    """
    temporary = folder / ".final.tmp"
    if trainer.is_world_process_zero():
        shutil.rmtree(temporary, ignore_errors=True)
    trainer.save_model(str(temporary), _internal_call=True)
    if trainer.is_world_process_zero():
        # Only checkpoints have these files.
        for name in (DATA_STATE_NAME, OBJECTIVES_NAME, ADAPTERS_NAME):
            (temporary / name).unlink(missing_ok=True)
        shutil.copytree(temporary, folder, dirs_exist_ok=True, copy_function=os.replace)
        shutil.rmtree(temporary)


def write_results(
    trainer: TmdeTrainer, folder: Path, data: RunData, languages: Sequence[str]
) -> None:
    """Write `results.json`, and warn of texts and rows that were not used in full.

    Args:
        trainer: The trainer after the run.
        folder: The folder of the run.
        data: The rows of the run.
        languages: The languages of the run, or the texts of triples between which it searched.
    """
    args = trainer.args
    meter = trainer.meter
    teachers = trainer.teachers
    teacher_seconds = 0.0 if teachers is None else teachers.seconds
    teacher_cpu_seconds = 0.0 if teachers is None else teachers.cpu_seconds
    counts = meter.chunk_counts
    results = {
        "steps": trainer.state.global_step,
        "best_step": trainer.state.best_global_step,
        "metric": args.metric_for_best_model,
        "best": _best_evaluation(trainer),
        **baseline_results(trainer, folder),
        # The number of texts that were searched, by dev set and measure: chance is one in them.
        "dev_pools": _pool_sizes(trainer, data.dev, languages),
        # All of the run: training, evaluations, and what the teachers read before it.
        "minutes": round((meter.seconds + teacher_seconds) / 60, 6),
        "evaluation_minutes": round(meter.evaluation_seconds / 60, 6),
        "teacher_minutes": round(teacher_seconds / 60, 6),
        "cpu_minutes": round((meter.cpu_seconds + teacher_cpu_seconds) / 60, 6),
        # Without the evaluation before the first step, which `cpu_minutes` leaves out as well.
        "evaluation_cpu_minutes": round(meter.evaluation_cpu_seconds / 60, 6),
        "teacher_cpu_minutes": round(teacher_cpu_seconds / 60, 6),
        # Of the first process: on a GPU the memory of tensors, else that of the whole process.
        "peak_memory_mib": trainer.peak_memory.mib,
        "seen": {name: value * args.world_size for name, value in meter.seen.items()},
        "rows": dict(counts),
        "corpus": asdict(data.report),
    }
    write_atomically(folder / "results.json", json.dumps(results, indent=2, default=str))
    if counts["truncated_texts"]:
        logger.warning(
            f"{counts['truncated_texts']:,} of {counts['texts']:,} texts drawn for training were "
            f"longer than {args.train_max_length} tokens and were truncated (train_max_length)"
        )
    if counts["rows_without_pair"]:
        logger.warning(
            f"{counts['rows_without_pair']:,} of {counts['rows']:,} rows had no pair with a pivot "
            "language"
        )
    for target in ("next", "column"):
        count = counts[f"rows_without_{target}"]
        if count:
            logger.warning(
                f"{count:,} of {counts['rows']:,} rows had no text to predict "
                f"(objectives.translation.targets, {target}) and were left out"
            )


def _best_evaluation(trainer: TmdeTrainer) -> dict[str, float] | None:
    """Return the evaluation of the best step, else the last one; None without any."""
    evaluations = [entry for entry in trainer.state.log_history if "eval_minutes" in entry]
    for evaluation in evaluations:
        if evaluation["step"] == trainer.state.best_global_step:
            return evaluation
    if evaluations:
        return evaluations[-1]
    return None


def _pool_sizes(
    trainer: TmdeTrainer, dev: Mapping[str, datasets.Dataset], languages: Sequence[str]
) -> dict[str, dict[str, int]]:
    sizes = {}
    for name, rows in dev.items():
        pools = retrieval_pools(rows, languages, trainer.args)
        sizes[name] = {measure: len(pool.sources) for measure, pool in pools.items()}
    return sizes


def write_card(folder: Path) -> None:
    """Write the model card of a finished run.

    An error is only a warning, because the model is there.
    """
    try:
        write_model_card(folder)
    except Exception as error:
        logger.warning(f"The model card was not written: {type(error).__name__}: {error}")
