"""Which texts of two languages are translations, from how much nearer they are than any other text.

Cosines of documents depend on how much the documents of a collection have in common: on one site,
all pages share words and topics. So the distance of a pair is compared with that of the next best
text, as Lowe's ratio test does for the points of two pictures ("Distinctive Image Features from
Scale-Invariant Keypoints", 2004, section 7.1). The distinctness of a pair with the cosine c, whose
texts have the cosine s to the nearest other text of the other language, is

    1 - (1 - c) / (1 - s)

It is 1 if both vectors are equal, and 0 if another text is as near. It needs no fit to a model or
to the length of texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.neighbors import find_neighbors
from tmde.documents.unit_rows import Matrix

_COMPARED = 2  # the nearest text of the other language, and the next one
# The least cosine of the next text that counts: texts have that of unrelated ones at least.
_UNRELATED = 0.0
_SMALLEST_DISTANCE = 1e-6  # that of a copy of the translation


class DistinctPairs(NamedTuple):
    """Pairs of rows that are nearest to each other.

    Attributes:
        first: The row numbers on the first side, (p,).
        second: Those on the second side, (p,).
        distinctness: How much nearer they are than the next best, (p,) float64, from 0 to 1.
    """

    first: np.ndarray
    second: np.ndarray
    distinctness: np.ndarray


def check_min_distinctness(distinctness: float | None) -> None:
    """Raise `TmdeError` if the lowest distinctness of a pair is out of range."""
    if distinctness is not None and not 0 <= distinctness <= 1:
        raise TmdeError(f"min_distinctness: found {distinctness}, expected 0 to 1")


def distinctness_of(cosines: np.ndarray, next_cosines: np.ndarray) -> np.ndarray:
    """Return how much nearer p pairs are than the next best, (p,) float64 from 0 to 1.

    Args:
        cosines: The cosine of each pair, (p,).
        next_cosines: The cosine of one of its texts to the nearest other text, the higher, (p,).
    """
    next_distances = np.maximum(1 - np.maximum(next_cosines, _UNRELATED), _SMALLEST_DISTANCE)
    return np.clip(1 - (1 - cosines) / next_distances, 0, 1)


def distinct_pairs(first: Matrix, second: Matrix, search: str = "auto") -> DistinctPairs:
    """Return the pairs whose rows are nearest to each other, with their distinctness.

    Args:
        first: The vectors of the texts of one language, (n, d).
        second: Those of the other language, (m, d).
        search: `auto`, `exact` or `hnsw`; see [`~tmde.documents.neighbors.find_neighbors`].

    Returns:
        At most min(n, m) pairs, in the order of the rows of the first side.
    """
    forward_cosines, forward_rows = find_neighbors(first, second, _COMPARED, search)
    backward_cosines, backward_rows = find_neighbors(second, first, _COMPARED, search)
    first_rows = np.arange(len(forward_rows))
    nearest = forward_rows[:, 0]
    are_mutual = backward_rows[nearest, 0] == first_rows
    first_rows = first_rows[are_mutual]
    second_rows = nearest[are_mutual]
    cosines = forward_cosines[first_rows, 0].astype(np.float64)
    next_cosines = np.full(len(first_rows), _UNRELATED)
    if forward_cosines.shape[1] == _COMPARED:
        next_cosines = np.maximum(next_cosines, forward_cosines[first_rows, 1])
    if backward_cosines.shape[1] == _COMPARED:
        next_cosines = np.maximum(next_cosines, backward_cosines[second_rows, 1])
    return DistinctPairs(first_rows, second_rows, distinctness_of(cosines, next_cosines))
