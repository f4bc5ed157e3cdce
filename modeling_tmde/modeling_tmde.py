# SPDX-License-Identifier: Apache-2.0

"""T-MDE: a transformer encoder whose first output is the document embedding.

The translation decoder sees only that vector. Source: thesis *Multilingual document embedding with
sequential neural network models*, chapter 4.
"""

from collections import OrderedDict
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import GenerationMixin
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPooling,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .common import (
    EmbedderPreTrainedModel,
    EmbeddingSeq2Seq,
    TmdeError,
    TmdeOutputProjection,
    TmdeSinusoidalPositions,
    attention_function,
    bag_direction,
    check_inputs,
    classification_loss,
    computes_from_weights,
    first_places,
    is_embedding,
    memory_implementation,
    positions_of_tokens,
    text_mask,
)
from .configuration_tmde import TmdeConfig

# Rows and columns of the first token of each text, both (batch,).
FirstTokens = tuple[torch.Tensor, torch.Tensor]


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
        config: TmdeConfig,
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
            scores = _masked_scores(scores, attention_mask.squeeze(2))
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


def _masked_scores(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask to the scores of one query a text.

    Args:
        scores: (batch, heads, memory_length).
        mask: (batch, 1 or heads, memory_length), true at what is seen, or a number to add.
    """
    if mask.dtype != torch.bool:
        return scores + mask
    # Not -inf: the softmax of a text of which nothing is seen would be NaN.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest)


def _memory_mask(
    config: TmdeConfig,
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
        attention_mask: (batch, memory_length), or (batch, 1, memory_length, memory_length), of
            which the queries see what the first token of the text sees.
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


class TmdeEncoderLayer(GradientCheckpointingLayer):
    """Pre-norm transformer layer (eq. 4.4-4.5).

    With `memory`, the weights of the layer attend other states instead: this is how the pyramid
    shares the encoder's parameters (eq. 4.8-4.13).
    """

    def __init__(self, config: TmdeConfig):
        super().__init__()
        self.self_attn = TmdeAttention(config, config.encoder_attention_heads)
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

    def __init__(self, config: TmdeConfig, layer_idx: int):
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


class TmdePreTrainedModel(EmbedderPreTrainedModel):
    """Base of the T-MDE models: their configuration, and how their weights begin."""

    config: TmdeConfig
    _auto_map = {
        "AutoConfig": "configuration_tmde.TmdeConfig",
        "AutoModel": "modeling_tmde.TmdeModel",
        "AutoModelForSeq2SeqLM": "modeling_tmde.TmdeForConditionalGeneration",
        "AutoModelForSequenceClassification": "modeling_tmde.TmdeForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_tmde.TmdeForTokenClassification",
    }
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _no_split_modules = ["TmdeEncoderLayer", "TmdeDecoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TmdeModel) and module.config.bottleneck == "pyramid":
            init.normal_(module.pyramid_queries)


class TmdeModel(TmdePreTrainedModel):
    """The encoder with its bottleneck: documents in, embeddings out.

    Pre-norm transformer layers over `<s> tokens </s>`, no language signal; the embedding is
    `P = LayerNorm(H^6)[0]` without projection, dropout or L2 normalization (section 4.2.1), and in
    the pyramid the output of a seventh layer at the same place (eq. 4.14-4.17). With
    `bag_residual`, H^0[0] is a weighted bag of the text's tokens, which reaches P over the residual
    connections alone.

    Example:
        ```python
        >>> model = AutoModel.from_pretrained(path)
        >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        >>> model(**inputs).pooler_output  # (1, d_model)
        ```
    """

    # A checkpoint with a decoder or a classifier opens here too, without them.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\.", r"^classifier\."]
    _can_record_outputs = {"attentions": TmdeAttention}

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = TmdeSinusoidalPositions(
            config.max_position_embeddings, config.d_model
        )
        self.embed_scale = config.d_model**0.5
        if config.bag_residual:
            self.token_weights = nn.Parameter(torch.empty(config.vocab_size))  # logarithms
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(TmdeEncoderLayer(config) for _ in range(config.encoder_layers))
        if config.bottleneck == "pyramid":
            self.pyramid_queries = nn.Parameter(torch.empty(config.pyramid_queries, config.d_model))
            self.pyramid_layer = TmdeEncoderLayer(config)
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embed texts.

        Args:
            input_ids: (batch, length), beginning with `<s>`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; without
                it, everything counts. For rows that hold several texts, (batch, 1, length, length),
                true where the token of a row sees the token of a column, or a summand of the
                scores. Not with `bag_residual`, which makes one bag a row.
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and
                positions. Not with `bag_residual`, whose token weights need ids.
            position_ids: (batch, length) or (1, length), the position of each token; counted from
                the first token of a row by default. Rows that hold several texts need them, each
                text counted from 0. All are less than `max_position_embeddings`. On an accelerator,
                this is checked in evaluation mode only.
            output_hidden_states: Also return H^0 to H^6 (before the final norm).
            output_attentions: Also return attention probabilities; needs
                `attn_implementation="eager"`.
            pooled_only: Compute the last layer for P alone, which saves most of it;
                `last_hidden_state` is then (batch, 1, d_model).
            kwargs: Not used: `generate` passes the arguments of the decoder to the encoder as well.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state`
            (batch, length, d_model), whose position 0 is P in every variant, even if a text begins
            behind padding. Of a row with several texts, P is that of the first; except with
            `"pyramid"`, those of the others are the states at their first tokens.

        Raises:
            TmdeError: Both or neither of `input_ids` and `inputs_embeds` are given; mask or
                positions do not fit; `inputs_embeds` or a mask of pairs is given with
                `bag_residual`; or the input is too long.
        """
        inputs = check_inputs(input_ids, inputs_embeds, attention_mask, pair_masks_of=self.config)
        if position_ids is not None:
            position_ids = positions_of_tokens(
                position_ids, inputs, self.config.max_position_embeddings, self.training
            )
        source_mask = None if attention_mask is None else text_mask(attention_mask)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, d_model)
        first_tokens = self._first_tokens(inputs_embeds, source_mask)
        hidden_states = self._embed(
            input_ids, inputs_embeds, attention_mask, position_ids, first_tokens
        )
        encoded = self._encode(
            hidden_states,
            attention_mask,
            first_tokens if pooled_only else None,
            output_attentions=output_attentions,
            return_dict=True,
        )
        output = self.layer_norm(encoded.last_hidden_state)  # (batch, length or 1, d_model)
        if self.config.bottleneck == "pyramid":
            pooled = self._pyramid(encoded.hidden_states, attention_mask, first_tokens)
            embedding = self.layer_norm(pooled)  # (batch, 1, d_model)
            if not pooled_only:
                output = output.index_put(first_tokens, embedding[:, 0])
        elif pooled_only:
            embedding = output
        else:
            embedding = output[first_tokens].unsqueeze(1)  # (batch, 1, d_model)
        return BaseModelOutputWithPooling(
            last_hidden_state=torch.cat([embedding, output[:, 1:]], dim=1),
            pooler_output=embedding[:, 0],
            hidden_states=encoded.hidden_states if output_hidden_states else None,
            attentions=encoded.attentions,
        )

    def _first_tokens(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> FirstTokens:
        """Return the index of the first token of each text, which may stand behind padding."""
        rows = torch.arange(len(inputs_embeds), device=inputs_embeds.device)  # (batch,)
        if attention_mask is None:
            return rows, torch.zeros_like(rows)
        return rows, first_places(attention_mask)

    def _embed(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        first_tokens: FirstTokens,
    ) -> torch.Tensor:
        """Return H^0, (batch, length, d_model), with the bag at the first place if there is one."""
        _, first_columns = first_tokens
        if position_ids is not None:
            positions = self.embed_positions.at(position_ids)  # (batch, length, d_model)
        else:
            positions = self.embed_positions(
                inputs_embeds.shape[1], firsts=None if attention_mask is None else first_columns
            )  # (length, d_model) or (batch, length, d_model)
        hidden_states = inputs_embeds * self.embed_scale + positions.to(inputs_embeds.dtype)
        if self.config.bag_residual:
            if input_ids is None:
                raise TmdeError(
                    "Give input_ids: with bag_residual=True every token has a weight, found "
                    "inputs_embeds"
                )
            if attention_mask is not None and attention_mask.dim() == 4:
                raise TmdeError(
                    f"attention_mask {tuple(attention_mask.shape)} must be (batch, length): with "
                    "bag_residual=True a row has one bag, and cannot hold several texts"
                )
            bag = bag_direction(
                self.config, input_ids, attention_mask, self.token_weights, inputs_embeds
            )  # (batch, d_model)
            first_states = (self.embed_scale * bag).to(hidden_states.dtype)
            hidden_states = hidden_states.index_put(first_tokens, first_states)
        return self.dropout(hidden_states)

    @capture_outputs
    def _encode(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        pooled_at: FirstTokens | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Run all layers.

        `hidden_states` are collected whether they are asked for or not, since the pyramid is built
        on them. The pyramid is not part of this method so that the attentions recorded here are
        those of the encoder.

        Args:
            hidden_states: H^0, (batch, length, d_model).
            attention_mask: (batch, length) or (batch, 1, length, length).
            pooled_at: Places for which alone the last layer is computed.
            kwargs: What `capture_outputs` is to record.

        Returns:
            `last_hidden_state` (batch, length, d_model), or (batch, 1, d_model) with `pooled_at`,
            and `hidden_states` H^0, H^1, ...
        """
        mask = create_bidirectional_mask(self.config, hidden_states, attention_mask)
        full_layers = self.layers if pooled_at is None else self.layers[:-1]
        states = [hidden_states]  # H^0, H^1, ...
        for layer in full_layers:
            states.append(layer(states[-1], mask))
        if pooled_at is not None:
            memory = states[-1]
            query = memory[pooled_at].unsqueeze(1)  # (batch, 1, d_model)
            _, first_columns = pooled_at
            mask = _memory_mask(self.config, query, memory, attention_mask, first_columns)
            states.append(self.layers[-1](query, mask, memory))
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))

    def _pyramid(
        self,
        states: tuple[torch.Tensor, ...],
        attention_mask: torch.Tensor | None,
        first_tokens: FirstTokens,
    ) -> torch.Tensor:
        """Return the embedding of T-MDE_P before the final norm, (batch, 1, d_model).

        The learned queries attend H^(L-2) with the weights of layer L-2; layers L-1 and L keep the
        first half of the queries at a time (32, 16, 8). Then one more layer attends from H^L[0]
        over [H^L[0] ... H^1[0] ; Z^L].

        Args:
            states: H^0 ... H^L, (batch, length, d_model) each; the last may have P's place alone.
            attention_mask: (batch, length) or (batch, 1, length, length).
            first_tokens: The index of the first token of each text.
        """
        first_states = []  # H^L[0] ... H^1[0]
        for state in reversed(states[1:]):
            is_pooled = state.shape[1] == 1
            first_states.append(state[:, 0] if is_pooled else state[first_tokens])
        firsts = torch.stack(first_states, dim=1)  # (batch, L, d_model)
        memory = states[-3]
        queries = self.pyramid_queries.unsqueeze(0).to(memory.dtype)  # (1, 32, d_model)
        _, first_columns = first_tokens
        expanded = queries.expand(len(firsts), -1, -1)
        mask = _memory_mask(self.config, expanded, memory, attention_mask, first_columns)
        queries = self.layers[-3](queries, mask, memory)  # (batch, 32, d_model)
        for layer in self.layers[-2:]:
            half = queries[:, : queries.shape[1] // 2]
            queries = layer(half, None, queries)  # (batch, 16, then 8, d_model)
        return self.pyramid_layer(firsts[:, :1], None, torch.cat([firsts, queries], dim=1))


class TmdeDecoder(TmdePreTrainedModel):
    """Translation decoder that sees the embedding and the target language.

    With `full` and `dual`, it sees every output of the encoder.
    """

    _can_record_outputs = {
        "hidden_states": TmdeDecoderLayer,
        "attentions": OutputRecorder(TmdeAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(TmdeAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: TmdeConfig):
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
            memory_mask = _memory_mask(self.config, hidden_states, memory, encoder_attention_mask)
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


class TmdeForConditionalGeneration(EmbeddingSeq2Seq, TmdePreTrainedModel, GenerationMixin):
    """T-MDE with its decoder, for training and for decoding an embedding back into text.

    Example:
        ```python
        >>> model = AutoModelForSeq2SeqLM.from_pretrained(path)
        >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        >>> translated = model.generate(**inputs, target_language="en")
        >>> tokenizer.batch_decode(translated, skip_special_tokens=True)
        >>> embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
        >>> model.generate(encoder_outputs=embedding, target_language="es")
        ```
    """

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.model = TmdeModel(config)
        self.decoder = TmdeDecoder(config)
        self.lm_head = TmdeOutputProjection(config.d_model, config.vocab_size, bias=False)
        if config.share_embeddings:
            self._tied_weights_keys = {
                "decoder.embed_tokens.weight": "model.embed_tokens.weight",
                "lm_head.weight": "model.embed_tokens.weight",
            }
        self.post_init()

    @property
    def decoder_sees_states(self) -> bool:
        """Whether the decoder attends all encoder outputs, not only the embedding."""
        return self.config.bottleneck in ("full", "dual")

    def decoder_loss(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: int | torch.Tensor | None,
        decoder_inputs: dict[str, Any],
    ) -> torch.Tensor:
        """Return the loss of logits that `_decode(**decoder_inputs)` gave.

        That of `dual` is `bottleneck_loss_weight` times the loss of the bottleneck band alone,
        plus the remaining share of the loss of both bands.

        Args:
            logits: (batch, length, vocab_size).
            labels: (batch, length), padded with -100 or `pad_token_id`.
            num_items_in_batch: Labels of all accumulated batches; those of `labels` if None.
            decoder_inputs: The arguments of `_decode`.
        """
        loss = self.translation_loss(logits, labels, num_items_in_batch)
        if self.config.bottleneck != "dual" or decoder_inputs["bottleneck_only"]:
            return loss
        changes = {"bottleneck_only": True, "past_key_values": None, "use_cache": False}
        logits_alone, _ = self._decode(**decoder_inputs | changes)
        loss_alone = self.translation_loss(logits_alone, labels, num_items_in_batch)
        return torch.lerp(loss, loss_alone, self.config.bottleneck_loss_weight)

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        *args: Any,
        encoder_outputs: ModelOutput | tuple | torch.Tensor | np.ndarray | None = None,
        **kwargs: Any,
    ) -> ModelOutput | torch.Tensor:
        """Translate texts, or decode `encoder_outputs`, as [`EmbeddingSeq2Seq.generate`] does.

        Args:
            inputs: (batch, length), the source.
            args: Arguments of `GenerationMixin.generate`.
            encoder_outputs: Embeddings (batch, d_model) or (d_model,), which `dual` decodes with
                its bottleneck band alone, or what an encoder returned.
            kwargs: Arguments of `GenerationMixin.generate`, and `target_language`.
        """
        if is_embedding(encoder_outputs) and self.config.bottleneck == "dual":
            kwargs.setdefault("bottleneck_only", True)
        return super().generate(inputs, *args, encoder_outputs=encoder_outputs, **kwargs)


class TmdeForSequenceClassification(TmdePreTrainedModel):
    """The encoder with a linear classifier of the embedding P, for labeled documents.

    The checkpoint of an encoder-decoder opens here without its decoder, and with a new classifier.

    Example:
        ```python
        >>> model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=3)
        >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        >>> model(**inputs, labels=torch.tensor([2])).loss
        ```
    """

    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.model = TmdeModel(config)
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
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify texts.

        Args:
            input_ids: As for [`TmdeModel`].
            attention_mask: As for [`TmdeModel`].
            inputs_embeds: As for [`TmdeModel`].
            labels: (batch,) classes; with `num_labels=1` numbers, for regression; or
                (batch, num_labels) numbers, for regression or, as 0 and 1, for several classes a
                text (`config.problem_type`).
            num_items_in_batch: The number of labels that are not -100 in all accumulated batches,
                to divide the loss by: texts, or with (batch, num_labels) their single numbers, over
                which the loss of one batch is a mean too. This batch's by default.
            kwargs: As for [`TmdeModel`].

        Returns:
            `logits` (batch, num_labels), and with `labels` the loss, as other models of
            transformers have it.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = classification_loss(self, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class TmdeForTokenClassification(TmdePreTrainedModel):
    """The encoder with a linear classifier of every output, for tagged sentences.

    The thesis expects `bottleneck="dual"` to serve such tasks best (section 5.2): its full band
    trains the outputs of all tokens, that of `first` the embedding alone.

    The checkpoint of an encoder-decoder opens here without its decoder, and with a new classifier.

    Example:
        ```python
        >>> model = AutoModelForTokenClassification.from_pretrained(path, num_labels=17)
        >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        >>> model(**inputs).logits  # (1, length, 17)
        ```
    """

    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.model = TmdeModel(config)
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
        labels: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Classify the tokens of texts.

        Args:
            input_ids: As for [`TmdeModel`].
            attention_mask: As for [`TmdeModel`].
            inputs_embeds: As for [`TmdeModel`].
            labels: (batch, length), the class of each token; -100 where there is none, as at `<s>`,
                `</s>` and padding.
            num_items_in_batch: The number of labels that are not -100 in all accumulated batches,
                to divide the loss by. This batch's by default.
            kwargs: As for [`TmdeModel`].

        Returns:
            `logits` (batch, length, num_labels), one row for each of `input_ids`, and with `labels`
            the mean cross-entropy of the labeled tokens. The logits at padding are undefined.
        """
        outputs = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, self.config, num_items_in_batch=num_items_in_batch
            )
        return TokenClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [
    "TmdeForConditionalGeneration",
    "TmdeForSequenceClassification",
    "TmdeForTokenClassification",
    "TmdeModel",
    "TmdePreTrainedModel",
]
