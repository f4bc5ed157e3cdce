"""A training run, from its recipe to the finished model."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed
from transformers.utils import logging

from modeling_tmde.inspection import position_limit
from tmde.data.io import write_atomically
from tmde.data.parts import AnyDataset
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.progress import phase
from tmde.eval.dev_tasks import load_eval_tasks
from tmde.eval.tasks import ClassificationData
from tmde.hub_cards import describe_origins, describe_sources, licensed_sources
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.checkpoints import check_resumable, discard_checkpoints, find_checkpoint
from tmde.training.distributed import check_processes
from tmde.training.evaluation import check_metric, retrieval_scores
from tmde.training.lora import add_adapters
from tmde.training.new_tokens import place_added_tokens
from tmde.training.objective_checks import check_triples
from tmde.training.objectives import Objective
from tmde.training.publishing import open_hub_repository
from tmde.training.recipe import Recipe, RecipeError
from tmde.training.recipe.architectures import ADAPTED, config_class
from tmde.training.recipe.building import (
    build_arguments,
    build_objectives,
    check_fit_of_objectives,
    check_pyramid,
)
from tmde.training.resuming import check_resumed_folder, record_changes, record_files
from tmde.training.run_data import EvalDataset, RunData, fit_to_rows, load_data
from tmde.training.run_folder import (
    RUN_RECORD_NAME,
    begin_folder,
    check_new_folder,
    opened_folder,
)
from tmde.training.run_record import (
    save_best,
    tell_licenses,
    write_card,
    write_results,
    write_run_record,
)
from tmde.training.starts import choose_start
from tmde.training.starts.base import Report, Start
from tmde.training.starts.checkpoint import ResumedModel
from tmde.training.starts.packaged import has_packaged_languages
from tmde.training.trainer import TmdeTrainer

logger = logging.get_logger("tmde.training")


def train_recipe(
    recipe: Recipe,
    output_dir: str | Path,
    train_dataset: AnyDataset | None = None,
    eval_dataset: EvalDataset | None = None,
    resume: bool = False,
    overwrite: bool = False,
    measure_packaged: bool = False,
    keep_checkpoints: bool = False,
    check_dev: Callable[[dict[str, datasets.Dataset]], None] | None = None,
) -> TmdeTrainer:
    """Train a recipe and write the model into a folder.

    The folder will contain the best checkpoint, which `AutoModel` loads, with `recipe.yaml`,
    `run.json`, `log.jsonl`, `results.json` and, if matplotlib is installed, `curves.png`. Other
    checkpoints are deleted at the end, unless `keep_checkpoints` is set.

    Args:
        recipe: The recipe, from `load_recipe`.
        output_dir: The folder, new or empty unless you resume or overwrite. A new folder is deleted
            if an error occurs before the first checkpoint.
        train_dataset: A `Dataset` or stream to train on instead of the recipe's data, see
            [`TmdeTrainer`]. Its columns define the languages if the recipe does not. To resume,
            pass the same rows.
        eval_dataset: Held-out rows, or several sets by name, instead of the recipe's.
        resume: Resume from the newest complete checkpoint. The result is the same as without the
            interruption, except with a time limit.
        overwrite: Delete an earlier run in the folder.
        measure_packaged: Also evaluate the packaged model on the dev rows, if it supports their
            languages.
        keep_checkpoints: Keep the checkpoints regardless of the recipe, so that the run can be
            resumed.
        check_dev: A function called with the dev sets by name before anything is deleted or
            trained; it may raise an error.

    Returns:
        The trainer, with the best weights loaded.

    Raises:
        TmdeError: The arguments or data are invalid, or another process is training in this folder.
        RunInterrupted: Ctrl-C or SIGTERM ended the run, which is saved if it has started.
        HubUploadError: The last push failed. The run's folder is complete.

    Example:
        ```python
        from tmde import load_recipe, train_recipe

        recipe = load_recipe("quickstart", {"max_steps": 3, "max_rows": 1000})
        trainer = train_recipe(recipe, "runs/mine")
        ```
    """
    folder = Path(output_dir)
    if train_dataset is not None:
        recipe = fit_to_rows(recipe, train_dataset)
    run = resolve(recipe, folder, resume)
    with opened_folder(recipe, folder, resume):
        if resume:
            check_resumed_folder(recipe, folder)
        else:
            check_new_folder(recipe, folder, overwrite)
        # No process changes the folder before every other one has checked it.
        PartialState().wait_for_everyone()
        inputs = read_inputs(run, train_dataset, eval_dataset)
        if check_dev is not None:
            check_dev(inputs.data.dev)
        _write_recipe(run, overwrite and not resume)
        tokenizer, model, report = _begin_model(run, inputs)
        trainer = _build_trainer(run, inputs, tokenizer, model, report)
        if measure_packaged:
            _measure_packaged_model(run, inputs)
        with trainer.interruption.heard():
            trainer.train(resume_from_checkpoint=run.checkpoint)
        _finish(run, inputs, trainer)
        if not keep_checkpoints and not run.arguments.keep_checkpoints:
            discard_checkpoints(run.folder)
    return trainer


# ---- 1. What the recipe determines, before any data is read and any file is written or deleted


@dataclass(frozen=True)
class ResolvedRun:
    """A run whose recipe is resolved.

    Attributes:
        recipe: The recipe as the user gave it, which `recipe.yaml` repeats.
        folder: The folder of the run.
        start: How tokenizer and model begin.
        objectives: The losses by name.
        arguments: The training arguments.
        checkpoint: The checkpoint to resume from; None for a run without one.
    """

    recipe: Recipe
    folder: Path
    start: Start
    objectives: dict[str, Objective]
    arguments: TmdeTrainingArguments
    checkpoint: Path | None


def resolve(recipe: Recipe, folder: Path, resume: bool = False) -> ResolvedRun:
    """Resolve a recipe for a run in a folder.

    Args:
        recipe: The recipe.
        folder: The folder of the run.
        resume: Resume the run in the folder. What a new run would begin with is not checked,
            because it is no longer needed.

    Raises:
        RecipeError: The recipe cannot be trained.
        TmdeError: The checkpoint to resume from is that of a model alone.
    """
    objectives, arguments = check_trainable(recipe, folder)
    start = choose_start(recipe, folder)
    if not resume:
        start.check()
        return ResolvedRun(recipe, folder, start, objectives, arguments, checkpoint=None)
    checkpoint = find_checkpoint(folder)
    if checkpoint is not None:
        check_resumable(checkpoint)
        start = ResumedModel(recipe, folder, checkpoint)
        arguments.eval_on_start = False  # The run was measured before its first step.
    return ResolvedRun(recipe, folder, start, objectives, arguments, checkpoint)


def check_trainable(
    recipe: Recipe, folder: Path
) -> tuple[dict[str, Objective], TmdeTrainingArguments]:
    """Make every check of a run that needs no files.

    Returns:
        The losses by name, and the training arguments of a run in the folder.

    Raises:
        RecipeError: The recipe cannot be trained.
    """
    check_pyramid(recipe)
    if recipe.training.hub_token:
        raise RecipeError(
            "hub_token would be written to recipe.yaml; set HF_TOKEN instead, or run `hf auth "
            "login`"
        )
    arguments = build_arguments(recipe, str(folder))
    check_processes(arguments)
    if arguments.early_stopping_patience and arguments.eval_strategy == "no":
        raise RecipeError(
            "early_stopping_patience needs evaluations: set dev or eval_task, and eval_strategy"
        )
    objectives = build_objectives(recipe)
    if recipe.data.triples:
        check_triples(objectives)
    check_fit_of_objectives(recipe, objectives, arguments.token_dropout)
    return objectives, arguments


# ---- 2. What is read


@dataclass(frozen=True)
class RunInputs:
    """What a run reads.

    Attributes:
        data: The rows.
        eval_tasks: The classification tasks by name.
        origin: Where data and weights come from, for `run.json`.
    """

    data: RunData
    eval_tasks: dict[str, ClassificationData]
    origin: dict[str, Any]


def read_inputs(
    run: ResolvedRun,
    train_dataset: AnyDataset | None = None,
    eval_dataset: EvalDataset | None = None,
) -> RunInputs:
    """Read the rows and tasks of a run, after checks of what would fail only at its end."""
    recipe = run.recipe
    state = PartialState()
    with state.main_process_first():
        if state.is_main_process and run.arguments.push_to_hub:
            model_type = config_class(recipe.architecture).model_type
            open_hub_repository(run.arguments, model_type)
        eval_tasks = load_eval_tasks(recipe.data.eval_task, recipe.data.languages)
        with _phase(run, "Reading and checking the rows"):
            data = load_data(recipe, train_dataset, eval_dataset)
        if data.dev or eval_tasks:
            check_metric(run.arguments, data.dev, eval_tasks, recipe.searched_texts)
        settings = recipe.settings()
        # Sources are described on this machine: on another one, `a/b` may be a folder.
        sources = describe_sources(settings["data"].get("train"))
        licensed = licensed_sources(sources, recipe.card.data_licenses)
        origins = describe_origins(settings)
        if state.is_main_process and run.checkpoint is None:
            pushes = run.arguments.push_to_hub
            tell_licenses(origins, licensed, recipe.card, pushes)
    origin = {"recipe": recipe.name, "sources": sources, **origins}
    return RunInputs(data, eval_tasks, origin)


# ---- 3. From the folder to the trainer


def _write_recipe(run: ResolvedRun, overwrite: bool) -> None:
    """Write the recipe into the folder of a run; where it resumes, what has changed in it."""
    state = PartialState()
    with state.main_process_first():
        if not state.is_main_process:
            return
        if run.checkpoint is None:
            begin_folder(run.recipe, run.folder, overwrite)
        else:
            record_changes(run.recipe, run.folder)


def _begin_model(
    run: ResolvedRun, inputs: RunInputs
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel, Report | None]:
    """Make the tokenizer and the model, and report what the model took of a checkpoint."""
    arguments = run.arguments
    tokenizer = run.start.tokenizer(inputs.data.train)
    set_seed(arguments.seed)
    model, report = run.start.apply(tokenizer)
    if run.checkpoint is None:
        place_added_tokens(run.recipe, model, tokenizer, inputs.data.train)
    limit = position_limit(model)  # A bag has no limit.
    tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    if arguments.train_max_length > limit:
        positions = model.config.max_position_embeddings
        raise RecipeError(
            f"train_max_length={arguments.train_max_length} exceeds the model's "
            f"max_position_embeddings={positions}"
        )
    if run.recipe.architecture == ADAPTED and run.recipe.model.lora is not None:
        add_adapters(model, run.recipe.model.lora)
    return tokenizer, model, report


def _measure_packaged_model(run: ResolvedRun, inputs: RunInputs) -> None:
    """Record in `run.json` how well the packaged model does on the dev rows of a new run."""
    recipe = run.recipe
    is_first_part = PartialState().is_main_process and run.checkpoint is None
    has_languages = recipe.named_texts is None and not recipe.data.triples
    has_pairs = bool(inputs.data.dev) and has_languages
    if is_first_part and has_pairs and has_packaged_languages(recipe.data.languages):
        dev_sets = inputs.data.dev
        with _phase(run, "Measuring the packaged model on the dev rows"):
            embedder = DocumentEmbedder.from_pretrained()
            scores = retrieval_scores(embedder, dev_sets, recipe.data.languages, run.arguments)
        path = run.folder / RUN_RECORD_NAME
        record = json.loads(path.read_text(encoding="utf-8"))
        record["packaged"] = scores
        write_atomically(path, json.dumps(record, indent=2))


def _build_trainer(
    run: ResolvedRun,
    inputs: RunInputs,
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    report: Report | None,
) -> TmdeTrainer:
    """Build the trainer, and record in `run.json` what a new run is made from."""
    trainer = TmdeTrainer(
        model,
        run.arguments,
        inputs.data.train,
        inputs.data.dev,
        run.objectives,
        tokenizer,
        eval_tasks=inputs.eval_tasks,
        recipe=run.recipe,
    )
    if PartialState().is_main_process and run.checkpoint is None:
        train = run.recipe.settings()["data"].get("train")
        files = record_files(train, is_streamed=run.recipe.data.streaming)
        write_run_record(trainer, run.folder, inputs.origin, warm_start=report, files=files)
    return trainer


# ---- 4. The end


def _finish(run: ResolvedRun, inputs: RunInputs, trainer: TmdeTrainer) -> None:
    """Save the best model, write results and card, and push them if the recipe says so."""
    state = PartialState()
    with _phase(run, "Saving the model and its card"):
        save_best(trainer, run.folder)
        if state.is_main_process:
            write_results(trainer, run.folder, inputs.data.report)
            write_card(run.folder)
    if run.arguments.push_to_hub:
        trainer.push_saved()
    state.wait_for_everyone()


def _phase(run: ResolvedRun, description: str) -> AbstractContextManager[None]:
    """Return a context in which the first process shows that the run goes on."""
    is_shown = PartialState().is_main_process and not run.arguments.disable_tqdm
    return phase(description, is_shown)
