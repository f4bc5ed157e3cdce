"""Encoders of the Hub with T-MDE's bottleneck and decoder: opened, checked, and made into a model to train."""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.data.token_store import text_bounds
from modeling_tmde.loading import check_vocabulary, load_tokenizer, local_or_hub, position_limit
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration, encoder_class, pooler_options
from modeling_tmde.training.recipe import ADAPTED, Recipe, RecipeError

logger = logging.get_logger("modeling_tmde.training")

HIGH_RATE = 1e-4  # from which a pretrained transformer forgets faster than it learns
PROBE_TOKENS, PROBE_PADDING = 24, 8  # of a text on which an encoder is tried
PADDING_TOLERANCE = 1e-4  # share of the largest output


def adapt_encoder(
    encoder: str | os.PathLike, tokenizer: PreTrainedTokenizerBase | None = None, **settings: Any
) -> AdaptedForConditionalGeneration:
    """
    A pretrained encoder with T-MDE's bottleneck and a new decoder, ready to be trained; what
    `tmde train --encoder ENCODER` begins with.

    Args:
        encoder: Folder or Hub id, as `AutoModel.from_pretrained` takes it.
        tokenizer: Its own, from `open_encoder_tokenizer`, by default.
        settings: Of [`AdaptedConfig`], such as `pooling="mean"` or `languages=["de", "en"]`.

    Raises:
        RecipeError: Nothing that is there, no encoder, one that needs code of its own or whose outputs depend on
            padding, or a tokenizer that cannot be trained with.
        StrictDataclassError: Settings that do not fit.
    """
    name = _checked_name(encoder)
    config = open_encoder_config(name)
    tokenizer = open_encoder_tokenizer(name) if tokenizer is None else tokenizer
    pretrained = _load_encoder(name, config)
    model = AdaptedForConditionalGeneration(
        AdaptedConfig(encoder_config=config, **settings, **token_settings(tokenizer))
    )
    model.take_encoder(pretrained)
    return model


def token_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | bool | None]:
    """What a config says of the special tokens, by the names of [`AdaptedConfig`]."""
    bos, eos, reads_bos = text_bounds(tokenizer)
    tokens = {"bos_token_id": bos, "eos_token_id": eos, "decoder_start_token_id": bos}
    return tokens | {"pad_token_id": tokenizer.pad_token_id, "reads_bos": reads_bos}


def _checked_name(encoder: str | os.PathLike) -> str:
    try:
        return local_or_hub(encoder)
    except OSError as error:
        raise RecipeError(f"Encoder {encoder}: {error}") from error


def open_encoder_config(encoder: str | os.PathLike) -> PreTrainedConfig:
    """The config of a text encoder whose code is in transformers.

    Raises:
        RecipeError: See `adapt_encoder`.
    """
    try:
        config = AutoConfig.from_pretrained(_checked_name(encoder), trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if "trust_remote_code" in str(error):
            raise RecipeError(
                f"Encoder {encoder}: it needs code of its own (trust_remote_code), which a checkpoint that stands "
                "alone would lack; take an encoder whose architecture is in transformers"
            ) from error
        raise RecipeError(f"Encoder {encoder}: {error}") from error
    if config.model_type.startswith("tmde"):
        raise RecipeError(
            f"Encoder {encoder}: found a model of this package ({config.model_type!r}), which --warm-start goes on "
            "from; --encoder is for encoders of the Hub"
        )
    try:
        encoder_class(config)
        AdaptedConfig(encoder_config=config)
    except ValueError as error:
        raise RecipeError(f"Encoder {encoder}: {error}; expected a text encoder") from error
    return config


def _load_encoder(name: str, config: PreTrainedConfig) -> PreTrainedModel:
    """The encoder in float32.

    Raises:
        RecipeError: Weights that are missing or of another model, or one whose outputs are no encoder's.
    """
    model_class = encoder_class(config)
    options = {"dtype": torch.float32, "output_loading_info": True, **pooler_options(model_class)}
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # the weights of a head, which pretraining leaves, are no news
    try:
        encoder, loading = model_class.from_pretrained(name, config=config, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise RecipeError(f"Encoder {name}: {error}") from error
    finally:
        logging.set_verbosity(verbosity)
    if missing := sorted(loading["missing_keys"]):
        raise RecipeError(
            f"Encoder {name}: its weights lack {len(missing)} of those of a {model_class.__name__}, such as "
            f"{missing[0]}"
        )
    _check_outputs(name, encoder)
    return encoder.eval()


@torch.no_grad()
def _check_outputs(name: str, encoder: PreTrainedModel) -> None:
    """Reads a text, the same with another last token, and the same with masked padding behind it.

    Raises:
        RecipeError: A model that cannot read text, has no output for each token, is a decoder, whose outputs do not
            depend on what comes after them, such as GPT-2, or whose outputs depend on padding, such as FNet's.
    """
    length = max(2, min(PROBE_TOKENS, position_limit(encoder) - PROBE_PADDING))
    pad = max(encoder.config.pad_token_id or 0, 0)
    usable = torch.tensor([token for token in range(min(length + 1, encoder.config.vocab_size)) if token != pad])
    ids = usable[torch.arange(length) % len(usable)][None]  # (1, length)
    other = ids.clone()
    other[0, -1] = ids[0, 0]
    padded = torch.nn.functional.pad(ids, (0, PROBE_PADDING), value=pad)
    encoder.eval()
    outputs = []
    for given in (ids, other, padded):
        real = torch.arange(given.shape[1])[None] < length
        try:
            states = encoder(input_ids=given, attention_mask=real.long()).last_hidden_state
        except Exception as error:  # a forward pass may fail in any way
            first = str(error).strip().partition("\n")[0] or type(error).__name__
            raise RecipeError(f"Encoder {name}: cannot be run on text: {first}") from error
        if states.shape[:2] != given.shape:
            raise RecipeError(
                f"Encoder {name}: {type(encoder).__name__} gives outputs {tuple(states.shape)} for "
                f"{given.shape[1]} tokens, expected one for each"
            )
        outputs.append(states[:, :length])
    alone, changed, beside_padding = outputs
    if torch.equal(alone[:, :-1], changed[:, :-1]):
        raise RecipeError(
            f"Encoder {name}: {type(encoder).__name__} reads from left to right, as decoders do: the output of a "
            "token does not depend on those after it; expected an encoder, such as FacebookAI/xlm-roberta-base"
        )
    share = float((beside_padding - alone).abs().max() / alone.abs().max())
    if not share <= PADDING_TOLERANCE:
        raise RecipeError(
            f"Encoder {name}: its outputs depend on padding: masked tokens behind a text change those of its tokens "
            f"by {share:.1e} of the largest, expected at most {PADDING_TOLERANCE:.0e}; {type(encoder).__name__} does "
            "not keep to the attention mask, and a text would get other vectors in other batches"
        )


def open_encoder_tokenizer(encoder: str | os.PathLike) -> PreTrainedTokenizerBase:
    """The tokenizer of an encoder, as it is.

    Raises:
        RecipeError: There is none, or it lacks what training needs: padding, and a token after every text.
    """
    name = str(encoder) if Path(encoder).is_dir() else _checked_name(encoder)  # a folder may hold a tokenizer alone
    try:
        tokenizer = load_tokenizer(name, {"trust_remote_code": False})
        check_vocabulary(tokenizer)
        if tokenizer.pad_token_id is None:
            raise ValueError("its tokenizer has no pad_token, with which texts are padded to batches")
        text_bounds(tokenizer)
    except (OSError, ValueError) as error:
        raise RecipeError(f"Encoder {encoder}: {error}") from error
    return tokenizer


def check_encoder(recipe: Recipe) -> None:
    """Looks for what can be wrong with the encoder of a recipe before anything is deleted or trained.

    Raises:
        RecipeError: None at all, or one beside a checkpoint; what `adapt_encoder` refuses.
    """
    if recipe.architecture != ADAPTED:
        return
    encoder, start = recipe.sections["model"].get("encoder"), recipe.warm_start
    if encoder is not None and (start.checkpoint is not None or start.recipe is not None):
        raise RecipeError(
            "Give --encoder or --warm-start, not both: the one begins with a bare encoder, the other goes on from a "
            "model that has one already"
        )
    if start.recipe is not None:
        raise RecipeError(
            f"warm_start.recipe={start.recipe}: a first stage cannot make an encoder of the Hub; give --encoder"
        )
    if encoder is None and start.checkpoint is None:
        raise RecipeError(
            f"Recipe {recipe.name} needs an encoder: give --encoder with a Hub id or a folder, such as "
            "FacebookAI/xlm-roberta-base"
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
    config, tokenizer = open_encoder_config(encoder), open_encoder_tokenizer(encoder)
    if (largest := max(tokenizer.get_vocab().values())) >= config.vocab_size:
        raise RecipeError(
            f"Encoder {encoder}: its tokenizer has the id {largest}, but the model has {config.vocab_size} token "
            "embeddings: they do not belong together"
        )
    _load_encoder(_checked_name(encoder), config)  # once more than needed: nothing is deleted for weights that lack
    training = recipe.sections["training"]
    rate = training.get("learning_rate", 5e-4)
    if training.get("encoder_learning_rate") is None and rate > HIGH_RATE:
        logger.warning(
            f"learning_rate={rate} is for the pretrained encoder as well, and high for one; encoder_learning_rate "
            "gives it a rate of its own (recipe adapted: 3e-5)"
        )


def _adapted_config(checkpoint: str | os.PathLike) -> AdaptedConfig:
    try:
        config = AutoConfig.from_pretrained(local_or_hub(checkpoint))
    except (OSError, ValueError) as error:
        raise RecipeError(f"Warm start from {checkpoint}: {error}") from error
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
    A new model of a recipe with the weights of its encoder.

    Where the run goes on from a checkpoint, its own or that of a warm start, the weights are loaded later, and what
    the recipe leaves open is as it was there; the encoder's repository is not needed any more.

    Raises:
        RecipeError: See `adapt_encoder`; or sizes that do not fit together.
    """
    checkpoint = resumed or recipe.warm_start.checkpoint
    if checkpoint is None:
        name = _checked_name(recipe.sections["model"]["encoder"])
        config = open_encoder_config(name)
        pretrained = _load_encoder(name, config)
        values = {"encoder_config": config}
    else:
        known, pretrained = _adapted_config(checkpoint), None
        values = {name: getattr(known, name) for name in recipe.open_model_keys() if name != "encoder"}
        values |= {name: getattr(known, name) for name in ("encoder_config", "decoder_embedding_scale")}
    model_config = recipe.build_config(**values, **token_settings(tokenizer))
    try:
        model = AdaptedForConditionalGeneration(model_config)
    except ValueError as error:
        raise RecipeError(f"Section 'model' of recipe {recipe.name}: {error}") from error
    if pretrained is not None:
        model.take_encoder(pretrained)
    return model
