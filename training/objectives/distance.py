"""The distance constraint of cT-MDE: translations together, other sentences a margin further away."""

import itertools
from typing import Literal

import torch
from torch.distributed.nn.functional import all_reduce

from modeling_tmde.training.objectives.base import EmbeddingObjective, ObjectiveOutput, check_range
from modeling_tmde.training.objectives.gather import gather_rows, num_processes


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
        normalizer_gradient: Whether gradients flow through `v`.
        epsilon: Added to `v`.
        gather: In training on several processes, draw negatives from all of them and take `v` over all their rows,
            gradients flowing to both sides: the loss of one process whose micro-batch holds all rows. Off by default:
            a recipe then gives the same result on any number of processes, which do what one does that accumulates,
            and `negatives` are as many either way. Language b of another process is the one at the same place among
            its languages, whichever it is. Evaluation never gathers.

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
        normalizer_gradient: bool = True,
        epsilon: float = 1e-6,
        gather: bool = False,
    ):
        super().__init__(weight)
        check_range("distance negatives", negatives, "[1, inf)")
        self.margin = margin
        self.hinge_weight = hinge_weight
        self.negatives = negatives
        self.normalizer = normalizer
        self.normalizer_gradient = normalizer_gradient
        self.epsilon = epsilon
        self.gather = gather

    def forward(self, embeddings: torch.Tensor) -> ObjectiveOutput:
        embeddings = embeddings.float()  # distances of close vectors cancel in bf16
        # An evaluation has the same rows on every process, or runs on the first alone.
        gathered = gather_rows(embeddings) if self.gather and self.training and num_processes() > 1 else None
        pairs, sums = [], {}
        for a, b in itertools.combinations(range(len(embeddings)), 2):
            all_a, all_b, first = embeddings[a], embeddings[b], 0
            if gathered is not None:  # of the processes that have both languages
                (all_a, first), (all_b, _) = (gathered.rows(language, b + 1) for language in (a, b))
            forth = torch.cdist(embeddings[a], all_b)  # (rows of a, all rows of b)
            back = forth.T if gathered is None else torch.cdist(embeddings[b], all_a)
            # Separate from cdist, whose matrix product loses the small distances of good translations.
            positive = torch.linalg.vector_norm(embeddings[a] - embeddings[b], dim=-1)  # (rows,)
            sums[a, b] = forth.sum() - forth.diagonal(first).sum() + positive.sum()
            pairs.append(((a, b), positive, (forth, back), first, torch.stack([all_a, all_b])))
        if gathered is not None and self.normalizer == "pairwise":
            # Every process exchanges as many sums, also one whose rows have fewer languages.
            keys = list(itertools.combinations(range(gathered.vectors.shape[1]), 2))
            own = torch.stack([sums.get(key, embeddings.new_zeros(())) for key in keys])
            sums = dict(zip(keys, all_reduce(own), strict=True))  # gradients flow back to all processes
        positives, hinges, negatives = [], [], []
        for pair, positive, directions, first, rows in pairs:
            normalizer = self._normalizer(sums[pair], rows)
            positive = positive / normalizer
            for distances in directions:  # a -> b, then b -> a
                negative, hinge = self._negatives(distances / normalizer, positive, first)
                positives.append(positive)
                negatives.append(negative)
                hinges.append(hinge)
        positive, hinge = torch.stack(positives).sum(), torch.stack(hinges).sum()
        loss = positive + self.hinge_weight * hinge
        components = {"loss": loss, "positive": positive, "negative": torch.stack(negatives).sum(), "hinge": hinge}
        return ObjectiveOutput(loss, {name: value.detach() for name, value in components.items()})

    def _normalizer(self, distance_sum: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | float:
        """`v`, from the sum of the distances of all pairs of rows, and the rows (2, rows, d_model)."""
        if self.normalizer == "none":
            return 1.0
        if self.normalizer == "batch_mean_norm":
            value = torch.linalg.vector_norm(rows.mean(dim=1), dim=-1).mean()
        else:
            value = distance_sum / rows.shape[1] ** 2
        value = value + self.epsilon
        return value if self.normalizer_gradient else value.detach()

    def _negatives(
        self, distances: torch.Tensor, positive: torch.Tensor, first: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean distance to the negatives and mean hinge of each row, both (rows,), from distances (rows, others).

        Columns `first`, `first + 1`, ... are the rows' own translations.
        """
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
