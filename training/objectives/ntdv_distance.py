"""The distance cost of cNV: translations nearer than other sentences, by squared distances."""

import itertools

import torch

from tmde.training.objectives.base import (
    BatchSizes,
    Objective,
    ObjectiveOutput,
    Requirements,
    check_range,
)
from tmde.training.objectives.encoded_batch import EncodedBatch
from tmde.training.objectives.sampling import draw_other_rows


class NtdvDistance(Objective):
    """Pull context vectors of translations together and push other sentences beyond a margin.

    This is the distance cost of cNV (Li, 2021, eq. 3.6-3.8), for every ordered pair of languages in
    a row.

    With the Frobenius norm `|.|` of a text's matrix of context vectors, `k_j = |P_a - P_b|^2 - |P_a
    - P_b_j|^2` and `l_j = max(0, margin + margin * k_j / (2 * v + 1))`, a row costs `sum_j l_j` for
    a -> b. The `N_s` negatives `b_j` are other sentences of language b from the same micro-batch.
    `v` is the mean norm over all texts of the micro-batch.

    Args:
        weight: The factor of this loss in the total (beta), 0.5 in the thesis. Eq. 3.8 has one such
            cost per pair of texts (here the mean of both directions) and two translation costs; the
            factor of their mean is 2 * (1 - beta).
        margin: How much farther than the translation a negative must be (alpha): 2 * sqrt(d_h) in
            the thesis, 64 for its d_h of 1024.
        negatives: The number of negatives per sentence (N_s). A batch with fewer other rows uses
            all of them and scales their mean. Default: 20.

    Inputs: embeddings (languages, rows, d), the context vectors of a model that has several.

    Raises:
        TmdeError: The margin is not above 0, or `negatives` is below 1.

    Example:
        ```python
        import torch

        from tmde import NtdvDistance

        context = torch.randn(2, 64, 512)  # (languages, rows, context vectors)
        objective = NtdvDistance(margin=2 * 1024**0.5)
        output = objective(context)
        loss = objective.weight * output.loss / (2 * 64)
        ```
    """

    requirements = Requirements(encoder_states=True)

    def __init__(self, weight: float = 0.5, margin: float = 64.0, negatives: int = 20):
        super().__init__(weight)
        check_range("ntdv_distance margin", margin, "(0, inf)")
        check_range("ntdv_distance negatives", negatives, "[1, inf)")
        self.margin = margin
        self.negatives = negatives

    def count(self, sizes: BatchSizes) -> int:
        """Return one term per row and ordered pair of languages."""
        return sizes.ordered_pairs

    def compute(self, encoded: EncodedBatch) -> ObjectiveOutput:
        """Return the cost of the context vectors."""
        output: ObjectiveOutput = self(encoded.context)
        return output

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        """Return the cost, and the squared distances to translations and to negatives."""
        embeddings = embeddings.float()  # In bf16, squared distances of close vectors cancel.
        norm = torch.linalg.vector_norm(embeddings, dim=-1).mean()  # v of the paper
        sums = []
        for a, b in itertools.combinations(embeddings, 2):
            distances = _squared_distances(a, b)  # (rows of a, rows of b)
            # Apart from the matrix product, which loses the small distances of translations.
            positive = (a - b).pow(2).sum(-1)  # (rows,)
            for directed in (distances, distances.T):  # a -> b, then b -> a
                costs, negative = self._costs(positive, directed, norm)
                sums.append(torch.stack([costs, positive, negative]))
        loss, positive, negative = torch.stack(sums).sum(dim=(0, 2))
        components = {
            "loss": loss.detach(),
            "positive": positive.detach(),
            "negative": negative.detach(),
        }
        return ObjectiveOutput(loss, components)

    def _costs(
        self, positive: torch.Tensor, distances: torch.Tensor, norm: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row's cost and its mean squared distance to the negatives, (rows,) each.

        Args:
            positive: The squared distances of translations (rows,).
            distances: The squared distances of all pairs (rows, rows).
            norm: `v`.
        """
        num_rows = len(positive)
        number = min(self.negatives, num_rows - 1)
        if number == 0:
            return positive * 0, torch.zeros_like(positive)
        other_rows = draw_other_rows(num_rows, number, distances.device)
        drawn = distances.gather(1, other_rows)  # (rows, number)
        differences = self.margin * (positive[:, None] - drawn) / (2 * norm + 1)
        costs = (self.margin + differences).clamp_min(0)
        return costs.mean(1) * self.negatives, drawn.mean(1)


def _squared_distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return (rows of a, rows of b) from (rows, d) each."""
    # Autocast would multiply in half precision.
    with torch.autocast(a.device.type, enabled=False):
        products = a @ b.T
    squares = a.pow(2).sum(-1)[:, None] + b.pow(2).sum(-1)
    return (squares - 2 * products).clamp_min(0)
