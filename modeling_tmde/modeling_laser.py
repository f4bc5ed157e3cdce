# SPDX-License-Identifier: Apache-2.0

"""LASER and its relatives: an LSTM encoder, and an LSTM decoder that sees only the embedding.

The pooled states of the encoder are the document embedding.

Sources: Artetxe and Schwenk 2019 (LASER), as Li 2021 describes it in sections 2.1.4 and 4.3; Yu et
al. 2018, *Multilingual seq2seq training with similarity loss*, section 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutputWithPast, BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .common import TmdeOutputProjection, check_inputs
from .configuration_laser import LaserConfig
from .recurrent import TmdeRecurrentPreTrainedModel, TmdeSequenceReader
from .seq2seq import EmbeddingSeq2Seq


class LaserPreTrainedModel(TmdeRecurrentPreTrainedModel):
    """Base of the LSTM models: their configuration, weights and Auto classes."""

    config: LaserConfig
    _auto_map = {
        "AutoConfig": "configuration_laser.LaserConfig",
        "AutoModel": "modeling_laser.LaserModel",
        "AutoModelForSeq2SeqLM": "modeling_laser.LaserForConditionalGeneration",
    }


class LaserModel(TmdeSequenceReader, LaserPreTrainedModel):
    """LSTM, GRU or convolutional encoder without a language signal.

    The embedding P is pooled from the last layer's token states, see [`LaserConfig`]. Texts may
    have any length.

    Example:
        ```python
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/laser")
        tokenizer = AutoTokenizer.from_pretrained("runs/laser")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        embeddings = model(**inputs).pooler_output  # (2, d_model)
        ```
    """

    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        self.make_layers(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_hidden_states: bool | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embed texts.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding. Default: all ones.
            inputs_embeds: (batch, length, embedding_dim) instead of `input_ids`.
            output_hidden_states: Also return the token vectors and every layer's states, (batch,
                length, width), with zeros at padding.
            pooled_only: Not used.
            kwargs: Not used.

        Returns:
            `pooler_output` (batch, d_model), the embedding P, and `last_hidden_state` (batch, 1,
            d_model), which contains it for CLS pooling. The last layer's states are
            `hidden_states[-1]`.

        Raises:
            ValueError: Not exactly one of `input_ids` and `inputs_embeds` is given, the mask does
                not match, or a text has no token.
        """
        inputs = check_inputs(input_ids, inputs_embeds, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones(inputs.shape[:2], device=inputs.device)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, embedding_dim)
        sequence = self.read(inputs_embeds, attention_mask)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = None
        if output_hidden_states:
            hidden_states = (inputs_embeds, *sequence.states_at_input())
        return BaseModelOutputWithPooling(
            last_hidden_state=sequence.embedding[:, None],
            pooler_output=sequence.embedding,
            hidden_states=hidden_states,
        )


@dataclass
class LaserState:
    """State of the decoder between two steps of generation.

    The state is a pytree for `torch.export` and `torch.func`. Its leaves are the two tensors; the
    length is part of the structure, so an exported decoder takes states of one length.

    Attributes:
        hidden: (1, batch, decoder_hidden_size), the output of the last step.
        cell: (1, batch, decoder_hidden_size), the memory cell after the last step.
        length: The number of tokens read so far.
    """

    # `generate` compiles the decoder for caches that keep their tensors; this state is a new one
    # after every step.
    is_compileable: ClassVar[bool] = False

    hidden: torch.Tensor
    cell: torch.Tensor
    length: int

    def get_seq_length(self) -> int:
        """Return the number of tokens read so far, as a cache of transformers does."""
        return self.length

    def reorder_cache(self, beams: torch.Tensor) -> None:
        """Replace the rows of the state by the rows `beams`, as beam search asks."""
        self.hidden = self.hidden.index_select(1, beams)
        self.cell = self.cell.index_select(1, beams)


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
    """One LSTM layer that reads `[token ; P ; language]` at every step.

    Its initial state is a linear map of P.
    """

    def __init__(self, config: LaserConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        input_dim = config.embedding_dim + config.d_model
        if config.language_signal == "feature":
            language_dim = config.language_embedding_dim
            input_dim += language_dim
        else:
            language_dim = config.embedding_dim
        self.embed_languages = nn.Embedding(len(config.languages), language_dim)
        self.initial_hidden = nn.Linear(config.d_model, config.decoder_hidden_size)
        self.initial_cell = nn.Linear(config.d_model, config.decoder_hidden_size)
        self.lstm = nn.LSTM(input_dim, config.decoder_hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        past_key_values: LaserState | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """Decode embeddings into the target languages.

        Args:
            input_ids: (batch, length), target tokens read so far, beginning with `<s>`, padded on
                the right; with `past_key_values`, only the new ones.
            embedding: (batch, d_model), P.
            language_ids: (batch,), ids of the target languages.
            past_key_values: The state after the previous tokens.
            inputs_embeds: (batch, length, embedding_dim) in place of `input_ids`.
            use_cache: Whether to return the state after the last token.
            kwargs: Not used.

        Returns:
            `last_hidden_state` (batch, length, decoder_hidden_size), and `past_key_values`.
        """
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, embedding_dim)
        assert embedding is not None  # `EmbeddingSeq2Seq._decode` passes it.
        embedding = embedding.to(inputs_embeds.dtype)
        language = self.embed_languages(language_ids)  # (batch, language_dim)
        constant = embedding
        if self.config.language_signal == "feature":
            constant = torch.cat([embedding, language], dim=-1)
        elif past_key_values is None:
            # The vector of the language takes the place of that of `<s>`.
            inputs_embeds = torch.cat([language[:, None], inputs_embeds[:, 1:]], dim=1)
        length = inputs_embeds.shape[1]
        constant = constant[:, None].expand(-1, length, -1)
        inputs = torch.cat([self.dropout(inputs_embeds), constant], dim=-1)
        # inputs: (batch, length, input_dim)
        if past_key_values is None:
            past_key_values = self.initial_state(embedding)
        hidden = past_key_values.hidden.to(inputs.dtype)
        cell = past_key_values.cell.to(inputs.dtype)
        states, (hidden, cell) = self.lstm(inputs, (hidden, cell))
        next_state = None
        if use_cache:
            next_state = LaserState(hidden, cell, past_key_values.length + length)
        return BaseModelOutputWithPast(
            last_hidden_state=self.dropout(states),  # (batch, length, decoder_hidden_size)
            # transformers names one class, but calls the methods that `LaserState` has too.
            past_key_values=next_state,  # type: ignore[arg-type]
        )

    def initial_state(self, embedding: torch.Tensor) -> LaserState:
        """Return the state before the first token, made of embeddings (batch, d_model)."""
        hidden = self.initial_hidden(embedding)[None]  # (1, batch, decoder_hidden_size)
        cell = self.initial_cell(embedding)[None]
        return LaserState(hidden, cell, 0)


class LaserForConditionalGeneration(EmbeddingSeq2Seq, LaserPreTrainedModel):
    """The encoder with its translation decoder.

    The decoder trains the encoder and turns embeddings back into text.

    Example:
        ```python
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSeq2SeqLM.from_pretrained("runs/laser")
        tokenizer = AutoTokenizer.from_pretrained("runs/laser")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        translated = model.generate(**inputs, target_language="en", max_new_tokens=20)
        print(tokenizer.batch_decode(translated, skip_special_tokens=True))

        embedding = model.get_encoder()(**inputs).pooler_output  # (1, d_model)
        model.generate(encoder_outputs=embedding, target_language="es", max_new_tokens=20)
        ```
    """

    # An LSTM cannot go back, so assisted generation is not supported.
    _is_stateful = True

    config: LaserConfig

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
        return False  # The cache is a `LaserState`.


__all__ = [
    "LaserDecoder",
    "LaserForConditionalGeneration",
    "LaserModel",
    "LaserPreTrainedModel",
    "LaserState",
]
