"""T-MDE: a transformer encoder whose first output is the document embedding, and a decoder that sees little else.

Source: thesis *Multilingual document embedding with sequential neural network models*, chapter 4.
"""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPooling,
    Seq2SeqLMOutput,
)
from transformers.utils import can_return_tuple

from .configuration_tmde import TmdeConfig
from .layers import TmdeDecoderLayer, TmdeEncoderLayer, TmdeSinusoidalPositions, bag_direction
from .linear import Linear
from .packing import Packing, TextStarts
from .seq2seq import EmbeddingSeq2Seq
from .sharing import SharedModel
from .token_counts import occurrences


class TmdeOutputProjection(Linear):
    """From decoder states to the vocabulary; a class of its own because it starts out like an embedding table."""


class TmdePreTrainedModel(SharedModel, PreTrainedModel):
    config: TmdeConfig
    _auto_map = {
        "AutoConfig": "configuration_tmde.TmdeConfig",
        "AutoModel": "modeling_tmde.TmdeModel",
        "AutoModelForSeq2SeqLM": "modeling_tmde.TmdeForConditionalGeneration",
    }
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["TmdeEncoderLayer", "TmdeDecoderLayer"]

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers looks for its attention interface in the source of this file; ours is used in `layers.py`.
        return True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, TmdeOutputProjection):
            init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=module.embedding_dim**-0.5)
            if module.padding_idx is not None:
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, TmdeSinusoidalPositions):
            # Loading builds the model on the meta device; a buffer outside the checkpoint must be filled here.
            init.copy_(module.weight, module.table())
        elif isinstance(module, TmdeModel):
            if module.config.bottleneck == "pyramid":
                init.normal_(module.pyramid_queries)
            if module.config.bag_residual:
                init.zeros_(module.token_weights)


class TmdeModel(TmdePreTrainedModel):
    """
    The encoder with its bottleneck: documents in, embeddings out.

    Pre-norm transformer layers over `<s> tokens </s>`, no language signal; the embedding is
    `P = LayerNorm(H^6)[0]` without projection, dropout or L2 normalisation (section 4.2.1), and in the pyramid the
    output of a seventh layer at the same place (eq. 4.14-4.17). With `bag_residual`, H^0[0] is a weighted bag of the
    text's tokens, which reaches P over the residual connections alone.
    """

    # A checkpoint of the whole encoder-decoder opens here as well; its decoder is not wanted.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = TmdeSinusoidalPositions(config.max_position_embeddings, config.d_model)
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
        token_indices: torch.LongTensor | None = None,
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
            token_indices: (tokens,) ascending places in the flattened batch outside which nothing is computed; the
                first place of every text and all of `attention_mask` must be among them. Missing, a CPU leaves out
                padding if there is much, and another device computes every place. The vectors are the same, to
                rounding.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state` (batch, length, d_model), whose
            position 0 is P in every variant, behind padding as well as the text's first place. `attentions` are those
            of texts that begin at position 0.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, if `inputs_embeds` are given
                with `bag_residual`, or the input is too long.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds")
        if self.config.bag_residual and input_ids is None:
            raise ValueError("Give input_ids: with bag_residual=True every token has a weight, found inputs_embeds")
        starts = TextStarts.of(attention_mask if token_indices is None else None)  # given, texts begin at position 0
        attention_mask, input_ids, inputs_embeds = map(starts.to_front, (attention_mask, input_ids, inputs_embeds))
        shape = tuple((inputs_embeds if input_ids is None else input_ids).shape[:2])  # (batch, length)
        packing = Packing.of(attention_mask) if token_indices is None else Packing(token_indices, shape)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids if packing is None else packing.pack(input_ids))
        elif packing is not None:
            inputs_embeds = packing.pack(inputs_embeds)
        positions = self.embed_positions(shape[1]).to(inputs_embeds.dtype)
        if packing is not None:
            positions = positions.index_select(0, packing.columns)
        hidden_states = inputs_embeds * self.embed_scale + positions  # (batch, length, d_model) or (tokens, d_model)
        if self.config.bag_residual:
            bag = self.embed_scale * self._bag(input_ids, attention_mask, inputs_embeds, packing)  # (batch, d_model)
            bag = bag.to(hidden_states.dtype)
            if packing is None:
                hidden_states = torch.cat([bag.unsqueeze(1), hidden_states[:, 1:]], dim=1)
            else:
                hidden_states = hidden_states.index_copy(0, packing.firsts, bag)
        hidden_states = self.dropout(hidden_states)
        mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states.new_empty((*shape, 1)), attention_mask=attention_mask
        )
        states, attentions = [hidden_states], []  # H^0, H^1, ...
        for layer in self.layers[:-1] if pooled_only else self.layers:
            hidden_states, probabilities = layer(hidden_states, mask, packing=packing)
            states.append(hidden_states)
            attentions.append(probabilities)
        if pooled_only:
            hidden_states, probabilities = self._last_layer_of_first(hidden_states, attention_mask, packing)
            states.append(hidden_states)
            attentions.append(probabilities)
        output = self.layer_norm(hidden_states)
        if output.dim() == 2:
            output = packing.pad(output)
        if self.config.bottleneck == "pyramid":
            embedding = self.layer_norm(self._pyramid(states, attention_mask, packing))
            output = torch.cat([embedding, output[:, 1:]], dim=1)
        embedding = output[:, 0]
        if starts.begins is not None:
            output = torch.cat([embedding.unsqueeze(1), starts.back(output)[:, 1:]], dim=1)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        if output_hidden_states:
            states = [starts.back(packing.pad(state) if state.dim() == 2 else state) for state in states]
        return BaseModelOutputWithPooling(
            last_hidden_state=output,
            pooler_output=embedding,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def _cross_mask(
        self, queries: torch.Tensor, memory: torch.Tensor, attention_mask: torch.Tensor | None, packing: Packing | None
    ) -> torch.Tensor | None:
        """What queries (batch, number, d_model) may see of a memory."""
        if packing is not None:
            memory = memory.new_empty((*packing.shape, 1))
        return create_bidirectional_mask(
            config=self.config, inputs_embeds=queries, attention_mask=attention_mask, encoder_hidden_states=memory
        )

    def _last_layer_of_first(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None, packing: Packing | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The last layer's output at position 0 alone, (batch, 1, d_model): all that P needs of it."""
        first = _first_states(hidden_states, packing).unsqueeze(1)
        mask = self._cross_mask(first, hidden_states, attention_mask, packing)
        return self.layers[-1](first, mask, hidden_states, packing=packing)

    def _bag(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None,
        inputs_embeds: torch.Tensor,
        packing: Packing | None,
    ) -> torch.Tensor:
        """Unit vectors (batch, d_model) of the weighted bags; that of `<s>` for a text without tokens of its own."""
        eos = self.config.eos_token_id
        specials = [self.config.bos_token_id, self.config.pad_token_id, *(eos if isinstance(eos, list) else [eos])]
        counted = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        counted = counted.bool()  # (batch, length)
        for special in specials:
            if special is not None:
                counted = counted & (input_ids != special)
        log_weights = nn.functional.embedding(input_ids, self.token_weights.unsqueeze(1)).squeeze(2)
        log_weights = log_weights.to(torch.promote_types(log_weights.dtype, torch.float32))
        if self.config.sublinear_counts:
            log_weights = log_weights - occurrences(input_ids, counted).to(log_weights.dtype).log() / 2
        return bag_direction(inputs_embeds, log_weights, counted, packing)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers; the token weights of `bag_residual` go along."""
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.resize_token_weights()
        return embeddings

    @torch.no_grad()
    def resize_token_weights(self) -> None:
        """Fits the token weights, if there are any, to the embedding table; a new token gets their median."""
        if self.config.bag_residual:
            old, new_size = self.token_weights, self.embed_tokens.num_embeddings
            new = old.median().repeat(new_size)
            kept = min(len(old), new_size)
            new[:kept] = old[:kept]
            self.token_weights = nn.Parameter(new, requires_grad=old.requires_grad)

    def _pyramid(
        self, states: list[torch.Tensor], attention_mask: torch.Tensor | None, packing: Packing | None
    ) -> torch.Tensor:
        """The embedding of T-MDE_P before the final norm, (batch, 1, d_model), from H^0 ... H^L.

        The learned queries attend H^(L-2) with the weights of layer L-2; layers L-1 and L keep the first half of the
        queries at a time (32, 16, 8). Then one more layer attends from H^L[0] over [H^L[0] ... H^1[0] ; Z^L].
        """
        memory = states[-3]
        firsts = [_first_states(state, packing) for state in reversed(states[1:])]
        firsts = torch.stack(firsts, dim=1)  # (batch, L, d_model)
        queries = self.pyramid_queries.unsqueeze(0).to(memory.dtype)  # (1, 32, d_model)
        mask = self._cross_mask(queries.expand(len(firsts), -1, -1), memory, attention_mask, packing)
        queries, _ = self.layers[-3](queries, mask, memory, packing=packing)  # (batch, 32, d_model)
        for layer in self.layers[-2:]:
            queries, _ = layer(queries[:, : queries.shape[1] // 2], None, queries)  # (batch, 16 then 8, d_model)
        embedding, _ = self.pyramid_layer(firsts[:, :1], None, torch.cat([firsts, queries], dim=1))
        return embedding


def _first_states(states: torch.Tensor, packing: Packing | None) -> torch.Tensor:
    """(batch, d_model) at position 0 of states (batch, length, d_model), or packed, (tokens, d_model)."""
    return states[:, 0] if states.dim() == 3 else states.index_select(0, packing.firsts)


class TmdeDecoder(TmdePreTrainedModel):
    """Translation decoder that sees the embedding and the target language, or with `full` and `dual` every output."""

    def __init__(self, config: TmdeConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = TmdeSinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.embed_languages = nn.Embedding(len(config.languages), config.language_embedding_dim)
        self.embed_scale = config.d_model**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(TmdeDecoderLayer(config, index) for index in range(config.decoder_layers))
        self.layer_norm = nn.LayerNorm(config.d_model)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        embedding: torch.Tensor,
        language_ids: torch.LongTensor,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool = False,
        bottleneck_only: bool = False,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        token_indices: torch.LongTensor | None = None,
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
            bottleneck_only: With `dual`, leave out the full band.
            token_indices: (tokens,) ascending places in the flattened batch outside which nothing is computed, the
                first of every text among them. Not with `past_key_values`.

        Returns:
            `last_hidden_state` (batch, length, d_model), ready for the output projection; with `token_indices`, as
            `hidden_states`, (tokens, d_model).
        """
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(), DynamicCache())
        past_length = 0 if past_key_values is None else past_key_values.get_seq_length()
        shape = tuple(input_ids.shape)
        packing = None if token_indices is None else Packing(token_indices, shape)
        inputs_embeds = self.embed_tokens(input_ids if packing is None else packing.pack(input_ids))
        positions = self.embed_positions(shape[1], past_length).to(inputs_embeds.dtype)
        if packing is not None:
            positions = positions.index_select(0, packing.columns)
        hidden_states = self.dropout(inputs_embeds * self.embed_scale + positions)  # (batch, length, d_model)
        shaped = hidden_states.new_empty((*shape, 1))
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=shaped,
            attention_mask=attention_mask,
            past_key_values=None if past_key_values is None else past_key_values.self_attention_cache,
        )
        language = self.embed_languages(language_ids)  # (batch, language_embedding_dim)
        slot = torch.cat([embedding, language.to(embedding.dtype)], dim=-1)
        memory, memory_mask = None, None
        if self.config.bottleneck == "full" or (self.config.bottleneck == "dual" and not bottleneck_only):
            length = encoder_hidden_states.shape[1]
            memory = torch.cat([encoder_hidden_states, slot[:, None, embedding.shape[1] :].expand(-1, length, -1)], -1)
            memory_mask = create_bidirectional_mask(
                config=self.config,
                inputs_embeds=shaped,
                attention_mask=encoder_attention_mask,
                encoder_hidden_states=memory,
            )
        states, attentions, cross_attentions = [hidden_states], [], []
        for layer in self.layers:
            hidden_states, probabilities, cross_probabilities = layer(
                hidden_states, mask, slot, memory, memory_mask, past_key_values=past_key_values, packing=packing
            )
            states.append(hidden_states)
            attentions.append(probabilities)
            cross_attentions.append(cross_probabilities)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=self.layer_norm(hidden_states),
            past_key_values=past_key_values,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
            cross_attentions=tuple(cross_attentions) if output_attentions and memory is not None else None,
        )


class TmdeForConditionalGeneration(EmbeddingSeq2Seq, TmdePreTrainedModel, GenerationMixin):
    """
    T-MDE with its translation decoder: what is trained, and what turns an embedding back into text.

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
        """Whether the decoder sees every output of the encoder, and not the embedding alone."""
        return self.config.bottleneck in ("full", "dual")

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers, with the weights of the tokens."""
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.model.resize_token_weights()
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        decoder_attention_mask: torch.Tensor | None = None,
        encoder_outputs: BaseModelOutputWithPooling | torch.Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        labels: torch.LongTensor | None = None,
        target_language: str | list[str] | torch.LongTensor | None = None,
        bottleneck_only: bool = False,
        use_cache: bool | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
        **kwargs,
    ) -> Seq2SeqLMOutput:
        """
        Args:
            input_ids, attention_mask: (batch, length), the source; not needed with `encoder_outputs`.
            decoder_input_ids: (batch, target_length) beginning with `<s>`; made from `labels` when missing.
            encoder_outputs: What `get_encoder()` returned, or embeddings (batch, d_model).
            labels: (batch, target_length) as the tokenizer makes them, `<s> tokens </s>`, padded with -100 or
                `pad_token_id`; the shift by one happens here, as in causal language models.
            target_language: Language of the target, see `language_ids`.
            bottleneck_only: With `dual`, decode from the embedding alone.
            num_items_in_batch: Target tokens to divide the loss by (gradient accumulation); this batch's by default.

        Returns:
            `logits` (batch, target_length, vocab_size), and with `labels` the mean cross-entropy per target token;
            with `dual` it is `bottleneck_loss_weight` of that of the bottleneck band plus the rest of both bands.
        """
        encoder_outputs, attention_mask = self._encoded(input_ids, attention_mask, encoder_outputs, kwargs)
        if labels is not None:
            use_cache = False
        decoder_input_ids = self._target_ids(decoder_input_ids, labels)
        embedding = encoder_outputs.pooler_output
        inputs = {
            "input_ids": decoder_input_ids,
            "embedding": embedding,
            "language_ids": self.language_ids(target_language, embedding.shape[0]),
            "encoder_hidden_states": encoder_outputs.last_hidden_state,
            "encoder_attention_mask": attention_mask,
            "attention_mask": decoder_attention_mask,
        }
        outputs = self.decoder(
            **inputs,
            past_key_values=past_key_values,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            bottleneck_only=bottleneck_only,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels, num_items_in_batch)
            if self.config.bottleneck == "dual" and not bottleneck_only:
                alone = self.lm_head(self.decoder(**inputs, bottleneck_only=True, return_dict=True).last_hidden_state)
                loss = torch.lerp(
                    loss, self._loss(alone, labels, num_items_in_batch), self.config.bottleneck_loss_weight
                )
        return Seq2SeqLMOutput(
            loss=loss,
            logits=logits,
            past_key_values=outputs.past_key_values,
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
        )


TmdeConfig.register_for_auto_class()
TmdeModel.register_for_auto_class("AutoModel")
TmdeForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["TmdeDecoder", "TmdeForConditionalGeneration", "TmdeModel", "TmdePreTrainedModel"]
