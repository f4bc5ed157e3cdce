"""One encoder a language, aligned with that of a source language: the baselines of XNLI.

Source: paper 004, section 4.2.4.
"""

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .configuration_aligned import AlignedConfig
from .language_routing import by_language, check_language_ids
from .modeling_bag import BagModel
from .modeling_laser import LaserModel
from .sharing import SharedModel

MODELS: dict[str, type[PreTrainedModel]] = {"bilstm": LaserModel, "bag": BagModel}


class AlignedPreTrainedModel(SharedModel, PreTrainedModel):
    config: AlignedConfig
    _auto_map = {
        "AutoConfig": "configuration_aligned.AlignedConfig",
        "AutoModel": "modeling_aligned.AlignedModel",
    }
    base_model_prefix = "model"


class AlignedModel(AlignedPreTrainedModel):
    """
    An encoder for each language, all of one kind and size: documents in, embeddings out.

    The encoder of `config.source_language` was trained for something else and is fixed; each of the others is fitted
    to give what it gives for the translation (X-BiLSTM, X-CBOW). They share nothing but the vocabulary.

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
        encoder_config = config.build_encoder_config()
        self.encoders = nn.ModuleDict(
            {language: MODELS[config.encoder](encoder_config) for language in config.languages}
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        """The table of the source language's encoder; the others have their own."""
        return self.encoders[self.config.source_language].get_input_embeddings()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoders[self.config.source_language].set_input_embeddings(value)

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in transformers, for every encoder's table; returns that of the source language."""
        for encoder in self.encoders.values():
            encoder.resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        table = self.get_input_embeddings()
        self.config.vocab_size = table.num_embeddings
        return table

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        language_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        language: str | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing.
            language_ids: (batch,) positions in `config.languages`: whose encoder reads a text; or (1,) for all.
            inputs_embeds: Refused: each language has word vectors of its own.
            language: The code of all texts, in place of `language_ids`.

        Returns:
            `pooler_output` (batch, hidden_size): the embedding. `last_hidden_state` (batch, 1, hidden_size), whose
            position 0 is the embedding, so that CLS pooling gives it too.
            No hidden states and no attentions, whatever is asked for.

        Raises:
            ValueError: If `language_ids` are missing or name no language of this model, if `inputs_embeds` is given,
                or `input_ids` and `attention_mask` do not fit together.
        """
        if input_ids is None or inputs_embeds is not None:
            raise ValueError("AlignedModel takes input_ids only: each language has word vectors of its own")
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if attention_mask.shape != input_ids.shape or input_ids.dim() != 2:
            raise ValueError(
                f"input_ids {tuple(input_ids.shape)} and attention_mask {tuple(attention_mask.shape)} must both be "
                "(batch, length)"
            )
        languages, owner = self.config.languages, type(self).__name__
        language_ids = check_language_ids(language_ids, len(input_ids), languages, owner, language)

        def encode(language: str, rows: torch.LongTensor) -> tuple[torch.Tensor]:
            outputs = self.encoders[language](input_ids[rows], attention_mask[rows], return_dict=True)
            return (outputs.pooler_output,)

        (embedding,) = by_language(language_ids, languages, owner, languages, encode)
        return BaseModelOutputWithPooling(last_hidden_state=embedding[:, None], pooler_output=embedding)


AlignedConfig.register_for_auto_class()
AlignedModel.register_for_auto_class("AutoModel")

__all__ = ["AlignedModel", "AlignedPreTrainedModel"]
