"""Runs that begin with what another model knows: a checkpoint, or a first stage trained in the run's own folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.state import AcceleratorState
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.loading import local_or_hub
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe
from modeling_tmde.training.warm_start import BAG, warm_start

logger = logging.get_logger("modeling_tmde.training")

STAGE_FOLDER = "warm_start"


def prepare_warm_start(recipe: Recipe, folder: Path, train: Callable[..., Any]) -> str | None:
    """
    The checkpoint that a run begins with, or None.

    Where the recipe names a first stage and no checkpoint, the stage is trained in `warm_start/` of the folder, or
    gone on with, unless it is done.

    Settles what follows from it in `recipe`: without a `tokenizer` section the checkpoint's tokenizer is used, and a
    T-MDE model that begins with token weights has the direct path that they need, unless the recipe says otherwise.

    Args:
        train: `train_recipe`.

    Raises:
        RecipeError: A checkpoint that is not there or is no model of this package.
    """
    start = recipe.warm_start
    checkpoint = start.checkpoint
    if checkpoint is None and start.recipe is not None:
        stage = folder / STAGE_FOLDER
        if not (stage / "results.json").exists():
            train(_stage_recipe(recipe), stage, resume=any(stage.glob("checkpoint-*")), overwrite=True)
            PartialState().wait_for_everyone()
            AcceleratorState._reset_state()  # which holds the stage's precision, and refuses another
        checkpoint = str(stage)
    if checkpoint is None:
        return None
    try:
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    except (OSError, ValueError) as error:
        raise RecipeError(f"Warm start from {checkpoint}: {error}") from error
    if not recipe.sections["tokenizer"]:
        recipe.sections["tokenizer"]["path"] = checkpoint
    if recipe.architecture == "tmde" and (config.model_type == BAG or getattr(config, "bag_residual", False)):
        recipe.sections["model"].setdefault("bag_residual", True)
        recipe.sections["model"].setdefault("sublinear_counts", config.sublinear_counts)
    return checkpoint


def _stage_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the first stage: on the same data, and with the same seed."""
    stage = load_recipe(recipe.warm_start.recipe, recipe.warm_start.overrides)
    stage.sections["data"] = dict(recipe.sections["data"])
    if "seed" in recipe.sections["training"]:
        stage.sections["training"]["seed"] = recipe.sections["training"]["seed"]
    return stage


def apply_warm_start(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, checkpoint: str
) -> dict[str, Any]:
    """Changes a new model to begin as the checkpoint ended; returns what `run.json` says of it.

    Raises:
        RecipeError: A checkpoint that does not fit the model.
    """
    start = recipe.warm_start
    try:
        report = warm_start(model, tokenizer, checkpoint, start.residual_scale, start.new_columns_std)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    if PartialState().is_main_process:
        logger.warning("%s", report)
    minutes = None
    results = Path(checkpoint) / "results.json"
    if results.is_file():
        minutes = json.loads(results.read_text()).get("minutes")
    return {**asdict(report), "minutes": minutes}
