# SPDX-License-Identifier: Apache-2.0

"""A bag of weighted subword vectors: the cheapest document embedder.

Its cost is that of its tokenizer.
"""

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .bags import SPECIAL_LOG_WEIGHT, initial_token_weights, weighted_bag
from .common import EmbedderPreTrainedModel, TmdeError, check_inputs
from .configuration_bag import BagConfig


class BagPreTrainedModel(EmbedderPreTrainedModel):
    """Base of the bag model: its configuration, weights and Auto classes."""

    config: BagConfig
    _auto_map = {"AutoConfig": "configuration_bag.BagConfig", "AutoModel": "modeling_bag.BagModel"}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BagModel):
            # The parameter is copied as a whole: transformers would not skip a slice of one that
            # was loaded from a checkpoint.
            weights = initial_token_weights(self.config, len(module.token_weights))
            init.copy_(module.token_weights, weights)


class BagModel(BagPreTrainedModel):
    """Weighted bag of subword vectors: `P = sum_t exp(w_t) E_t`, scaled to length 1.

    The sum runs over the tokens t of a text, which may have any length. Every vocabulary entry has
    a vector E_t (`embed_tokens`) and a log weight w_t (`token_weights`). `<s>`, `</s>` and `<pad>`
    are initialized with tiny weights, so they only matter in a text without other tokens.

    Example:
        ```python
        from transformers import AutoModel, AutoTokenizer

        import modeling_tmde

        model = AutoModel.from_pretrained("runs/bag")
        tokenizer = AutoTokenizer.from_pretrained("runs/bag")
        texts = ["Das Haus ist alt.", "The house is old."]
        inputs = tokenizer(texts, return_tensors="pt", padding=True)
        embeddings = model(**inputs).pooler_output  # (2, d_model)
        ```
    """

    def __init__(self, config: BagConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.token_weights = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        pooled_only: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Embed texts.

        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding. Default: all ones.
            inputs_embeds: Not supported, because token weights need ids.
            pooled_only: Not used.
            kwargs: Not used.

        Returns:
            `pooler_output` (batch, d_model), the embedding P, and `last_hidden_state` (batch, 1,
            d_model), which contains it for CLS pooling.

        Raises:
            ValueError: `inputs_embeds` are given, or `input_ids` and `attention_mask` do not match.
        """
        if inputs_embeds is not None:
            raise TmdeError(
                "BagModel takes input_ids only, because token weights are looked up by id"
            )
        input_ids = check_inputs(input_ids, None, attention_mask)
        if attention_mask is None:
            is_token = torch.ones_like(input_ids, dtype=torch.bool)
        else:
            is_token = attention_mask.bool()
        embedding = self.embed_ragged(input_ids[is_token], is_token.sum(dim=1))
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None], pooler_output=embedding
        )

    def embed_ragged(self, token_ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Embed texts whose token ids are concatenated without padding.

        Args:
            token_ids: (tokens,) int32 or int64: the ids of the first text, then of the second, and
                so on.
            lengths: (batch,) int64, the number of tokens in each text; they sum to `tokens`. The
                vector of a text of length 0 is zero.

        Returns:
            (batch, d_model), in the type of the weights.
        """
        return weighted_bag(
            token_ids,
            lengths,
            self.embed_tokens,
            self.token_weights,
            sublinear_counts=self.config.sublinear_counts,
            normalize=self.config.normalize,
        )


__all__ = ["SPECIAL_LOG_WEIGHT", "BagModel", "BagPreTrainedModel"]
