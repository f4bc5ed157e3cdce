"""`tmde train`: training from a recipe."""

import copy
import glob
import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import datasets
import typer
from accelerate import PartialState
from accelerate.utils import recursively_apply
from huggingface_hub.constants import ENDPOINT
from tabulate import tabulate
from transformers import set_seed
from transformers.utils import logging

from modeling_tmde import TmdeError
from modeling_tmde.inspection import position_limit
from tmde.data import CorpusReport
from tmde.data.io import locked, write_atomically
from tmde.data.tokens import open_tokens
from tmde.eval.dev_retrieval import retrieval_pools
from tmde.eval.dev_tasks import load_eval_tasks
from tmde.eval.systems import environment
from tmde.eval.tasks import ClassificationData, data_fingerprint
from tmde.hub_cards import check_licenses, describe_origins, describe_sources, write_model_card
from tmde.training import building
from tmde.training.checkpoints import find_checkpoint
from tmde.training.evaluation import check_metric, loss_rows
from tmde.training.hub_encoder import check_encoder
from tmde.training.parallel_model import ParallelModel
from tmde.training.publishing import open_hub_repository
from tmde.training.recipe import ADAPTED, Recipe, RecipeError, load_recipe
from tmde.training.teacher import prepare_teacher_vectors
from tmde.training.trainer import DATA_STATE_NAME, OBJECTIVES_NAME, TmdeTrainer

logger = logging.get_logger("tmde.training")


# ---- The folder of a run


def check_run_folder(recipe: Recipe, folder: Path, resume: bool, overwrite: bool) -> Path | None:
    """Returns:
        The checkpoint to resume from.

    Raises:
        ValueError: The folder holds another run, or none to resume; or it would be overwritten and holds an input of
            the run.
    """
    if resume:
        checkpoint = find_checkpoint(folder)
        if checkpoint is None and not (folder / building.STAGE_FOLDER).is_dir():
            raise TmdeError(
                f"{folder} holds no complete checkpoint to resume from; --overwrite begins again"
            )
        return checkpoint
    used = folder.exists() and any(
        path.name != f".{folder.resolve().name}.lock" for path in folder.iterdir()
    )
    if used and not overwrite:
        raise TmdeError(
            f"{folder} is not empty: choose another folder, or --resume its run, or --overwrite it"
        )
    if used and not (folder / "recipe.yaml").exists():
        raise TmdeError(f"{folder} does not look like a training run; it is not overwritten")
    if overwrite:
        check_inputs_stay(recipe, folder)
    return None


def check_same_run(recipe: Recipe, folder: Path, *sections: str) -> None:
    """Compares sections of a recipe with those of the run to resume.

    Raises:
        RecipeError: They differ; names both values.
    """
    begun = load_recipe(str(folder / "recipe.yaml")).sections
    for section in sections:
        before, now = begun[section], recipe.sections[section]
        for key in {**before, **now}:
            if before.get(key) != now.get(key):
                raise RecipeError(
                    f"{folder} cannot be resumed with other values: {section}.{key} is {now.get(key)!r}, and the run "
                    f"was begun with {before.get(key)!r}. Give what it was begun with, or choose another folder"
                )


def check_inputs_stay(recipe: Recipe, folder: Path, *files: str) -> None:
    """Looks for inputs of a run in the folder that it would delete.

    Args:
        files: Further inputs, beside those that the recipe names.

    Raises:
        RecipeError: Names one.
    """
    values = list(files)
    sections = [
        recipe.sections[name] for name in ("data", "tokenizer", "warm_start", "model", "objectives")
    ]
    recursively_apply(values.append, sections, test_type=lambda value: isinstance(value, str))
    for value in values:
        path = Path(value.rpartition("=")[2]).expanduser()  # NAME=SOURCE of a task
        inside = path.resolve().is_relative_to(folder.resolve())
        if inside and glob.glob(f"{path}*", recursive=True):  # else it is an id of the Hub
            raise RecipeError(
                f"{value}: the run would overwrite it; choose another folder than {folder}, or move it"
            )


# ---- Training


def train_recipe(
    recipe: Recipe, output_dir: str | Path, resume: bool = False, overwrite: bool = False
) -> TmdeTrainer:
    """Trains a recipe into `output_dir`: the best checkpoint at its top, as `AutoModel` opens it, beside `recipe.yaml`,
    `run.json`, `log.jsonl`, `curves.png` (where matplotlib is installed), `results.json` and the last
    checkpoints.

    Args:
        recipe: From `load_recipe`.
        output_dir: New or empty, unless resuming or overwriting. Deleted after an error before the first checkpoint,
            if it is new: the corrected command would be refused otherwise.
        resume: Go on from the newest complete checkpoint, to the same result as a run that was never interrupted
            (a run limited by minutes ends where the clock says).
        overwrite: Delete an earlier run in the folder.

    Returns:
        The trainer, with the best weights loaded.

    Raises:
        ValueError: Names what was found and what was expected; or another process trains in this folder.
        HubUploadError: The last push failed; the run's folder is complete.
    """
    with ExitStack() as stack:
        return _train_recipe(recipe, Path(output_dir), resume, overwrite, stack)


def _clean_up(
    folder: Path, existed: bool, data: Any, kind: type | None, error: Any, *details: Any
) -> None:
    """After an error, deletes a new folder without a checkpoint. Arrow's errors do not name the file that is read."""
    begun = any(folder.glob("checkpoint-*")) or (folder / building.STAGE_FOLDER).exists()
    if isinstance(error, Exception) and not existed and not begun:
        shutil.rmtree(folder, ignore_errors=True)
    if kind is OSError and error.errno is None:  # of a damaged file that is streamed
        raise TmdeError(f"{' '.join(str(error).split())} (the training data is {data})") from error


def _train_recipe(
    recipe: Recipe, folder: Path, resume: bool, overwrite: bool, stack: ExitStack
) -> TmdeTrainer:
    state = PartialState()
    recipe_yaml, recipe = (
        recipe.to_yaml(),
        copy.deepcopy(recipe),
    )  # a warm start settles some keys of this run
    if not resume:
        recipe.check_pyramid()
    if recipe.architecture != ADAPTED:
        recipe.build_config()
    if not resume:
        building.check_warm_start(recipe)
        check_encoder(recipe)
    if recipe.sections["training"].get("hub_token"):
        raise RecipeError(
            "hub_token would be written to recipe.yaml; set HF_TOKEN instead, or run `hf auth login`"
        )
    arguments, languages = recipe.build_arguments(str(folder)), recipe.data.languages
    objectives = recipe.build_objectives()
    if state.is_main_process:  # known once the arguments are built
        stack.enter_context(locked(folder))
        stack.push(partial(_clean_up, folder, folder.exists(), recipe.data.train))
    checkpoint = check_run_folder(recipe, folder, resume, overwrite)
    if resume:
        check_same_run(recipe, folder, "model")
    state.wait_for_everyone()  # all have seen the folder as it was
    with state.main_process_first():
        if state.is_main_process and arguments.push_to_hub:  # before hours of training
            open_hub_repository(arguments, recipe.model_class.config_class.model_type)
        eval_tasks = load_eval_tasks(recipe.data.eval_task, languages)
        train, dev, report = building.load_data(recipe)
        if dev or eval_tasks:
            check_metric(arguments, dev, eval_tasks, languages)
        else:
            arguments.eval_strategy, arguments.load_best_model_at_end, arguments.eval_on_start = (
                "no",
                False,
                False,
            )
        if arguments.early_stopping_patience and arguments.eval_strategy == "no":
            raise RecipeError(
                "early_stopping_patience counts evaluations: give dev or eval_task, and eval_strategy"
            )
        # Recorded where the run is: elsewhere `a/b` may be a folder.
        sources = describe_sources(recipe.data.train)
        check_licenses(sources, recipe.sections["card"].get("data_licenses"))
        origin = {"recipe": recipe.name, "sources": sources, **describe_origins(recipe.sections)}
        if state.is_main_process and checkpoint is None:
            for path in (
                folder.glob("[!.]*") if overwrite and not resume else ()
            ):  # a lock may be among the hidden
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(
                folder / "recipe.yaml", recipe_yaml
            )  # now --overwrite may delete the folder
    start = None if checkpoint else building.prepare_warm_start(recipe, folder, train, train_recipe)
    with state.main_process_first():
        tokenizer = building.prepare_tokenizer(recipe, train, folder / "tokenizer", checkpoint)
    # Made before the clock of the run begins; the trainer finds it.
    open_tokens(train, tokenizer, recipe.texts, arguments.token_cache_dir)
    set_seed(arguments.seed)
    model = building.build_model(recipe, tokenizer, checkpoint)
    tokenizer.model_max_length = min(
        tokenizer.model_max_length, position_limit(model)
    )  # one of a bag has no limit
    started_from = building.apply_warm_start(recipe, model, tokenizer, start) if start else None
    if arguments.train_max_length > position_limit(model):
        limit = f"max_position_embeddings={model.config.max_position_embeddings}"
        raise RecipeError(
            f"train_max_length={arguments.train_max_length} is more than the model takes, {limit}"
        )
    if state.is_main_process and checkpoint is None:
        data = {
            "train": _describe(train),
            "dev": {name: _describe(rows) for name, rows in dev.items()},
        }
        record = {
            **environment(),
            "data": data
            | {"eval_task": {name: _describe(task) for name, task in eval_tasks.items()}},
            "parameters": model.num_parameters(),
            "seed": arguments.seed,
            "processes": state.num_processes,
            "warm_start": started_from,
            **origin,
        }
        write_atomically(folder / "run.json", json.dumps(record, indent=2, default=str))
    parallel_model = ParallelModel(
        model, objectives, arguments.token_dropout, arguments.token_dropout_share
    )
    measured = [loss_rows(rows, arguments) for rows in dev.values()]
    prepare_teacher_vectors(train, measured, parallel_model, arguments)
    trainer = TmdeTrainer(
        parallel_model, arguments, train, tokenizer, eval_dataset=dev, eval_tasks=eval_tasks
    )
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_best(trainer, folder)
    if state.is_main_process:
        _write_results(trainer, folder, recipe, report, dev)
        write_card(folder)
    if arguments.push_to_hub:
        trainer.push_to_hub()
    state.wait_for_everyone()
    return trainer


def save_best(trainer: TmdeTrainer, folder: Path) -> None:
    """Puts the best model at the top of the folder, complete before it gets its name. Every process must call it: each
    may hold a share of the weights.
    """
    temporary = folder / ".final.tmp"
    if trainer.is_world_process_zero():
        shutil.rmtree(temporary, ignore_errors=True)
    trainer.save_model(str(temporary), _internal_call=True)
    if trainer.is_world_process_zero():
        for name in (DATA_STATE_NAME, OBJECTIVES_NAME):  # which belong to checkpoints
            (temporary / name).unlink(missing_ok=True)
        shutil.copytree(temporary, folder, dirs_exist_ok=True, copy_function=os.replace)
        shutil.rmtree(temporary)


# ---- What is known of a run


def _describe(data: Any) -> dict[str, Any]:
    """Rows and fingerprint of a dataset; of a stream, its shards; of a classification task, its source."""
    if isinstance(data, ClassificationData):
        return {"source": data.provenance.source, "fingerprint": data_fingerprint(data)}
    if isinstance(data, datasets.Dataset):
        return {"rows": len(data), "fingerprint": data._fingerprint}
    return {"rows": None, "streaming": True, "shards": data.num_shards}


def _write_results(
    trainer: TmdeTrainer, folder: Path, recipe: Recipe, report: CorpusReport, dev: dict
) -> None:
    """Writes `results.json`, and warns of texts and rows that were not used in full."""
    evaluations = [entry for entry in trainer.state.log_history if "eval_minutes" in entry]
    best = trainer.state.best_global_step
    pools = {
        name: retrieval_pools(rows, recipe.data.languages, trainer.args)
        for name, rows in dev.items()
    }
    counts = trainer.meter.chunk_counts
    results = {
        "steps": trainer.state.global_step,
        "best_step": best,
        "metric": trainer.args.metric_for_best_model,
        "best": next(
            (entry for entry in evaluations if entry["step"] == best), (evaluations or [None])[-1]
        ),
        # By dev set and measure, how many texts were searched: chance is one in them.
        "dev_pools": {
            name: {key: len(pool.sources) for key, pool in found.items()}
            for name, found in pools.items()
        },
        "minutes": round(trainer.meter.seconds / 60, 6),
        "cpu_minutes": round(trainer.meter.cpu_seconds / 60, 6),
        "seen": {
            name: value * trainer.args.world_size for name, value in trainer.meter.seen.items()
        },
        "rows": dict(counts),
        "corpus": asdict(report),
    }
    write_atomically(folder / "results.json", json.dumps(results, indent=2, default=str))
    if counts["truncated_texts"]:
        logger.warning(
            f"{counts['truncated_texts']:,} of {counts['texts']:,} training texts were longer than "
            f"{trainer.args.train_max_length} tokens and were truncated (train_max_length)"
        )
    if found := counts["rows_without_pair"]:
        logger.warning(f"{found:,} of {counts['rows']:,} rows had no pair with a pivot language")


def write_card(folder: Path) -> None:
    """The model card of a finished run. What is wrong with it is a warning: the model is there."""
    try:
        write_model_card(folder)
    except Exception as error:
        logger.warning(f"The model card was not written: {type(error).__name__}: {error}")


def _summarize(trainer: TmdeTrainer, output: Path) -> None:
    """Prints the best checkpoint's measures."""
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    best = results["best"] or {}
    shares = {
        key.removeprefix("eval_"): value
        for key, value in best.items()
        if "_p1_" in key or "cross" in key or "accuracy" in key
    }
    if shares:
        typer.echo(
            tabulate(
                [(key, f"{100 * value:.1f}") for key, value in shares.items()],
                ["Best checkpoint", "%"],
            )
        )
    typer.echo(
        f"{results['steps']:,} steps in {results['minutes']:.2f} minutes; the model is in {output}"
    )
    if trainer.hub_model_id is not None:
        typer.echo(f"On the Hub: {ENDPOINT}/{trainer.hub_model_id}")


# ---- The command

TrainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--train", help="Parallel text: file, folder, glob, Hub id or 'sample'. Repeatable."
    ),
]
DevOption = Annotated[
    list[str] | None, typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
]


def one_or_all(sources: list[str] | None) -> str | list[str] | None:
    """The source of an option that was given once, or the list of them."""
    return sources[0] if sources and len(sources) == 1 else sources


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, or the path of a YAML file. With --encoder: adapted by default."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Recipe keys, such as learning_rate=3e-4."),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the run.")] = Path(
        "runs/tmde"
    ),
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    warm_start: Annotated[
        str | None,
        typer.Option(
            "--warm-start", help="Begin with this bag or T-MDE model: folder, Hub id, `default`."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            help="Begin with this pretrained encoder, a folder or Hub id, and its tokenizer.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an earlier run in the folder.")
    ] = False,
) -> None:
    """Train a document embedder on parallel text.

        tmde train small --train my_corpus/ -o runs/mine 'languages=\\[de, en]' 'pivot_languages=\\[en]'

    Recipes: tmde, ctmde, ctmde_p (the thesis's settings), bag (weighted subword vectors, minutes on a CPU), small
    (cT-MDE that begins with such a bag, half an hour on a CPU), base (the same on a GPU, larger), adapted (on a
    pretrained encoder, --encoder), distil (from a teacher's vectors), quickstart; docs/train.md has them all. Under
    `accelerate launch -m tmde train`, the same command trains on several processes.
    """
    if encoder and (recipe is None or ("=" in recipe and not Path(recipe).exists())):
        recipe, overrides = "adapted", [*([recipe] if recipe else []), *(overrides or [])]
    if recipe is None:
        raise RecipeError(
            "Name a recipe, such as quickstart; or give --encoder, for which there is one"
        )
    chosen = load_recipe(recipe, overrides or (), encoder)
    if train_data:
        chosen.set("data.train", one_or_all(train_data))
    if dev_data:
        chosen.set("data.dev", building.named_sources(dev_data))
    if warm_start:
        building.begin_with(chosen, warm_start)
        chosen.override(overrides or ())  # again: what the user sets goes
    if overwrite and not resume and Path(recipe).name != "recipe.yaml":  # which is written again
        check_inputs_stay(chosen, output, recipe)
    try:
        trainer = train_recipe(chosen, output, resume=resume, overwrite=overwrite)
    except KeyboardInterrupt:
        typer.secho(
            f"Interrupted; `--resume -o {output}` goes on from the last checkpoint.",
            fg="yellow",
            err=True,
        )
        raise typer.Exit(130) from None
    if PartialState().is_main_process:
        _summarize(trainer, output)
    PartialState().destroy_process_group()  # or a process that ends first would be an error of the others
