# SPDX-License-Identifier: Apache-2.0

"""NTDV: an encoder and a decoder per language, and shared layers between them.

The shared layers give the embedding.

Source: Li 2021, *Multilingual document embedding with sequential neural network models*, thesis,
chapter 3.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .common import TmdeOutputProjection, check_inputs, pool_states
from .configuration_ntdv import NtdvConfig
from .recurrent import (
    TmdeRecurrentPreTrainedModel,
    by_language,
    check_language_ids,
    order_texts,
    run_packed,
)
from .seq2seq import EmbeddingSeq2Seq


@dataclass
class NtdvEncoderOutput(BaseModelOutputWithPooling):
    """Output of [`NtdvModel`].

    Args:
        context: (batch, r * d_model), the context vectors p_1 ... p_r after one another: the
            columns of the matrix P (eq. 3.2), on which losses work. Its Euclidean norm is the
            Frobenius norm of P.
        memory: (batch, length, d_model), what the decoders attend; zeros at padding.
    """

    context: torch.Tensor | None = None
    memory: torch.Tensor | None = None


class NtdvSelfAttention(nn.Module):
    """Eq. 3.1: r heads, each as wide as the states, over the outputs z of the shared GRU."""

    def __init__(self, config: NtdvConfig):
        super().__init__()
        self.heads = config.attention_heads
        width = self.heads * config.d_model
        self.q_proj = nn.Linear(config.d_model, width, bias=False)
        self.k_proj = nn.Linear(config.d_model, width, bias=False)
        self.v_proj = nn.Linear(config.d_model, width, bias=False)

    def _split_heads(self, states: torch.Tensor) -> torch.Tensor:
        """Turn (batch, length, heads * d_model) into (batch, heads, length, d_model)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, states: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Return the heads U_1 ... U_r after one another, (batch, length, r * d_model).

        Args:
            states: (batch, length, d_model).
            real: (batch, length), true at tokens.
        """
        query = self._split_heads(self.q_proj(states))  # (batch, heads, length, d_model)
        key = self._split_heads(self.k_proj(states))
        value = self._split_heads(self.v_proj(states))
        # Scores are divided by sqrt(d_h), the width of a head.
        heads = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=real[:, None, None, :]
        )  # (batch, heads, length, d_model)
        return heads.transpose(1, 2).flatten(2)


class NtdvSharedLayers(nn.Module):
    """The three layers between all encoders and decoders.

    They are a GRU, self-attention, and a projection back to d_h.
    """

    def __init__(self, config: NtdvConfig):
        super().__init__()
        self.gru = nn.GRU(config.d_model, config.d_model, batch_first=True)
        self.self_attention = NtdvSelfAttention(config)
        self.projection = nn.Linear(
            config.attention_heads * config.d_model, config.d_model, bias=False
        )

    def forward(
        self, states: torch.Tensor, real: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the context vectors (batch, r * d_model) and the memory (batch, length, d_model).

        Args:
            states: (batch, length, d_model), those of the encoders.
            real: (batch, length), true at tokens.
            lengths: (batch,), on the host.
        """
        states = run_packed(self.gru, states, lengths)  # z
        heads = self.self_attention(states, real)  # (batch, length, r * d_model)
        memory = self.projection(heads).masked_fill(~real[..., None], 0)
        return pool_states(heads, real, "mean"), memory


class NtdvPreTrainedModel(TmdeRecurrentPreTrainedModel):
    """Base of the NTDV models: their configuration, weights and Auto classes."""

    config: NtdvConfig
    _auto_map = {
        "AutoConfig": "configuration_ntdv.NtdvConfig",
        "AutoModel": "modeling_ntdv.NtdvModel",
        "AutoModelForSeq2SeqLM": "modeling_ntdv.NtdvForConditionalGeneration",
    }
    _supports_sdpa = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.GRU):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)


class NtdvModel(NtdvPreTrainedModel):
    """One encoder per language, followed by layers that all languages share.

    Each language has a bidirectional GRU; all read one table of word vectors. The states pass
    through the shared layers: a GRU, self-attention of r heads U_i (eq. 3.1), whose means over time
    are the context vectors p_i (eq. 3.2), and a projection to the memory that the decoders attend
    to. The embedding is the sum (eq. 3.3) or the concatenation (eq. 3.4) of the context vectors.

    Example:
        ```python
        import torch
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/ntdv")
        tokenizer = AutoTokenizer.from_pretrained("runs/ntdv")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        languages = torch.tensor([model.config.languages.index(code) for code in ("de", "en")])
        embeddings = model(**inputs, language_ids=languages).pooler_output  # (2, hidden_size)
        ```
    """

    needs_language_ids = True
    # A checkpoint of the encoder-decoder opens here too, without its decoder.
    _keys_to_ignore_on_load_unexpected = [r"^decoder\.", r"^lm_head\."]

    def __init__(self, config: NtdvConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoders = nn.ModuleDict()
        for language in config.languages:
            self.encoders[language] = nn.GRU(
                config.embedding_dim, config.d_model // 2, batch_first=True, bidirectional=True
            )
        if config.shared_layers:
            self.shared = NtdvSharedLayers(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        language: str | None = None,
        pooled_only: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> NtdvEncoderOutput:
        """Embed texts.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding. Default: all ones.
            inputs_embeds: (batch, length, embedding_dim) instead of `input_ids`.
            language_ids: As for [`AlignedModel`].
            language: As for [`AlignedModel`].
            pooled_only: Skip the memory.
            kwargs: Not used.

        Returns:
            `pooler_output` (batch, hidden_size), the embedding, and `last_hidden_state` (batch, 1,
            hidden_size), which contains it for CLS pooling. `memory` (batch, length, d_model), the
            token states. `context` (batch, r * d_model), the context vectors, or the embedding
            without shared layers. Hidden states and attentions are not available.

        Raises:
            ValueError: `language_ids` are missing or out of range, not exactly one of `input_ids`
                and `inputs_embeds` is given, or the mask does not match or leaves a text empty.
        """
        check_inputs(input_ids, inputs_embeds, attention_mask)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, embedding_dim)
        if attention_mask is None:
            attention_mask = torch.ones(inputs_embeds.shape[:2], device=inputs_embeds.device)
        languages = self.config.languages
        language_ids = check_language_ids(language_ids, language, languages, len(inputs_embeds))
        order = order_texts(attention_mask)  # Packed sequences start at position 0.
        lengths = order.lengths.cpu()
        vectors = self.dropout(order.apply(inputs_embeds))

        def encode(encoder: nn.GRU, rows: torch.Tensor) -> torch.Tensor:
            return run_packed(encoder, vectors[rows], lengths[rows.cpu()])

        memory = by_language(language_ids, languages, self.encoders, encode)
        if self.config.shared_layers:
            context, memory = self.shared(memory, order.is_token, lengths)
            embedding = self._join_context(context)
        else:
            context = pool_states(memory, order.is_token, "mean")
            embedding = context
        return NtdvEncoderOutput(
            last_hidden_state=embedding[:, None],
            pooler_output=embedding,
            context=context,
            memory=None if pooled_only else order.undo(memory),
        )

    def _join_context(self, context: torch.Tensor) -> torch.Tensor:
        """Return the embedding (batch, hidden_size) of context vectors (batch, r * d_model)."""
        if self.config.vector == "concat":
            return context
        vectors = context.unflatten(1, (self.config.attention_heads, -1))  # (batch, r, d_model)
        return vectors.sum(dim=1)


class NtdvLanguageDecoder(nn.Module):
    """One language's decoder: a GRU, then attention of its states over the memory.

    The decoder of Li 2021 (Nematus) attends with every state before it reads the next token, one
    step after the other. Here all states of a text are computed first, in one call, from the words
    alone and the initial state `s_0 = tanh(W mean(memory))`; each state then attends the memory
    (Luong et al. 2015, "general", scaled by sqrt(d_h)), and `tanh(W [s_t ; c_t])` is the output.
    This is several times faster, and trains the encoders and shared layers for the same purpose: a
    memory to translate from.
    """

    def __init__(self, config: NtdvConfig):
        super().__init__()
        self.start = nn.Linear(config.d_model, config.d_model)
        self.gru = nn.GRU(config.embedding_dim, config.d_model, batch_first=True)
        self.attention = nn.Linear(config.d_model, config.d_model, bias=False)
        self.readout = nn.Linear(2 * config.d_model, config.embedding_dim)

    def forward(
        self, vectors: torch.Tensor, memory: torch.Tensor, real: torch.Tensor
    ) -> torch.Tensor:
        """Return the outputs of the decoder, (batch, length, embedding_dim).

        Args:
            vectors: (batch, length, embedding_dim), those of the target's words.
            memory: (batch, source_length, d_model).
            real: (batch, source_length), true where the memory counts.
        """
        start = torch.tanh(self.start(pool_states(memory, real, "mean")))  # (batch, d_model)
        states, _ = self.gru(vectors, start[None].to(vectors.dtype))  # (batch, length, d_model)
        query = self.attention(states)[:, None]  # (batch, 1, length, d_model)
        slots = memory[:, None].to(states.dtype)  # (batch, 1, source_length, d_model)
        attended = nn.functional.scaled_dot_product_attention(
            query, slots, slots, attn_mask=real[:, None, None, :]
        )  # (batch, 1, length, d_model)
        return torch.tanh(self.readout(torch.cat([states, attended.squeeze(1)], dim=-1)))


class NtdvDecoder(NtdvPreTrainedModel):
    """The decoders of all pivot languages, which attend the memory.

    The table of word vectors and the output projection are shared, since the vocabulary is.
    """

    def __init__(self, config: NtdvConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, config.embedding_dim, config.pad_token_id
        )
        self.dropout = nn.Dropout(config.dropout)
        self.decoders = nn.ModuleDict()
        for language in config.pivot_languages:
            self.decoders[language] = NtdvLanguageDecoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        embedding: torch.Tensor | None = None,
        language_ids: torch.Tensor | None = None,
        encoder_hidden_states: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Decode the memory into the target languages.

        Args:
            input_ids: (batch, length), target tokens, beginning with `<s>` and padded on the right.
            embedding: (batch, hidden_size), not used: these decoders attend the memory.
            language_ids: (batch,), ids of the target languages.
            encoder_hidden_states: (batch, source_length, d_model), the encoder's `memory`.
            encoder_attention_mask: (batch, source_length), 1 where the memory counts; all of it
                counts when the mask is missing.
            inputs_embeds: (batch, length, embedding_dim) in place of `input_ids`.
            kwargs: Not used.

        Returns:
            `last_hidden_state` (batch, length, embedding_dim), ready for the output projection.

        Raises:
            ValueError: If a language has no decoder.
        """
        # `EmbeddingSeq2Seq._decode` passes both.
        assert encoder_hidden_states is not None
        assert language_ids is not None
        memory = encoder_hidden_states
        if encoder_attention_mask is None:
            encoder_attention_mask = torch.ones(memory.shape[:2], device=memory.device)
        real = encoder_attention_mask.ne(0)  # (batch, source_length)
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)  # (batch, length, embedding_dim)
        vectors = self.dropout(inputs_embeds)

        def decode(decoder: NtdvLanguageDecoder, rows: torch.Tensor) -> torch.Tensor:
            return decoder(vectors[rows], memory[rows], real[rows])

        states = by_language(language_ids, self.config.languages, self.decoders, decode)
        return BaseModelOutput(last_hidden_state=self.dropout(states))


class NtdvForConditionalGeneration(EmbeddingSeq2Seq, NtdvPreTrainedModel):
    """NTDV with its decoders, for training and translation.

    Training has two stages (Li, 2021, section 3.2.1): first translation models
    (`shared_layers=False`), then shared layers between the frozen encoders and decoders. Li trains
    two models in opposite directions. Here, every language has an encoder, and every pivot language
    has a decoder.

    Translation attends to the memory of all tokens, so the model can't decode an embedding.

    Example:
        ```python
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        import modeling_tmde

        model = AutoModelForSeq2SeqLM.from_pretrained("runs/ntdv")
        tokenizer = AutoTokenizer.from_pretrained("runs/ntdv")
        inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
        inputs["language_ids"] = torch.tensor([model.config.languages.index("de")])
        translated = model.generate(**inputs, target_language="en", max_new_tokens=20)
        print(tokenizer.batch_decode(translated, skip_special_tokens=True))
        ```
    """

    decoder_sees_states = True
    decodes_embeddings = False

    config: NtdvConfig

    def __init__(self, config: NtdvConfig):
        super().__init__(config)
        self.model = NtdvModel(config)
        self.decoder = NtdvDecoder(config)
        self.lm_head = TmdeOutputProjection(config.embedding_dim, config.vocab_size, bias=False)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # There is no cache.

    def prepare_inputs_for_generation(
        self, input_ids: torch.Tensor, next_sequence_length: int | None = None, **kwargs
    ) -> dict[str, Any]:
        """Prepare inputs as transformers does, with all tokens generated so far.

        The GRU reads them in one fused call.

        Args:
            input_ids: (batch, length), all target tokens.
            next_sequence_length: Not used: how many tokens are new.
            kwargs: As in transformers.
        """
        # The protocol by which transformers types `self` does not match its own models.
        return super().prepare_inputs_for_generation(  # type: ignore[misc]
            input_ids,  # type: ignore[arg-type]
            next_sequence_length=None,
            **kwargs,
        )


__all__ = [
    "NtdvDecoder",
    "NtdvEncoderOutput",
    "NtdvForConditionalGeneration",
    "NtdvModel",
    "NtdvPreTrainedModel",
]
