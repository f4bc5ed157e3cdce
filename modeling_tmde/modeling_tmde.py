# SPDX-License-Identifier: Apache-2.0

"""T-MDE: a transformer encoder whose first output is the document embedding.

The translation decoder sees only that vector. Source: Li 2021, *Multilingual document embedding
with sequential neural network models*, thesis, chapter 4.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPooling,
    TokenClassifierOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .bags import bag_direction
from .common import TmdeError, TmdeOutputProjection, first_places, text_mask
from .configuration_tmde import TmdeConfig
from .seq2seq import EmbeddingSeq2Seq
from .transformer import (
    EmbeddingClassifier,
    TmdeAttention,
    TmdeDecoder,
    TmdeEncoderLayer,
    TmdeSinusoidalPositions,
    TransformerPreTrainedModel,
    check_packable_inputs,
    finite_mask,
    mask_of_memory,
    positions_of_tokens,
)

# Rows and columns of the first token of each text, both (batch,).
FirstTokens = tuple[torch.Tensor, torch.Tensor]


class TmdePreTrainedModel(TransformerPreTrainedModel):
    """Base of the T-MDE models: their configuration, and how their weights begin."""

    config: TmdeConfig
    _auto_map = {
        "AutoConfig": "configuration_tmde.TmdeConfig",
        "AutoModel": "modeling_tmde.TmdeModel",
        "AutoModelForSeq2SeqLM": "modeling_tmde.TmdeForConditionalGeneration",
        "AutoModelForSequenceClassification": "modeling_tmde.TmdeForSequenceClassification",
        "AutoModelForTokenClassification": "modeling_tmde.TmdeForTokenClassification",
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, TmdeModel) and module.config.bottleneck == "pyramid":
            init.normal_(module.pyramid_queries)


class TmdeModel(TmdePreTrainedModel):
    """The encoder of T-MDE: documents in, embeddings out.

    Pre-norm Transformer layers read `<s> tokens </s>` without a language signal. The embedding is
    `P = LayerNorm(H^6)[0]`, without projection, dropout or L2 normalization (Li, 2021, section
    4.2.1). In the pyramid, P is the output of a seventh layer at the same position (eq. 4.14-4.17).
    `bag_residual` sets H^0[0] to a bag of the text's tokens, see [`TmdeConfig`].

    Example:
        ```python
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/tmde")
        tokenizer = AutoTokenizer.from_pretrained("runs/tmde")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        embeddings = model(**inputs).pooler_output  # (2, d_model)
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
            input_ids: (batch, length), starting with `<s>`.
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side.
                Default: all ones. For rows that contain several texts: (batch, 1 or heads, length,
                length), true where the row's token attends to the column's token, or a term to add
                to the scores; requires `position_ids`. Not supported with `bag_residual`, which
                builds one bag per row.
            inputs_embeds: (batch, length, d_model) instead of `input_ids`, before scaling and
                positions. Not supported with `bag_residual`, which requires ids.
            position_ids: (batch, length) or (1, length), the position of each token in its text.
                Default: counted from the first token of the row. Positions must be below
                `max_position_embeddings`; on an accelerator this is checked in evaluation mode
                only.
            output_hidden_states: Also return H^0 to H^6, before the final norm.
            output_attentions: Also return attention probabilities. Requires
                `attn_implementation="eager"`.
            pooled_only: Compute only P in the last layer, which saves most of its time.
                `last_hidden_state` is then (batch, 1, d_model).
            kwargs: Not used.

        Returns:
            `pooler_output` (batch, d_model), the embedding P. `last_hidden_state` (batch, length,
            d_model) contains P at position 0 in every variant, even if padding comes first. For a
            row with several texts, P belongs to the first; except with `"pyramid"`, the embeddings
            of the others are the states at their first tokens.

        Raises:
            TmdeError: Not exactly one of `input_ids` and `inputs_embeds` is given, mask or
                positions do not match, `inputs_embeds` or a mask of pairs is given with
                `bag_residual`, or the input is too long.
        """
        inputs = check_packable_inputs(
            input_ids, inputs_embeds, attention_mask, position_ids, self.config
        )
        attention_mask = finite_mask(attention_mask)
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
                    "Found inputs_embeds, expected input_ids, because bag_residual=True "
                    "looks up token weights"
                )
            if attention_mask is not None and attention_mask.dim() == 4:
                raise TmdeError(
                    f"attention_mask {tuple(attention_mask.shape)} must be (batch, length), "
                    "because with bag_residual=True a row can't contain several texts"
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
            attention_mask: (batch, length) or (batch, 1 or heads, length, length).
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
            mask = mask_of_memory(self.config, query, memory, attention_mask, first_columns)
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
            attention_mask: (batch, length) or (batch, 1 or heads, length, length).
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
        mask = mask_of_memory(self.config, expanded, memory, attention_mask, first_columns)
        queries = self.layers[-3](queries, mask, memory)  # (batch, 32, d_model)
        for layer in self.layers[-2:]:
            half = queries[:, : queries.shape[1] // 2]
            queries = layer(half, None, queries)  # (batch, 16, then 8, d_model)
        return self.pyramid_layer(firsts[:, :1], None, torch.cat([firsts, queries], dim=1))


class TmdeForConditionalGeneration(EmbeddingSeq2Seq, TmdePreTrainedModel):
    """T-MDE with its translation decoder.

    The decoder trains the encoder and turns embeddings back into text.

    Example:
        ```python
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSeq2SeqLM.from_pretrained("runs/tmde")
        tokenizer = AutoTokenizer.from_pretrained("runs/tmde")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        translated = model.generate(**inputs, target_language="en", max_new_tokens=20)
        print(tokenizer.batch_decode(translated, skip_special_tokens=True))

        embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
        model.generate(encoder_outputs=embedding, target_language="es", max_new_tokens=20)
        ```
    """

    config: TmdeConfig

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


class TmdeForSequenceClassification(EmbeddingClassifier, TmdePreTrainedModel):
    """The encoder with a linear classifier on the embedding P, for labeled documents.

    The checkpoint of an encoder-decoder is loaded without its decoder and with a new classifier.

    Example:
        ```python
        import torch
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSequenceClassification.from_pretrained("runs/tmde", num_labels=3)
        tokenizer = AutoTokenizer.from_pretrained("runs/tmde")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        loss = model(**inputs, labels=torch.tensor([2])).loss
        ```
    """

    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]
    encoder_class = TmdeModel

    config: TmdeConfig


class TmdeForTokenClassification(TmdePreTrainedModel):
    """The encoder with a linear classifier on every token output, for tagging.

    `bottleneck="dual"` should suit such tasks best (Li, 2021, section 5.2), because it trains the
    outputs of all tokens.

    The checkpoint of an encoder-decoder is loaded without its decoder and with a new classifier.

    Example:
        ```python
        from transformers import AutoModelForTokenClassification, AutoTokenizer

        import modeling_tmde

        model = AutoModelForTokenClassification.from_pretrained("runs/tmde", num_labels=17)
        tokenizer = AutoTokenizer.from_pretrained("runs/tmde")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        logits = model(**inputs).logits  # (1, length, 17)
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
            labels: (batch, length), the class of each token; -100 for none, as at `<s>`, `</s>` and
                padding.
            num_items_in_batch: The number of labels to divide the loss by. Default: those of this
                batch.
            kwargs: As for [`TmdeModel`].

        Returns:
            `logits` (batch, length, num_labels), undefined at padding, and with `labels` the mean
            cross-entropy.
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
