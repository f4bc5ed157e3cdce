"""The decoder of a checkpoint, which turns its vectors back into text."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from modeling_tmde import TmdeError
from modeling_tmde.inspection import is_ours
from tmde.embedding.loading import without_load_report

logger = logging.getLogger(__name__)


def open_decoder(name: str, revision: str | None = None) -> Any:
    """Open the encoder-decoder of a checkpoint in float32. The last one stays in memory.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.

    Returns:
        The model, whose `generate` takes embeddings as `encoder_outputs`.

    Raises:
        TmdeError: The checkpoint is of another kind, or has no decoder.
    """
    files = sorted(Path(name).glob("*.safetensors"))
    return _cached_decoder(name, revision, tuple(file.stat().st_mtime_ns for file in files))


@lru_cache(maxsize=1)
def _cached_decoder(name: str, revision: str | None, modified: tuple[int, ...]) -> Any:
    """Open an encoder-decoder, again if the weights in its folder were modified."""
    return load_encoder_decoder(name, revision, torch.float32)


def load_encoder_decoder(name: str, revision: str | None, dtype: torch.dtype) -> Any:
    """Load the encoder-decoder of a checkpoint.

    Args:
        name: A folder or a Hub id.
        revision: The revision of the Hub repository.
        dtype: The type of its weights.

    Raises:
        TmdeError: The checkpoint is of another kind, or has no decoder.
    """
    config = AutoConfig.from_pretrained(name, revision=revision)
    if type(config) not in AutoModelForSeq2SeqLM._model_mapping:
        raise TmdeError(
            f"{name}: found a model of type {config.model_type!r}, which has no decoder; expected "
            "one that was trained to translate, such as T-MDE"
        )
    with without_load_report():
        model, loading = AutoModelForSeq2SeqLM.from_pretrained(
            name, revision=revision, dtype=dtype, output_loading_info=True
        )
    if loading["missing_keys"]:
        raise TmdeError(
            f"{name}: found only the encoder, expected a checkpoint with the decoder, as "
            "`tmde train` and `TmdeTrainer.save_model` write it"
        )
    return model.eval()


def has_decoder(model: PreTrainedModel) -> bool:
    """Return whether the checkpoint of a model names a decoder, which `AutoModel` didn't load.

    A model with adapters has other vectors than its checkpoint, so the decoder does not fit it.
    """
    architectures = getattr(model.config, "architectures", None) or []
    names_decoder = any("ForConditionalGeneration" in name for name in architectures)
    has_adapters = getattr(model, "_hf_peft_config_loaded", False)
    return is_ours(model) and names_decoder and bool(model.name_or_path) and not has_adapters


def decodes_vectors(model: PreTrainedModel) -> bool:
    """Return whether the checkpoint of a model has a decoder that reads a single vector."""
    if not has_decoder(model):
        return False
    decoder_class: Any = AutoModelForSeq2SeqLM._model_mapping[type(model.config)]
    return bool(decoder_class.decodes_embeddings)


def with_decoder(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model together with the decoder of its checkpoint, to be saved.

    A decoder only fits the encoder that it was trained with. If the encoder has changed or the
    checkpoint is gone, the model is returned alone, with a warning.
    """
    if not has_decoder(model):
        return model
    name = str(model.name_or_path)
    revision = getattr(model.config, "_commit_hash", None)
    if revision is None and not Path(name).is_dir():
        logger.warning("The decoder is not saved: its checkpoint %s no longer exists.", name)
        return model
    try:
        encoder_decoder: PreTrainedModel = load_encoder_decoder(name, revision, model.dtype)
    except (OSError, TmdeError, SafetensorError) as error:
        logger.warning("The decoder is not saved: %s can't be loaded (%s).", name, error)
        return model
    if not _same_weights(encoder_decoder.base_model, model):
        logger.warning("The decoder is not saved: the encoder differs from that of %s.", name)
        return model
    encoder_decoder.config = model.config
    return encoder_decoder


def _same_weights(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two models have equal weights."""
    weights = first.state_dict()
    other_weights = second.state_dict()
    if weights.keys() != other_weights.keys():
        return False
    return all(torch.equal(weights[key], other_weights[key].cpu()) for key in weights)
