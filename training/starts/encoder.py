"""Begin with an encoder of the Hub, alone or beside a bag, or as an earlier run left it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.tokenization import load_tokenizer
from tmde.embedding.loading import local_or_hub
from tmde.embedding.model_files import stored_settings
from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.building import build_config
from tmde.training.recipe.loading import has_encoder_as_teacher
from tmde.training.recipe.options import config_keys
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError
from tmde.training.starts.base import Report, Rows, Start, open_config
from tmde.training.starts.checkpoint import take_checkpoint, with_bag_options
from tmde.training.starts.hub_encoders import (
    keep_layers,
    open_encoder,
    open_encoder_tokenizer,
    prompt_settings,
    take_vocabulary,
    token_settings,
)
from tmde.training.starts.tokenizers import check_reads_new_languages
from tmde.training.starts.vocabulary import check_ids


def adapt_encoder(
    encoder: str | os.PathLike[str],
    prompt: str | None = None,
    pooling: Literal["mean", "cls"] = "mean",
    **options: Any,
) -> AdaptedForConditionalGeneration:
    """Return a model around a pretrained encoder, for `TmdeTrainer` to train further.

    Use the encoder's tokenizer. The model's decoder is new and trained only by a translation
    objective.

    Args:
        encoder: The folder or Hub id of the encoder, such as XLM-R, BERT, ModernBERT or the encoder
            of T5.
        prompt: The prefix that the model adds to every text, such as "query: ". Default: the
            encoder's stored prompt.
        pooling: `"mean"` averages the encoder's outputs, `"cls"` uses the first one.
        options: More options of [`AdaptedConfig`], such as `languages` and `pivot_languages`.

    Raises:
        TmdeError: The encoder can't be trained, or an option is invalid.

    Example:
        ```python
        from transformers import AutoTokenizer

        from tmde import adapt_encoder

        name = "intfloat/multilingual-e5-small"
        model = adapt_encoder(name, languages=["de", "en"], pivot_languages=["en"])
        tokenizer = AutoTokenizer.from_pretrained(name)
        ```
    """
    if prompt is None:
        prompt = stored_settings(local_or_hub(encoder)).default_prompt
    if options.get("bag_residual"):
        raise TmdeError(
            f"bag_residual={options['bag_residual']}: expected 0, because the model would "
            "have no bag; `tmde train hybrid` trains an encoder with one"
        )
    make_config = partial(AdaptedConfig, pooling=pooling, **options)
    tokenizer = open_encoder_tokenizer(encoder)
    return _model_on_encoder(encoder, open_encoder(encoder), tokenizer, prompt, make_config)


def _model_on_encoder(
    name: str | os.PathLike[str],
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    make_config: Callable[..., PreTrainedConfig],
) -> AdaptedForConditionalGeneration:
    """Return a new model with the weights of an encoder, whose name it says it comes from.

    Args:
        name: Folder or Hub id of the encoder.
        encoder: The encoder.
        tokenizer: The tokenizer of the model.
        prompt: What the model reads before every text; "" for nothing.
        make_config: Makes the configuration from the options that follow from the others.

    Raises:
        RecipeError: The tokenizer has ids without an embedding.
    """
    check_ids(tokenizer, encoder.config.vocab_size, f"Encoder {name}")
    config = make_config(
        encoder_config=encoder.config,
        name_or_path=os.fspath(name),
        **token_settings(tokenizer),
        **prompt_settings(prompt, tokenizer),
    )
    assert isinstance(config, AdaptedConfig)  # The architecture of these starts is `adapted`.
    model = AdaptedForConditionalGeneration(config)
    model.take_encoder(encoder)
    return model


@dataclass(frozen=True)
class FromEncoder(Start):
    """Begin with an encoder of the Hub and its tokenizer.

    With `bag_residual`, the model also takes a bag, and the tokenizer is the bag's.
    """

    def check(self) -> None:
        """Refuse an encoder that cannot be trained, and a bag that does not fit it."""
        has_bag = bool(self.recipe.model.bag_residual)
        checkpoint = self.recipe.warm_start.checkpoint
        has_checkpoint = checkpoint is not None
        if has_bag != has_checkpoint:
            raise _wrong_parts(self.recipe)
        _check_common(self.recipe, has_bag)
        if checkpoint is not None:
            open_config(checkpoint, BagConfig)
        encoder = open_encoder(self.recipe.model.encoder)
        tokenizer = self.tokenizer(None)
        self._fit(encoder, tokenizer)
        name = self.recipe.model.encoder
        check_ids(tokenizer, encoder.config.vocab_size, f"Encoder {name}")
        build_config(self.recipe, encoder_config=encoder.config)

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the encoder, or that of the bag beside it."""
        recipe = self.recipe
        path = recipe.tokenizer.path or recipe.warm_start.checkpoint or recipe.model.encoder
        return open_encoder_tokenizer(path)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, Report | None]:
        """Return a new model with the weights of the encoder and of the bag beside it."""
        checkpoint = self.recipe.warm_start.checkpoint
        recipe = self.recipe
        if checkpoint is not None:
            recipe = with_bag_options(recipe, open_config(checkpoint))
        encoder = open_encoder(recipe.model.encoder)
        self._fit(encoder, tokenizer)
        make_config = partial(build_config, recipe)
        model = _model_on_encoder(
            recipe.model.encoder, encoder, tokenizer, self._prompt(), make_config
        )
        if checkpoint is None:
            return model, None
        return model, take_checkpoint(model, tokenizer, checkpoint, recipe)

    def _prompt(self) -> str:
        """Return the prompt of the recipe, or the one that the encoder's folder carries."""
        section = self.recipe.model
        if section.settings().get("prompt") is not None:
            return section.prompt
        return stored_settings(local_or_hub(section.encoder)).default_prompt

    def _fit(self, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Cut an encoder to the recipe's layers and the bag's tokens, in place."""
        section = self.recipe.model
        if section.encoder_layers is not None:
            keep_layers(encoder, section.encoder_layers)
        checkpoint = self.recipe.warm_start.checkpoint
        if checkpoint is not None:
            full_tokenizer = load_tokenizer(local_or_hub(section.encoder), trust_remote_code=False)
            take_vocabulary(encoder, full_tokenizer, tokenizer, checkpoint)


@dataclass(frozen=True)
class FromAdapted(Start):
    """Begin with the model of an earlier run that is on an encoder of the Hub.

    Options that the recipe leaves open stay as they were.
    """

    @property
    def checkpoint(self) -> str:
        """The checkpoint.

        Raises:
            RecipeError: The recipe names none.
        """
        checkpoint = self.recipe.warm_start.checkpoint
        if checkpoint is None:
            raise _wrong_parts(self.recipe)
        return checkpoint

    def check(self) -> None:
        """Refuse a checkpoint of another kind, and keys that need a new encoder."""
        config = open_config(self.checkpoint, AdaptedConfig)
        _check_common(self.recipe, bool(config.bag_residual))
        self._check_needs_no_encoder(config)

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the checkpoint."""
        path = self.recipe.tokenizer.path or self.checkpoint
        tokenizer = open_encoder_tokenizer(path)
        check_reads_new_languages(tokenizer, self.recipe, rows)
        return tokenizer

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, Report | None]:
        """Return a model as the checkpoint has it, with what the recipe changes."""
        recipe = self.recipe
        old_config = open_config(self.checkpoint, AdaptedConfig)
        recipe_options = recipe.model.settings()
        derived_options = {
            "encoder_config": old_config.encoder_config,
            "decoder_embedding_scale": old_config.decoder_embedding_scale,
        }
        for option in config_keys(ADAPTED):
            if option not in recipe_options:
                derived_options[option] = getattr(old_config, option)
        prompt = recipe_options.get("prompt")
        if prompt is None:
            prompt = old_config.prompt
        derived_options.update(token_settings(tokenizer))
        derived_options.update(prompt_settings(prompt, tokenizer))
        config = build_config(recipe, **derived_options)
        assert isinstance(config, AdaptedConfig)  # The architecture of these starts is `adapted`.
        model = AdaptedForConditionalGeneration(config)
        return model, take_checkpoint(model, tokenizer, self.checkpoint, recipe)

    def _check_needs_no_encoder(self, config: PreTrainedConfig) -> None:
        section = self.recipe.model
        for name, options in self.recipe.objectives.settings().items():
            if has_encoder_as_teacher(options):
                raise self._needs_encoder(f"objectives.{name}.teacher=encoder")
        if section.encoder_layers:
            raise self._needs_encoder("model.encoder_layers")
        if section.bag_residual and not config.bag_residual:
            raise self._needs_encoder("model.bag_residual")

    def _needs_encoder(self, key: str) -> RecipeError:
        return RecipeError(
            f"{key} needs --encoder, found --warm-start {self.checkpoint}; remove or replace it"
        )


def _wrong_parts(recipe: Recipe) -> RecipeError:
    return RecipeError(
        f"Recipe {recipe.name} needs --encoder, such as xlm-roberta-base, or --warm-start "
        "with a model that has an encoder, not both; with model.bag_residual, it needs both, "
        "and --warm-start must be a bag"
    )


def _check_common(recipe: Recipe, has_bag: bool) -> None:
    """Refuse what no model on an encoder of the Hub can have."""
    for name, required in recipe.requirements.items():
        if has_bag and required.decoder:
            raise RecipeError(
                f"objectives.{name}: expected none with model.bag_residual, which can't train "
                "a decoder"
            )
    tokenizer_keys = sorted(recipe.tokenizer.settings().keys() - {"path"})
    if tokenizer_keys:
        raise RecipeError(
            f"tokenizer: found {', '.join(tokenizer_keys)}, but an encoder from the Hub has "
            "its own; remove it"
        )
