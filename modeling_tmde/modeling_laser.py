# SPDX-License-Identifier: Apache-2.0

"""LASER and its relatives: an LSTM encoder whose pooled states are the document embedding, and an LSTM decoder that
sees nothing else.

Sources: thesis 000, sections 2.1.4 and 4.3 (LASER); paper 001, section 2 (seq2seq with similarity loss).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .common import (
    EmbedderPreTrainedModel,
    EmbeddingSeq2Seq,
    TmdeOutputProjection,
    SequenceReader,
    check_inputs,
)
from .configuration_laser import LaserConfig


class LaserPreTrainedModel(EmbedderPreTrainedModel):
    config: LaserConfig
    _auto_map = {
        "AutoConfig": "configuration_laser.LaserConfig",
        "AutoModel": "modeling_laser.LaserModel",
        "AutoModelForSeq2SeqLM": "modeling_laser.LaserForConditionalGeneration",
    }


class LaserModel(SequenceReader, LaserPreTrainedModel):
    """
    The encoder: documents in, embeddings out.

    LSTM layers over the tokens, no language signal; the embedding P is the maximum (thesis 2.1.4) or the mean (paper
    001) over the last layer's states at the tokens, or what else [`LaserConfig`] says. There is no longest text.
    """

    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        self.dropout = nn.Dropout(config.dropout)
        self.make_layers(config.to_dict())
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding, which may be anywhere; everything counts
                when it is missing.
            inputs_embeds: (batch, length, embedding_dim) in place of `input_ids`.
            output_hidden_states: Also return the token vectors, and every layer's states with zeros at padding,
                (batch, length, width) each.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state` (batch, 1, d_model), whose position
            0 is P, so that CLS pooling gives it too; the states of the last layer are `hidden_states[-1]`.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, if the mask does not fit, or a
                text has no token.
        """
        given = check_inputs(input_ids, inputs_embeds, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones(given.shape[:2], device=given.device)
        vectors = self.embed_tokens(given) if inputs_embeds is None else given
        embedding, states, real, order = self.read(vectors, attention_mask)
        hidden_states = None
        if (
            self.config.output_hidden_states
            if output_hidden_states is None
            else output_hidden_states
        ):
            places = (
                torch.arange(len(order), device=order.device).unsqueeze(1),
                order.argsort(dim=1),
            )
            hidden_states = (
                state.masked_fill(~real.unsqueeze(2), 0)[places] for state in states[1:]
            )
            hidden_states = (vectors, *hidden_states)
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None],
            pooler_output=embedding,
            hidden_states=hidden_states,
        )


@dataclass
class LaserState:
    """State of the decoder between two steps of generation: `hidden` and `cell`, (1, batch, width), after `length`
    tokens.

    The state is a pytree for `torch.export` and `torch.func`. Its leaves are the two tensors; the
    length is part of the structure, so an exported decoder takes states of one length.
    """

    # `generate` compiles the decoder for caches that keep their tensors; this state is a new one
    # after every step.
    is_compileable: ClassVar[bool] = False

    hidden: torch.Tensor
    cell: torch.Tensor
    length: int

    def get_seq_length(self) -> int:
        return self.length

    def reorder_cache(self, beams: torch.LongTensor) -> None:
        self.hidden, self.cell = (
            self.hidden.index_select(1, beams),
            self.cell.index_select(1, beams),
        )


def _flatten_state(state: LaserState) -> tuple[list[torch.Tensor], int]:
    return [state.hidden, state.cell], state.length


def _flatten_state_with_keys(
    state: LaserState,
) -> tuple[list[tuple[pytree.KeyEntry, torch.Tensor]], int]:
    hidden = (pytree.GetAttrKey("hidden"), state.hidden)
    cell = (pytree.GetAttrKey("cell"), state.cell)
    return [hidden, cell], state.length


def _unflatten_state(tensors: Iterable[torch.Tensor], length: int) -> LaserState:
    hidden, cell = tensors
    return LaserState(hidden, cell, length)


pytree.register_pytree_node(
    LaserState,
    _flatten_state,
    _unflatten_state,
    serialized_type_name=f"{LaserState.__module__}.{LaserState.__name__}",
    flatten_with_keys_fn=_flatten_state_with_keys,
)


class LaserDecoder(LaserPreTrainedModel):
    """One LSTM layer that reads `[token ; P ; language]` at every step. Its initial state is a linear map of P."""

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        feature = config.language_signal == "feature"
        language_dim = config.language_embedding_dim if feature else config.embedding_dim
        self.embed_languages = nn.Embedding(len(config.languages), language_dim)
        self.initial_hidden = nn.Linear(config.d_model, config.decoder_hidden_size)
        self.initial_cell = nn.Linear(config.d_model, config.decoder_hidden_size)
        input_dim = config.embedding_dim + config.d_model + (language_dim if feature else 0)
        self.lstm = nn.LSTM(input_dim, config.decoder_hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.LongTensor | None = None,
        past_key_values: LaserState | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        **kwargs,
    ) -> BaseModelOutputWithPast:
        """
        Args:
            input_ids: (batch, length) target tokens read so far, beginning with `<s>`, padded on the right; with
                `past_key_values`, only the new ones.
            embedding: (batch, d_model), P.
            language_ids: (batch,) ids of the target languages.
            past_key_values: The state after the previous tokens.
            inputs_embeds: (batch, length, embedding_dim) in place of `input_ids`.
            use_cache: Also return the state after the last token.

        Returns:
            `last_hidden_state` (batch, length, decoder_hidden_size), and `past_key_values`.
        """
        tokens = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        embedding = embedding.to(tokens.dtype)
        language = self.embed_languages(language_ids)
        constant = embedding
        if self.config.language_signal == "feature":
            constant = torch.cat([embedding, language], dim=-1)
        elif past_key_values is None:
            tokens = torch.cat([language[:, None], tokens[:, 1:]], dim=1)
        constant = constant[:, None].expand(-1, tokens.shape[1], -1)
        inputs = torch.cat([self.dropout(tokens), constant], dim=-1)  # (batch, length, input_dim)
        if past_key_values is None:
            past_key_values = LaserState(
                self.initial_hidden(embedding)[None], self.initial_cell(embedding)[None], 0
            )
        past = (past_key_values.hidden.to(inputs.dtype), past_key_values.cell.to(inputs.dtype))
        states, (hidden, cell) = self.lstm(inputs, past)
        state = (
            LaserState(hidden, cell, past_key_values.length + tokens.shape[1])
            if use_cache
            else None
        )
        return BaseModelOutputWithPast(
            last_hidden_state=self.dropout(states), past_key_values=state
        )


class LaserForConditionalGeneration(EmbeddingSeq2Seq, LaserPreTrainedModel, GenerationMixin):
    """
    The encoder with its translation decoder, for training and for decoding an embedding back into text.

    Example:

    ```python
    >>> model = AutoModelForSeq2SeqLM.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
    >>> tokenizer.batch_decode(model.generate(**inputs, target_language="en"), skip_special_tokens=True)
    >>> embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
    >>> model.generate(encoder_outputs=embedding, target_language="es")
    ```
    """

    _is_stateful = True  # an LSTM cannot go back, so assisted generation is not supported

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.model = LaserModel(config)
        self.decoder = LaserDecoder(config)
        self.lm_head = TmdeOutputProjection(
            config.decoder_hidden_size, config.vocab_size, bias=False
        )
        if config.share_embeddings:
            self._tied_weights_keys = {
                "decoder.embed_tokens.weight": "model.embed_tokens.weight",
                "lm_head.weight": "model.embed_tokens.weight",
            }
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the cache is a `LaserState`
