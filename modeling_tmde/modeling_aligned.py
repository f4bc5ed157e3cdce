# SPDX-License-Identifier: Apache-2.0

"""One encoder for each language, aligned with that of a source language: the baselines of XNLI.

Source: Conneau 2019, *Learning distributed representations of sentences using neural networks*,
section 4.2.4.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .bags import initial_token_weights, weighted_bag
from .common import TmdeError, check_inputs, resized_token_weights
from .configuration_aligned import AlignedConfig
from .configuration_bag import BagConfig
from .configuration_laser import LaserConfig
from .recurrent import (
    TmdeRecurrentPreTrainedModel,
    TmdeSequenceReader,
    by_language,
    check_language_ids,
)


class AlignedBilstm(TmdeSequenceReader):
    """The encoder of [`LaserModel`] for one language."""

    def __init__(self, config: AlignedConfig):
        super().__init__()
        settings = cast(LaserConfig, config.settings_of_encoder)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, settings.embedding_dim, config.pad_token_id
        )
        self.make_layers(settings)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (batch, d_model) of ids and mask, both (batch, length)."""
        return self.read(self.embed_tokens(input_ids), attention_mask).embedding


class AlignedBag(nn.Module):
    """The encoder of [`BagModel`] for one language."""

    def __init__(self, config: AlignedConfig):
        super().__init__()
        self.settings = cast(BagConfig, config.settings_of_encoder)
        self.embed_tokens = nn.Embedding(config.vocab_size, self.settings.d_model)
        self.token_weights = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the embeddings (batch, d_model) of ids and mask, both (batch, length)."""
        is_token = attention_mask.bool()
        return weighted_bag(
            input_ids[is_token],  # (tokens,)
            is_token.sum(dim=1),
            self.embed_tokens,
            self.token_weights,
            sublinear_counts=self.settings.sublinear_counts,
            normalize=self.settings.normalize,
        )


AlignedEncoder = AlignedBilstm | AlignedBag

ENCODER_CLASSES: dict[str, type[AlignedEncoder]] = {
    "bilstm": AlignedBilstm,
    "bag": AlignedBag,
}


class AlignedPreTrainedModel(TmdeRecurrentPreTrainedModel):
    """Base of the aligned encoders: their configuration, weights and Auto classes."""

    config: AlignedConfig
    _auto_map = {
        "AutoConfig": "configuration_aligned.AlignedConfig",
        "AutoModel": "modeling_aligned.AlignedModel",
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AlignedBag):
            weights = initial_token_weights(self.config, len(module.token_weights))
            init.copy_(module.token_weights, weights)


class AlignedModel(AlignedPreTrainedModel):
    """One encoder per language, all of the same kind and size (X-BiLSTM, X-CBOW).

    The encoder of `config.source_language` is pretrained and frozen. The others learn to compute
    the same vector for a translation. They share only the vocabulary.

    Example:
        ```python
        import torch
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/aligned")
        tokenizer = AutoTokenizer.from_pretrained("runs/aligned")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        languages = torch.tensor([model.config.languages.index(code) for code in ("de", "en")])
        embeddings = model(**inputs, language_ids=languages).pooler_output  # (2, hidden_size)
        ```
    """

    needs_language_ids = True

    def __init__(self, config: AlignedConfig):
        super().__init__(config)
        encoder_class = ENCODER_CLASSES[config.encoder]
        self.encoders = nn.ModuleDict({code: encoder_class(config) for code in config.languages})
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of the source language's encoder; the others have their own."""
        encoder = cast(AlignedEncoder, self.encoders[self.config.source_language])
        return encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Set the table of the source language's encoder."""
        self.encoders[self.config.source_language].embed_tokens = value

    @torch.no_grad()
    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """Resize every encoder's table, as transformers does for one encoder.

        Args:
            args: As in transformers.
            kwargs: As in transformers.

        Returns:
            The table of the source language. New tokens of a bag have the median weight.
        """
        for encoder in cast(Iterable[AlignedEncoder], self.encoders.values()):
            table = self._get_resized_embeddings(encoder.embed_tokens, *args, **kwargs)
            encoder.embed_tokens = table
            if isinstance(encoder, AlignedBag):
                encoder.token_weights = resized_token_weights(
                    encoder.token_weights, table.num_embeddings
                )
        source_table = self.get_input_embeddings()
        self.config.vocab_size = source_table.num_embeddings
        return source_table

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
    ) -> BaseModelOutputWithPooling:
        """Embed texts, each with the encoder of its language.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding. Default: all ones.
            inputs_embeds: Not supported.
            language_ids: (batch,), positions in `config.languages`, which select each text's
                encoder; or (1,) for all texts.
            language: The language code of all texts, instead of `language_ids`.
            pooled_only: Not used.
            kwargs: Not used.

        Returns:
            `pooler_output` (batch, hidden_size), the embedding, and `last_hidden_state` (batch, 1,
            hidden_size), which contains it for CLS pooling.

        Raises:
            ValueError: `language_ids` are missing or out of range, there are no `input_ids`, or the
                mask does not match.
        """
        if inputs_embeds is not None:
            raise TmdeError(
                "AlignedModel takes input_ids only, because each language has its own "
                "embedding table"
            )
        input_ids = check_inputs(input_ids, None, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        languages = self.config.languages
        language_ids = check_language_ids(language_ids, language, languages, len(input_ids))

        def encode(encoder: nn.Module, rows: torch.Tensor) -> torch.Tensor:
            return encoder(input_ids[rows], attention_mask[rows])

        embedding = by_language(language_ids, languages, self.encoders, encode)
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None], pooler_output=embedding
        )


__all__ = ["AlignedModel", "AlignedPreTrainedModel"]
