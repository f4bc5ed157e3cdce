"""Encoders of the Hub with T-MDE's bottleneck and decoder: opened, checked, and made into a model to train."""

import os
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.data.tokens import text_bounds
from modeling_tmde.embedding import local_or_hub, position_limit
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration, encoder_class, pooler_options
from modeling_tmde.tokenization import load_tokenizer
from modeling_tmde.training.architectures import architecture_of
from modeling_tmde.training.recipe import ADAPTED, Recipe, RecipeError, section_keys

logger = logging.get_logger("modeling_tmde.training")

HIGH_RATE = 1e-4  # from which a pretrained transformer forgets faster than it learns
PROBE_TOKENS, PROBE_PADDING = 24, 8  # of the text that an encoder is tried on
PADDING_TOLERANCE = 1e-4  # share of the largest output


def token_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | bool | None]:
    """What a config says of the special tokens, by the names of [`AdaptedConfig`]."""
    bos, eos, reads_bos = text_bounds(tokenizer)
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "decoder_start_token_id": bos}
    return tokens | {"pad_token_id": tokenizer.pad_token_id, "reads_bos": reads_bos}


def open_encoder(encoder: str | os.PathLike) -> PreTrainedModel:
    """A text encoder in float32, whose code is in transformers.

    Raises:
        RecipeError: There is none, it is a model of this package or needs code of its own, its weights are not
            complete, or its outputs are no encoder's.
    """
    try:
        name = local_or_hub(encoder)
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if config.model_type.startswith("tmde"):
            raise ValueError(
                f"found a model of this package ({config.model_type!r}), which --warm-start goes on from; --encoder "
                "is for encoders of the Hub"
            )
        AdaptedConfig(encoder_config=config)
        model_class = encoder_class(config)
        options = {"dtype": torch.float32, "output_loading_info": True, **pooler_options(model_class)}
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()  # the weights of a pretraining head are left out
        try:
            model, loading = model_class.from_pretrained(name, config=config, **options)
        finally:
            logging.set_verbosity(verbosity)
        if missing := sorted(loading["missing_keys"]):
            raise ValueError(f"its weights lack {len(missing)} of a {model_class.__name__}, such as {missing[0]}")
        _check_outputs(model.eval())
    except Exception as error:  # the forward pass of a model that takes no text may fail in any way
        problem = str(error).strip()
        if "trust_remote_code" in problem:
            problem = "it needs code of its own (trust_remote_code); expected an architecture of transformers"
        if isinstance(error, (AttributeError, TypeError)):
            problem += "; expected a text encoder"
        raise RecipeError(f"Encoder {encoder}: {problem}") from error
    return model


@torch.no_grad()
def _check_outputs(encoder: PreTrainedModel) -> None:
    """Reads a text, the same with another last token, and the same with masked padding behind it.

    Raises:
        ValueError: The model is a decoder such as GPT-2, whose outputs do not depend on later tokens, or its outputs
            depend on padding, such as FNet's.
    """
    length = max(2, min(PROBE_TOKENS, position_limit(encoder) - PROBE_PADDING))
    pad = max(encoder.config.pad_token_id or 0, 0)
    usable = torch.tensor([token for token in range(min(length + 1, encoder.config.vocab_size)) if token != pad])
    ids = usable[torch.arange(length) % len(usable)][None]  # (1, length)
    other = torch.cat([ids[:, :-1], ids[:, :1]], dim=1)
    padded = torch.nn.functional.pad(ids, (0, PROBE_PADDING), value=pad)
    outputs = []
    for given in (ids, other, padded):
        mask = (torch.arange(given.shape[1])[None] < length).long()
        states = encoder(input_ids=given, attention_mask=mask).last_hidden_state
        if states.shape[:2] != given.shape:
            raise ValueError(f"found outputs {tuple(states.shape)} for {given.shape[1]} tokens, expected one for each")
        outputs.append(states[:, :length])
    alone, changed, beside_padding = outputs
    if torch.equal(alone[:, :-1], changed[:, :-1]):
        raise ValueError(
            f"{type(encoder).__name__} reads from left to right, as decoders do: the output of a token does not "
            "depend on those after it; expected an encoder, such as FacebookAI/xlm-roberta-base"
        )
    share = float((beside_padding - alone).abs().max() / alone.abs().max())
    if not share <= PADDING_TOLERANCE:
        raise ValueError(
            f"its outputs depend on padding: masked tokens behind a text change those of its tokens by {share:.1e} of "
            f"the largest, expected at most {PADDING_TOLERANCE:.0e}"
        )


def open_encoder_tokenizer(encoder: str | os.PathLike) -> PreTrainedTokenizerBase:
    """The tokenizer of an encoder, as it is.

    Raises:
        RecipeError: There is none, or it lacks what training needs: padding, and a token after every text.
    """
    try:
        name = str(encoder) if Path(encoder).is_dir() else local_or_hub(encoder)  # a folder may hold a tokenizer alone
        tokenizer = load_tokenizer(name, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            raise ValueError("its tokenizer has no pad_token, with which texts are padded to batches")
        text_bounds(tokenizer)
    except (OSError, ValueError) as error:
        raise RecipeError(f"Encoder {encoder}: {error}") from error
    return tokenizer


def check_encoder(recipe: Recipe) -> None:
    """Checks the encoder of a recipe before anything is deleted or trained.

    Raises:
        RecipeError: There is none, one beside a checkpoint, or one that cannot be trained.
    """
    if recipe.architecture != ADAPTED:
        return
    encoder, start = recipe.sections["model"].get("encoder"), recipe.warm_start
    if (encoder is None) == (start.checkpoint is None) or start.recipe is not None:
        raise RecipeError(
            f"Recipe {recipe.name} needs an encoder of the Hub, or a checkpoint that has one already: give either "
            "--encoder with a Hub id or a folder, such as FacebookAI/xlm-roberta-base, or --warm-start"
        )
    # A run that goes on from a checkpoint may name where its tokenizer is.
    if own := sorted(set(recipe.sections["tokenizer"]) - (set() if encoder else {"path"})):
        raise RecipeError(
            f"Section 'tokenizer' of recipe {recipe.name}: found {', '.join(own)}, but an encoder of the Hub has a "
            "tokenizer of its own; remove it"
        )
    if encoder is None:
        _adapted_config(start.checkpoint)
        return
    rows, vocabulary = open_encoder(encoder).config.vocab_size, open_encoder_tokenizer(encoder).get_vocab()
    if max(vocabulary.values()) >= rows:
        raise RecipeError(
            f"Encoder {encoder}: its tokenizer has the id {max(vocabulary.values())}, but the model has {rows} token "
            "embeddings: they do not belong together"
        )
    training = recipe.sections["training"]
    rate = training.get("learning_rate", 5e-4)
    if training.get("encoder_learning_rate") is None and rate > HIGH_RATE:
        logger.warning(
            f"learning_rate={rate} is for the pretrained encoder as well, and high for one; encoder_learning_rate "
            "gives it a rate of its own (recipe adapted: 3e-5)"
        )


def open_config(checkpoint: str | os.PathLike, what: str = "Warm start from") -> PreTrainedConfig:
    """The config of a model of this package."""
    try:
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    except (OSError, ValueError) as error:
        raise RecipeError(f"{what} {checkpoint}: {error}") from error
    if architecture_of(config) is None:
        raise RecipeError(
            f"{what} {checkpoint}: found a model of type {config.model_type!r}, expected one of this package"
        )
    return config


def _adapted_config(checkpoint: str | os.PathLike) -> AdaptedConfig:
    config = open_config(checkpoint)
    if not isinstance(config, AdaptedConfig):
        raise RecipeError(
            f"Warm start of architecture {ADAPTED} from {checkpoint}: found a model of type {config.model_type!r}, "
            f"expected {AdaptedConfig.model_type!r}, as --encoder makes it"
        )
    return config


def encoder_tokenizer(recipe: Recipe, resumed: Path | None) -> PreTrainedTokenizerBase:
    """The tokenizer of a run: its checkpoint's, that of the model it begins with, or of the encoder."""
    path = resumed or recipe.sections["tokenizer"].get("path") or recipe.warm_start.checkpoint
    return open_encoder_tokenizer(path or recipe.sections["model"]["encoder"])


def build_adapted(
    recipe: Recipe, tokenizer: PreTrainedTokenizerBase, resumed: Path | None
) -> AdaptedForConditionalGeneration:
    """
    A new model of a recipe with the weights of its encoder. Where the run goes on from a checkpoint, its own or that
    of a warm start, the weights are loaded later, and what the recipe leaves open is as it was there.

    Raises:
        RecipeError: See `open_encoder`; or sizes that do not fit together.
    """
    checkpoint = resumed or recipe.warm_start.checkpoint
    if checkpoint is None:
        pretrained = open_encoder(recipe.sections["model"]["encoder"])
        values = {"encoder_config": pretrained.config}
    else:
        known, pretrained = _adapted_config(checkpoint), None
        open_keys = section_keys("model", ADAPTED).keys() - recipe.sections["model"].keys() - {"encoder"}
        names = {*open_keys, "encoder_config", "decoder_embedding_scale"}
        values = {name: getattr(known, name) for name in names if hasattr(known, name)}
    try:
        model = AdaptedForConditionalGeneration(recipe.build_config(**values, **token_settings(tokenizer)))
    except ValueError as error:
        raise RecipeError(f"Section 'model' of recipe {recipe.name}: {error}") from error
    if pretrained is not None:
        model.take_encoder(pretrained)
    return model
