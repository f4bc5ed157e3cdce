"""What a recipe means for one run, settled before anything is read, made or deleted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.checkpoints import find_checkpoint
from tmde.training.objectives.base import Objective
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.building import (
    build_arguments,
    build_config,
    build_objectives,
    check_pyramid,
)
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.schema import Recipe
from tmde.training.starts import Resumed, Start, choose_start


@dataclass(frozen=True)
class ResolvedRun:
    """A run whose recipe is resolved.

    Its sections `data`, `tokenizer` and `model` are those of `recipe`.

    Args:
        recipe: The recipe as it was given, which `recipe.yaml` repeats.
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
        resume: Go on with the run in the folder. What it began with is not needed any more, and not
            checked.

    Raises:
        RecipeError: The recipe cannot be trained.
    """
    checkpoint = find_checkpoint(folder) if resume else None
    if not resume:
        check_pyramid(recipe)
    if recipe.architecture != ADAPTED:  # the configuration of `adapted` needs its encoder
        build_config(recipe)
    if checkpoint is not None:
        start: Start = Resumed(recipe, folder, checkpoint)
    else:
        start = choose_start(recipe, folder)
    if not resume:
        start.check()
    if recipe.training.hub_token:
        raise RecipeError(
            "hub_token would be written to recipe.yaml; set HF_TOKEN instead, or run `hf auth "
            "login`"
        )
    arguments = build_arguments(recipe, str(folder))
    if not recipe.data.is_evaluated:
        arguments.eval_strategy = "no"
        arguments.load_best_model_at_end = False
        arguments.eval_on_start = False
    if arguments.early_stopping_patience and arguments.eval_strategy == "no":
        raise RecipeError(
            "early_stopping_patience counts evaluations: give dev or eval_task, and eval_strategy"
        )
    objectives = build_objectives(recipe)
    return ResolvedRun(recipe, folder, start, objectives, arguments, checkpoint)


def check_trainable(recipe: Recipe) -> None:
    """Build all that a recipe describes and needs no files, to find mistakes before a run begins.

    Raises:
        RecipeError: The recipe cannot be trained.
    """
    check_pyramid(recipe)
    build_config(recipe)
    build_objectives(recipe)
    build_arguments(recipe, "unused")
