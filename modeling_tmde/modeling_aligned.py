# SPDX-License-Identifier: Apache-2.0

"""One encoder a language, aligned with that of a source language: the baselines of XNLI.

Source: paper 004, section 4.2.4.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .common import (
    EmbedderPreTrainedModel,
    SequenceReader,
    by_language,
    check_inputs,
    check_language_ids,
    occurrences,
    resized_token_weights,
)
from .configuration_aligned import AlignedConfig


class AlignedBilstm(SequenceReader):
    """The encoder of [`LaserModel`] for one language."""

    def __init__(self, config: AlignedConfig):
        super().__init__()
        settings = config.encoder_settings
        self.embed_tokens = nn.Embedding(
            config.vocab_size, settings["embedding_dim"], config.pad_token_id
        )
        self.dropout = nn.Dropout(settings["dropout"])
        self.make_layers(settings)

    def forward(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """input_ids (batch, length), attention_mask (batch, length) -> (batch, d_model)"""
        return self.read(self.embed_tokens(input_ids), attention_mask)[0]


class AlignedBag(nn.Module):
    """The encoder of [`BagModel`] for one language."""

    def __init__(self, config: AlignedConfig):
        super().__init__()
        self.settings = config.encoder_settings
        self.embed_tokens = nn.Embedding(config.vocab_size, self.settings["d_model"])
        self.token_weights = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """input_ids (batch, length), attention_mask (batch, length) -> (batch, d_model)"""
        real = attention_mask.bool()
        log_weights = self.token_weights[input_ids].float()  # (batch, length)
        if self.settings["sublinear_counts"]:
            log_weights = log_weights - occurrences(input_ids, real).log() / 2
        log_weights = log_weights.masked_fill(~real, -torch.inf)
        # Relative to the largest weight of the text, for the range of half precision.
        heaviest = (
            log_weights.detach().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).min)
        )
        weights = (log_weights - heaviest).exp().to(self.embed_tokens.weight.dtype)
        summed = (
            torch.bmm(weights.unsqueeze(1), self.embed_tokens(input_ids)).squeeze(1).float()
        )  # (batch, d_model)
        if self.settings["normalize"]:
            embedding = nn.functional.normalize(summed, dim=-1)
        else:
            embedding = summed * heaviest.exp() / real.sum(dim=1, keepdim=True).clamp(min=1)
        return embedding.to(self.embed_tokens.weight.dtype)


ENCODERS: dict[str, type[nn.Module]] = {"bilstm": AlignedBilstm, "bag": AlignedBag}


class AlignedPreTrainedModel(EmbedderPreTrainedModel):
    config: AlignedConfig
    _auto_map = {
        "AutoConfig": "configuration_aligned.AlignedConfig",
        "AutoModel": "modeling_aligned.AlignedModel",
    }

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, AlignedBag):
            weights = torch.zeros_like(module.token_weights)
            weights[
                [token for token in self.config.special_token_ids if token < len(weights)]
            ] = -20.0
            init.copy_(module.token_weights, weights)


class AlignedModel(AlignedPreTrainedModel):
    """
    An encoder for each language, all of one kind and size: documents in, embeddings out.

    The encoder of `config.source_language` is pretrained and frozen. Each other encoder learns to give the same
    vector for the translation (X-BiLSTM, X-CBOW). They share only the vocabulary.

    Example:

    ```python
    >>> model = AutoModel.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt.", "The house is old."], return_tensors="pt", padding=True)
    >>> ids = torch.tensor([model.config.languages.index(code) for code in ("de", "en")])
    >>> model(**inputs, language_ids=ids).pooler_output  # (2, hidden_size)
    ```
    """

    needs_language_ids = True

    def __init__(self, config: AlignedConfig):
        super().__init__(config)
        self.encoders = nn.ModuleDict(
            {language: ENCODERS[config.encoder](config) for language in config.languages}
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of the source language's encoder; the others have their own."""
        return self.encoders[self.config.source_language].embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoders[self.config.source_language].embed_tokens = value

    @torch.no_grad()
    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As in transformers, for every encoder's table; returns that of the source language."""
        for encoder in self.encoders.values():
            encoder.embed_tokens = self._get_resized_embeddings(
                encoder.embed_tokens, *args, **kwargs
            )
            if isinstance(encoder, AlignedBag):
                size = encoder.embed_tokens.num_embeddings
                encoder.token_weights = resized_token_weights(encoder.token_weights, size)
        self.config.vocab_size = self.get_input_embeddings().num_embeddings
        return self.get_input_embeddings()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        language_ids: torch.LongTensor | None = None,
        language: str | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing.
            language_ids: (batch,) positions in `config.languages`: whose encoder reads a text; or (1,) for all.
            language: The code of all texts, in place of `language_ids`.

        Returns:
            `pooler_output` (batch, hidden_size): the embedding. `last_hidden_state` (batch, 1, hidden_size), whose
            position 0 is the embedding, as CLS pooling expects.

        Raises:
            ValueError: If `language_ids` are missing or name no language of this model, if there are no `input_ids`,
                or `attention_mask` does not fit.
        """
        check_inputs(input_ids, None, attention_mask)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        languages = self.config.languages
        language_ids = check_language_ids(language_ids, language, languages, len(input_ids))

        def encode(encoder: nn.Module, rows: torch.LongTensor) -> torch.Tensor:
            return encoder(input_ids[rows], attention_mask[rows])

        embedding = by_language(language_ids, languages, self.encoders, encode)
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None], pooler_output=embedding
        )
