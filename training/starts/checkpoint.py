"""A new model: it begins with a checkpoint or with random weights."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

from accelerate import PartialState
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.tokenization import is_byte_level_bpe, load_tokenizer
from tmde.embedding.loading import local_or_hub
from tmde.training.recipe.architectures import ADAPTED, BAG, TMDE, config_class
from tmde.training.recipe.building import build_config, model_class_of
from tmde.training.recipe.loading import with_sections, with_settings
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError
from tmde.training.starts.base import Report, Rows, Start, open_config
from tmde.training.starts.hub_encoders import token_settings
from tmde.training.starts.tokenizers import open_tokenizer_files, prepare_tokenizer
from tmde.training.starts.weights import warm_start

logger = logging.get_logger("tmde.training")


@dataclass(frozen=True)
class NewModel(Start):
    """Begin with the checkpoint of the recipe; without one, with random weights.

    The tokenizer is that of the checkpoint, unless the recipe has a `tokenizer` section.
    """

    @cached_property
    def completed_recipe(self) -> Recipe:
        """The recipe with the checkpoint's tokenizer and bag options where it sets none."""
        checkpoint = self.recipe.warm_start.checkpoint
        if checkpoint is None:
            return self.recipe
        recipe = with_bag_options(self.recipe, open_config(checkpoint))
        if recipe.tokenizer.settings():
            return recipe
        return with_settings(recipe, {"tokenizer.path": checkpoint})

    def check(self) -> None:
        """Refuse a checkpoint that is missing or foreign, or whose weights do not fit."""
        checkpoint = self.recipe.warm_start.checkpoint
        if checkpoint is not None:
            check_fit(self.recipe, open_config(checkpoint))
        elif self.recipe.warm_start.made_by is not None:
            raise RecipeError(_describe_missing_checkpoint(self.recipe, self.folder))

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the recipe, or else of the checkpoint, or else a new one."""
        return prepare_tokenizer(self.completed_recipe, rows, self.folder)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, Report | None]:
        """Return a new model that begins as the checkpoint ended."""
        model = new_model(self.completed_recipe, tokenizer)
        checkpoint = self.recipe.warm_start.checkpoint
        if checkpoint is None:
            return model, None
        return model, take_checkpoint(model, tokenizer, checkpoint, self.recipe)


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a model of the recipe's architecture with random weights, for this tokenizer.

    Raises:
        RecipeError: The tokenizer puts no token before a text, which all architectures but
            `adapted` need.
    """
    settings = token_settings(tokenizer)
    if not settings.pop("reads_bos"):
        raise RecipeError(
            f"tokenizer: {tokenizer.name_or_path!r} adds no token before a text; use another"
        )
    settings["vocab_size"] = len(tokenizer)
    settings["mask_token_id"] = tokenizer.mask_token_id
    options = {field.name for field in fields(config_class(recipe.architecture))}
    known_settings = {name: value for name, value in settings.items() if name in options}
    model_class = model_class_of(recipe)
    return model_class(build_config(recipe, **known_settings))


def _describe_missing_checkpoint(recipe: Recipe, folder: Path) -> str:
    """Return the two commands of a run whose checkpoint is still to be made."""
    if folder.name in ("", ".."):
        folder = folder.resolve()
    checkpoint = folder.with_name(f"{folder.name}-start")
    words = shlex.split(str(recipe.warm_start.made_by))
    sources = recipe.data.train
    if not isinstance(sources, list):
        sources = [sources]
    for source in sources:
        # Rows of Python have no name, and a pair of files is no single word.
        words += ["--train", source if isinstance(source, str) else "SOURCE"]
    if not any(word.startswith("languages=") for word in words):
        words += ["--languages", ",".join(recipe.data.languages)]
        if words[:2] == ["tmde", "train"]:
            words += ["--pivots", ",".join(recipe.data.pivot_languages)]
    if recipe.data.columns:
        columns = [f"{language}={name}" for language, name in recipe.data.columns.items()]
        words += ["--columns", ",".join(columns)]
    words += ["-o", str(checkpoint)]
    return (
        f"Recipe {recipe.name} is initialized from a checkpoint. Make it: {shlex.join(words)}. "
        f"Then repeat your command with --warm-start {checkpoint} (and without --from-scratch)"
    )


@dataclass(frozen=True)
class ResumedModel(Start):
    """Resume the run from one of its checkpoints.

    Only the shape of the model is built here, because the trainer loads the weights.

    Attributes:
        checkpoint: The checkpoint, a folder in that of the run.
    """

    checkpoint: Path

    def check(self) -> None:
        """Check nothing: what the run began with is no longer needed."""

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the checkpoint."""
        return open_tokenizer_files(self.checkpoint)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, Report | None]:
        """Return a model of the checkpoint's configuration."""
        return model_class_of(self.recipe)(open_config(self.checkpoint)), None


def with_bag_options(recipe: Recipe, config: PreTrainedConfig) -> Recipe:
    """Return the recipe with a checkpoint's way to make a bag, unless the recipe sets its own.

    Args:
        recipe: The recipe of the model.
        config: The configuration of the checkpoint.
    """
    recipe_options = recipe.model.settings()
    settings = {}
    for option, value in bag_options(recipe, config).items():
        if option not in recipe_options:
            settings[f"model.{option}"] = value
    return with_settings(recipe, settings)


def bag_options(recipe: Recipe, config: PreTrainedConfig) -> dict[str, bool]:
    """Return the options of its bag that a model takes from a checkpoint."""
    is_bag = config.model_type == BagConfig.model_type
    if recipe.architecture == TMDE:
        has_direct_path = getattr(config, "bag_residual", False)
        if is_bag:
            has_direct_path = recipe.warm_start.direct_path
        if has_direct_path:
            return {"bag_residual": True, "sublinear_counts": config.sublinear_counts}
    elif recipe.architecture in (BAG, ADAPTED) and is_bag:
        return {"sublinear_counts": config.sublinear_counts}
    return {}


def take_checkpoint(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, checkpoint: str, recipe: Recipe
) -> Report:
    """Change a new model to begin as a checkpoint ended.

    Args:
        model: The new model.
        tokenizer: The tokenizer of the run.
        checkpoint: Folder or Hub id.
        recipe: The recipe of the run.

    Returns:
        The `warm_start` of `run.json`.
    """
    report = warm_start(model, tokenizer, checkpoint, recipe.warm_start.direct_path)
    if PartialState().is_main_process:
        logger.warning(
            f"Warm start from {checkpoint} ({report['model_type']}): {report['tokens_copied']:,} "
            f"tokens copied, {report['tokens_mapped']:,} tokens mapped, {report['tokens_left']:,} "
            f"tokens left, {len(report['tensors_kept'])} parameters as initialized"
        )
    minutes = None
    results = Path(checkpoint) / "results.json"
    if results.is_file():
        minutes = json.loads(results.read_text()).get("minutes")
    return {**report, "minutes": minutes}


# ---- Fit


def check_fit(recipe: Recipe, config: PreTrainedConfig) -> None:
    """Refuse a checkpoint with which a model would not begin as the checkpoint ended.

    Args:
        recipe: The recipe of the model that begins with the checkpoint.
        config: The configuration of the checkpoint.

    Raises:
        RecipeError: The model is wider than a bag, and its tables do not learn; or it differs from
            a language model in a setting by which the same weights compute something else.
    """
    if recipe.architecture == TMDE and config.model_type == TmdeEncoderConfig.model_type:
        _check_language_model(build_config(recipe), config)
    if _stays_narrow(recipe, config):
        raise RecipeError(
            f"d_model={build_config(recipe).d_model}: with embedding_learning_rate=0, the "
            f"columns beyond the bag's d_model={config.d_model} stay zero; set "
            f"model.d_model={config.d_model} or embedding_learning_rate=null"
        )


def _stays_narrow(recipe: Recipe, config: PreTrainedConfig) -> bool:
    """Return whether a model begins with a narrower bag and never fills its other columns."""
    if recipe.architecture != TMDE or config.model_type != BagConfig.model_type:
        return False
    tables_learn = recipe.training.embedding_learning_rate != 0
    return not tables_learn and build_config(recipe).d_model > config.d_model


def _check_language_model(config: PreTrainedConfig, source_config: PreTrainedConfig) -> None:
    """Check that the layers of a language model fit encoder and decoder of a T-MDE.

    Raises:
        RecipeError: A setting differs.
    """
    if source_config.position_embeddings != "sinusoidal":
        raise RecipeError(
            "Warm start from a language model: found "
            f"position_embeddings={source_config.position_embeddings}, but T-MDE has sinusoidal "
            "positions; train the language model with model.position_embeddings=sinusoidal"
        )
    pairs = [
        ("activation_function", "activation_function"),
        ("encoder_layers", "encoder_layers"),
        ("encoder_attention_heads", "encoder_attention_heads"),
        ("encoder_attention_heads", "decoder_attention_heads"),
        ("encoder_ffn_dim", "encoder_ffn_dim"),
        ("encoder_ffn_dim", "decoder_ffn_dim"),
    ]
    for source_name, name in pairs:
        source_value = getattr(source_config, source_name)
        value = getattr(config, name)
        if value != source_value:
            raise RecipeError(
                f"Warm start from a language model with {source_name}={source_value}: found "
                f"{name}={value}; set model.{name}={source_value}"
            )


# ---- `--warm-start`


def begin_with(recipe: Recipe, checkpoint: str) -> Recipe:
    """Return the recipe with a checkpoint to begin with, for `--warm-start`.

    Settings that a warm start cannot change are copied from the checkpoint: the width of a bag, and
    a vocabulary that cannot be mapped, which is any but a byte-level BPE.

    Args:
        recipe: The recipe.
        checkpoint: Folder or Hub id.
    """
    section = recipe.warm_start.settings()
    section.pop("made_by", None)
    section["checkpoint"] = checkpoint
    recipe = with_sections(recipe, warm_start=section)
    config = open_config(checkpoint)
    continues_bag = recipe.architecture == BAG and config.model_type == BagConfig.model_type
    if continues_bag or _stays_narrow(recipe, config):
        recipe = with_settings(recipe, {"model.d_model": config.d_model})
    if recipe.tokenizer.settings():
        tokenizer = load_tokenizer(local_or_hub(checkpoint))
        if not is_byte_level_bpe(tokenizer):
            recipe = with_sections(recipe, tokenizer={})
    return recipe
