"""`tmde train`, and `accelerate launch -m modeling_tmde.training.train`: training from a recipe."""

import copy
import glob
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import datasets
import torch
import typer
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from huggingface_hub.constants import ENDPOINT
from rich.console import Console
from rich.table import Table
from transformers import set_seed
from transformers.utils import logging

from modeling_tmde.data import CorpusReport
from modeling_tmde.data.io import environment, write_atomically
from modeling_tmde.data.tokens import open_tokens
from modeling_tmde.embedding import position_limit
from modeling_tmde.eval.tasks import ClassificationData, data_fingerprint
from modeling_tmde.hub_cards import check_licenses, describe_origins, describe_sources, write_model_card
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.building import (
    STAGE_FOLDER,
    apply_warm_start,
    build_model,
    check_same_model,
    check_warm_start,
    find_checkpoint,
    load_data,
    named_sources,
    prepare_tokenizer,
    prepare_warm_start,
    share_tokenizer,
)
from modeling_tmde.training.evaluation import (
    check_metric,
    load_eval_tasks,
    loss_rows,
    retrieval_pools,
)
from modeling_tmde.training.hub_encoder import check_encoder
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.publishing import HubUploadError, open_hub_repository
from modeling_tmde.training.recipe import ADAPTED, Recipe, RecipeError, load_recipe
from modeling_tmde.training.teacher import prepare_teacher_vectors
from modeling_tmde.training.trainer import DATA_STATE_NAME, TmdeTrainer

logger = logging.get_logger("modeling_tmde.training")


class RunFolderError(ValueError):
    """The output folder holds another run, or none to resume."""


# ---- The folder of a run


def check_run_folder(folder: Path, resume: bool, overwrite: bool) -> Path | None:
    """
    Returns:
        The checkpoint to resume from.

    Raises:
        RunFolderError: The folder holds another run, or none to resume.
    """
    if resume:
        checkpoint = find_checkpoint(folder)
        if checkpoint is None and not (folder / STAGE_FOLDER).is_dir():
            raise RunFolderError(f"{folder} holds no complete checkpoint to resume from")
        return checkpoint
    used = folder.exists() and any(folder.iterdir())
    if used and not overwrite:
        raise RunFolderError(f"{folder} is not empty: choose another folder, or --resume its run, or --overwrite it")
    if used and not (folder / "recipe.yaml").exists():
        raise RunFolderError(f"{folder} does not look like a training run; it is not overwritten")
    return None


def check_inputs_stay(recipe: Recipe, folder: Path, made: tuple[str, ...] = ()) -> None:
    """Looks for inputs of the recipe in a folder that is to be deleted.

    Args:
        made: Keys of what the run itself puts into the folder.

    Raises:
        RecipeError: Names the key of one.
    """
    sections = ("data", "tokenizer", "warm_start", "model", "objectives")
    for key, value in _strings({name: recipe.sections[name] for name in sections}):
        for source in {value, value.partition("=")[2]} - {""} if key not in made else ():  # NAME=SOURCE of a task
            path = os.path.expanduser(source)
            files = [path, *glob.iglob(path, recursive=True), *glob.iglob(f"{glob.escape(path)}.*")]
            if any(os.path.lexists(file) and is_inside(file, folder) for file in files):
                raise RecipeError(
                    f"{key}={value}: the run would overwrite it, since it is in {folder}; choose another output "
                    "folder, or move it"
                )


def is_inside(path: str | os.PathLike, folder: Path) -> bool:
    """Whether deleting the folder deletes the path. For symlinks, checks both the link and its target."""
    target, place = folder.expanduser().resolve(), Path(path).expanduser().absolute()
    return any(each.is_relative_to(target) for each in (place.parent.resolve() / place.name, place.resolve()))


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, os.PathLike)):
        yield key, os.fspath(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strings(part, f"{key}.{name}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(part, key)


@contextmanager
def _removed_after_error(folder: Path) -> Iterator[None]:
    """Deletes a folder that this run made, if it fails before its first checkpoint: the corrected command would be
    refused otherwise."""
    existed = folder.exists()
    try:
        yield
    except Exception:
        if PartialState().is_main_process and not existed and folder.is_dir():
            if not any(folder.glob("checkpoint-*")) and not (folder / STAGE_FOLDER).exists():
                shutil.rmtree(folder)
        raise


# ---- Training


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
    with _removed_after_error(Path(output_dir)):
        return _train_recipe(recipe, Path(output_dir), resume, overwrite)


def _train_recipe(recipe: Recipe, folder: Path, resume: bool, overwrite: bool) -> TmdeTrainer:
    state = PartialState()
    recipe_yaml, recipe = recipe.to_yaml(), copy.deepcopy(recipe)  # a warm start settles some keys of this run
    _check_recipe(recipe, folder, resume, overwrite)
    arguments, objectives = recipe.build_arguments(str(folder)), recipe.build_objectives()
    checkpoint = _agree_on_checkpoint(recipe, arguments, folder, resume, overwrite)
    with state.main_process_first():
        eval_tasks = load_eval_tasks(recipe.data.eval_task, recipe.data.languages)
        train, dev, report = load_data(recipe)
        if dev or eval_tasks:
            check_metric(arguments, dev, eval_tasks, recipe.data.languages)
        origin = _origins(recipe)
        if state.is_main_process and checkpoint is None:
            if overwrite and not resume and folder.exists():
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "recipe.yaml", recipe_yaml)  # now --overwrite may delete the folder
        if checkpoint is None:
            share_tokenizer(recipe, train, folder / "tokenizer")
    start = prepare_warm_start(recipe, folder, checkpoint, train_recipe)
    with state.main_process_first():
        tokenizer = prepare_tokenizer(recipe, train, folder / "tokenizer", checkpoint)
    # Made before the clock of the run begins; the trainer finds it.
    open_tokens(train, tokenizer, recipe.data.languages, arguments.token_cache_dir)
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
        parameters = sum(parameter.numel() for parameter in model.parameters())
        extra = {"parameters": parameters, "seed": arguments.seed, "processes": state.num_processes}
        _write_record(folder, train, dev, eval_tasks, arguments, {**extra, "warm_start": started_from, **origin})
    parallel_model = ParallelModel(model, objectives, arguments.token_dropout, arguments.token_dropout_share)
    measured = [loss_rows(rows, arguments) for rows in dev.values()]
    prepare_teacher_vectors(train, measured, parallel_model, arguments)
    trainer = TmdeTrainer(parallel_model, arguments, train, tokenizer, eval_dataset=dev, eval_tasks=eval_tasks)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_best(trainer, folder)
    if state.is_main_process:
        _write_results(trainer, folder, report, dev, recipe.data.languages)
        write_card(folder)
    if arguments.push_to_hub:
        trainer.push_folder()
    state.wait_for_everyone()
    return trainer


def _check_recipe(recipe: Recipe, folder: Path, resume: bool, overwrite: bool) -> None:
    """What can be wrong with a recipe, before anything is read or deleted."""
    if recipe.architecture != ADAPTED:
        recipe.build_config()
    if resume:
        check_same_model(recipe, folder)
    else:
        check_warm_start(recipe)
        check_encoder(recipe)
        if overwrite:
            check_inputs_stay(recipe, folder)
    if recipe.sections["training"].get("hub_token"):
        raise RecipeError("hub_token would stand in recipe.yaml for all to read; set HF_TOKEN, or run `hf auth login`")


def _agree_on_checkpoint(
    recipe: Recipe, arguments: TmdeTrainingArguments, folder: Path, resume: bool, overwrite: bool
) -> Path | None:
    """The checkpoint to resume from. The first process looks for it; all of them raise its error."""
    found: list[Any] = [None, ""]
    if PartialState().is_main_process:
        try:
            if arguments.push_to_hub:  # before hours of training
                open_hub_repository(arguments, ARCHITECTURES[recipe.architecture].config.model_type)
            found[0] = check_run_folder(folder, resume, overwrite)
        except (RunFolderError, HubUploadError) as error:
            found[1] = str(error)
    if PartialState().num_processes > 1:
        broadcast_object_list(found)
    if found[1]:
        raise RunFolderError(found[1])
    return found[0]


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


# ---- Records of a run


def _origins(recipe: Recipe) -> dict[str, Any]:
    """What a run comes from, for the model card. Recorded where the run is: elsewhere `a/b` may be a folder."""
    sources = describe_sources(recipe.data.train)
    try:
        check_licenses(sources, recipe.sections.get("card", {}).get("data_licenses"))
    except ValueError as error:
        raise RecipeError(f"Section 'card' of recipe {recipe.name}: {error}") from error
    return {"recipe": recipe.name, "sources": sources, **describe_origins(recipe.sections)}


def _write_record(
    folder: Path,
    train: Any,
    dev: Mapping[str, datasets.Dataset],
    eval_tasks: Mapping[str, ClassificationData],
    arguments: TmdeTrainingArguments,
    extra: dict[str, Any],
) -> None:
    """Writes `run.json`: versions, machine, fingerprints of the data, and the settings that readers need."""
    tasks = {name: _describe_task(task) for name, task in eval_tasks.items()}
    data = {"train": fingerprint(train), "dev": {name: fingerprint(rows) for name, rows in dev.items()}}
    data["eval_task"] = tasks if len(tasks) > 1 else next(iter(tasks.values()), None)
    names = ("train_max_length", "embed_max_length", "eval_pool", "eval_document_rows")
    settings = {name: getattr(arguments, name) for name in names}
    device = {"type": arguments.device.type, "name": _device_name(arguments.device)}
    record = {**environment(), "data": data, **extra, "settings": settings, "device": device}
    write_atomically(folder / "run.json", json.dumps(record, indent=2, default=str))


def fingerprint(dataset: datasets.Dataset | datasets.IterableDataset) -> dict[str, Any]:
    """Rows and content fingerprint of a dataset; a stream has only what its source is."""
    if isinstance(dataset, datasets.Dataset):
        return {"rows": len(dataset), "fingerprint": dataset._fingerprint}
    return {"rows": None, "streaming": True, "shards": dataset.num_shards}


def _describe_task(task: ClassificationData) -> dict[str, Any]:
    rows = {language: {name: len(split) for name, split in splits.items()} for language, splits in task.splits.items()}
    return {"source": task.provenance.source, "rows": rows, "fingerprint": data_fingerprint(task)}


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _write_results(
    trainer: TmdeTrainer,
    folder: Path,
    report: CorpusReport,
    dev: Mapping[str, datasets.Dataset],
    languages: list[str],
) -> None:
    """Writes `results.json`, and warns of texts and rows that were not used in full."""
    evaluations = [entry for entry in trainer.state.log_history if "eval_minutes" in entry]
    best = trainer.state.best_global_step
    chosen = next((entry for entry in evaluations if entry["step"] == best), evaluations[-1] if evaluations else None)
    pools = {name: retrieval_pools(rows, languages, trainer.args) for name, rows in dev.items()}
    counts = trainer.throughput.chunk_counts
    results = {
        "steps": trainer.state.global_step,
        "best_step": best,
        "metric": trainer.args.metric_for_best_model,
        "best": chosen,
        # By dev set and measure, how many texts were searched: chance is one in them.
        "dev_pools": {name: {key: len(pool.sources) for key, pool in found.items()} for name, found in pools.items()},
        "minutes": round(trainer.clock.seconds / 60, 6),
        "cpu_minutes": round(trainer.clock.cpu_seconds / 60, 6),
        "seen": {name: value * trainer.args.world_size for name, value in trainer.throughput.seen.items()},
        "rows": asdict(counts),
        "corpus": asdict(report),
    }
    write_atomically(folder / "results.json", json.dumps(results, indent=2, default=str))
    if counts.truncated_texts:
        logger.warning(
            f"{counts.truncated_texts:,} of {counts.texts:,} training texts were longer than "
            f"{trainer.args.train_max_length} tokens and were truncated (train_max_length)"
        )
    if counts.rows_without_pair:
        logger.warning(f"{counts.rows_without_pair:,} of {counts.rows:,} rows had no pair with a pivot language")


def write_card(folder: Path) -> None:
    """The model card of a finished run. What is wrong with it is a warning: the model is there."""
    try:
        write_model_card(folder)
    except Exception as error:
        logger.warning(f"The model card was not written: {type(error).__name__}: {error}")


def _summarise(trainer: TmdeTrainer, output: Path) -> None:
    """Prints the best checkpoint's measures."""
    results = json.loads((Path(output) / "results.json").read_text())
    best = results["best"] or {}
    precisions = {key: value for key, value in best.items() if "_p1_" in key}
    console = Console()
    if precisions:
        sets = list(dict.fromkeys(key[len("eval_") :].partition("_p1_")[0] for key in precisions))
        pools = sorted({size for sizes in results["dev_pools"].values() for size in sizes.values()})
        among = f"among {pools[0]:,}" + (f" to {pools[-1]:,}" if len(pools) > 1 else "") if pools else ""
        table = Table(title=f"Retrieval P@1 (%) {among} texts, best checkpoint")
        for column in ("pair", *sets):
            title = f"{column.removesuffix('_doc')} documents" if column.endswith("_doc") else column
            table.add_column(title, justify="left" if column == "pair" else "right")
        for pair in dict.fromkeys(key.partition("_p1_")[2] for key in precisions):
            cells = [precisions.get(f"eval_{name}_p1_{pair}") for name in sets]
            table.add_row(pair, *("-" if cell is None else f"{100 * cell:.1f}" for cell in cells))
        console.print(table)
    if "eval_cross" in best:
        scores = {name: (100 * best[f"eval_{name}"], 100 * best[f"eval_test_{name}"]) for name in ("same", "cross")}
        parts = [f"{name.capitalize()} {dev:.1f} on dev, {test:.1f} on test" for name, (dev, test) in scores.items()]
        tasks = f", mean of {' and '.join(trainer.eval_tasks)}" if len(trainer.eval_tasks) > 1 else ""
        console.print(f"Evaluation II of the best checkpoint (%){tasks}: {'; '.join(parts)}")
    console.print(f"{results['steps']:,} steps in {results['minutes']:.2f} minutes; the model is in {output}")
    if trainer.hub_model_id is not None:
        console.print(f"On the Hub: {ENDPOINT}/{trainer.hub_model_id}", soft_wrap=True)
    if find_spec("matplotlib") is None:
        console.print("No curves.png without matplotlib: pip install 'tmde[figures]'", markup=False)


# ---- The command


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or the path of a YAML file. With --encoder: adapted by default."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as learning_rate=3e-4.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")] = Path("runs/tmde"),
    train_data: Annotated[
        list[str] | None,
        typer.Option("--train", help="Parallel text: file, folder, glob, Hub id or 'sample'."),
    ] = None,
    dev_data: Annotated[
        list[str] | None, typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
    ] = None,
    warm_start: Annotated[
        str | None, typer.Option("--warm-start", help="Begin with this bag or T-MDE model, a folder or Hub id.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")] = False,
) -> None:
    """Train a document embedder on parallel text.

        tmde train small --train my_corpus/ -o runs/mine 'languages=\\[de, en]' 'pivot_languages=\\[en]'

    Recipes: tmde, ctmde, ctmde_p (the thesis's settings), bag (weighted subword vectors, minutes on a CPU), small
    (cT-MDE that begins with such a bag, half an hour on a CPU), base (the same on a GPU, larger), adapted (on a
    pretrained encoder, --encoder), distil (from a teacher's vectors), quickstart; docs/train.md has them all. Under
    `accelerate launch -m modeling_tmde.training.train`, the same command trains on several processes.
    """
    try:
        if encoder and (recipe is None or ("=" in recipe and not Path(recipe).exists())):
            recipe, overrides = "adapted", [*([recipe] if recipe else []), *(overrides or [])]
        if recipe is None:
            raise RecipeError("Name a recipe, such as quickstart; or give --encoder, for which there is one")
        chosen = load_recipe(recipe, overrides or (), encoder)
        if overwrite and not resume and Path(recipe).is_file() and Path(recipe).name != "recipe.yaml":
            if is_inside(recipe, output):
                raise RecipeError(f"Recipe {recipe}: the run would overwrite it, since it is in {output}; move it")
        if train_data:
            chosen.set("data.train", train_data[0] if len(train_data) == 1 else list(train_data))
        if dev_data:
            chosen.set("data.dev", named_sources(dev_data))
        if warm_start:
            if any(override.startswith("warm_start.") for override in overrides or ()):
                raise RecipeError(
                    "Give --warm-start or keys of warm_start, not both: a checkpoint takes the first stage's place"
                )
            chosen.sections["warm_start"] = {"checkpoint": warm_start}
        trainer = train_recipe(chosen, output, resume=resume, overwrite=overwrite)
    except (ValueError, OSError, ImportError) as error:
        typer.secho(f"Error: {error}", fg="red", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.secho(f"Interrupted; `--resume -o {output}` goes on from the last checkpoint.", fg="yellow", err=True)
        raise typer.Exit(130) from None
    if PartialState().is_main_process:
        _summarise(trainer, output)


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(train)
    app(prog_name=os.path.basename(sys.argv[0]))


if __name__ == "__main__":
    main()
