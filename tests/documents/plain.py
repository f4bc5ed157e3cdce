"""Scores of all pairs by loops over Python floats, which searches are compared with; and the memory a search takes."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np


def peak_memory(function: Callable, *arguments: Any, **options: Any) -> tuple[Any, int]:
    """What the function returns, and the bytes that were in use at most."""
    tracemalloc.start()
    try:
        return function(*arguments, **options), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def unit(vectors):
    return [[x / (sum(y * y for y in row) ** 0.5 or 1.0) for x in row] for row in vectors.tolist()]


def plain_scores(first, second, scoring, k):
    """Cosines, means m(x, y) of the k nearest, and scores: (n, m) each."""
    cosines = [
        [sum(p * q for p, q in zip(x, y, strict=True)) for y in unit(second)] for x in unit(first)
    ]

    def mean_of_highest(row):
        return sum(sorted(row)[-k:]) / min(k, len(row))

    of_first, of_second = (
        [mean_of_highest(row) for row in each] for each in (cosines, np.array(cosines).T.tolist())
    )
    means = [[(a + b) / 2 for b in of_second] for a in of_first]

    def score(cosine, mean):
        ratio = (
            cosine / mean if mean > 1e-6 else (cosine - 3) / 1e-6
        )  # the latter come last, by cosine
        return {"cosine": cosine, "distance": cosine - mean, "ratio": ratio}[scoring]

    scores = [
        [score(*each) for each in zip(*rows, strict=True)]
        for rows in zip(cosines, means, strict=True)
    ]
    return np.array(cosines), np.array(means), np.array(scores)
