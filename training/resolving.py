"""Resolve a recipe for one run, before any data is read and any file is written or deleted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.checkpoints import check_resumable, find_checkpoint
from tmde.training.distributed import check_processes
from tmde.training.objective_checks import check_triples
from tmde.training.objectives.base import Objective
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.building import (
    build_arguments,
    build_config,
    build_objectives,
    check_fit_of_objectives,
    check_pyramid,
    check_widths,
)
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.schema import Recipe
from tmde.training.starts import ResumedModel, Start, choose_start


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
    if resume:
        parts = _build_parts(recipe, folder)
        checkpoint = find_checkpoint(folder)
        start = _resumed_start(recipe, folder, checkpoint)
        if checkpoint is not None:
            check_resumable(checkpoint)
            parts.arguments.eval_on_start = False  # The run was measured before its first step.
        return ResolvedRun(recipe, folder, start, parts.objectives, parts.arguments, checkpoint)
    check_pyramid(recipe)
    parts = _build_parts(recipe, folder)
    # The width may be that of the packaged model, with which `check_trainable` cannot reckon.
    check_widths(recipe, parts.objectives)
    start = choose_start(recipe, folder)
    start.check()
    return ResolvedRun(recipe, folder, start, parts.objectives, parts.arguments, checkpoint=None)


def check_trainable(recipe: Recipe) -> None:
    """Make every check of a new run that needs no files, to find mistakes long before it begins.

    Raises:
        RecipeError: The recipe cannot be trained.
    """
    check_pyramid(recipe)
    _build_parts(recipe, Path("unused"))


def _resumed_start(recipe: Recipe, folder: Path, checkpoint: Path | None) -> Start:
    """Return how a resumed run begins: as a new one if it has no checkpoint yet."""
    if checkpoint is None:
        return choose_start(recipe, folder)
    return ResumedModel(recipe, folder, checkpoint)


# ---- The parts that need no files


@dataclass(frozen=True)
class _Parts:
    """What a recipe alone determines.

    Attributes:
        objectives: The losses by name.
        arguments: The training arguments.
    """

    objectives: dict[str, Objective]
    arguments: TmdeTrainingArguments


def _build_parts(recipe: Recipe, folder: Path) -> _Parts:
    """Build all that a recipe describes without its data and checkpoints.

    Raises:
        RecipeError: A value does not fit.
    """
    if recipe.architecture != ADAPTED:  # Its configuration needs the encoder.
        build_config(recipe)
    if recipe.training.hub_token:
        raise RecipeError(
            "hub_token would be written to recipe.yaml; set HF_TOKEN instead, or run `hf auth "
            "login`"
        )
    arguments = build_arguments(recipe, str(folder))
    check_processes(arguments)
    if arguments.early_stopping_patience and arguments.eval_strategy == "no":
        raise RecipeError(
            "early_stopping_patience counts evaluations: give dev or eval_task, and eval_strategy"
        )
    objectives = build_objectives(recipe)
    if recipe.data.triples:
        check_triples(objectives)
    check_fit_of_objectives(recipe, objectives, arguments.token_dropout)
    return _Parts(objectives, arguments)
