"""Losses as their papers print them, one scalar at a time in float64."""

import itertools
import math

import torch

from tmde.training.objectives import DistanceConstraint, NtdvDistance


def squared_euclidean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for p, q in zip(x, y, strict=True):
        total = total + (p - q) ** 2
    return total


def euclidean(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return squared_euclidean(x, y) ** 0.5


def norm(x: torch.Tensor) -> torch.Tensor:
    return euclidean(x, torch.zeros_like(x))


def exponential_of_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum().exp()


def distance(embeddings: torch.Tensor, constraint: DistanceConstraint) -> torch.Tensor:
    """Thesis eq. 4.18-4.20 with every other row a negative; embeddings (languages, rows, d)."""
    loss = torch.zeros((), dtype=torch.float64)
    for x, y in itertools.permutations(embeddings, 2):
        v = distance_normalizer(x, y, constraint.normalizer)
        for i in range(len(x)):
            positive = euclidean(x[i], y[i]) / v
            loss = loss + positive
            for j in range(len(y)):
                delta = constraint.margin - (euclidean(x[i], y[j]) / v - positive)
                if j != i and delta > 0:
                    loss = loss + constraint.hinge_weight * delta / (len(x) - 1)
    return loss


def distance_normalizer(x: torch.Tensor, y: torch.Tensor, kind: str | None) -> torch.Tensor:
    """v of thesis eq. 4.18-4.20 for the embeddings (rows, d) of two languages."""
    if kind == "batch_mean_norm":
        return (norm(sum(x) / len(x)) + norm(sum(y) / len(y))) / 2 + 1e-6
    if kind != "pairwise":
        return torch.ones((), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for p, q in itertools.product(x, y):
        total = total + euclidean(p, q)
    return total / (len(x) * len(y)) + 1e-6


def infonce(batches: list[torch.Tensor], temperature: float, margin: float = 0.0) -> torch.Tensor:
    """InfoNCE of embeddings (languages, rows, d) by process.

    Texts at the same place among the languages are candidates.
    """
    loss = torch.zeros((), dtype=torch.float64)
    for process, batch in enumerate(batches):
        for a, b in itertools.permutations(range(len(batch)), 2):
            candidates = []
            first = 0
            for other_process, other_batch in enumerate(batches):
                if other_process == process:
                    first = len(candidates)
                if len(other_batch) > b:
                    candidates.extend(other_batch[b].double())
            for i, anchor in enumerate(batch[a].double()):
                loss = loss - log_share(anchor, candidates, first + i, temperature, margin)
    return loss


def log_share(
    anchor: torch.Tensor,
    candidates: list[torch.Tensor],
    positive: int,
    temperature: float,
    margin: float,
) -> torch.Tensor:
    """Log of the softmax over cosines at the positive candidate."""
    exponentials = []
    for number, candidate in enumerate(candidates):
        score = (anchor * candidate).sum() / anchor.norm() / candidate.norm()
        if number == positive:
            score = score - margin
        exponentials.append((score / temperature).exp())
    return (exponentials[positive] / sum(exponentials)).log()


def ntdv_distance(embeddings: torch.Tensor, objective: NtdvDistance) -> torch.Tensor:
    """Thesis eq. 3.6-3.8 with every other row a negative."""
    texts = embeddings.flatten(0, 1)
    v = sum(map(norm, texts)) / len(texts)
    loss = 0 * embeddings.sum()
    for x, y in itertools.permutations(embeddings, 2):
        for i, j in itertools.permutations(range(len(x)), 2):
            k = squared_euclidean(x[i], y[i]) - squared_euclidean(x[i], y[j])
            cost = objective.margin + objective.margin * k / (2 * v + 1)
            if cost > 0:
                loss = loss + cost
    return loss


def alignment_softmax(embeddings: torch.Tensor) -> torch.Tensor:
    """Mao et al. (2021), eq. 5."""
    loss = torch.zeros((), dtype=torch.float64)
    for u, v in itertools.combinations(embeddings, 2):
        for j in range(len(u)):
            forward = torch.zeros((), dtype=torch.float64)
            backward = torch.zeros((), dtype=torch.float64)
            for k in range(len(u)):
                forward = forward + exponential_of_product(u[j], v[k])
                backward = backward + exponential_of_product(u[k], v[j])
            positive = exponential_of_product(u[j], v[j])
            loss = loss - (positive / forward).log() - (positive / backward).log()
    return loss


def similarity_softmax(embeddings: torch.Tensor) -> torch.Tensor:
    """Mao et al. (2021), eq. 6."""
    loss = torch.zeros((), dtype=torch.float64)
    for u, v in itertools.combinations(embeddings, 2):
        for j1, j2 in itertools.product(range(len(u)), repeat=2):
            difference = row_similarity(u, j1, j2) - row_similarity(v, j1, j2)
            loss = loss - (math.pi / 2 * difference).cos().log()
    return loss


def row_similarity(x: torch.Tensor, j1: int, j2: int) -> torch.Tensor:
    """Softmax over the rows of one language, of row `j1` at row `j2`."""
    total = torch.zeros((), dtype=torch.float64)
    for row in x:
        total = total + exponential_of_product(x[j1], row)
    return exponential_of_product(x[j1], x[j2]) / total


def similarity(embeddings: torch.Tensor) -> torch.Tensor:
    """Yu et al. (2018), section 2.2."""
    loss = torch.zeros((), dtype=torch.float64)
    for x, y in itertools.combinations(embeddings, 2):
        loss = loss + squared_euclidean(x.flatten(), y.flatten())
    return loss


def xnli_alignment(embeddings: torch.Tensor, negative_weight: float) -> torch.Tensor:
    """Conneau (2019), section 4.2.4, of two rows, each the negative of the other.

    The first language is the source.
    """
    x = embeddings[0].detach()
    loss = torch.zeros((), dtype=torch.float64)
    for y in embeddings[1:]:
        for i in range(2):
            negative = euclidean(x[1 - i], y[i]) + euclidean(x[i], y[1 - i])
            loss = loss + euclidean(x[i], y[i]) - negative_weight * negative
    return loss
