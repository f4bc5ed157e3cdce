"""The distance constraint of cT-MDE: translations together, other sentences a margin further away."""

import itertools
from typing import Literal

import torch

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput, check_range

EPSILON = 1e-6  # added to `v`


class DistanceConstraint(EmbeddingObjective):
    """
    Distance constraint (thesis eq. 4.18-4.21) for every ordered pair of languages of a row.

    With `d` the Euclidean distance and `v` the normalizer,
    `d_p = d(P_a, P_b) / v`, `d_n = d(P_a, P_b_j) / v`, `delta_j = max(0, margin - (d_n - d_p))`, and a row costs
    `d_p + hinge_weight / N_s * sum_j delta_j` for a -> b, with `N_s` sentences `b_j` of language b drawn from the same
    micro-batch; a sentence is never its own negative.

    Args:
        weight: beta, 0.25 in the thesis (table 4.7).
        margin: alpha, 0.5.
        hinge_weight: lambda, 1.
        negatives: N_s, 40; a batch with fewer other rows uses all of them.
        normalizer: What `v` is. `"pairwise"`: the mean distance over all pairs of the batch, P_a of any row with
            P_b of any row. `"batch_mean_norm"`: `(|mean P_a| + |mean P_b|) / 2` with means over the batch, as in the
            original code. `"none"`: 1.

    Inputs: embeddings (languages, rows, d_model).

    Raises:
        ValueError: On fewer than one negative.

    Example:

    ```python
    >>> constraint = DistanceConstraint(weight=0.25)
    >>> output = constraint(embeddings)  # (2, 64, 1024)
    >>> loss = constraint.weight * output.loss / (2 * 64)
    ```
    """

    both_directions = True

    def __init__(
        self,
        weight: float = 0.25,
        margin: float = 0.5,
        hinge_weight: float = 1.0,
        negatives: int = 40,
        normalizer: Literal["pairwise", "batch_mean_norm", "none"] = "pairwise",
    ):
        super().__init__(weight)
        check_range("distance negatives", negatives, "[1, inf)")
        self.margin = margin
        self.hinge_weight = hinge_weight
        self.negatives = negatives
        self.normalizer = normalizer

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        embeddings = embeddings.float()  # distances of close vectors cancel in bf16
        positives, hinges, negatives = [], [], []
        for a, b in itertools.combinations(embeddings, 2):
            distances = torch.cdist(a, b)  # (rows, rows)
            # Separate from cdist, whose matrix product loses the small distances of good translations.
            positive = torch.linalg.vector_norm(a - b, dim=-1)  # (rows,)
            normalizer = self._normalizer(a, b, distances, positive)
            positive = positive / normalizer
            for directed in (distances, distances.T):  # a -> b, then b -> a
                negative, hinge = self._negatives(directed / normalizer, positive)
                positives.append(positive)
                negatives.append(negative)
                hinges.append(hinge)
        positive, hinge = torch.stack(positives).sum(), torch.stack(hinges).sum()
        loss = positive + self.hinge_weight * hinge
        components = {
            "loss": loss,
            "positive": positive,
            "negative": torch.stack(negatives).sum(),
            "hinge": hinge,
        }
        return ObjectiveOutput(loss, {name: value.detach() for name, value in components.items()})

    def _normalizer(
        self, a: torch.Tensor, b: torch.Tensor, distances: torch.Tensor, positive: torch.Tensor
    ) -> torch.Tensor | float:
        """`v` of rows a and b (rows, d_model), from the distances of all pairs (rows, rows) and of translations."""
        if self.normalizer == "none":
            return 1.0
        if self.normalizer == "batch_mean_norm":
            return (
                torch.linalg.vector_norm(torch.stack([a, b]).mean(dim=1), dim=-1).mean() + EPSILON
            )
        return (distances.sum() - distances.diagonal().sum() + positive.sum()) / len(
            a
        ) ** 2 + EPSILON

    def _negatives(
        self, distances: torch.Tensor, positive: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean distance to the negatives and mean hinge of each row, both (rows,), from distances (rows, rows)."""
        others = len(distances) - 1
        if not others:
            return torch.zeros_like(positive), torch.zeros_like(positive)
        chosen = min(self.negatives, others)
        # The largest of independent random numbers are a draw without replacement; a row's own translation is last.
        ranks = torch.rand(distances.shape, device=distances.device).fill_diagonal_(-1)
        drawn = distances.gather(1, ranks.topk(chosen, dim=1).indices)  # (rows, chosen)
        hinge = (self.margin - (drawn - positive[:, None])).clamp_min(0)
        return drawn.mean(1), hinge.mean(1)
