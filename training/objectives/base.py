"""What every objective is: a weighted sum over a batch, and the number of things it sums over."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass(frozen=True)
class BatchSizes:
    """Sizes of one micro-batch, known before any forward pass.

    Attributes:
        rows: Parallel rows.
        languages: Languages of each row.
        directions: Translation directions, (source, pivot) pairs.
        target_tokens: Target tokens of all directions together, `</s>` counted and padding not.
    """

    rows: int
    languages: int
    directions: int
    target_tokens: int


@dataclass
class ObjectiveOutput:
    """`loss` and every component are sums over the batch; the trainer divides them by the objective's count over
    all micro-batches and processes of an optimizer step, so that neither changes the gradient."""

    loss: torch.Tensor
    components: dict[str, torch.Tensor] = field(default_factory=dict)


class Objective(nn.Module):
    """Base of all losses.

    Args:
        weight: Factor of this loss in the total.
    """

    # Whether the decoder is needed, and whether the embedding of every language of a row is.
    needs_decoder = False
    needs_all_embeddings = False

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    def count(self, sizes: BatchSizes) -> int:
        """How many terms the sums of `ObjectiveOutput` have for a batch of these sizes."""
        raise NotImplementedError


class EmbeddingObjective(Objective):
    """A loss on the embeddings of parallel rows alone: `forward(embeddings)` with embeddings (languages, rows, d)."""

    needs_all_embeddings = True
