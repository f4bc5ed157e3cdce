# SPDX-License-Identifier: Apache-2.0

"""What the families with transformer layers share: T-MDE, adapted encoders, plain encoders.

Attention, an encoder layer, and T-MDE's decoder (Li 2021, *Multilingual document embedding with
sequential neural network models*, thesis, chapter 4; equations are numbered as there).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    SequenceClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, is_tracing
from transformers.utils.generic import is_flash_attention_requested
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .common import (
    EmbedderConfig,
    EmbedderPreTrainedModel,
    TmdeError,
    check_inputs,
    computes_from_weights,
    sinusoidal_positions,
)

__all__ = [
    "EmbeddingClassifier",
    "TmdeAttention",
    "TmdeDecoder",
    "TmdeDecoderLayer",
    "TmdeEncoderLayer",
    "TmdeSinusoidalPositions",
    "TransformerPreTrainedModel",
    "attention_function",
    "check_length",
    "check_packable_inputs",
    "finite_mask",
    "masked_scores",
    "mask_of_memory",
    "positions_of_tokens",
]


# ---- Inputs, of which a row may hold several texts


def check_packable_inputs(
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    config: EmbedderConfig,
) -> torch.Tensor:
    """Return the ids (batch, length) or the vectors (batch, length, width), whichever is there.

    Args:
        input_ids: (batch, length).
        inputs_embeds: (batch, length, width).
        attention_mask: (batch, length), or a mask of pairs (batch, 1 or heads, length, length).
        position_ids: The positions of the tokens, which a mask of pairs needs.
        config: The configuration, which says how many heads there are.

    Raises:
        ValueError: If both or neither of ids and vectors are there, or the mask does not fit.
    """
    if attention_mask is None or attention_mask.dim() != 4:
        return check_inputs(input_ids, inputs_embeds, attention_mask)
    inputs = check_inputs(input_ids, inputs_embeds, None)
    _check_pair_mask(attention_mask, inputs, config)
    if position_ids is None:
        raise TmdeError(
            "position_ids: found none, expected the position of each token in its text, "
            f"(batch, length), because attention_mask {tuple(attention_mask.shape)} may "
            "separate several texts in a row"
        )
    return inputs


def _check_pair_mask(
    attention_mask: torch.Tensor, inputs: torch.Tensor, config: EmbedderConfig
) -> None:
    """Check a mask (batch, 1 or heads, length, length) that says which token sees which.

    Raises:
        ValueError: If its shape or type does not fit, or the implementation of attention reads
            masks of padding only.
    """
    batch_size, length = inputs.shape[:2]
    shape = tuple(attention_mask.shape)
    num_heads = config.num_attention_heads
    shared = (batch_size, 1, length, length)
    by_head = (batch_size, num_heads, length, length)
    if shape not in (shared, by_head):
        raise TmdeError(
            f"attention_mask {shape} must be (batch, 1 or {num_heads}, length, length) of the "
            f"input, {tuple(inputs.shape)}"
        )
    if attention_mask.dtype != torch.bool and not attention_mask.is_floating_point():
        raise TmdeError(
            f"attention_mask {shape}: found {attention_mask.dtype}, expected torch.bool (true "
            "where the row's token attends to the column's token) or floats to add to the "
            "scores"
        )
    implementation = config._attn_implementation
    if memory_implementation(config) != implementation:
        raise TmdeError(
            f"attention_mask {shape}: attn_implementation={implementation!r} reads masks "
            '(batch, length) only; use attn_implementation="sdpa" for packed texts'
        )


def finite_mask(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Return a mask whose summands of scores, if it has such, are finite.

    The softmax of a row of -inf is NaN. The least number of float16 hides a token in every type,
    and stays finite when autocast converts it.
    """
    if attention_mask is None or not attention_mask.is_floating_point():
        return attention_mask
    if attention_mask.dim() != 4:
        return attention_mask
    return attention_mask.clamp(min=torch.finfo(torch.float16).min)


def check_position_ids(position_ids: torch.Tensor, limit: int, training: bool) -> None:
    """Check that the positions that a caller gave are within a table of `limit` rows.

    Reading them on the host would make every training step wait for the accelerator, so there they
    are checked in evaluation mode only. A traced graph cannot check them at all.

    Raises:
        ValueError: If one is negative, or not less than `limit`.
    """
    is_on_host = position_ids.device.type == "cpu"
    if position_ids.is_meta or is_tracing(position_ids) or (training and not is_on_host):
        return
    is_outside = (position_ids < 0) | (position_ids >= limit)
    if is_outside.any():
        position = int(position_ids[is_outside][0])
        raise TmdeError(
            f"position_ids: found {position}, expected 0 to {limit - 1}, the model's positions"
        )


def positions_of_tokens(
    position_ids: torch.Tensor, inputs: torch.Tensor, limit: int | None, training: bool
) -> torch.Tensor:
    """Return the positions that a caller gave for every token, (batch, length).

    Args:
        position_ids: (batch, length), or (1, length) for all texts.
        inputs: (batch, length) or (batch, length, width).
        limit: The number of positions for which the model has vectors; None if it has no table.
        training: Whether the model is in training mode.

    Raises:
        ValueError: If they do not fit the input, or the model has no vector for one of them.
    """
    batch_size, length = inputs.shape[:2]
    if position_ids.shape not in ((batch_size, length), (1, length)):
        raise TmdeError(
            f"position_ids {tuple(position_ids.shape)} must be (batch, length), "
            f"{(batch_size, length)}"
        )
    if limit is not None:
        check_position_ids(position_ids, limit, training)
    return position_ids.expand(batch_size, length)


def check_length(length: int, limit: int) -> None:
    """Check that an input of `length` tokens is within `max_position_embeddings`.

    Raises:
        ValueError: If it is longer than `limit`.
    """
    if length > limit:
        raise TmdeError(
            f"An input of {length} tokens is longer than max_position_embeddings={limit}; "
            "truncate it, or embed it with DocumentEmbedder, which truncates with a warning."
        )


# ---- Attention and positions


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute scaled dot-product attention (eq. 4.1) in plain operations.

    Args:
        module: The module that attends; dropout acts in its training mode.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
        value: (batch, heads, key_length, head_dim).
        attention_mask: (batch, 1, query_length, key_length), true at what is seen or a summand of
            the scores, or None.
        scaling: A factor of the scores.
        dropout: The dropout rate of the probabilities.
        kwargs: Not used; what other implementations of transformers take.

    Returns:
        The attended values (batch, query_length, heads, head_dim) and the probabilities
        (batch, heads, query_length, key_length).
    """
    scores = query @ key.transpose(2, 3) * scaling  # (batch, heads, query_length, key_length)
    if attention_mask is not None:
        scores = masked_scores(scores, attention_mask)
    # In float32 or better, as in the eager attention of transformers.
    dtype = torch.promote_types(query.dtype, torch.float32)
    probabilities = nn.functional.softmax(scores, dim=-1, dtype=dtype).to(query.dtype)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    output = probabilities @ value  # (batch, heads, query_length, head_dim)
    return output.transpose(1, 2).contiguous(), probabilities


def masked_scores(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask to the scores of queries.

    Args:
        scores: (batch, heads, ..., key_length).
        mask: (batch, 1 or heads, ..., key_length), true at what is seen, or a number to add.
    """
    if mask.dtype != torch.bool:
        return scores + mask
    # Not -inf: the softmax of a query that sees nothing would be NaN.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest)


# The most keys for which plain operations train faster than PyTorch's fused kernel in bfloat16 on a
# CPU. With 40 keys they take a sixth of its time, with 192 two thirds, with 256 a tenth more.
PLAIN_ATTENTION_KEYS = 192


def plain_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """Compute what `sdpa_attention_forward` of transformers computes, in plain operations.

    A query that sees nothing, as in the padding of a text, gets a mean of values in place of zeros.

    Args:
        module: The module that attends. Its `is_causal` counts where there is no mask.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
        value: (batch, heads, key_length, head_dim).
        attention_mask: (batch, 1, query_length, key_length), true at what is seen or a summand of
            the scores, or None.
        scaling: A factor of the scores.
        dropout: The dropout rate of the probabilities.
        kwargs: As for `eager_attention_forward`.

    Returns:
        The attended values (batch, query_length, heads, head_dim), and None.
    """
    query_length = query.shape[2]
    if attention_mask is None and module.is_causal and query_length > 1:
        shape = (query_length, key.shape[2])
        attention_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    output, _ = eager_attention_forward(
        module, query, key, value, attention_mask, scaling, dropout, **kwargs
    )
    return output, None


def memory_implementation(config: EmbedderConfig) -> str:
    """Return the name of the implementation that computes attention over a memory.

    It is the one that the config names, unless that is only for texts that attend themselves. Flash
    attention takes the queries of a padded memory for padded on the left, and flex attention
    compiles a kernel for every number of queries. PyTorch's own function takes their place.
    """
    implementation = config._attn_implementation
    is_flash = is_flash_attention_requested(requested_attention_implementation=implementation)
    if is_flash or implementation == "flex_attention":
        return "sdpa"
    return implementation


def attention_function(
    implementation: str, query: torch.Tensor, key: torch.Tensor
) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """Return the function that computes attention fastest.

    It is the implementation of that name, except where gradients of bfloat16 are computed on a CPU:
    for short texts, the backward pass of PyTorch's fused kernel is several times slower than plain
    operations.

    Args:
        implementation: The name, as in `config._attn_implementation`.
        query: (batch, heads, query_length, head_dim).
        key: (batch, heads, key_length, head_dim).
    """
    is_trained_on_cpu = query.requires_grad and query.device.type == "cpu"
    is_short = key.shape[2] <= PLAIN_ATTENTION_KEYS
    if (
        implementation == "sdpa"
        and is_trained_on_cpu
        and query.dtype == torch.bfloat16
        and is_short
    ):
        return plain_attention_forward
    return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)


class TmdeAttention(nn.Module):
    """Multi-head attention (eq. 4.1-4.2); keys and values may come from a memory.

    Args:
        config: The configuration of the model.
        num_heads: The number of heads.
        memory_dim: The width of the memory. Default: `d_model`.
        is_causal: Whether a position sees none behind it.
        layer_idx: The number of the layer in a cache.
    """

    def __init__(
        self,
        config: EmbedderConfig,
        num_heads: int,
        memory_dim: int | None = None,
        is_causal: bool = False,
        layer_idx: int = 0,
    ):
        super().__init__()
        self.config = config
        self.num_heads = num_heads
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        self.is_causal = is_causal
        self.layer_idx = layer_idx
        memory_dim = memory_dim or config.d_model
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        # A bias on keys adds the same to all scores of a query, which softmax ignores.
        self.k_proj = nn.Linear(memory_dim, config.d_model, bias=False)
        self.v_proj = nn.Linear(memory_dim, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def forward(
        self,
        hidden_states: torch.Tensor,
        memory: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend a memory, or the hidden states themselves.

        Args:
            hidden_states: (batch, length, d_model). The batch may be 1 for queries that all texts
                share.
            memory: (batch, memory_length, memory_dim).
            attention_mask: (batch, 1, length, memory_length or length).
            past_key_values: Keys and values of the tokens before, and of the memory.

        Returns:
            The attended states (batch, length, d_model), and under eager attention the
            probabilities (batch, heads, length, memory_length or length).
        """
        if memory is not None and past_key_values is None and self._is_one_query(hidden_states):
            return self._attend_with_one_query(hidden_states, memory, attention_mask)
        query = self._split_heads(self.q_proj(hidden_states))  # (batch, heads, length, head_dim)
        if memory is None:
            key, value = self._self_keys_and_values(hidden_states, past_key_values)
        else:
            key, value = self._cross_keys_and_values(memory, past_key_values)
        # The pyramid's queries, which all texts share, have batch 1.
        query = query.expand(key.shape[0], -1, -1, -1)
        if memory is None:
            implementation = self.config._attn_implementation
        else:
            implementation = memory_implementation(self.config)
        attention = attention_function(implementation, query, key)
        output, probabilities = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
        )  # (batch, length, heads, head_dim)
        return self.out_proj(output.flatten(2)), probabilities

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Reshape (batch, length, d_model) to (batch, heads, length, head_dim)."""
        return states.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def _project(self, attended: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values (batch, heads, length, head_dim) of (batch, length, width)."""
        key = self._split_heads(self.k_proj(attended))
        value = self._split_heads(self.v_proj(attended))
        return key, value

    def _self_keys_and_values(
        self, hidden_states: torch.Tensor, past_key_values: EncoderDecoderCache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the tokens so far, (batch, heads, past + length, head_dim)."""
        key, value = self._project(hidden_states)
        if past_key_values is None:
            return key, value
        return past_key_values.self_attention_cache.update(key, value, self.layer_idx)

    def _cross_keys_and_values(
        self, memory: torch.Tensor, past_key_values: EncoderDecoderCache | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the memory, (batch, heads, memory_length, head_dim)."""
        if past_key_values is None:
            return self._project(memory)
        if past_key_values.is_updated.get(self.layer_idx):
            # Only layers of linear attention, which no model here has, are without keys and values.
            cached: Any = past_key_values.cross_attention_cache.layers[self.layer_idx]
            return cached.keys, cached.values
        key, value = self._project(memory)
        key, value = past_key_values.cross_attention_cache.update(key, value, self.layer_idx)
        past_key_values.is_updated[self.layer_idx] = True
        return key, value

    def _is_one_query(self, hidden_states: torch.Tensor) -> bool:
        """Return whether `_attend_with_one_query` can take the place of `forward`.

        There has to be one query a text, and the projections have to compute from their weights.
        """
        if hidden_states.shape[1] != 1:
            return False
        if memory_implementation(self.config) not in ("sdpa", "eager"):
            return False
        projections = (self.k_proj, self.v_proj)
        return all(computes_from_weights(layer, nn.Linear) for layer in projections)

    def _attend_with_one_query(
        self, query: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend the memory with one query a text, without keys and values of the memory.

        `q . (W_k m) = (W_k^T q) . m` and `sum_t p_t (W_v m_t) = W_v sum_t p_t m_t`: both
        projections are done once a text and head instead of once a token. This is most of the cost
        of a last layer that computes P alone.

        Args:
            query: (batch, 1, d_model).
            memory: (batch, memory_length, memory_dim).
            attention_mask: (batch, 1, 1, memory_length).

        Returns:
            As `forward`.
        """
        by_head = (self.num_heads, self.head_dim)
        query = self.q_proj(query[:, 0]).unflatten(-1, by_head)  # (batch, heads, head_dim)
        query = query * self.scaling
        key_weight = self.k_proj.weight.unflatten(0, by_head)  # (heads, head_dim, memory_dim)
        memory_query = torch.einsum("bhe,hed->bhd", query, key_weight)  # (batch, heads, memory_dim)
        scores = (memory_query @ memory.transpose(1, 2)).float()  # (batch, heads, memory_length)
        if attention_mask is not None:
            scores = masked_scores(scores, attention_mask.squeeze(2))
        probabilities = scores.softmax(dim=-1)
        dropped = nn.functional.dropout(probabilities, p=self.dropout, training=self.training)
        means = dropped.to(memory.dtype) @ memory  # (batch, heads, memory_dim)
        value_weight = self.v_proj.weight.unflatten(0, by_head)  # (heads, head_dim, memory_dim)
        output = torch.einsum("bhd,hed->bhe", means, value_weight)  # (batch, heads, head_dim)
        # Dropout changes the sum of the probabilities, and with it the share of the bias.
        bias_shares = dropped.sum(-1, keepdim=True).to(output.dtype)  # (batch, heads, 1)
        output = output + bias_shares * self.v_proj.bias.unflatten(0, by_head)
        attended = self.out_proj(output.flatten(1).unsqueeze(1))  # (batch, 1, d_model)
        if self.config._attn_implementation == "eager":
            return attended, probabilities.unsqueeze(2)
        return attended, None


def mask_of_memory(
    config: EmbedderConfig,
    query: torch.Tensor,
    memory: torch.Tensor,
    attention_mask: torch.Tensor | None,
    first_columns: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return the mask of queries that attend a memory, which broadcasts to their number.

    Args:
        config: The configuration.
        query: (batch, length, d_model).
        memory: (batch, memory_length, width).
        attention_mask: (batch, memory_length), or (batch, 1 or heads, memory_length,
            memory_length), of which the queries see what the first token of the text sees.
        first_columns: (batch,) places of these tokens; only needed in the latter case.
    """
    if attention_mask is not None and attention_mask.dim() == 4:
        rows = torch.arange(len(memory), device=memory.device)
        return attention_mask[rows, :, first_columns].unsqueeze(2)
    if memory_implementation(config) == config._attn_implementation:
        mask = create_bidirectional_mask(
            config, query, attention_mask, encoder_hidden_states=memory
        )
        return cast(torch.Tensor | None, mask)  # Only flex attention has a mask of another kind.
    if attention_mask is None:
        return None
    return attention_mask.bool()[:, None, None, :]


class TmdeSinusoidalPositions(nn.Module):
    """Fixed sine and cosine positions. The table is computed, so it is not part of a checkpoint."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.max_positions = max_positions
        self.d_model = d_model
        self.weight: torch.Tensor
        self.register_buffer("weight", self.table(), persistent=False)

    def table(self) -> torch.Tensor:
        """Return the vectors of all positions, (max_positions, d_model)."""
        return sinusoidal_positions(self.max_positions, self.d_model)

    def forward(
        self, length: int, start: int | torch.Tensor = 0, firsts: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the vectors of positions `start` to `start + length`, (length, d_model).

        Args:
            length: The number of positions.
            start: The first position. A static cache counts its tokens on the device, in a tensor
                of shape ().
            firsts: (batch,) index of the first token of each text, which is at position 0; then
                the result is (batch, length, d_model). Not together with `start`.

        Raises:
            ValueError: If the input is longer than the model's longest. A compiled graph cannot
                check a `start` that is a tensor; there, the lookup itself fails.
        """
        if isinstance(start, torch.Tensor):
            if not is_tracing(start):
                check_length(int(start) + length, self.max_positions)
            return self.at(start + torch.arange(length, device=start.device))
        check_length(start + length, self.max_positions)
        if firsts is None:
            return self.weight[start : start + length]
        positions = torch.arange(length, device=firsts.device) - firsts[:, None]  # (batch, length)
        return self.at(positions.clamp(min=0))

    def at(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors (..., d_model) of positions that are less than `max_positions`."""
        return nn.functional.embedding(position_ids, self.weight)


# ---- Layers


class TmdeEncoderLayer(GradientCheckpointingLayer):
    """Pre-norm transformer layer (eq. 4.4-4.5).

    With `memory`, the weights of the layer attend other states instead: this is how the pyramid
    shares the encoder's parameters (eq. 4.8-4.13).

    Args:
        config: The configuration of the model.
        is_causal: Whether a position sees none behind it.
    """

    def __init__(self, config: EmbedderConfig, is_causal: bool = False):
        super().__init__()
        self.self_attn = TmdeAttention(config, config.encoder_attention_heads, is_causal=is_causal)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the next states (batch, length, d_model).

        Args:
            hidden_states: (batch, length, d_model).
            attention_mask: (batch, 1, length, memory_length or length).
            memory: (batch, memory_length, d_model), in place of the hidden states.
        """
        if memory is not None:
            memory = self.self_attn_layer_norm(memory)
        attended, _ = self.self_attn(
            self.self_attn_layer_norm(hidden_states), memory=memory, attention_mask=attention_mask
        )
        hidden_states = hidden_states + self.dropout(attended)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded))


class TmdeDecoderLayer(GradientCheckpointingLayer):
    """Pre-norm decoder layer.

    Self-attention, then the bottleneck band, the full band, or both, then feed-forward.
    """

    def __init__(self, config: EmbedderConfig, layer_idx: int):
        super().__init__()
        num_heads = config.decoder_attention_heads
        slot_dim = config.d_model + config.language_embedding_dim
        self.has_slot = config.bottleneck != "full"
        self.has_memory = config.bottleneck in ("full", "dual")
        self.self_attn = TmdeAttention(config, num_heads, is_causal=True, layer_idx=layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        if self.has_slot:
            # A softmax over one key is 1 for every query, so the attention of eq. 4.1-4.2 over the
            # slot is a linear map of it. Queries and keys would never receive a gradient and are
            # left out.
            self.slot_attn = nn.Sequential(
                OrderedDict(
                    v_proj=nn.Linear(slot_dim, config.d_model),
                    out_proj=nn.Linear(config.d_model, config.d_model),
                )
            )
        if self.has_memory:
            self.encoder_attn = TmdeAttention(
                config, num_heads, memory_dim=slot_dim, layer_idx=layer_idx
            )
            self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        slot: torch.Tensor,
        memory: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> torch.Tensor:
        """Return the next states (batch, length, d_model).

        Args:
            hidden_states: (batch, length, d_model).
            attention_mask: (batch, 1, length, past + length).
            slot: (batch, slot_dim), P and the target language.
            memory: (batch, memory_length, slot_dim); without it, the full band is left out.
            memory_mask: (batch, 1, length, memory_length).
            past_key_values: Keys and values of the tokens before, and of the memory.
        """
        attended, _ = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            attention_mask=attention_mask,
            past_key_values=past_key_values,
        )
        hidden_states = hidden_states + self.dropout(attended)
        if self.has_slot:
            hidden_states = hidden_states + self.dropout(self.slot_attn(slot)).unsqueeze(1)
        if memory is not None:
            attended, _ = self.encoder_attn(
                self.encoder_attn_layer_norm(hidden_states),
                memory,
                memory_mask,
                past_key_values=past_key_values,
            )
            hidden_states = hidden_states + self.dropout(attended)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded))


# ---- Models


class TransformerPreTrainedModel(EmbedderPreTrainedModel):
    """Base of the models with transformer layers, and of their decoder."""

    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _no_split_modules = ["TmdeEncoderLayer", "TmdeDecoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TmdeSinusoidalPositions):
            # `from_pretrained` builds the model on the meta device, and a buffer that is not part
            # of the checkpoint is filled here.
            init.copy_(module.weight, module.table())


class TmdeDecoder(TransformerPreTrainedModel):
    """Translation decoder that sees the embedding and the target language.

    With `full` and `dual`, it sees every output of the encoder.
    """

    _can_record_outputs = {
        "hidden_states": TmdeDecoderLayer,
        "attentions": OutputRecorder(TmdeAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TmdeAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: EmbedderConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = TmdeSinusoidalPositions(
            config.max_position_embeddings, config.d_model
        )
        self.embed_languages = nn.Embedding(len(config.languages), config.language_embedding_dim)
        self.embed_scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            TmdeDecoderLayer(config, index) for index in range(config.decoder_layers)
        )
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        bottleneck_only: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode the tokens read so far.

        Args:
            input_ids: (batch, length) target tokens, beginning with `<s>`; with `past_key_values`,
                only the new ones.
            embedding: (batch, d_model), P.
            language_ids: (batch,) ids of the target languages.
            encoder_hidden_states: (batch, source_length, d_model), for `full` and `dual`.
            encoder_attention_mask: (batch, source_length), for `full` and `dual`.
            attention_mask: (batch, past + length) of the target; right padding needs none.
            past_key_values: Keys and values of the tokens before, and of the encoder's outputs.
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and
                positions.
            use_cache: Also return `past_key_values`.
            bottleneck_only: With `dual`, leave out the full band.
            kwargs: What `capture_outputs` is to record.

        Returns:
            `last_hidden_state` (batch, length, d_model), ready for the output projection.
        """
        assert embedding is not None  # `EmbeddingSeq2Seq._decode` passes it.
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self_cache = None if past_key_values is None else past_key_values.self_attention_cache
        hidden_states = self._embed(input_ids, inputs_embeds, past_key_values)
        mask = create_causal_mask(
            self.config, hidden_states, attention_mask, past_key_values=self_cache
        )
        language = self.embed_languages(language_ids).to(embedding.dtype)
        slot = torch.cat([embedding, language], dim=-1)  # (batch, slot_dim)
        memory = None
        memory_mask = None
        is_dual_with_memory = self.config.bottleneck == "dual" and not bottleneck_only
        if self.config.bottleneck == "full" or is_dual_with_memory:
            assert encoder_hidden_states is not None  # They come with the embedding.
            memory = self._memory(encoder_hidden_states, language)
            config = cast(EmbedderConfig, self.config)
            memory_mask = mask_of_memory(config, hidden_states, memory, encoder_attention_mask)
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, mask, slot, memory, memory_mask, past_key_values=past_key_values
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states), past_key_values=past_key_values
        )

    def _embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None,
    ) -> torch.Tensor:
        """Return tokens and positions, (batch, length, d_model)."""
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        length = inputs_embeds.shape[1]
        positions = self.embed_positions(length, past_length).to(inputs_embeds.dtype)
        return self.dropout(inputs_embeds * self.embed_scale + positions)

    def _memory(self, encoder_hidden_states: torch.Tensor, language: torch.Tensor) -> torch.Tensor:
        """Join the target language to every output of the encoder.

        Args:
            encoder_hidden_states: (batch, source_length, d_model).
            language: (batch, language_embedding_dim).

        Returns:
            (batch, source_length, slot_dim).
        """
        length = encoder_hidden_states.shape[1]
        languages = language.unsqueeze(1).expand(-1, length, -1)
        return torch.cat([encoder_hidden_states, languages], dim=-1)


class EmbeddingClassifier(EmbedderPreTrainedModel):
    """Base of the models with a linear classifier of the embedding, for labeled texts.

    It is the first base, and the class says which configuration it has:
    `class XForSequenceClassification(EmbeddingClassifier, XPreTrainedModel)` with
    `config: XConfig`.

    Attributes:
        encoder_class: The class of the encoder.
    """

    encoder_class: ClassVar[type[EmbedderPreTrainedModel]]

    def __init__(self, config: EmbedderConfig):
        super().__init__(config)
        self.model = self.encoder_class(config)
        self.dropout = nn.Dropout(config.dropout)
        num_labels = cast(int, config.num_labels)  # A configuration always counts its labels.
        self.classifier = nn.Linear(config.d_model, num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify texts.

        Args:
            input_ids: As for the encoder.
            attention_mask: As for the encoder.
            inputs_embeds: As for the encoder.
            position_ids: As for the encoder.
            labels: (batch,) classes; with `num_labels=1` numbers, for regression; or
                (batch, num_labels) numbers, for regression or, as 0 and 1, for several classes a
                text (`config.problem_type`).
            num_items_in_batch: The number of labels that are not -100 in all accumulated batches,
                to divide the loss by: texts, or with (batch, num_labels) their single numbers, over
                which the loss of one batch is a mean too. This batch's by default.
            kwargs: As for the encoder.

        Returns:
            `logits` (batch, num_labels), and with `labels` the loss, as other models of
            transformers have it.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            position_ids=position_ids,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the loss, divided by `num_items_in_batch` for all kinds of labels.

        transformers does so for one class a text, and gives the mean of the batch for the others.
        """
        if isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(logits.device)
        loss = self.loss_function(
            labels, logits, self.config, num_items_in_batch=num_items_in_batch
        )
        is_divided = self.config.problem_type == "single_label_classification"
        if num_items_in_batch is None or is_divided:
            return loss
        num_labels = (labels != -100).sum().to(loss.device)
        return loss * num_labels / num_items_in_batch
