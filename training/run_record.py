"""The records of a run: what it read and began with, and at its end model, results and card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data import CorpusReport
from tmde.data.io import write_atomically
from tmde.data.rows import triple_texts
from tmde.eval.dev_retrieval import retrieval_pools
from tmde.eval.environment import environment
from tmde.eval.tasks import ClassificationData, data_fingerprint
from tmde.hub_cards import (
    check_license,
    describe_licenses,
    describe_origins,
    inherited_license,
    license_chain,
    write_model_card,
)
from tmde.training.recipe.describing import describe_recipe
from tmde.training.recipe.sections import CardSection
from tmde.training.run_folder import RECIPE_NAME, RUN_RECORD_NAME

if TYPE_CHECKING:
    from tmde.training.trainer import TmdeTrainer

logger = logging.get_logger("tmde.training")


# ---- At the beginning


def write_run_record(
    trainer: TmdeTrainer,
    folder: Path,
    origin: Mapping[str, Any],
    warm_start: Mapping[str, Any] | None = None,
    files: Any = None,
) -> None:
    """Write `run.json`, which says what a run was made from.

    Args:
        trainer: The trainer.
        folder: The folder of the run.
        origin: Where data and weights come from: `recipe`, `sources`, `begun_with`, `teachers`.
        warm_start: What the model took of a checkpoint; None if it took nothing.
        files: The files of the training data; None if they are not known.
    """
    dev = {name: _describe_rows(rows) for name, rows in trainer.eval_dataset.items()}
    tasks = {name: _describe_task(task) for name, task in trainer.eval_tasks.items()}
    data = {
        "train": _describe_rows(trainer.train_dataset),
        "dev": dev,
        "eval_task": tasks,
        "files": files,
    }
    record = {
        **environment(),
        "data": data,
        "parameters": trainer.model.num_parameters(),
        "seed": trainer.args.seed,
        "processes": trainer.args.world_size,
        "warm_start": warm_start,
        **origin,
    }
    write_atomically(folder / RUN_RECORD_NAME, json.dumps(record, indent=2, default=str))


def write_records(trainer: TmdeTrainer, folder: Path) -> None:
    """Write recipe, `run.json`, results and card of a trainer beside its model.

    A trainer that was made from a recipe has recipe and `run.json` in the folder of its run.
    """
    run_folder = Path(trainer.args.output_dir)
    if trainer.recipe is None:
        _describe_trainer(trainer, folder)
    elif folder.resolve() != run_folder.resolve():
        write_atomically(folder / RECIPE_NAME, trainer.recipe.to_yaml())
        shutil.copy(run_folder / RUN_RECORD_NAME, folder / RUN_RECORD_NAME)
    write_results(trainer, folder)
    write_card(folder)


def _describe_trainer(trainer: TmdeTrainer, folder: Path) -> None:
    """Write recipe and `run.json` of a trainer that was built in Python."""
    try:
        is_triples = triple_texts(trainer.parallel_model.texts) != ()
        recipe = describe_recipe(trainer.model, trainer.objectives, trainer.args, is_triples)
    except TmdeError as error:
        logger.warning(
            f"{RECIPE_NAME} was not written, because a recipe can't describe this run: {error}"
        )
        settings: dict[str, Any] = {}
    else:
        write_atomically(folder / RECIPE_NAME, recipe.to_yaml())
        settings = recipe.settings()
    opened = trainer.model.name_or_path  # The folder or Hub id that `from_pretrained` opened.
    # The section of an adapted encoder names it already.
    if opened and settings.get("model", {}).get("encoder") != opened:
        settings["warm_start"] = {"checkpoint": opened}
    origin = {"recipe": None, "sources": [], **describe_origins(settings)}
    write_run_record(trainer, folder, origin)


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
    for sentence in describe_licenses(chain, origins.get("teachers", ())):
        logger.warning(sentence)
    if is_pushed:
        card = card or CardSection()
        check_license(card.license or inherited_license(chain), chain, card.license_override)


def _describe_rows(
    rows: datasets.Dataset | datasets.IterableDataset | None,
) -> dict[str, Any] | None:
    """Return the rows and the fingerprint of a dataset, or the shards of a stream."""
    if rows is None:
        return None
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
    trainer.save_weights(temporary)
    if trainer.is_world_process_zero():
        shutil.copytree(temporary, folder, dirs_exist_ok=True, copy_function=os.replace)
        shutil.rmtree(temporary)


def write_results(trainer: TmdeTrainer, folder: Path, report: CorpusReport | None = None) -> None:
    """Write `results.json`, and warn of texts and rows that were not used in full.

    Args:
        trainer: The trainer after the run.
        folder: The folder of the run.
        report: The counts of bad training rows; None if they are not known.
    """
    args = trainer.args
    meter = trainer.meter
    teachers = trainer.teachers
    teacher_seconds = 0.0 if teachers is None else teachers.seconds
    teacher_cpu_seconds = 0.0 if teachers is None else teachers.cpu_seconds
    counts = meter.chunk_counts
    record = json.loads((folder / RUN_RECORD_NAME).read_text(encoding="utf-8"))
    results = {
        "steps": trainer.state.global_step,
        "best_step": trainer.state.best_global_step,
        "metric": args.metric_for_best_model,
        "best": _best_evaluation(trainer),
        # None if the run did not measure it. A resumed run has the values of its first part.
        "start": _first_evaluation(trainer),
        "packaged": record.get("packaged"),
        # The number of texts that were searched, by dev set and measure: chance is one in them.
        "dev_pools": _pool_sizes(trainer),
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
        "corpus": None if report is None else asdict(report),
    }
    write_atomically(folder / "results.json", json.dumps(results, indent=2, default=str))
    if counts["truncated_texts"]:
        logger.warning(
            f"{counts['truncated_texts']:,} of {counts['texts']:,} texts drawn for training were "
            f"longer than {args.train_max_length} tokens and were truncated (train_max_length)"
        )
    if counts["rows_without_pair"]:
        logger.warning(
            f"{counts['rows_without_pair']:,} of {counts['rows']:,} rows had no language pair "
            "with a pivot language"
        )
    for target in ("next", "column"):
        count = counts[f"rows_without_{target}"]
        if count:
            logger.warning(
                f"{count:,} of {counts['rows']:,} rows had no text to predict "
                f"(objectives.translation.targets, {target}) and were skipped"
            )


def _first_evaluation(trainer: TmdeTrainer) -> dict[str, float] | None:
    """Return the evaluation before the first step; None without one."""
    for entry in trainer.state.log_history:
        if "eval_minutes" in entry and entry["step"] == 0:
            return entry
    return None


def _best_evaluation(trainer: TmdeTrainer) -> dict[str, float] | None:
    """Return the evaluation of the best step, else the last one; None without any."""
    evaluations = [entry for entry in trainer.state.log_history if "eval_minutes" in entry]
    for evaluation in evaluations:
        if evaluation["step"] == trainer.state.best_global_step:
            return evaluation
    if evaluations:
        return evaluations[-1]
    return None


def _pool_sizes(trainer: TmdeTrainer) -> dict[str, dict[str, int]]:
    searched_texts = trainer.parallel_model.searched_texts
    sizes = {}
    for name, rows in trainer.eval_dataset.items():
        pools = retrieval_pools(rows, searched_texts, trainer.args)
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
