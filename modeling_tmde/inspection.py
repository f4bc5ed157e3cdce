# SPDX-License-Identifier: Apache-2.0

"""Questions about any encoder: which part embeds, and how long its inputs may be."""

from transformers import PreTrainedModel

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


def longest_input(encoder: PreTrainedModel) -> int | None:
    """Return the longest input in tokens that the encoder has positions for; None for no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:  # T5 has none, XLNet says -1.
        return None
    for name, module in encoder.named_modules():
        padding_idx = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding_idx is not None:
            # RoBERTa and similar models count positions from padding_idx + 1: 512 of 514 are used.
            return limit - padding_idx - 1
    return limit


def position_limit(model: PreTrainedModel) -> int:
    """Return the longest input that the model has positions for; NO_LIMIT if it does not say."""
    if is_ours(model):
        limit = getattr(model.config, "max_position_embeddings", None)
    else:
        limit = longest_input(model)
    return limit or NO_LIMIT
