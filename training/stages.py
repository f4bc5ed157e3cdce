"""Runs that begin with what another model knows: a checkpoint, or a first stage trained in the run's own folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.state import AcceleratorState
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.loading import local_or_hub
from modeling_tmde.training.architectures import architecture_of
from modeling_tmde.training.evaluation import language_pairs
from modeling_tmde.training.recipe import DataConfig, Recipe, RecipeError, load_recipe
from modeling_tmde.training.run_record import find_checkpoint
from modeling_tmde.training.warm_start import BAG, warm_start

logger = logging.get_logger("modeling_tmde.training")

STAGE_FOLDER = "warm_start"
DATA_KEYS = {field.name for field in fields(DataConfig)}

# What the run and its first stage have in common: held-out rows depend on the seed, curves should be comparable, and
# processes share out a model in one way.
LANGUAGE_KEYS = ("data.languages", "data.pivot_languages")
SHARED_KEYS = (
    "seed",
    "data_seed",
    "use_cpu",
    "token_cache_dir",
    "fsdp",
    "fsdp_config",
    "disable_tqdm",
    "eval_pairs",
    "eval_pool",
    "eval_loss_rows",
    "eval_head",
)


def stage_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe of a run's first stage, on the run's data; None if it has no such stage.

    Raises:
        RecipeError: A stage with a first stage of its own, or overrides of the data (but for fewer languages) or the
            seed, which are the run's.
    """
    start = recipe.warm_start
    if start.checkpoint is not None or start.recipe is None:
        return None
    stage = load_recipe(start.recipe)
    training = recipe.sections["training"]
    stage.sections["training"] |= {key: training[key] for key in SHARED_KEYS if key in training}
    languages = {}
    for name, value in start.overrides.items():
        key = f"data.{name}" if name in DATA_KEYS else name
        if key in LANGUAGE_KEYS:
            languages[key.removeprefix("data.")] = _fewer_languages(name, value, recipe.data.languages)
            continue
        if key.startswith("data.") or key.removeprefix("training.") in ("seed", "data_seed"):
            raise RecipeError(
                f"warm_start.overrides: found {name}={value}, but the first stage has the run's data and seed"
            )
        stage.set(key, value)
    stage.sections["data"] = {**recipe.sections["data"], **languages}
    pairs = stage.sections["training"].get("eval_pairs")
    if pairs is not None:  # of the run, whose languages may be more
        kept = [pair for pair in pairs if pair in language_pairs(stage.data.languages)]
        stage.sections["training"]["eval_pairs"] = kept or None
    _check_width(recipe, stage.build_config())
    if stage.warm_start.recipe is not None and stage.warm_start.checkpoint is None:
        raise RecipeError(f"warm_start.recipe={start.recipe}: a first stage may not have a first stage of its own")
    return stage


def _fewer_languages(key: str, value: Any, languages: list[str]) -> list[str]:
    if not isinstance(value, list) or not value or not set(value) <= set(languages):
        raise RecipeError(f"warm_start.overrides: found {key}={value}, expected a list of some of {languages}")
    return value


def check_warm_start(recipe: Recipe) -> None:
    """Looks for what can be wrong with a warm start before anything is deleted or trained.

    Raises:
        RecipeError: A checkpoint that is not there, or is no model of this package.
    """
    stage_recipe(recipe)
    checkpoint = recipe.warm_start.checkpoint
    if checkpoint is not None:
        _check_width(recipe, _open_config(checkpoint))


def _check_width(recipe: Recipe, start: PreTrainedConfig) -> None:
    """Columns that a narrower bag lacks begin at zero, and must be able to learn."""
    if recipe.architecture != "tmde":
        return
    width, frozen = recipe.build_config().d_model, recipe.sections["training"].get("embedding_learning_rate") == 0
    if start.model_type == BAG and width > start.d_model and frozen and not recipe.warm_start.new_columns_std:
        raise RecipeError(
            f"Warm start of a model with d_model={width} from a bag with d_model={start.d_model}: the other columns "
            "would stay zero, since embedding_learning_rate=0; set "
            f"model.d_model={start.d_model} or embedding_learning_rate=null"
        )


def _open_config(checkpoint: str) -> PreTrainedConfig:
    try:
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    except (OSError, ValueError) as error:
        raise RecipeError(f"Warm start from {checkpoint}: {error}") from error
    if architecture_of(config) is None:
        raise RecipeError(
            f"Warm start from {checkpoint}: found a model of type {config.model_type!r}, expected one of this package"
        )
    return config


def prepare_warm_start(recipe: Recipe, folder: Path, resumed: Path | None, train: Callable[..., Any]) -> str | None:
    """
    The checkpoint that a run begins with, or None.

    Where the recipe names a first stage and no checkpoint, the stage is trained in `warm_start/` of the folder, or
    gone on with, unless it is done.

    Settles what follows from it in `recipe`: without a `tokenizer` section the checkpoint's tokenizer is used, and the
    model begins with the checkpoint's way to make a bag (`bag_residual`, `sublinear_counts`), unless the recipe says
    otherwise.

    Args:
        resumed: The run's own checkpoint from which it goes on, which settles the same; nothing is trained then.
        train: `train_recipe`.

    Raises:
        RecipeError: A checkpoint that is not there or is no model of this package.
    """
    start = recipe.warm_start
    if start.checkpoint is None and start.recipe is None:
        return None
    checkpoint = start.checkpoint if resumed is None else str(resumed)
    if checkpoint is None:
        stage = folder / STAGE_FOLDER
        if not (stage / "results.json").exists():
            if PartialState().is_main_process:
                logger.warning(f"Stage 1 of 2: recipe {start.recipe}, in {stage}")
            processes = PartialState().distributed_type
            train(stage_recipe(recipe), stage, resume=find_checkpoint(stage) is not None, overwrite=True)
            PartialState().wait_for_everyone()
            AcceleratorState._reset_state()  # which holds the stage's precision, and refuses another
            PartialState().distributed_type = processes  # of which the stage may have made FSDP's
        if PartialState().is_main_process:
            logger.warning(f"Stage 2 of 2: recipe {recipe.name}, from {stage}")
        checkpoint = str(stage)
    config = _open_config(checkpoint)
    if not recipe.sections["tokenizer"]:
        recipe.sections["tokenizer"]["path"] = checkpoint
    model, is_bag = recipe.sections["model"], config.model_type == BAG
    if recipe.architecture == "tmde" and (start.direct_path if is_bag else getattr(config, "bag_residual", False)):
        model.setdefault("bag_residual", True)
        model.setdefault("sublinear_counts", config.sublinear_counts)
    elif recipe.architecture == "bag" and is_bag:
        model.setdefault("sublinear_counts", config.sublinear_counts)
    return checkpoint


def apply_warm_start(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, checkpoint: str
) -> dict[str, Any]:
    """Changes a new model to begin as the checkpoint ended; returns what `run.json` says of it.

    Raises:
        RecipeError: A checkpoint that does not fit the model.
    """
    start = recipe.warm_start
    try:
        options = {"residual_scale": start.residual_scale, "new_columns_std": start.new_columns_std}
        report = warm_start(model, tokenizer, checkpoint, direct_path=start.direct_path, **options)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    if PartialState().is_main_process:
        logger.warning("%s", report)
    minutes = None
    results = Path(checkpoint) / "results.json"
    if results.is_file():
        minutes = json.loads(results.read_text()).get("minutes")
    return {**asdict(report), "minutes": minutes}
