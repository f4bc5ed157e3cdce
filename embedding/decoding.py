"""The decoder of a checkpoint, which turns its vectors back into text."""

from __future__ import annotations

import copy
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from modeling_tmde import TmdeError
from tmde.embedding.loading import without_load_report

logger = logging.getLogger(__name__)


@lru_cache(maxsize=1)
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
    config = AutoConfig.from_pretrained(name, revision=revision)
    if type(config) not in AutoModelForSeq2SeqLM._model_mapping:
        raise TmdeError(
            f"{name}: found a model of type {config.model_type!r}, which has no decoder; expected "
            "one that was trained to translate, such as T-MDE"
        )
    with without_load_report():
        model, loading = AutoModelForSeq2SeqLM.from_pretrained(
            name, revision=revision, output_loading_info=True
        )
    if loading["missing_keys"]:
        raise TmdeError(
            f"{name}: found only the encoder, expected a checkpoint with the decoder, as "
            "`tmde train` and `TmdeTrainer.save_model` write it"
        )
    return model.eval()


def save_with_decoder(model: PreTrainedModel, folder: Path) -> None:
    """Write a model together with the decoder of its checkpoint, which `AutoModel` didn't load.

    If the checkpoint was deleted, the model is saved without the decoder, with a warning.

    Args:
        model: The model, loaded from a checkpoint with a decoder.
        folder: The folder to write weights and configuration to.
    """
    revision = getattr(model.config, "_commit_hash", None)
    try:
        # A copy, because the decoder stays in memory for the next call.
        encoder_decoder = copy.deepcopy(open_decoder(model.name_or_path, revision))
    except OSError as error:
        logger.warning("%s: the model is saved without its decoder, because %s", folder, error)
        model.save_pretrained(folder)
        return
    encoder_decoder.base_model.load_state_dict(model.state_dict())
    encoder_decoder.to(model.dtype).save_pretrained(folder)
