"""The distance constraint of cT-MDE: translations together, other sentences a margin further away."""

import torch

from modeling_tmde.training.objectives.base import BatchSizes, EmbeddingObjective, ObjectiveOutput

NORMALIZERS = ("pairwise", "batch_mean_norm", "none")


class DistanceConstraint(EmbeddingObjective):
    """
    Distance constraint (thesis eq. 4.18-4.21) for every ordered pair of languages of a row.

    With `d` the Euclidean distance and `v` the normaliser,
    `d_p = d(P_a, P_b) / v`, `d_n = d(P_a, P_b_j) / v`, `delta_j = max(0, margin - (d_n - d_p))`, and a row costs
    `d_p + hinge_weight / N_s * sum_j delta_j` for a -> b, with `N_s` sentences `b_j` of language b drawn from the same
    micro-batch; a sentence is never its own negative.

    Args:
        weight: beta, 0.25 in the thesis (table 4.7).
        margin: alpha, 0.5.
        hinge_weight: lambda, 1.
        negatives: N_s, 40; a batch with fewer other rows uses all of them.
        normalizer: What `v` is. `"pairwise"`: the mean distance over all pairs of the batch, P_a of any row with
            P_b of any row. `"batch_mean_norm"`: the norm of the mean of P_a and P_b over the batch (what the original
            code used). `"none"`: 1.
        normalizer_gradient: Whether gradients flow through `v`.
        epsilon: Added to `v`.

    Inputs: embeddings (languages, rows, d_model).

    Raises:
        ValueError: On an unknown normaliser or fewer than one negative.

    Example:

    ```python
    >>> constraint = DistanceConstraint(weight=0.25)
    >>> output = constraint(embeddings)  # (2, 64, 1024)
    >>> loss = constraint.weight * output.loss / (2 * 64)
    ```
    """

    def __init__(
        self,
        weight: float = 0.25,
        margin: float = 0.5,
        hinge_weight: float = 1.0,
        negatives: int = 40,
        normalizer: str = "pairwise",
        normalizer_gradient: bool = True,
        epsilon: float = 1e-6,
    ):
        super().__init__(weight)
        if normalizer not in NORMALIZERS:
            raise ValueError(f"distance normalizer {normalizer!r} is unknown; choose one of {', '.join(NORMALIZERS)}")
        if negatives < 1:
            raise ValueError(f"negatives={negatives} must be at least 1")
        self.margin = margin
        self.hinge_weight = hinge_weight
        self.negatives = negatives
        self.normalizer = normalizer
        self.normalizer_gradient = normalizer_gradient
        self.epsilon = epsilon

    def count(self, sizes: BatchSizes) -> int:
        return sizes.rows * sizes.languages * (sizes.languages - 1)

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        embeddings = embeddings.float()  # distances of close vectors cancel in bf16
        num_languages, num_rows, _ = embeddings.shape
        positives, hinges, negatives = [], [], []
        for a in range(num_languages):
            for b in range(a + 1, num_languages):
                distances = torch.cdist(embeddings[a], embeddings[b])  # (rows of a, rows of b)
                # Taken apart from cdist, whose matrix product loses the small distances of good translations.
                positive = torch.linalg.vector_norm(embeddings[a] - embeddings[b], dim=-1)  # (rows,)
                normalizer = self._normalizer(distances, positive, embeddings[[a, b]])
                positive, distances = positive / normalizer, distances / normalizer
                for direction in (distances, distances.T):  # a -> b, then b -> a
                    negative, hinge = self._negatives(direction, positive)
                    positives.append(positive)
                    negatives.append(negative)
                    hinges.append(hinge)
        positive, hinge = torch.stack(positives).sum(), torch.stack(hinges).sum()
        loss = positive + self.hinge_weight * hinge
        components = {"loss": loss, "positive": positive, "negative": torch.stack(negatives).sum(), "hinge": hinge}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in components.items()})

    def _normalizer(
        self, distances: torch.Tensor, positive: torch.Tensor, embeddings: torch.Tensor
    ) -> torch.Tensor | float:
        if self.normalizer == "none":
            return 1.0
        if self.normalizer == "batch_mean_norm":
            value = torch.linalg.vector_norm(embeddings.mean(dim=(0, 1)))
        else:
            rows = distances.shape[0]
            value = (distances.sum() - distances.diagonal().sum() + positive.sum()) / rows**2
        value = value + self.epsilon
        return value if self.normalizer_gradient else value.detach()

    def _negatives(self, distances: torch.Tensor, positive: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean distance to the negatives and mean hinge of each row, both (rows,), from distances (rows, others)."""
        rows = distances.shape[0]
        if rows < 2:
            return torch.zeros_like(positive), torch.zeros_like(positive)
        chosen = min(self.negatives, rows - 1)
        if chosen == rows - 1:
            mask = ~torch.eye(rows, dtype=torch.bool, device=distances.device)
        else:
            # The largest of independent random numbers are a draw without replacement.
            ranks = torch.rand(rows, rows, device=distances.device).fill_diagonal_(-1)
            mask = torch.zeros_like(ranks, dtype=torch.bool).scatter_(1, ranks.topk(chosen, dim=1).indices, True)
        hinge = (self.margin - (distances - positive[:, None])).clamp_min(0)  # (rows, others)
        return (distances * mask).sum(1) / chosen, (hinge * mask).sum(1) / chosen
