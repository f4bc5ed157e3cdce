"""The distance cost of cNV: translations nearer than other sentences, by squared distances and a wide margin."""

import itertools

import torch

from tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput, check_range


class NtdvDistance(EmbeddingObjective):
    """
    Distance cost of cNV (thesis eq. 3.6-3.8) for every ordered pair of languages of a row.

    With `|.|` the Frobenius norm of the matrix of context vectors, which is the Euclidean norm of these after one
    another, `k_j = |P_a - P_b|^2 - |P_a - P_b_j|^2` and `l_j = max(0, margin + margin * k_j / (2 * v + 1))`, a row
    costs `sum_j l_j` for a -> b over `N_s` sentences `b_j` of language b drawn from the same micro-batch; a sentence
    is never its own negative. `v` is the mean norm over all texts of the micro-batch.

    Args:
        weight: beta, 0.5 in the thesis. Eq. 3.8 adds one such cost a pair of texts, here the mean of both directions,
            and the translation costs of both directions, whose mean then weighs 2 * (1 - beta).
        margin: alpha, 2 * sqrt(d_h) in the thesis: 64 for its d_h of 1024.
        negatives: N_s, 20. A batch with fewer other rows uses all of them, whose mean then counts N_s times.

    Inputs: embeddings (languages, rows, d), the context vectors of a model that has several.

    Raises:
        ValueError: On a margin that is not above 0, or fewer than one negative.

    Example:

    ```python
    >>> objective = NtdvDistance(margin=2 * 1024**0.5)
    >>> output = objective(context)  # (2, 80, 4096)
    >>> loss = objective.weight * output.loss / (2 * 80)
    ```
    """

    takes_context = both_directions = True

    def __init__(self, weight: float = 0.5, margin: float = 64.0, negatives: int = 20):
        super().__init__(weight)
        check_range("ntdv_distance margin", margin, "(0, inf)")
        check_range("ntdv_distance negatives", negatives, "[1, inf)")
        self.margin = margin
        self.negatives = negatives

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        embeddings = embeddings.float()  # squared distances of close vectors cancel in bf16
        norm = torch.linalg.vector_norm(embeddings, dim=-1).mean()  # v
        found = []
        for a, b in itertools.combinations(range(len(embeddings)), 2):
            distances = _squared_distances(embeddings[a], embeddings[b])  # (rows of a, rows of b)
            # Apart from the matrix product, which loses the small distances of good translations.
            positive = (embeddings[a] - embeddings[b]).pow(2).sum(-1)  # (rows,)
            for others in (distances, distances.T):  # a -> b, then b -> a
                costs, negative = self._costs(positive, others, norm)
                found.append(torch.stack([costs, positive, negative]))
        loss, positive, negative = torch.stack(found).sum(dim=(0, 2))
        sums = {"loss": loss, "positive": positive, "negative": negative}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in sums.items()})

    def _costs(
        self, positive: torch.Tensor, distances: torch.Tensor, norm: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cost of each row and its mean squared distance to the negatives, both (rows,), from the squared distances
        of translations (rows,), those to all rows (rows, rows), and `v`."""
        rows = len(positive)
        if rows < 2:
            return positive * 0, torch.zeros_like(positive)
        chosen = min(self.negatives, rows - 1)
        # The largest of independent random numbers are a draw without replacement.
        ranks = torch.rand(rows, rows, device=distances.device).fill_diagonal_(-1)
        drawn = distances.gather(1, ranks.topk(chosen, dim=1).indices)  # (rows, chosen)
        costs = (
            self.margin + self.margin * (positive[:, None] - drawn) / (2 * norm + 1)
        ).clamp_min(0)
        return costs.mean(1) * self.negatives, drawn.mean(1)


def _squared_distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(rows of a, rows of b) from (rows, d) each."""
    with torch.autocast(a.device.type, enabled=False):  # which would multiply in half precision
        products = a @ b.T
    return (a.pow(2).sum(-1)[:, None] + b.pow(2).sum(-1) - 2 * products).clamp_min(0)
