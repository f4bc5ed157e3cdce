# SPDX-License-Identifier: Apache-2.0

"""T-MDE: a transformer encoder whose first output is the document embedding, and a decoder that sees only that vector.

Source: thesis *Multilingual document embedding with sequential neural network models*, chapter 4.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

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
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .common import (
    EmbedderPreTrainedModel,
    EmbeddingSeq2Seq,
    TmdeOutputProjection,
    TmdeError,
    TmdeSinusoidalPositions,
    bag_direction,
    check_inputs,
    eager_attention_forward,
    first_places,
)
from .configuration_tmde import TmdeConfig


class TmdeAttention(nn.Module):
    """Multi-head attention (eq. 4.1-4.2); keys and values may come from a memory of another width."""

    def __init__(
        self,
        config: TmdeConfig,
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
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        # A bias on keys adds the same to all scores of a query, which softmax ignores.
        self.k_proj = nn.Linear(memory_dim, config.d_model, bias=False)
        self.v_proj = nn.Linear(memory_dim, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """(batch, length, d_model) -> (batch, heads, length, head_dim)"""
        return states.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def forward(
        self,
        hidden_states: torch.Tensor,
        memory: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """hidden_states (batch, length, d_model) attend `memory` (batch, memory_length, memory_dim), or themselves.

        Returns the attended states, (batch, length, d_model), and, under eager attention, the probabilities.
        """
        crosses = memory is not None
        if crosses and past_key_values is None and self._attends_once(hidden_states):
            return self._attend_once(hidden_states, memory, attention_mask)
        query = self._split_heads(self.q_proj(hidden_states))
        if (
            crosses
            and past_key_values is not None
            and past_key_values.is_updated.get(self.layer_idx)
        ):
            cached = past_key_values.cross_attention_cache.layers[self.layer_idx]
            key, value = cached.keys, cached.values
        else:
            attended = memory if crosses else hidden_states
            key, value = (
                self._split_heads(self.k_proj(attended)),
                self._split_heads(self.v_proj(attended)),
            )
            if past_key_values is not None:
                cache = (
                    past_key_values.cross_attention_cache
                    if crosses
                    else past_key_values.self_attention_cache
                )
                key, value = cache.update(key, value, self.layer_idx)
                if crosses:
                    past_key_values.is_updated[self.layer_idx] = True
        query = query.expand(
            key.shape[0], -1, -1, -1
        )  # the pyramid's queries, which all texts share, have batch 1
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        output, probabilities = attention(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling
        )
        return self.out_proj(output.flatten(2)), probabilities

    def _attends_once(self, hidden_states: torch.Tensor) -> bool:
        """Whether there is one query a text, and the projections are plain: adapters and hooks have to be called."""
        return (
            hidden_states.shape[1] == 1
            and self.config._attn_implementation in ("sdpa", "eager")
            and all(
                type(layer) is nn.Linear
                and not (
                    layer._forward_hooks or layer._forward_pre_hooks or hasattr(layer, "_hf_hook")
                )
                for layer in (self.k_proj, self.v_proj)
            )
        )

    def _attend_once(
        self, query: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`forward` for one query a text, (batch, 1, d_model), without keys and values of the memory.

        `q . (W_k m) = (W_k^T q) . m` and `sum_t p_t (W_v m_t) = W_v sum_t p_t m_t`: both projections are done once a
        text and head instead of once a token. This is most of the cost of a last layer that computes P alone.
        """
        by_head = (self.num_heads, self.head_dim)
        query = (
            self.q_proj(query[:, 0]).unflatten(-1, by_head) * self.scaling
        )  # (batch, heads, head_dim)
        folded = torch.einsum("bhe,hed->bhd", query, self.k_proj.weight.unflatten(0, by_head))
        scores = (folded @ memory.transpose(1, 2)).float()  # (batch, heads, memory_length)
        if attention_mask is not None:
            mask = attention_mask[:, 0]  # (batch, 1, memory_length)
            lowest = torch.finfo(
                scores.dtype
            ).min  # not -inf: a text of which nothing is seen would be NaN
            scores = (
                scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask
            )
        probabilities = scores.softmax(dim=-1)
        dropped = nn.functional.dropout(probabilities, p=self.dropout, training=self.training)
        means = dropped.to(memory.dtype) @ memory  # (batch, heads, memory_dim)
        output = torch.einsum("bhd,hed->bhe", means, self.v_proj.weight.unflatten(0, by_head))
        output = output + dropped.sum(-1, keepdim=True).to(
            output.dtype
        ) * self.v_proj.bias.unflatten(0, by_head)
        probabilities = (
            probabilities.unsqueeze(2) if self.config._attn_implementation == "eager" else None
        )
        return self.out_proj(output.flatten(1).unsqueeze(1)), probabilities


class TmdeEncoderLayer(GradientCheckpointingLayer):
    """Pre-norm transformer layer (eq. 4.4-4.5). With `memory`, its own weights attend other states instead: this is
    how the pyramid shares the encoder's parameters (eq. 4.8-4.13)."""

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
        """hidden_states (batch, length, d_model), memory (batch, memory_length, d_model) -> as hidden_states"""
        attended, _ = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            memory=None if memory is None else self.self_attn_layer_norm(memory),
            attention_mask=attention_mask,
        )
        hidden_states = hidden_states + self.dropout(attended)
        expanded = self.activation_fn(self.fc1(self.final_layer_norm(hidden_states)))
        return hidden_states + self.dropout(self.fc2(expanded))


class TmdeDecoderLayer(GradientCheckpointingLayer):
    """Pre-norm decoder layer: self-attention, then the bottleneck band, the full band, or both, then feed-forward."""

    def __init__(self, config: TmdeConfig, layer_idx: int):
        super().__init__()
        heads = config.decoder_attention_heads
        self.self_attn = TmdeAttention(config, heads, is_causal=True, layer_idx=layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.bottleneck = config.bottleneck
        slot_dim = config.d_model + config.language_embedding_dim
        if config.bottleneck != "full":
            # A softmax over one key is 1 for every query, so the attention of eq. 4.1-4.2 over the slot is a linear
            # map of it. Queries and keys would never receive a gradient and are left out.
            values, output = (
                nn.Linear(slot_dim, config.d_model),
                nn.Linear(config.d_model, config.d_model),
            )
            self.slot_attn = nn.Sequential(OrderedDict(v_proj=values, out_proj=output))
        if config.bottleneck in ("full", "dual"):
            self.encoder_attn = TmdeAttention(
                config, heads, memory_dim=slot_dim, layer_idx=layer_idx
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
        """hidden_states (batch, length, d_model), slot (batch, slot_dim), memory (batch, memory_length, slot_dim) ->
        (batch, length, d_model)"""
        attended, _ = self.self_attn(
            self.self_attn_layer_norm(hidden_states),
            attention_mask=attention_mask,
            past_key_values=past_key_values,
        )
        hidden_states = hidden_states + self.dropout(attended)
        if self.bottleneck != "full":
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
    config: TmdeConfig
    _auto_map = {
        "AutoConfig": "configuration_tmde.TmdeConfig",
        "AutoModel": "modeling_tmde.TmdeModel",
        "AutoModelForSeq2SeqLM": "modeling_tmde.TmdeForConditionalGeneration",
    }
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TmdeEncoderLayer", "TmdeDecoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TmdeModel) and module.config.bottleneck == "pyramid":
            init.normal_(module.pyramid_queries)


class TmdeModel(TmdePreTrainedModel):
    """
    The encoder with its bottleneck: documents in, embeddings out.

    Pre-norm transformer layers over `<s> tokens </s>`, no language signal; the embedding is
    `P = LayerNorm(H^6)[0]` without projection, dropout or L2 normalization (section 4.2.1), and in the pyramid the
    output of a seventh layer at the same place (eq. 4.14-4.17). With `bag_residual`, H^0[0] is a weighted bag of the
    text's tokens, which reaches P over the residual connections alone.
    """

    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]
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
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        pooled_only: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length), beginning with `<s>`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing.
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and positions. Not with
                `bag_residual`, whose token weights need ids.
            output_hidden_states: Also return H^0 to H^6 (before the final norm).
            output_attentions: Also return attention probabilities; needs `attn_implementation="eager"`.
            pooled_only: Compute the last layer for P alone, which saves most of it; `last_hidden_state` is then
                (batch, 1, d_model).

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state` (batch, length, d_model), whose
            position 0 is P in every variant, even where a text begins behind padding.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, if `inputs_embeds` are given
                with `bag_residual`, or the input is too long.
        """
        check_inputs(input_ids, inputs_embeds, attention_mask)
        if self.config.bag_residual and input_ids is None:
            raise TmdeError(
                "Give input_ids: with bag_residual=True every token has a weight, found inputs_embeds"
            )
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, d_model)
        batch_size, length = inputs_embeds.shape[:2]
        rows = torch.arange(batch_size, device=inputs_embeds.device)
        firsts = (
            torch.zeros_like(rows) if attention_mask is None else first_places(attention_mask)
        )  # (batch,)
        at_first = (rows, firsts)
        positions = self.embed_positions(length, firsts=None if attention_mask is None else firsts)
        hidden_states = inputs_embeds * self.embed_scale + positions.to(inputs_embeds.dtype)
        if self.config.bag_residual:
            bag = bag_direction(
                self.config, input_ids, attention_mask, self.token_weights, inputs_embeds
            )
            hidden_states = hidden_states.index_put(
                at_first, (self.embed_scale * bag).to(hidden_states.dtype)
            )
        encoded = self._encode(
            self.dropout(hidden_states),
            attention_mask,
            at_first if pooled_only else None,
            output_attentions=self.config.output_attentions
            if output_attentions is None
            else output_attentions,
            return_dict=True,
        )
        output = self.layer_norm(encoded.last_hidden_state)
        if self.config.bottleneck == "pyramid":
            embedding = self.layer_norm(
                self._pyramid(encoded.hidden_states, attention_mask, at_first)
            )
            if not pooled_only:
                output = output.index_put(at_first, embedding[:, 0])
        else:
            embedding = (
                output[:, :1] if pooled_only else output[at_first].unsqueeze(1)
            )  # (batch, 1, d_model)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return BaseModelOutputWithPooling(
            last_hidden_state=torch.cat([embedding, output[:, 1:]], dim=1),
            pooler_output=embedding[:, 0],
            hidden_states=encoded.hidden_states if output_hidden_states else None,
            attentions=encoded.attentions,
        )

    @capture_outputs
    def _encode(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        pooled_at: tuple[torch.LongTensor, torch.LongTensor] | None,
        **kwargs,
    ) -> BaseModelOutput:
        """H^0 (batch, length, d_model) through all layers; the last one for the places `pooled_at` alone, if given.

        `hidden_states` are collected whether they are asked for or not, since the pyramid is built on them. It is not
        part of this method so that the attentions recorded here are those of the encoder.
        """
        mask = create_bidirectional_mask(self.config, hidden_states, attention_mask)
        states = [hidden_states]  # H^0, H^1, ...
        for layer in self.layers[:-1] if pooled_at is not None else self.layers:
            states.append(layer(states[-1], mask))
        if pooled_at is not None:
            first = states[-1][pooled_at].unsqueeze(1)  # (batch, 1, d_model)
            mask = create_bidirectional_mask(
                self.config, first, attention_mask, encoder_hidden_states=states[-1]
            )
            states.append(self.layers[-1](first, mask, states[-1]))
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states))

    def _pyramid(
        self,
        states: tuple[torch.Tensor, ...],
        attention_mask: torch.Tensor | None,
        at_first: tuple[torch.LongTensor, torch.LongTensor],
    ) -> torch.Tensor:
        """The embedding of T-MDE_P before the final norm, (batch, 1, d_model), from H^0 ... H^L.

        The learned queries attend H^(L-2) with the weights of layer L-2; layers L-1 and L keep the first half of the
        queries at a time (32, 16, 8). Then one more layer attends from H^L[0] over [H^L[0] ... H^1[0] ; Z^L].
        """
        memory = states[-3]
        firsts = [
            state[:, 0] if state.shape[1] == 1 else state[at_first]
            for state in reversed(states[1:])
        ]
        firsts = torch.stack(firsts, dim=1)  # (batch, L, d_model)
        queries = self.pyramid_queries.unsqueeze(0).to(memory.dtype)  # (1, 32, d_model)
        mask = create_bidirectional_mask(
            self.config,
            queries.expand(len(firsts), -1, -1),
            attention_mask,
            encoder_hidden_states=memory,
        )
        queries = self.layers[-3](queries, mask, memory)  # (batch, 32, d_model)
        for layer in self.layers[-2:]:
            queries = layer(
                queries[:, : queries.shape[1] // 2], None, queries
            )  # (batch, 16 then 8, d_model)
        return self.pyramid_layer(firsts[:, :1], None, torch.cat([firsts, queries], dim=1))


class TmdeDecoder(TmdePreTrainedModel):
    """Translation decoder that sees the embedding and the target language, or with `full` and `dual` every output."""

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
        input_ids: torch.LongTensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.LongTensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        bottleneck_only: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """
        Args:
            input_ids: (batch, length) target tokens read so far, beginning with `<s>`.
            embedding: (batch, d_model), P.
            language_ids: (batch,) ids of the target languages.
            encoder_hidden_states, encoder_attention_mask: (batch, source_length, d_model) and (batch, source_length),
                for `full` and `dual`.
            attention_mask: (batch, past + length) of the target; right padding needs none.
            inputs_embeds: (batch, length, d_model) in place of `input_ids`, before scaling and positions.
            bottleneck_only: With `dual`, leave out the full band.

        Returns:
            `last_hidden_state` (batch, length, d_model), ready for the output projection.
        """
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        positions = self.embed_positions(inputs_embeds.shape[1], past_length).to(
            inputs_embeds.dtype
        )
        hidden_states = self.dropout(
            inputs_embeds * self.embed_scale + positions
        )  # (batch, length, d_model)
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=attention_mask,
            past_key_values=None
            if past_key_values is None
            else past_key_values.self_attention_cache,
        )
        language = self.embed_languages(language_ids).to(
            embedding.dtype
        )  # (batch, language_embedding_dim)
        slot = torch.cat([embedding, language], dim=-1)
        memory, memory_mask = None, None
        if self.config.bottleneck == "full" or (
            self.config.bottleneck == "dual" and not bottleneck_only
        ):
            length = encoder_hidden_states.shape[1]
            memory = torch.cat(
                [encoder_hidden_states, language.unsqueeze(1).expand(-1, length, -1)], dim=-1
            )
            memory_mask = create_bidirectional_mask(
                self.config, hidden_states, encoder_attention_mask, encoder_hidden_states=memory
            )
        for layer in self.layers:
            hidden_states = layer(
                hidden_states, mask, slot, memory, memory_mask, past_key_values=past_key_values
            )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states), past_key_values=past_key_values
        )


class TmdeForConditionalGeneration(EmbeddingSeq2Seq, TmdePreTrainedModel, GenerationMixin):
    """
    T-MDE with its translation decoder, for training and for decoding an embedding back into text.

    Example:

    ```python
    >>> model = AutoModelForSeq2SeqLM.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
    >>> tokenizer.batch_decode(model.generate(**inputs, target_language="en"), skip_special_tokens=True)
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
        labels: torch.LongTensor,
        num_items_in_batch: int | torch.Tensor | None,
        decoder_inputs: dict[str, Any],
    ) -> torch.Tensor:
        """Return the loss of logits that `_decode(**decoder_inputs)` gave.

        That of `dual` is `bottleneck_loss_weight` times the loss of the bottleneck band alone,
        plus the remaining share of the loss of both bands.
        """
        loss = self.translation_loss(logits, labels, num_items_in_batch)
        if self.config.bottleneck != "dual" or decoder_inputs["bottleneck_only"]:
            return loss
        changes = {"bottleneck_only": True, "past_key_values": None, "use_cache": False}
        logits_alone, _ = self._decode(**decoder_inputs | changes)
        loss_alone = self.translation_loss(logits_alone, labels, num_items_in_batch)
        return torch.lerp(loss, loss_alone, self.config.bottleneck_loss_weight)

    def generate(self, inputs=None, *args, encoder_outputs=None, **kwargs):
        """As [`EmbeddingSeq2Seq.generate`]; `dual` decodes a bare embedding with its bottleneck band alone."""
        if isinstance(encoder_outputs, torch.Tensor) and self.config.bottleneck == "dual":
            kwargs.setdefault("bottleneck_only", True)
        return super().generate(inputs, *args, encoder_outputs=encoder_outputs, **kwargs)
