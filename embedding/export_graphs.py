# SPDX-License-Identifier: Apache-2.0

"""The forward passes that an ONNX graph holds: tensors in, states and vectors out."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers import PreTrainedModel

from modeling_tmde import BagModel
from modeling_tmde.bags import padded_bag
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

    [`BagModel`] reads texts without padding, which no graph can.
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
        embedding = padded_bag(
            input_ids,
            attention_mask.bool(),
            nn.functional.embedding(input_ids, self.table),  # (batch, length, d)
            # The table is weighted already: a graph of 8-bit numbers would round the logarithms.
            torch.zeros_like(input_ids, dtype=self.table.dtype),
            sublinear_counts=self.sublinear_counts,
            normalize=self.normalize,
        )
        return embedding.unsqueeze(1), embedding


def pooled(states: torch.Tensor, attention_mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the vectors (batch, d) of states (batch, length or 1, d).

    Raises:
        TmdeError: A mean is asked for, but there is no state for each token.
    """
    if pooling == "cls":
        return states[:, 0]
    check_token_outputs(states, attention_mask)
    return pool_states(states.float(), attention_mask, "mean")
