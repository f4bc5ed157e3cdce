"""Losses as their papers print them, one scalar at a time in float64."""

import itertools
import math

import torch

from tmde.training.objectives import DistanceConstraint, NtdvDistance


def euclidean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) ** 0.5


def distance(embeddings: torch.Tensor, constraint: DistanceConstraint) -> torch.Tensor:
    """Thesis eq. 4.18-4.20 with every other row a negative; embeddings (languages, rows, d)."""
    languages, rows, _ = embeddings.shape
    loss = torch.zeros((), dtype=torch.float64)
    for a, b in itertools.permutations(range(languages), 2):
        matrix = [
            [euclidean(embeddings[a, i], embeddings[b, j]) for j in range(rows)]
            for i in range(rows)
        ]
        v = torch.ones((), dtype=torch.float64)
        if constraint.normalizer == "pairwise":
            v = sum(sum(row) for row in matrix) / rows**2 + 1e-6
        elif constraint.normalizer == "batch_mean_norm":
            means = [sum(embeddings[language]) / rows for language in (a, b)]
            v = sum(euclidean(mean, torch.zeros_like(mean)) for mean in means) / 2 + 1e-6
        for i in range(rows):
            positive = matrix[i][i] / v
            loss = loss + positive
            for j in range(rows):
                delta = constraint.margin - (matrix[i][j] / v - positive)
                if j != i and delta > 0:
                    loss = loss + constraint.hinge_weight * delta / (rows - 1)
    return loss


def infonce(batches: list[torch.Tensor], temperature: float, margin: float = 0.0) -> torch.Tensor:
    """Embeddings (languages, rows, d) by process: texts at the same place among the languages
    are candidates.
    """
    batches = [batch.double() for batch in batches]
    loss = torch.zeros((), dtype=torch.float64)
    for process, batch in enumerate(batches):
        for a, b in itertools.permutations(range(len(batch)), 2):
            candidates = [row for other in batches if len(other) > b for row in other[b]]
            first = sum(other.shape[1] for other in batches[:process] if len(other) > b)
            for i, anchor in enumerate(batch[a]):
                scores = [(anchor * row).sum() / anchor.norm() / row.norm() for row in candidates]
                scores[first + i] = scores[first + i] - margin
                exponentials = [(score / temperature).exp() for score in scores]
                loss = loss - (exponentials[first + i] / sum(exponentials)).log()
    return loss


def ntdv_distance(embeddings: torch.Tensor, objective: NtdvDistance) -> torch.Tensor:
    """Thesis eq. 3.6-3.8 with every other row a negative."""
    languages, rows, _ = embeddings.shape
    norms = [euclidean(x, torch.zeros_like(x)) for language in embeddings for x in language]
    v = sum(norms) / len(norms)
    loss = 0 * embeddings.sum()
    for a, b in itertools.permutations(range(languages), 2):
        for i, j in itertools.permutations(range(rows), 2):
            k = (
                euclidean(embeddings[a, i], embeddings[b, i]) ** 2
                - euclidean(embeddings[a, i], embeddings[b, j]) ** 2
            )
            cost = objective.margin + objective.margin * k / (2 * v + 1)
            if cost > 0:
                loss = loss + cost
    return loss


def alignment_softmax(embeddings: torch.Tensor) -> torch.Tensor:
    """Paper 002, eq. 5."""
    loss = torch.zeros((), dtype=torch.float64)
    for u, v in itertools.combinations(embeddings, 2):
        for j in range(len(u)):
            own = (u[j] * v[j]).sum().exp()
            loss = loss - (own / sum((u[j] * v[k]).sum().exp() for k in range(len(v)))).log()
            loss = loss - (own / sum((u[k] * v[j]).sum().exp() for k in range(len(u)))).log()
    return loss


def similarity_softmax(embeddings: torch.Tensor) -> torch.Tensor:
    """Paper 002, eq. 6."""
    loss = torch.zeros((), dtype=torch.float64)

    def similarity(x, j1, j2):
        return (x[j1] * x[j2]).sum().exp() / sum((x[j1] * row).sum().exp() for row in x)

    for u, v in itertools.combinations(embeddings, 2):
        for j1, j2 in itertools.product(range(len(u)), repeat=2):
            loss = (
                loss - (math.pi / 2 * (similarity(u, j1, j2) - similarity(v, j1, j2))).cos().log()
            )
    return loss


def similarity(embeddings: torch.Tensor) -> torch.Tensor:
    """Paper 001, section 2.2."""
    pairs = itertools.combinations(embeddings, 2)
    return sum(
        sum((p - q) ** 2 for p, q in zip(x.flatten(), y.flatten(), strict=True)) for x, y in pairs
    )


def xnli_alignment(embeddings: torch.Tensor, negative_weight: float) -> torch.Tensor:
    """Paper 004, section 4.2.4, of two rows, each the negative of the other; the first language
    is the source.
    """
    x = embeddings[0].detach()
    return sum(
        euclidean(x[i], y[i])
        - negative_weight * (euclidean(x[1 - i], y[i]) + euclidean(x[i], y[1 - i]))
        for y in embeddings[1:]
        for i in range(2)
    )
