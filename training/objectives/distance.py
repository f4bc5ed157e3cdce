"""The distance constraint of cT-MDE: translations together, other sentences a margin further away."""

import itertools

import torch

from modeling_tmde.training.objectives.base import BatchSizes, EmbeddingObjective, ObjectiveOutput
from modeling_tmde.training.objectives.gather import GatheredRows, gather_rows, num_processes, sum_over_processes

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
        gather: In training on several processes, draw negatives from all of them and take `v` over all their rows,
            gradients flowing to both sides: the loss of one process whose micro-batch holds all rows. Off by default:
            a recipe then gives the same result on any number of processes, which do what one does that accumulates,
            and `negatives` are as many either way. Language b of another process is the one at the same place among
            its languages, whichever it is. Evaluation never gathers.

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
        gather: bool = False,
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
        self.gather = gather

    def count(self, sizes: BatchSizes) -> int:
        return sizes.ordered_pairs

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        embeddings = embeddings.float()  # distances of close vectors cancel in bf16
        if self.gather and self.training and num_processes() > 1:
            pairs = self._pairs_of_all_processes(embeddings)
        else:
            pairs = self._pairs(embeddings)
        positives, hinges, negatives = [], [], []
        for positive, normalizer, directions in pairs:
            positive = positive / normalizer
            for distances, first in directions:  # a -> b, then b -> a
                negative, hinge = self._negatives(distances / normalizer, positive, first)
                positives.append(positive)
                negatives.append(negative)
                hinges.append(hinge)
        positive, hinge = torch.stack(positives).sum(), torch.stack(hinges).sum()
        loss = positive + self.hinge_weight * hinge
        components = {"loss": loss, "positive": positive, "negative": torch.stack(negatives).sum(), "hinge": hinge}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in components.items()})

    def _pairs(self, embeddings: torch.Tensor):
        """For every pair of languages the distances (rows,) of translations, `v`, and of either direction the
        distances (rows, others) and the column of the first row's translation."""
        for a, b in itertools.combinations(range(len(embeddings)), 2):
            distances = torch.cdist(embeddings[a], embeddings[b])  # (rows of a, rows of b)
            # Taken apart from cdist, whose matrix product loses the small distances of good translations.
            positive = torch.linalg.vector_norm(embeddings[a] - embeddings[b], dim=-1)  # (rows,)
            normalizer = self._normalizer(_sum_of(distances, positive, 0), len(positive), embeddings[[a, b]])
            yield positive, normalizer, ((distances, 0), (distances.T, 0))

    def _pairs_of_all_processes(self, embeddings: torch.Tensor):
        """As `_pairs`, where the others are the rows of all processes that have both languages."""
        gathered = gather_rows(embeddings)
        pairs = list(itertools.combinations(range(len(embeddings)), 2))
        found, sums = [], {}
        for a, b in pairs:
            positive = torch.linalg.vector_norm(embeddings[a] - embeddings[b], dim=-1)  # (rows,)
            (all_a, first), (all_b, _) = (gathered.rows(language, b + 1) for language in (a, b))
            forth = torch.cdist(embeddings[a], all_b)  # (rows of a, rows of b of all processes)
            back = torch.cdist(embeddings[b], all_a)
            sums[a, b] = _sum_of(forth, positive, first)
            found.append((positive, torch.stack([all_a, all_b]), ((forth, first), (back, first))))
        if self.normalizer == "pairwise":
            sums = self._sums_of_all_processes(sums, gathered)
        for pair, (positive, rows, directions) in zip(pairs, found, strict=True):
            yield positive, self._normalizer(sums[pair], rows.shape[1], rows), directions

    @staticmethod
    def _sums_of_all_processes(sums: dict, gathered: GatheredRows) -> dict:
        """Sums over all processes, in one exchange that is the same for a process with fewer languages."""
        most_languages = gathered.vectors.shape[1]
        every_pair = list(itertools.combinations(range(most_languages), 2))
        zero = next(iter(sums.values())).new_zeros(())
        totals = sum_over_processes(torch.stack([sums.get(pair, zero) for pair in every_pair]))
        return dict(zip(every_pair, totals, strict=True))

    def _normalizer(self, distance_sum: torch.Tensor, rows: int, embeddings: torch.Tensor) -> torch.Tensor | float:
        """`v`, from the sum of the distances of all `rows ** 2` pairs, and the rows (2, rows, d_model)."""
        if self.normalizer == "none":
            return 1.0
        if self.normalizer == "batch_mean_norm":
            value = torch.linalg.vector_norm(embeddings.mean(dim=(0, 1)))
        else:
            value = distance_sum / rows**2
        value = value + self.epsilon
        return value if self.normalizer_gradient else value.detach()

    def _negatives(
        self, distances: torch.Tensor, positive: torch.Tensor, first: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean distance to the negatives and mean hinge of each row, both (rows,), from distances (rows, others), of
        whom those from `first` on are the rows' own translations."""
        rows, others = distances.shape
        if others < 2:
            return torch.zeros_like(positive), torch.zeros_like(positive)
        chosen = min(self.negatives, others - 1)
        own = torch.arange(first, first + rows, device=distances.device)[:, None]
        if chosen == others - 1:
            mask = torch.ones_like(distances, dtype=torch.bool).scatter_(1, own, False)
        else:
            # The largest of independent random numbers are a draw without replacement.
            ranks = torch.rand(rows, others, device=distances.device).scatter_(1, own, -1)
            mask = torch.zeros_like(ranks, dtype=torch.bool).scatter_(1, ranks.topk(chosen, dim=1).indices, True)
        hinge = (self.margin - (distances - positive[:, None])).clamp_min(0)  # (rows, others)
        return (distances * mask).sum(1) / chosen, (hinge * mask).sum(1) / chosen


def _sum_of(distances: torch.Tensor, positive: torch.Tensor, first: int) -> torch.Tensor:
    """The sum of distances (rows, others); those of translations, in columns from `first` on, are in `positive`."""
    return distances.sum() - distances.diagonal(first).sum() + positive.sum()
