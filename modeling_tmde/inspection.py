# SPDX-License-Identifier: Apache-2.0

"""Questions about any encoder: which part embeds, and how long its inputs may be."""

from transformers import PreTrainedModel

from .modeling_adapted import longest_input

NO_LIMIT = 10**9  # tokens of an input; tokenizers without a limit say 1e30


def is_ours(model: PreTrainedModel) -> bool:
    """Return whether this is a model of this package."""
    return model.config.model_type.startswith("tmde")


def encoder_body(model: PreTrainedModel) -> PreTrainedModel:
    """Return the part that embeds.

    This is the body of a model with a head, and the encoder of an encoder-decoder (T5, Marian,
    BART).
    """
    body = getattr(model, "base_model", model)
    # TmdeModel is an encoder alone, although its config describes an encoder-decoder.
    if is_ours(body) or not getattr(body.config, "is_encoder_decoder", False):
        return body
    return body.get_encoder()


def position_limit(model: PreTrainedModel) -> int:
    """Return the longest input that the model has positions for; NO_LIMIT if it does not say."""
    if is_ours(model):
        limit = getattr(model.config, "max_position_embeddings", None)
    else:
        limit = longest_input(model)
    return limit or NO_LIMIT
