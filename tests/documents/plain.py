"""Scores of all pairs by loops over Python floats, which searches are compared with."""

import numpy as np


def unit(vectors):
    rows = []
    for row in vectors.tolist():
        norm = sum(x * x for x in row) ** 0.5 or 1.0
        rows.append([x / norm for x in row])
    return rows


def product(x, y):
    return sum(p * q for p, q in zip(x, y, strict=True))


def mean_of_highest(values, k):
    highest = sorted(values)[-k:]
    return sum(highest) / len(highest)


def plain_score(scoring, cosine, mean):
    if scoring == "cosine":
        return cosine
    if scoring == "distance":
        return cosine - mean
    if mean > 1e-6:
        return cosine / mean
    return (cosine - 3) / 1e-6  # Pairs without a ratio come last, by cosine.


def plain_scores(first, second, scoring, k):
    """Cosines, means m(x, y) of the k nearest, and scores: (n, m) each."""
    first_rows = unit(first)
    second_rows = unit(second)
    cosines = np.zeros((len(first_rows), len(second_rows)))
    for i, x in enumerate(first_rows):
        for j, y in enumerate(second_rows):
            cosines[i, j] = product(x, y)
    first_means = [mean_of_highest(row, k) for row in cosines.tolist()]
    second_means = [mean_of_highest(column, k) for column in cosines.T.tolist()]
    means = np.zeros_like(cosines)
    scores = np.zeros_like(cosines)
    for i, j in np.ndindex(cosines.shape):
        means[i, j] = (first_means[i] + second_means[j]) / 2
        scores[i, j] = plain_score(scoring, cosines[i, j], means[i, j])
    return cosines, means, scores
