"""Fuse the documents that a search has found by meaning with those that it has found by words.

The score of a document is

    (cosine - mean) / deviation + 0.15 BM25

with the mean and the standard deviation of the query's cosines to documents of the index, so that
models whose cosines differ in range weigh the same. BM25 stays as it is. A query in the language of
a document shares many words with it, and a query in another one only names and numbers: so words
weigh as much as they say. Where each list is scaled by itself, or only ranks count (reciprocal rank
fusion, Cormack et al. 2009), a shared name outweighs the meaning. (Bruch et al. 2023, arXiv
2210.11934, compare such functions.) The weight was chosen on development questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

WORD_WEIGHT = 0.15
# A query that is equally near to all documents says nothing, and its cosines are not stretched.
_SMALLEST_DEVIATION = 1e-3

Row = dict[str, Any]
ScoredRows = Sequence[tuple[Row, float]]


def fused_rows(
    nearest: ScoredRows,
    matching: ScoredRows,
    cosines_of_matching: Mapping[str, float],
    background: np.ndarray,
) -> list[tuple[Row, float]]:
    """Return the rows that were found by meaning or by words, and their scores, best first.

    Args:
        nearest: The rows that are nearest by vectors, and their cosines. If they do not match by
            words, they have a BM25 of 0.
        matching: The rows that match by words, and their BM25.
        cosines_of_matching: The cosines of the rows that match by words, by id.
        background: The cosines of the query to documents of the index, (n,); none of an empty one.
    """
    if not len(background):
        return []
    mean = float(background.mean())
    deviation = max(float(background.std()), _SMALLEST_DEVIATION)
    rows: dict[str, Row] = {}
    scores: dict[str, float] = {}
    for row, cosine in nearest:
        rows[row["id"]] = row
        scores[row["id"]] = (cosine - mean) / deviation
    for row, bm25 in matching:
        rows[row["id"]] = row
        by_meaning = (cosines_of_matching[row["id"]] - mean) / deviation
        scores[row["id"]] = by_meaning + WORD_WEIGHT * bm25
    best_ids = sorted(scores, key=lambda id: -scores[id])
    return [(rows[id], scores[id]) for id in best_ids]
