# SPDX-License-Identifier: Apache-2.0

"""A bag of weighted subword vectors: the cheapest document embedder, whose cost is that of its tokenizer."""

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from .common import EmbedderPreTrainedModel, TmdeError, check_inputs
from .configuration_bag import BagConfig

SPECIAL_LOG_WEIGHT = (
    -20.0
)  # e^-20 = 2e-9: negligible beside a token, but gives an empty text a direction


class BagPreTrainedModel(EmbedderPreTrainedModel):
    config: BagConfig
    _auto_map = {"AutoConfig": "configuration_bag.BagConfig", "AutoModel": "modeling_bag.BagModel"}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, BagModel):
            # Copy the whole parameter: a slice would not be skipped when it was loaded from a checkpoint.
            init.copy_(module.token_weights, module.initial_token_weights())


class BagModel(BagPreTrainedModel):
    """
    Documents in, embeddings out: `P = sum_t exp(w_t) E_t` over the tokens t of a text, scaled to length 1. With
    `sublinear_counts`, the n occurrences of a token in a text count sqrt(n) times together.

    Every entry of the vocabulary has a vector E_t (`embed_tokens`) and a log weight w_t (`token_weights`); the order
    of the tokens does not matter, and texts may have any length. `<s>`, `</s>` and `<pad>` start with so small a
    weight that they only count in a text without other tokens.

    Example:

    ```python
    >>> model = AutoModel.from_pretrained(path)
    >>> inputs = tokenizer(["Das Haus ist alt.", "The house is old."], return_tensors="pt", padding=True)
    >>> model(**inputs).pooler_output  # (2, d_model)
    ```
    """

    def __init__(self, config: BagConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.token_weights = nn.Parameter(torch.zeros(config.vocab_size))
        self.post_init()

    def initial_token_weights(self) -> torch.Tensor:
        """Initial log weights (vocab_size,): 0 for all tokens except the special ones."""
        weights = torch.zeros_like(self.token_weights)
        weights[[token for token in self.config.special_token_ids if token < len(weights)]] = (
            SPECIAL_LOG_WEIGHT
        )
        return weights

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPooling:
        """
        Args:
            input_ids: (batch, length).
            attention_mask: (batch, length), 1 for tokens and 0 for padding, on either side; everything counts when it
                is missing. Padding is not computed.
            inputs_embeds: Not supported: token weights need ids.

        Returns:
            `pooler_output` (batch, d_model): the embedding P. `last_hidden_state` (batch, 1, d_model), whose position
            0 is P, so that CLS pooling gives it too.

        Raises:
            ValueError: If `inputs_embeds` is given, or `input_ids` and `attention_mask` do not fit together.
        """
        if inputs_embeds is not None:
            raise TmdeError(
                "BagModel takes input_ids only: inputs_embeds have no token ids to look up weights by"
            )
        check_inputs(input_ids, None, attention_mask)
        real = (
            torch.ones_like(input_ids, dtype=torch.bool)
            if attention_mask is None
            else attention_mask.bool()
        )
        embedding = self.embed_ragged(input_ids[real], real.sum(dim=1))
        return BaseModelOutputWithPooling(
            last_hidden_state=embedding[:, None], pooler_output=embedding
        )

    def embed_ragged(self, token_ids: torch.LongTensor, lengths: torch.LongTensor) -> torch.Tensor:
        """Embeddings of texts whose token ids are concatenated without padding.

        Args:
            token_ids: (tokens,) int32 or int64, those of the first text, then those of the second, ...
            lengths: (batch,) int64, tokens of each text; their sum is `tokens`. A text of length 0 gets zeros.

        Returns:
            (batch, d_model), in the type of the weights.
        """
        log_weights = self.token_weights[token_ids].float()  # (tokens,)
        if self.config.sublinear_counts:
            texts = torch.arange(len(lengths), device=lengths.device)
            texts = texts.repeat_interleave(lengths, output_size=len(token_ids))
            keys = texts * self.config.vocab_size + token_ids
            _, inverse, counts = torch.unique(keys, return_inverse=True, return_counts=True)
            log_weights = log_weights - counts[inverse].to(log_weights.dtype).log() / 2
        # Relative to the largest weight of the text: in half precision, e^-20 would be 0.
        heaviest = torch.segment_reduce(
            log_weights.detach(), "max", lengths=lengths, initial=-torch.inf
        )  # (batch,)
        weights = torch.exp(
            log_weights - heaviest.repeat_interleave(lengths, output_size=len(token_ids))
        )
        table = self.embed_tokens.weight
        if type(self.embed_tokens) is nn.Embedding and not hasattr(self.embed_tokens, "_hf_hook"):
            summed = nn.functional.embedding_bag(
                token_ids,
                table,
                offsets=(lengths.cumsum(0) - lengths).to(token_ids.dtype),
                mode="sum",
                per_sample_weights=weights.to(table.dtype),
            ).float()  # (batch, d_model)
        else:  # adapters and offloading act where the module is called
            vectors = self.embed_tokens(token_ids).float() * weights[:, None]  # (tokens, d_model)
            summed = torch.segment_reduce(vectors, "sum", lengths=lengths, initial=0.0)
        if self.config.normalize:
            embedding = nn.functional.normalize(summed, dim=-1)
        else:
            embedding = summed * (heaviest.exp() / lengths.clamp(min=1))[:, None]
        return embedding.to(table.dtype)
