# SPDX-License-Identifier: Apache-2.0

"""The forward passes that an ONNX graph holds: tensors in, states and vectors out."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from modeling_tmde import BagModel
from modeling_tmde.common import pool_states
from modeling_tmde.inspection import is_ours
from tmde.embedding.document_embedder import DocumentEmbedder, check_token_outputs
from tmde.embedding.export_check import weighted_table

# The outputs of every graph, in order.
OUTPUTS = ("last_hidden_state", "sentence_embedding")


def graph_of(embedder: DocumentEmbedder) -> nn.Module:
    """Return the module to trace: `input_ids` and `attention_mask` in, `OUTPUTS` out.

    Args:
        embedder: The model, its tokenizer and its pooling.
    """
    if embedder.model.config.model_type == "tmde_bag":
        return BagGraph(cast(BagModel, embedder.model))
    return EncoderGraph(embedder.model, embedder.pooling)


class EncoderGraph(nn.Module):
    """The forward pass of an encoder, and the pooling of its states."""

    def __init__(self, encoder: PreTrainedModel, pooling: str) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.options = {"pooled_only": True} if is_ours(encoder) else {}

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return states (batch, length or 1, d) and vectors (batch, d)."""
        outputs = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **self.options)
        states: torch.Tensor = outputs[0]
        return states, pooled(states, attention_mask, self.pooling)


class BagGraph(nn.Module):
    """The vectors of a bag in operations that a graph can hold.

    [`BagModel`] reads texts without padding, which no graph can. This form of it reads a padded
    batch. It counts the tokens of a text in a table of one number for each entry of the vocabulary,
    so its memory grows with the length of a text and not with the square of it.
    """

    def __init__(self, bag: BagModel) -> None:
        super().__init__()
        self.sublinear_counts = bag.config.sublinear_counts
        self.normalize = bag.config.normalize
        self.table = nn.Parameter(weighted_table(bag), requires_grad=False)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return states (batch, 1, d) and vectors (batch, d), which are the same numbers."""
        is_token = attention_mask.to(self.table.dtype)  # (batch, length)
        shares = is_token
        if self.sublinear_counts:
            shares = is_token / self._counts(input_ids, is_token).sqrt()
        vectors = nn.functional.embedding(input_ids, self.table)  # (batch, length, d)
        summed = torch.bmm(shares.unsqueeze(1), vectors).squeeze(1)  # (batch, d)
        if self.normalize:
            embedding = nn.functional.normalize(summed, dim=-1)
        else:
            embedding = summed / is_token.sum(dim=1, keepdim=True).clamp(min=1)
        return embedding.unsqueeze(1), embedding

    def _counts(self, input_ids: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
        """Return how often each token occurs in its text, (batch, length), at least 1."""
        counts = is_token.new_zeros(len(input_ids), len(self.table))  # (batch, vocab_size)
        counts = counts.scatter_add(1, input_ids, is_token)
        return counts.gather(1, input_ids).clamp(min=1)


def pooled(states: torch.Tensor, attention_mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the vectors (batch, d) of states (batch, length or 1, d).

    Raises:
        TmdeError: A mean is asked for, but there is no state for each token.
    """
    if pooling == "cls":
        return states[:, 0]
    check_token_outputs(states, attention_mask)
    return pool_states(states.float(), attention_mask, "mean")
