"""Training from a recipe: what `tmde train` and `accelerate launch -m modeling_tmde.training.train` both run."""

import copy
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import datasets
import typer
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from huggingface_hub.constants import ENDPOINT
from rich.console import Console
from rich.table import Table
from transformers import set_seed
from transformers.utils import logging

from modeling_tmde.data import CorpusReport, load_parallel
from modeling_tmde.data.io import write_atomically
from modeling_tmde.data.token_cache import open_token_cache
from modeling_tmde.eval.tasks import ClassificationData, data_fingerprint
from modeling_tmde.loading import position_limit
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.building import build_model, check_same_model, prepare_tokenizer, share_tokenizer
from modeling_tmde.training.command import train
from modeling_tmde.training.evaluation import check_metric, load_eval_tasks, loss_rows
from modeling_tmde.training.held_out import hold_out_rows
from modeling_tmde.training.hub_encoder import check_encoder
from modeling_tmde.training.overwriting import check_inputs_stay
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.publishing import HubUploadError, open_hub_repository
from modeling_tmde.training.recipe import Recipe, RecipeError
from modeling_tmde.training.replay import load_replayed, replayed_sources
from modeling_tmde.training.run_record import (
    dev_pools,
    find_checkpoint,
    fingerprint,
    origins,
    run_settings,
    write_card,
    write_run_record,
)
from modeling_tmde.training.stages import (
    STAGE_FOLDER,
    apply_warm_start,
    check_warm_start,
    prepare_warm_start,
)
from modeling_tmde.training.teacher_vectors import prepare_teacher_vectors
from modeling_tmde.training.teacher_version import RECORD as TEACHER_RECORD
from modeling_tmde.training.trainer import DATA_STATE_NAME, TmdeTrainer

logger = logging.get_logger("modeling_tmde.training")

WRITTEN_FIRST = {"recipe.yaml", "run.json", "tokenizer", TEACHER_RECORD}  # before the first step


class RunFolderError(ValueError):
    """The output folder holds another run, or none to resume."""


def load_data(recipe: Recipe) -> tuple[Any, dict[str, datasets.Dataset], CorpusReport]:
    """Training rows (map-style or streaming), dev sets by name, and the count of bad training rows."""
    data, report = recipe.data, CorpusReport()
    if data.train is None:
        raise RecipeError(
            f"Recipe {recipe.name} needs training data: give --train with a file, a folder, a Hub dataset id, "
            "or 'sample' for the built-in sample"
        )
    if replayed_sources(data.train) is not None:
        return load_replayed(recipe)
    options = {"languages": data.languages, "pivot_languages": data.pivot_languages, "bad_rows": data.bad_rows}
    seed = recipe.sections["training"].get("seed", 42)
    holds_out = data.dev is None and data.dev_rows > 0
    train = load_parallel(
        data.train,
        **options,
        split="train",
        streaming=data.streaming,
        temperature=data.temperature,
        seed=seed,
        max_rows=data.max_rows,
        report=report,
        document_ids=not data.streaming,
    )
    if data.dev is not None:
        sources = data.dev if isinstance(data.dev, dict) else {_source_name(data.dev): data.dev}
        dev = {}
        for name, source in sources.items():
            split = "dev" if source == "sample" else "train"
            max_rows = 2000 if source == "sample" else None
            dev[name] = load_parallel(source, **options, split=split, max_rows=max_rows, document_ids=True)
        return train, dev, report
    if not holds_out:
        return train, {}, report
    train, held = hold_out_rows(train, data.dev_rows, seed)
    return train, {"dev": held}, report


def _source_name(source: Any) -> str:
    first = source[0] if isinstance(source, list) else source
    return Path(str(first)).name.partition(".")[0].replace("*", "") or "dev"


def open_run_folder(folder: Path, resume: bool, overwrite: bool) -> Path | None:
    """Checks the output folder, deletes an earlier run there, and returns the checkpoint to resume from."""
    checkpoint = check_run_folder(folder, resume, overwrite)
    if overwrite and not resume and folder.exists():
        shutil.rmtree(folder)
    return checkpoint


def check_run_folder(folder: Path, resume: bool, overwrite: bool) -> Path | None:
    """
    Returns:
        The checkpoint to resume from.

    Raises:
        RunFolderError: The folder holds another run, or none to resume.
    """
    used = folder.exists() and any(folder.iterdir())
    if resume:
        checkpoint = find_checkpoint(folder)
        if checkpoint is None and not (folder / STAGE_FOLDER).is_dir():
            raise RunFolderError(f"{folder} holds no complete checkpoint to resume from")
        return checkpoint
    if used and not overwrite:
        raise RunFolderError(f"{folder} is not empty: choose another folder, or --resume its run, or --overwrite it")
    if used and not (folder / "recipe.yaml").exists():
        raise RunFolderError(f"{folder} does not look like a training run; it is not overwritten")
    return None


def train_recipe(recipe: Recipe, output_dir: str | Path, resume: bool = False, overwrite: bool = False) -> TmdeTrainer:
    """
    Trains a recipe into `output_dir`: the best checkpoint at its top, as `AutoModel` opens it, beside `recipe.yaml`,
    `run.json`, `log.jsonl`, `epochs.md`, `curves.png` (where matplotlib is installed), `results.json` and the last
    checkpoints.

    Args:
        recipe: From `load_recipe`.
        output_dir: New or empty, unless resuming or overwriting.
        resume: Go on from the newest complete checkpoint, to the same result as a run that was never interrupted
            (a run limited by minutes ends where the clock says).
        overwrite: Delete an earlier run in the folder.

    Returns:
        The trainer, with the best weights loaded.

    Raises:
        RecipeError, RunFolderError, CorpusError, TaskError: Each names what was found and what was expected.
        HubUploadError: The last push failed; the run's folder is complete.
    """
    with _gone_if_nothing_was_trained(Path(output_dir)):
        return _train_recipe(recipe, Path(output_dir), resume, overwrite)


@contextmanager
def _gone_if_nothing_was_trained(folder: Path) -> Iterator[None]:
    """Deletes a folder that is new, if it then holds but what is written before training: the corrected command would
    be refused, as if there were a run."""
    existed = folder.exists()
    try:
        yield
    except Exception:
        if PartialState().is_main_process and not existed and folder.is_dir():
            if {path.name for path in folder.iterdir()} <= WRITTEN_FIRST:
                shutil.rmtree(folder)
        raise


def _train_recipe(recipe: Recipe, folder: Path, resume: bool, overwrite: bool) -> TmdeTrainer:
    state = PartialState()
    recipe_yaml, recipe = recipe.to_yaml(), copy.deepcopy(recipe)  # a warm start settles some keys of this run
    if resume:
        check_same_model(recipe, folder)
    else:
        check_warm_start(recipe)
        check_encoder(recipe)
        if overwrite:
            check_inputs_stay(recipe, folder)
    if recipe.sections["training"].get("hub_token"):
        raise RecipeError("hub_token would stand in recipe.yaml for all to read; set HF_TOKEN, or run `hf auth login`")
    arguments = recipe.build_arguments(str(folder))
    objectives = recipe.build_objectives()
    checkpoint = None
    error = ""
    if state.is_main_process:
        try:
            if arguments.push_to_hub:  # what is wrong with it should not be found out after hours
                open_hub_repository(arguments, ARCHITECTURES[recipe.architecture].config.model_type)
            checkpoint = check_run_folder(folder, resume, overwrite)
        except (RunFolderError, HubUploadError) as problem:
            error = str(problem)
    checkpoint, error = _from_main([checkpoint, error])
    if error:
        raise RunFolderError(error)
    with state.main_process_first():
        eval_tasks = load_eval_tasks(recipe.data.eval_task, recipe.data.languages)
        train, dev, report = load_data(recipe)
        if dev or eval_tasks:
            check_metric(arguments, dev, eval_tasks, objectives, recipe.data.languages)
        origin = origins(recipe)
        if state.is_main_process and not resume:
            open_run_folder(folder, resume, overwrite)
            folder.mkdir(parents=True, exist_ok=True)
        if state.is_main_process and checkpoint is None:  # now the folder is a run, which --overwrite may delete
            write_atomically(folder / "recipe.yaml", recipe_yaml)
        if checkpoint is None:
            share_tokenizer(recipe, train, folder / "tokenizer")
    start = prepare_warm_start(recipe, folder, checkpoint, train_recipe)
    with state.main_process_first():
        tokenizer = prepare_tokenizer(recipe, train, folder / "tokenizer", checkpoint)
    # Made before the clock of the run begins; the trainer finds it.
    show_progress = state.is_main_process and not arguments.disable_tqdm
    open_token_cache(train, tokenizer, recipe.data.languages, arguments.token_cache_dir, show_progress)
    set_seed(arguments.seed)
    model = build_model(recipe, tokenizer, checkpoint)
    tokenizer.model_max_length = min(tokenizer.model_max_length, position_limit(model))  # one of a bag has no limit
    started_from = None
    if start is not None and checkpoint is None:
        started_from = apply_warm_start(recipe, model, tokenizer, start)
    if arguments.train_max_length > position_limit(model):
        raise RecipeError(
            f"train_max_length={arguments.train_max_length} is more than the model takes, "
            f"max_position_embeddings={model.config.max_position_embeddings}; lower the one or raise the other"
        )
    if not dev and not eval_tasks:
        arguments.eval_strategy, arguments.load_best_model_at_end = "no", False
    if state.is_main_process and checkpoint is None:
        data = {"train": fingerprint(train), "dev": {name: fingerprint(rows) for name, rows in dev.items()}}
        tasks = {name: _describe_task(task) for name, task in eval_tasks.items()}
        data["eval_task"] = tasks if len(tasks) > 1 else next(iter(tasks.values()), None)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        extra = {"parameters": parameters, "seed": arguments.seed, "processes": state.num_processes}
        extra["warm_start"] = started_from
        extra |= {**origin, **run_settings(arguments)}
        write_run_record(folder, recipe_yaml, data, extra)
    parallel_model = ParallelModel(model, objectives, arguments.token_dropout, arguments.token_dropout_share)
    measured = [loss_rows(rows, arguments) for rows in dev.values()]
    prepare_teacher_vectors(train, measured, parallel_model, arguments, show_progress)
    trainer = TmdeTrainer(parallel_model, arguments, train, tokenizer, eval_dataset=dev, eval_task=eval_tasks)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_best(trainer, folder)
    if state.is_main_process:
        _write_results(trainer, folder, report, dev_pools(dev, recipe.data.languages, arguments))
        write_card(folder)
    if arguments.push_to_hub:
        trainer.push_folder()
    state.wait_for_everyone()
    return trainer


def _describe_task(task: ClassificationData) -> dict[str, Any]:
    rows = {language: {name: len(split) for name, split in splits.items()} for language, splits in task.splits.items()}
    return {"source": task.provenance.source, "rows": rows, "fingerprint": data_fingerprint(task)}


def _from_main(values: list) -> list:
    return broadcast_object_list(values) if PartialState().num_processes > 1 else values


def save_best(trainer: TmdeTrainer, folder: Path) -> None:
    """Puts the best model at the top of the folder, complete before it gets its name. Every process must call it: each
    may hold a share of the weights."""
    temporary = folder / ".final.tmp"
    if trainer.is_world_process_zero():
        shutil.rmtree(temporary, ignore_errors=True)
    trainer.save_model(str(temporary), _internal_call=True)
    if trainer.is_world_process_zero():
        for path in temporary.rglob("*"):
            if path.is_file():
                target = folder / path.relative_to(temporary)
                target.parent.mkdir(exist_ok=True)
                os.replace(path, target)
        shutil.rmtree(temporary)
        (folder / DATA_STATE_NAME).unlink(missing_ok=True)  # the place in the data belongs to checkpoints


def _write_results(trainer: TmdeTrainer, folder: Path, report: CorpusReport, pools: dict[str, dict[str, int]]) -> None:
    """Writes `results.json`, and warns of texts and rows that were not used in full."""
    history = trainer.state.log_history
    best = trainer.state.best_global_step
    evaluations = [entry for entry in history if "eval_minutes" in entry]
    chosen = next((entry for entry in evaluations if entry["step"] == best), evaluations[-1] if evaluations else None)
    results = {
        "steps": trainer.state.global_step,
        "best_step": best,
        "metric": trainer.args.metric_for_best_model,
        "best": chosen,
        "dev_pools": pools,
        "minutes": round(trainer.clock.seconds / 60, 6),
        "cpu_minutes": round(trainer.clock.trained_cpu_seconds / 60, 6),
        "seen": {name: value * trainer.args.world_size for name, value in trainer.seen.items()},
        "rows": asdict(trainer.throughput.chunk_counts),
        "corpus": asdict(report),
    }
    write_atomically(folder / "results.json", json.dumps(results, indent=2, default=str))
    counts = trainer.throughput.chunk_counts
    if counts.truncated_texts:
        logger.warning(
            f"{counts.truncated_texts:,} of {counts.texts:,} training texts were longer than "
            f"{trainer.args.train_max_length} tokens and were truncated (train_max_length)"
        )
    if counts.rows_without_pair:
        logger.warning(f"{counts.rows_without_pair:,} of {counts.rows:,} rows had no pair with a pivot language")


def named_sources(values: list[str]) -> Any:
    """`NAME=SOURCE` or `SOURCE` arguments: one source, or several by name."""
    named: dict[str, str] = {}
    for value in values:
        name, separator, source = value.partition("=")
        if not separator or "/" in name:  # a path may hold an equals sign
            name, source = _source_name(value), value
        if name in named:
            raise RecipeError(f"Two --dev sources are called {name!r}; name them, --dev NAME=SOURCE")
        named[name] = source
    return named


def _summarise(trainer: TmdeTrainer, output: Path) -> None:
    results = json.loads((Path(output) / "results.json").read_text())
    best = results["best"] or {}
    precisions = {key: value for key, value in best.items() if "_p1_" in key}
    console = Console()
    if precisions:
        sets = list(dict.fromkeys(key[len("eval_") :].partition("_p1_")[0] for key in precisions))
        pairs = list(dict.fromkeys(key.partition("_p1_")[2] for key in precisions))
        pools = sorted({size for sizes in results["dev_pools"].values() for size in sizes.values()})
        among = f"among {pools[0]:,}" + (f" to {pools[-1]:,}" if len(pools) > 1 else "") if pools else ""
        table = Table(title=f"Retrieval P@1 (%) {among} texts, best checkpoint")
        for column in ("pair", *sets):
            title = f"{column.removesuffix('_doc')} documents" if column.endswith("_doc") else column
            table.add_column(title, justify="left" if column == "pair" else "right")
        for pair in pairs:
            cells = [precisions.get(f"eval_{name}_p1_{pair}") for name in sets]
            table.add_row(pair, *("-" if cell is None else f"{100 * cell:.1f}" for cell in cells))
        console.print(table)
    if "eval_cross" in best:
        scores = [
            ("Same", best["eval_same"], best["eval_test_same"]),
            ("Cross", best["eval_cross"], best["eval_test_cross"]),
        ]
        parts = [f"{name} {100 * dev:.1f} on dev, {100 * test:.1f} on test" for name, dev, test in scores]
        tasks = f", mean of {' and '.join(trainer.eval_tasks)}" if len(trainer.eval_tasks) > 1 else ""
        console.print(f"Evaluation II of the best checkpoint (%){tasks}: {'; '.join(parts)}")
    console.print(f"{results['steps']:,} steps in {results['minutes']:.2f} minutes; the model is in {output}")
    if trainer.hub_model_id is not None:
        console.print(f"On the Hub: {ENDPOINT}/{trainer.hub_model_id}", soft_wrap=True)
    if find_spec("matplotlib") is None:
        console.print("No curves.png without matplotlib: pip install 'tmde[figures]'", markup=False)


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(train)
    app(prog_name=os.path.basename(sys.argv[0]))


if __name__ == "__main__":
    main()
