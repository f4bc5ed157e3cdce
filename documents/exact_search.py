"""Exact search of nearest neighbors by cosine, in blocks."""

from __future__ import annotations

import numpy as np

from tmde.documents.unit_rows import UnitRows, largest, products


def exact_neighbors(
    queries: UnitRows, candidates: UnitRows, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k candidates of highest cosine to each query.

    Args:
        queries: n rows.
        candidates: m rows.
        k: At most m.

    Returns:
        Cosines (n, k) float32, falling, and row numbers of the candidates (n, k) int64, equal
        cosines in order of row number.
    """
    best_cosines = np.full((len(queries), k), -np.inf, np.float32)
    best_candidates = np.full((len(queries), k), len(candidates), np.int64)
    for columns, candidate_block in candidates.blocks("Searching"):
        block_k = min(k, candidate_block.shape[0])
        for rows, query_block in queries.blocks():
            cosines, places = largest(products(query_block, candidate_block), block_k)
            best_cosines[rows], best_candidates[rows] = merge_neighbors(
                (best_cosines[rows], best_candidates[rows]), (cosines, places + columns.start), k
            )
    return np.clip(best_cosines, -1, 1), best_candidates


def merge_neighbors(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest of two lists of neighbors of the same queries.

    Args:
        first: Cosines and numbers of the neighbors of each query, (q, a) each.
        second: Those of other candidates, (q, b) each.
        k: The number of neighbors, at most a + b.

    Returns:
        Cosines (q, k), falling, and numbers (q, k), equal cosines in order of number.
    """
    cosines = np.hstack([first[0], second[0]])  # (q, a + b)
    numbers = np.hstack([first[1], second[1]])
    order = np.lexsort((numbers, -cosines), axis=1)[:, :k]
    return np.take_along_axis(cosines, order, axis=1), np.take_along_axis(numbers, order, axis=1)
