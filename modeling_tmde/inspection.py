# SPDX-License-Identifier: Apache-2.0

"""What callers ask of any encoder: which part embeds, and how long its inputs may be."""

from torch import nn
from transformers import PreTrainedModel

from .modeling_adapted import longest_input

NO_LIMIT = 10**9  # of an input's length; tokenizers without a limit say 1e30


def is_ours(model: nn.Module) -> bool:
    """Whether this is a model of this package."""
    return model.config.model_type.startswith("tmde")


def encoder_body(model: nn.Module) -> nn.Module:
    """The part that embeds: of a model with a head its body, of an encoder-decoder (T5, Marian, BART) its encoder."""
    model = getattr(model, "base_model", model)
    # TmdeModel is an encoder alone, although its config describes an encoder-decoder.
    if getattr(model.config, "is_encoder_decoder", False) and not is_ours(model):
        return model.get_encoder()
    return model


def position_limit(model: PreTrainedModel) -> int:
    """Longest input that the model has positions for; NO_LIMIT if it does not say."""
    limit = (
        getattr(model.config, "max_position_embeddings", None)
        if is_ours(model)
        else longest_input(model)
    )
    return limit or NO_LIMIT
