"""Building blocks of the transformer encoders and decoders: positions, attention, layers."""

import math
from collections.abc import Callable

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .linear import Linear
from .packing import Packing


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
    """Scaled dot-product attention (eq. 4.1) in plain operations; returns the probabilities as well."""
    scores = query @ key.transpose(2, 3) * scaling  # (batch, heads, query_length, key_length)
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = nn.functional.softmax(scores, dim=-1)
    probabilities = nn.functional.dropout(probabilities, p=dropout, training=module.training)
    output = probabilities @ value  # (batch, heads, query_length, head_dim)
    return output.transpose(1, 2).contiguous(), probabilities


def bag_direction(
    embeddings: torch.Tensor, log_weights: torch.Tensor, counted: torch.Tensor, packing: Packing | None = None
) -> torch.Tensor:
    """The unit vector in the direction of `sum_t exp(w_t) E_t`, a weighted bag of tokens.

    Args:
        embeddings: (batch, length, d_model), E, or those of a packing, (tokens, d_model).
        log_weights: (batch, length), w.
        counted: (batch, length), true where a token takes part. A text without any such token has the direction of
            its first.

    Returns:
        (batch, d_model)
    """
    has_none = ~counted.any(dim=1, keepdim=True)  # (batch, 1)
    counted = torch.cat([counted[:, :1] | has_none, counted[:, 1:]], dim=1)
    # A common factor of the weights does not turn the sum: shares of 1 cannot overflow, whatever w is.
    shares = log_weights.masked_fill(~counted, -math.inf).softmax(dim=1)  # (batch, length)
    shares = shares.to(embeddings.dtype)
    if packing is None:
        total = torch.bmm(shares.unsqueeze(1), embeddings).squeeze(1)  # (batch, d_model)
    else:
        weighted = packing.pack(shares).unsqueeze(1) * embeddings  # (tokens, d_model)
        total = torch.zeros_like(embeddings[: len(shares)]).index_add(0, packing.rows, weighted)
    return nn.functional.normalize(total, dim=-1)


class TmdeSinusoidalPositions(nn.Module):
    """Fixed sine and cosine positions; the table is derived, so it is not part of a checkpoint."""

    def __init__(self, max_positions: int, d_model: int):
        super().__init__()
        self.max_positions = max_positions
        self.d_model = d_model
        self.register_buffer("weight", self.table(), persistent=False)

    def table(self) -> torch.Tensor:
        """(max_positions, d_model): sines in the first half, cosines in the second."""
        half = self.d_model // 2
        rates = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / max(half - 1, 1)))
        angles = torch.arange(self.max_positions, dtype=torch.float64)[:, None] * rates
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()

    def forward(self, length: int, start: int = 0) -> torch.Tensor:
        """Positions `start` to `start + length`: (length, d_model).

        Raises:
            ValueError: If they go past the longest input of the model.
        """
        if start + length > self.max_positions:
            raise ValueError(
                f"An input of {start + length} tokens is longer than max_position_embeddings={self.max_positions}; "
                "truncate it, or embed it with DocumentEmbedder, which truncates and says so."
            )
        return self.weight[start : start + length]


class TmdeAttention(nn.Module):
    """Multi-head attention (eq. 4.1-4.2); keys and values may come from a memory of another width."""

    def __init__(
        self,
        config: PreTrainedConfig,
        num_heads: int,
        memory_dim: int | None = None,
        is_causal: bool = False,
        layer_idx: int | None = None,
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
        self.q_proj = Linear(config.d_model, config.d_model)
        # A bias on keys adds the same to all scores of a query, which softmax ignores: it would only collect noise.
        self.k_proj = Linear(memory_dim, config.d_model, bias=False)
        self.v_proj = Linear(memory_dim, config.d_model)
        self.out_proj = Linear(config.d_model, config.d_model)

    def _split_heads(self, states: torch.Tensor, packing: Packing | None = None) -> torch.Tensor:
        if states.dim() == 2:
            states = packing.pad(states)
        return states.unflatten(-1, (self.num_heads, self.head_dim)).transpose(
            1, 2
        )  # (batch, heads, length, head_dim)

    def _keys_and_values(
        self,
        memory: torch.Tensor,
        past_key_values: EncoderDecoderCache | None,
        is_cross: bool,
        packing: Packing | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if past_key_values is not None and is_cross and past_key_values.is_updated.get(self.layer_idx):
            cached = past_key_values.cross_attention_cache.layers[self.layer_idx]
            return cached.keys, cached.values
        key = self._split_heads(self.k_proj(memory), packing)
        value = self._split_heads(self.v_proj(memory), packing)
        if past_key_values is None:
            return key, value
        cache: Cache = past_key_values.cross_attention_cache if is_cross else past_key_values.self_attention_cache
        key, value = cache.update(key, value, self.layer_idx)
        if is_cross:
            past_key_values.is_updated[self.layer_idx] = True
        return key, value

    def forward(
        self,
        hidden_states: torch.Tensor,
        memory: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        packing: Packing | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """hidden_states (batch, length, d_model) attend `memory` (batch, memory_length, memory_dim), or themselves.

        Either may be packed, (tokens, width), with its `packing`. Returns the attended states, in the shape of
        `hidden_states`, and, under eager attention, the probabilities.
        """
        is_cross = memory is not None
        if is_cross and past_key_values is None and self._attends_once(hidden_states):
            return self._attend_once(hidden_states, memory, attention_mask, packing)
        query = self._split_heads(self.q_proj(hidden_states), packing)
        memory = memory if is_cross else hidden_states
        key, value = self._keys_and_values(memory, past_key_values, is_cross, packing)
        query = query.expand(key.shape[0], -1, -1, -1)  # those that are the same for all texts come once
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        output, probabilities = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout if self.training else 0.0,
            scaling=self.scaling,
        )
        output = output.flatten(2)  # (batch, length, d_model)
        if hidden_states.dim() == 2:
            output = packing.pack(output)
        return self.out_proj(output), probabilities

    def _attends_once(self, query: torch.Tensor) -> bool:
        """Whether `_attend_once` may do it: one query, and projections that are what their weights say. An adapter, a
        quantised layer or one with hooks (which load offloaded weights, say) has to be called."""
        if query.dim() != 3 or query.shape[1] != 1 or self.config._attn_implementation not in ("sdpa", "eager"):
            return False
        projections = (self.k_proj, self.v_proj)
        return all(
            type(layer) is Linear
            and not (layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook"))
            and not hasattr(layer.weight, "ds_id")
            for layer in projections
        )

    def _attend_once(
        self, query: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor | None, packing: Packing | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`forward` for one query a text, (batch, 1, d_model), without keys and values of the memory.

        `q . (W_k m) = (W_k^T q) . m` and `sum_t p_t (W_v m_t) = W_v sum_t p_t m_t`: the projections are done once a
        text and head instead of once a token.
        """
        memory = packing.pad(memory) if memory.dim() == 2 else memory  # (batch, memory_length, memory_dim)
        by_head = (self.num_heads, self.head_dim)
        query = self.q_proj(query[:, 0]).unflatten(-1, by_head) * self.scaling  # (batch, heads, head_dim)
        keys = self.k_proj.weight.unflatten(0, by_head)  # (heads, head_dim, memory_dim)
        folded = torch.einsum("bhe,hed->bhd", query, keys)
        scores = (folded @ memory.transpose(1, 2)).float()  # (batch, heads, memory_length)
        if attention_mask is not None:
            mask = attention_mask[:, 0]  # (batch, 1, memory_length)
            lowest = torch.finfo(scores.dtype).min  # not -inf: a text of which nothing is seen would be NaN
            scores = scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask
        probabilities = scores.softmax(dim=-1)
        dropped = nn.functional.dropout(probabilities, p=self.dropout, training=self.training)
        means = dropped.to(memory.dtype) @ memory  # (batch, heads, memory_dim)
        values = self.v_proj.weight.unflatten(0, by_head)
        output = torch.einsum("bhd,hed->bhe", means, values)
        if self.v_proj.bias is not None:
            output = output + dropped.sum(-1, keepdim=True).to(output.dtype) * self.v_proj.bias.unflatten(0, by_head)
        if self.config._attn_implementation != "eager":
            probabilities = None
        else:
            probabilities = probabilities.to(output.dtype).unsqueeze(2)
        return self.out_proj(output.flatten(1).unsqueeze(1)), probabilities


class TmdeEncoderLayer(GradientCheckpointingLayer):
    """Pre-norm transformer layer (eq. 4.4-4.5). With `memory`, its own weights attend other states instead: this is
    how the pyramid shares the encoder's parameters (eq. 4.8-4.13)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.self_attn = TmdeAttention(config, config.encoder_attention_heads)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = Linear(config.encoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
        packing: Packing | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """hidden_states (batch, length, d_model) or, packed, (tokens, d_model) -> the same shape, and the attention
        probabilities (eager only)."""
        attended, probabilities = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            memory=None if memory is None else self.self_attn_layer_norm(memory),
            attention_mask=attention_mask,
            packing=packing,
        )
        hidden_states = hidden_states + self.dropout(attended)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded)), probabilities


class TmdeSlotAttention(nn.Module):
    """Cross-attention over the single slot `[P ; language]`.

    A softmax over one key is 1 for every query, so the attention of eq. 4.1-4.2 is the linear map
    `out_proj(v_proj(slot))`, the same for every position. Queries and keys would never receive a gradient and are not
    kept.
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.v_proj = Linear(config.d_model + config.language_embedding_dim, config.d_model)
        self.out_proj = Linear(config.d_model, config.d_model)

    def forward(self, slot: torch.Tensor) -> torch.Tensor:
        """slot (batch, d_model + language_embedding_dim) -> (batch, 1, d_model)."""
        return self.out_proj(self.v_proj(slot)).unsqueeze(1)


class TmdeDecoderLayer(GradientCheckpointingLayer):
    """Pre-norm decoder layer: self-attention, then the bottleneck band, the full band, or both, then feed-forward."""

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        heads = config.decoder_attention_heads
        self.self_attn = TmdeAttention(config, heads, is_causal=True, layer_idx=layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        if config.bottleneck != "full":
            self.slot_attn = TmdeSlotAttention(config)
        if config.bottleneck in ("full", "dual"):
            memory_dim = config.d_model + config.language_embedding_dim
            self.encoder_attn = TmdeAttention(config, heads, memory_dim=memory_dim, layer_idx=layer_idx)
            self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.bottleneck = config.bottleneck
        self.fc1 = Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)
        self.activation_fn = ACT2FN[config.activation_function]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        slot: torch.Tensor,
        memory: torch.Tensor | None,
        memory_mask: torch.Tensor | None,
        past_key_values: EncoderDecoderCache | None = None,
        packing: Packing | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """hidden_states (batch, length, d_model) or, packed, (tokens, d_model); slot (batch, slot_dim); memory (batch,
        memory_length, slot_dim)."""
        attended, probabilities = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            packing=packing,
        )
        hidden_states = hidden_states + self.dropout(attended)
        if self.bottleneck != "full":
            attended = self.dropout(self.slot_attn(slot))  # (batch, 1, d_model)
            if hidden_states.dim() == 2:
                attended = attended.squeeze(1).index_select(0, packing.rows)
            hidden_states = hidden_states + attended
        cross_probabilities = None
        if memory is not None:
            attended, cross_probabilities = self.encoder_attn(
                self.encoder_attn_layer_norm(hidden_states),
                memory=memory,
                attention_mask=memory_mask,
                past_key_values=past_key_values,
                packing=packing,
            )
            hidden_states = hidden_states + self.dropout(attended)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded)), probabilities, cross_probabilities
