# SPDX-License-Identifier: Apache-2.0

"""Weighted bags of token vectors: the embedding of a bag, and a part of it in other models."""

import torch
from torch import nn

from .common import EmbedderConfig, computes_from_weights, first_places

__all__ = [
    "SPECIAL_LOG_WEIGHT",
    "bag_direction",
    "initial_token_weights",
    "occurrences",
    "padded_bag",
    "weighted_bag",
]

# The first log weight of special tokens in a bag. e^-20 = 2e-9 is negligible beside any other
# token, but gives a text without other tokens a direction.
SPECIAL_LOG_WEIGHT = -20.0


def initial_token_weights(config: EmbedderConfig, num_tokens: int) -> torch.Tensor:
    """Return the first log weights of a bag, (num_tokens,): 0 but for special tokens."""
    weights = torch.zeros(num_tokens)
    token_ids = [token_id for token_id in config.special_token_ids if token_id < num_tokens]
    weights[token_ids] = SPECIAL_LOG_WEIGHT
    return weights


def occurrences(input_ids: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return how often each token occurs in its text.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.

    Returns:
        (batch, length), at least 1; undefined where a token does not count.
    """
    ids = input_ids.masked_fill(~counted, -1)
    ordered, places = ids.sort(dim=1)
    is_new = torch.ones_like(ordered)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    groups = is_new.cumsum(dim=1) - 1  # (batch, length), a number for each different token
    counts = torch.zeros_like(groups).scatter_add(1, groups, torch.ones_like(groups))
    ordered_counts = counts.gather(1, groups)
    return torch.empty_like(ordered_counts).scatter(1, places, ordered_counts)


def _sublinear(log_weights: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Let the n occurrences of a token in a text weigh as much as sqrt(n) of them."""
    return log_weights - counts.to(log_weights.dtype).log() / 2


# The ragged form of a bag, which computes no padding but cannot be part of a graph.
def weighted_bag(
    token_ids: torch.Tensor,
    lengths: torch.Tensor,
    embed_tokens: nn.Embedding,
    token_weights: torch.Tensor,
    *,
    sublinear_counts: bool,
    normalize: bool,
) -> torch.Tensor:
    """Return `sum_t exp(w_t) E_t` over the tokens t of each text, whatever their padding was.

    Args:
        token_ids: (tokens,) int32 or int64, those of the first text, then those of the second, ...
        lengths: (batch,) int64, the number of tokens of each text; their sum is `tokens`. A text
            of length 0 gets zeros.
        embed_tokens: The table of the E_t, (vocab_size, d_model).
        token_weights: (vocab_size,), the w_t.
        sublinear_counts: Let n occurrences of a token in a text count sqrt(n) times.
        normalize: Scale every sum to length 1; otherwise divide it by the number of tokens.

    Returns:
        (batch, d_model), in the type of the table.
    """
    log_weights = token_weights[token_ids].float()  # (tokens,)
    if sublinear_counts:
        counts = _packed_occurrences(token_ids, lengths, len(token_weights))
        log_weights = _sublinear(log_weights, counts)
    # Weights are relative to the largest one of the text: in half precision, e^-20 would be 0.
    heaviest = torch.segment_reduce(
        log_weights.detach(), "max", lengths=lengths, initial=-torch.inf
    )  # (batch,)
    largest = heaviest.repeat_interleave(lengths, output_size=len(token_ids))  # (tokens,)
    weights = torch.exp(log_weights - largest)
    summed, dtype = _packed_sum(embed_tokens, token_ids, lengths, weights)  # (batch, d_model)
    if normalize:
        embedding = nn.functional.normalize(summed, dim=-1)
    else:
        embedding = summed * (heaviest.exp() / lengths.clamp(min=1))[:, None]
    return embedding.to(dtype)


def _packed_occurrences(
    token_ids: torch.Tensor, lengths: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Return how often each token occurs in its text, (tokens,), for texts without padding."""
    texts = torch.arange(len(lengths), device=lengths.device)
    texts = texts.repeat_interleave(lengths, output_size=len(token_ids))  # (tokens,)
    keys = texts * vocab_size + token_ids  # One number for each pair of text and token.
    _, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
    return counts[inverse]


def _packed_sum(
    embed_tokens: nn.Embedding,
    token_ids: torch.Tensor,
    lengths: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.dtype]:
    """Return the weighted sum of the vectors of each text, (batch, d_model), in float32.

    The second result is the type of the vectors.
    """
    if not computes_from_weights(embed_tokens, nn.Embedding):
        vectors = embed_tokens(token_ids)  # (tokens, d_model)
        weighted = vectors.float() * weights[:, None]
        summed = torch.segment_reduce(weighted, "sum", lengths=lengths, initial=0.0)
        return summed, vectors.dtype
    table = embed_tokens.weight
    first_tokens = lengths.cumsum(0) - lengths  # (batch,)
    summed = nn.functional.embedding_bag(
        token_ids,
        table,
        offsets=first_tokens.to(token_ids.dtype),
        mode="sum",
        per_sample_weights=weights.to(table.dtype),
    )  # (batch, d_model)
    return summed.float(), table.dtype


# The padded form of a bag, which a graph (ONNX, torch.compile) can hold.
def padded_bag(
    input_ids: torch.Tensor,
    counted: torch.Tensor,
    vectors: torch.Tensor,
    log_weights: torch.Tensor,
    *,
    sublinear_counts: bool,
    normalize: bool,
) -> torch.Tensor:
    """Return what [`weighted_bag`] returns, from vectors and weights that are looked up already.

    Args:
        input_ids: (batch, length).
        counted: (batch, length), true where a token counts.
        vectors: (batch, length, d_model), the E_t of `input_ids`.
        log_weights: (batch, length), the w_t of `input_ids`, in float32 or better.
        sublinear_counts: As for [`weighted_bag`].
        normalize: As for [`weighted_bag`].

    Returns:
        (batch, d_model), in the type of the vectors.
    """
    if sublinear_counts:
        log_weights = _sublinear(log_weights, occurrences(input_ids, counted))
    # Not -inf: the softmax of a text of padding alone would be NaN.
    lowest = torch.finfo(log_weights.dtype).min
    log_weights = log_weights.masked_fill(~counted, lowest)
    # A softmax cannot overflow, and the direction does not depend on the scale of the weights.
    shares = log_weights.softmax(dim=1) * counted  # (batch, length)
    shares = shares.to(vectors.dtype).unsqueeze(1)  # (batch, 1, length)
    summed = torch.bmm(shares, vectors).squeeze(1)  # (batch, d_model)
    if normalize:
        return nn.functional.normalize(summed, dim=-1)
    total = log_weights.logsumexp(dim=1).exp()  # (batch,)
    lengths = counted.sum(dim=1).clamp(min=1)  # (batch,)
    return summed * (total / lengths).to(summed.dtype).unsqueeze(1)


def bag_direction(
    config: EmbedderConfig,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    token_weights: torch.Tensor,
    vectors: torch.Tensor,
) -> torch.Tensor:
    """Return the direction of `sum_t exp(w_t) E_t` over the tokens of a text but special ones.

    A text without other tokens has the direction of its first one.

    Args:
        config: The configuration, whose `sublinear_counts` is read.
        input_ids: (batch, length).
        attention_mask: (batch, length), or None if everything counts.
        token_weights: (vocab_size,), the w_t.
        vectors: (batch, length, d_model), the E_t of `input_ids`.

    Returns:
        Unit vectors, (batch, d_model).
    """
    is_token = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    rows = torch.arange(len(input_ids), device=input_ids.device)
    firsts = first_places(is_token)  # (batch,)
    counted = is_token.bool()  # (batch, length)
    for special in config.special_token_ids:
        counted = counted & (input_ids != special)
    counted[rows, firsts] |= ~counted.any(dim=1)
    log_weights = nn.functional.embedding(input_ids, token_weights.unsqueeze(1)).squeeze(2)
    return padded_bag(
        input_ids,
        counted,
        vectors,
        log_weights.to(torch.promote_types(log_weights.dtype, torch.float32)),
        sublinear_counts=config.sublinear_counts,
        normalize=True,
    )
