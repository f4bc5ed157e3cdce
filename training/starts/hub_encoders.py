"""Encoders of the Hub: opened, checked, and cut to some layers and tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_tmde import TmdeError
from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.inspection import position_limit
from modeling_tmde.modeling_adapted import encoder_class, pooler_options
from modeling_tmde.tokenization import load_tokenizer
from tmde.data.tokens import text_bounds
from tmde.embedding.loading import errors_about, local_or_hub, without_load_report
from tmde.training.recipe.architectures import architecture_of
from tmde.training.recipe.values import RecipeError

SENTENCEPIECE_START = "▁"  # Tokens that begin a word have this prefix.
WORDPIECE_CONTINUATION = "##"  # Tokens that continue a word have this prefix.
PADDING = 8  # The padding tokens behind the text on which an encoder is tried.
PADDING_TOLERANCE = 1e-4  # A share of the largest output.
PROBE_LENGTH = 24  # The most tokens of that text.


# ---- Settings


def prompt_settings(prompt: str, tokenizer: PreTrainedTokenizerBase) -> dict[str, str | list[int]]:
    """Return a prompt and its tokens, by the names of [`AdaptedConfig`].

    A space at the end of the prompt belongs to the word behind it.
    """
    ids: list[int] = []
    if prompt:
        ids = tokenizer(prompt.strip(), add_special_tokens=False)["input_ids"]
    return {"prompt": prompt, "prompt_ids": ids}


def token_settings(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return what a configuration says of the special tokens, by the names of [`AdaptedConfig`]."""
    bos, eos, reads_bos = text_bounds(tokenizer)
    return {
        "bos_token_id": bos,
        "eos_token_id": eos,
        "decoder_start_token_id": bos,
        "pad_token_id": tokenizer.pad_token_id,
        "reads_bos": reads_bos,
    }


# ---- Opening


def open_encoder(encoder: str | os.PathLike) -> PreTrainedModel:
    """Return a text encoder in float32, whose code is in transformers.

    Args:
        encoder: Folder or Hub id.

    Raises:
        RecipeError: There is none, it is a model of this package or needs code of its own, its
            weights are not complete, or its outputs are no encoder's.
    """
    try:
        model = _load_encoder(local_or_hub(encoder))
        _check_outputs(model)
    except Exception as error:  # A model that reads no text may fail in any way.
        advice = "expected a text encoder, whose code is in transformers"
        raise RecipeError(f"Encoder {encoder}: {str(error).strip()}; {advice}") from error
    return model


def _load_encoder(name: str) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    if architecture_of(config) is not None:
        raise TmdeError(
            f"found a model of this package ({config.model_type!r}); to train it further, "
            "pass it to its own recipe with --warm-start"
        )
    AdaptedConfig(encoder_config=config)
    model_class = encoder_class(config)
    options: dict[str, Any] = pooler_options(model_class)
    # A pair, because of `output_loading_info`; transformers annotates the model alone.
    with without_load_report():
        loaded: Any = model_class.from_pretrained(
            name, config=config, dtype=torch.float32, output_loading_info=True, **options
        )
    model, loading = loaded
    missing = sorted(loading["missing_keys"])
    if missing:
        raise TmdeError(
            f"{len(missing)} weights of a {model_class.__name__} are missing, such as {missing[0]}"
        )
    return model.eval()


@torch.no_grad()
def _check_outputs(encoder: PreTrainedModel) -> None:
    """Read a text alone, and with padding and another last token.

    Raises:
        TmdeError: The model is a decoder such as GPT-2, whose outputs do not depend on later
            tokens, or its outputs depend on padding, such as FNet's.
    """
    length = max(2, min(PROBE_LENGTH, position_limit(encoder) - PADDING))
    pad = max(encoder.config.pad_token_id or 0, 0)
    candidates = range(min(length + 1, encoder.config.vocab_size))
    usable = torch.tensor([token for token in candidates if token != pad])
    ids = usable[torch.arange(length) % len(usable)][None]  # (1, length)
    alone = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
    other_last = torch.cat([ids[:, :-1], ids[:, :1]], dim=1)
    batch = torch.cat([ids, other_last])
    batch = torch.nn.functional.pad(batch, (0, PADDING), value=pad)  # (2, length + PADDING)
    mask = (torch.arange(batch.shape[1]) < length).long().expand_as(batch)
    hidden = encoder(input_ids=batch, attention_mask=mask).last_hidden_state
    padded, changed = hidden[:, :length]  # (length, width) each
    if torch.equal(padded[:-1], changed[:-1]):
        raise TmdeError(f"{type(encoder).__name__} reads from left to right, like a decoder")
    share = float((padded - alone).abs().max() / alone.abs().max())
    if not share <= PADDING_TOLERANCE:  # NaN is refused as well
        raise TmdeError(
            f"its outputs depend on padding: masked tokens after a text change them by {share:.1e}"
        )


def open_encoder_tokenizer(path: str | os.PathLike) -> PreTrainedTokenizerBase:
    """Return the tokenizer of an encoder.

    Args:
        path: Folder or Hub id of the encoder, or a folder that holds a tokenizer alone.

    Raises:
        RecipeError: There is none, or it lacks what training needs: padding, and a token after
            every text.
    """
    with errors_about(f"Encoder {path}", RecipeError):
        name = str(path) if Path(path).is_dir() else local_or_hub(path)
        tokenizer = load_tokenizer(name, trust_remote_code=False)
        if tokenizer.pad_token_id is None:
            raise TmdeError("its tokenizer has no pad_token")
        text_bounds(tokenizer)
    return tokenizer


# ---- Cutting


def keep_layers(encoder: PreTrainedModel, layers: Sequence[int]) -> None:
    """Leave an encoder these of its layers, in place.

    Raises:
        RecipeError: There is no such layer, or the encoder cannot do without the others.
    """
    number = encoder.config.num_hidden_layers
    if not layers or not all(0 <= layer < number for layer in layers):
        raise RecipeError(
            f"model.encoder_layers: found {list(layers)}, expected numbers from 0 to {number - 1}"
        )
    stack = _layer_stack(encoder)
    if stack is not None:
        kept_layers = [stack[layer] for layer in layers]
        del stack[:]
        stack.extend(kept_layers)
    encoder.config.num_hidden_layers = len(layers)
    layer_types = getattr(encoder.config, "layer_types", None)
    if layer_types:
        encoder.config.layer_types = [layer_types[layer] for layer in layers]
    # What will be saved must be what a new encoder of this configuration opens.
    model_class = type(encoder)
    try:
        new_encoder = model_class(encoder.config, **pooler_options(model_class))
        new_encoder.load_state_dict(encoder.state_dict())
    except RuntimeError as error:
        raise RecipeError(
            f"model.encoder_layers: can't keep only the {model_class.__name__} layers "
            f"{list(layers)}"
        ) from error


def _layer_stack(encoder: PreTrainedModel) -> torch.nn.ModuleList | None:
    """Return the list of an encoder's layers."""
    number = encoder.config.num_hidden_layers
    for module in encoder.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == number:
            return module
    return None


@torch.no_grad()
def take_vocabulary(
    encoder: PreTrainedModel,
    full_tokenizer: PreTrainedTokenizerBase,
    tokenizer: PreTrainedTokenizerBase,
    checkpoint: str,
) -> None:
    """Give an encoder the vocabulary of a bag's tokenizer, in place.

    The row of a token that the encoder's vocabulary lacks is that of the token with a capital, or
    the mean of the rows of its pieces.

    Args:
        encoder: The encoder.
        full_tokenizer: The tokenizer of the encoder.
        tokenizer: The tokenizer of the bag.
        checkpoint: The name of the bag, for the error message.

    Raises:
        RecipeError: The encoder lacks a special token of the bag.
    """
    encoder_ids = full_tokenizer.get_vocab()
    strange_tokens = sorted(set(tokenizer.all_special_tokens) - encoder_ids.keys())
    if strange_tokens:
        raise RecipeError(
            f"Warm start from {checkpoint}: the encoder lacks its token {strange_tokens[0]}; "
            "expected a bag initialized from this encoder (recipe default)"
        )
    table = encoder.get_input_embeddings().get_parameter("weight")
    rows = []
    for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        pieces = _pieces_of(token, full_tokenizer, encoder_ids)
        rows.append(table[pieces].mean(dim=0))
    new_table = torch.stack(rows)
    encoder.resize_token_embeddings(len(rows), mean_resizing=False).weight.copy_(new_table)


def _pieces_of(
    token: str, full_tokenizer: PreTrainedTokenizerBase, encoder_ids: dict[str, int]
) -> list[int]:
    """Return the encoder's ids of a token.

    That is its own id, that of the token with a capital, or those of its pieces.
    """
    text = token.removeprefix(SENTENCEPIECE_START).removeprefix(WORDPIECE_CONTINUATION)
    for name in (token, token.replace(text, text.capitalize())):
        if name in encoder_ids:
            return [encoder_ids[name]]
    pieces = full_tokenizer(text, add_special_tokens=False)["input_ids"]
    return pieces or [full_tokenizer.unk_token_id]
