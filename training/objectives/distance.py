"""The distance constraint of cT-MDE: translations together, other sentences further away."""

import itertools
from typing import Literal

import torch

from tmde.training.objectives.base import (
    BatchSizes,
    EmbeddingObjective,
    ObjectiveOutput,
    check_range,
)
from tmde.training.objectives.sampling import draw_other_rows

EPSILON = 1e-6  # It keeps `v` above 0.


class DistanceConstraint(EmbeddingObjective):
    """Pull translations together and push other sentences beyond a margin.

    This is the distance constraint of cT-MDE (Li, 2021, eq. 4.18-4.21), for every ordered pair of
    languages in a row.

    With Euclidean distance `d`, normalizer `v`, `d_p = d(P_a, P_b) / v`, `d_n = d(P_a, P_b_j) / v`
    and `delta_j = max(0, margin - (d_n - d_p))`, a row costs `d_p + hinge_weight / N_s * sum_j
    delta_j` for a -> b. The `N_s` negatives `b_j` are other sentences of language b from the same
    micro-batch.

    Args:
        weight: The factor of this loss in the total (beta). Default: 0.25 (table 4.7).
        margin: How much farther than the translation a negative must be (alpha). Default: 0.5.
        hinge_weight: The weight of the negatives, relative to the distance to the translation
            (lambda). Default: 1.
        negatives: The number of negatives per sentence (N_s), at most all other rows of the batch.
            Default: 40.
        normalizer: How distances are scaled (v). `"pairwise"`: by the mean distance over all pairs
            in the batch. `"batch_mean_norm"`: by `(|mean P_a| + |mean P_b|) / 2`, with means over
            the batch, as in Li's code. `"none"`: not at all.

    Inputs: embeddings (languages, rows, d_model).

    Raises:
        TmdeError: `negatives` is below 1.

    Example:
        ```python
        import torch

        from tmde import DistanceConstraint

        embeddings = torch.randn(2, 64, 128)  # (languages, rows, d_model)
        objective = DistanceConstraint(weight=0.25)
        output = objective(embeddings)
        loss = objective.weight * output.loss / (2 * 64)
        ```
    """

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

    def count(self, sizes: BatchSizes) -> int:
        """Return one term per row and ordered pair of languages."""
        return sizes.ordered_pairs

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        """Return the loss, and the distances to translations and to negatives."""
        embeddings = embeddings.float()  # In bf16, distances of close vectors cancel.
        positives = []
        negatives = []
        hinges = []
        for a, b in itertools.combinations(embeddings, 2):
            distances = torch.cdist(a, b)  # (rows, rows)
            # Separate from cdist, whose matrix product loses the small distances of translations.
            positive = torch.linalg.vector_norm(a - b, dim=-1)  # (rows,)
            normalizer = self._normalizer(a, b, distances, positive)
            positive = positive / normalizer
            for directed in (distances, distances.T):  # a -> b, then b -> a
                negative, hinge = self._negatives(directed / normalizer, positive)
                positives.append(positive)
                negatives.append(negative)
                hinges.append(hinge)
        positive = torch.stack(positives).sum()
        hinge = torch.stack(hinges).sum()
        loss = positive + self.hinge_weight * hinge
        components = {
            "loss": loss.detach(),
            "positive": positive.detach(),
            "negative": torch.stack(negatives).sum().detach(),
            "hinge": hinge.detach(),
        }
        return ObjectiveOutput(loss, components)

    def _normalizer(
        self, a: torch.Tensor, b: torch.Tensor, distances: torch.Tensor, positive: torch.Tensor
    ) -> torch.Tensor | float:
        """Return `v`.

        Args:
            a: (rows, d_model).
            b: (rows, d_model).
            distances: All distances (rows of a, rows of b).
            positive: The exact distances of translations (rows,).
        """
        if self.normalizer == "none":
            return 1.0
        if self.normalizer == "batch_mean_norm":
            means = torch.stack([a, b]).mean(dim=1)  # (2, d_model)
            mean_norm: torch.Tensor = torch.linalg.vector_norm(means, dim=-1).mean()
            return mean_norm + EPSILON
        total = distances.sum() - distances.diagonal().sum() + positive.sum()
        return total / len(a) ** 2 + EPSILON

    def _negatives(
        self, distances: torch.Tensor, positive: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row's mean distance to its negatives and its mean hinge, (rows,) each.

        Args:
            distances: (rows, rows).
            positive: The distances of translations (rows,).
        """
        num_rows = len(distances)
        number = min(self.negatives, num_rows - 1)
        if number == 0:
            return torch.zeros_like(positive), torch.zeros_like(positive)
        other_rows = draw_other_rows(num_rows, number, distances.device)
        drawn = distances.gather(1, other_rows)  # (rows, number)
        hinge = (self.margin - (drawn - positive[:, None])).clamp_min(0)
        return drawn.mean(1), hinge.mean(1)
