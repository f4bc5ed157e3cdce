"""Approximate search of nearest neighbors by a graph (faiss' HNSW).

A query walks along the graph (Malkov & Yashunin 2018, arXiv 1603.09320). How far it walks is tuned
by random queries, whose neighbors are also searched exactly.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tmde.documents.exact_search import exact_neighbors
from tmde.documents.unit_rows import TIE, UnitRows

logger = logging.getLogger(__name__)

RECALL = 0.95  # share of the exact neighbors for which the graph is tuned
SAMPLE = 256  # queries by which it is tuned
FIRST_EFFORT = 8  # nodes that a query looks at in the first walk
LAST_EFFORT = 4096  # nodes that it looks at most
LINKS = 32  # links of a node of the graph


def graph_neighbors(
    queries: UnitRows, candidates: UnitRows, k: int, last_effort: int, least_recall: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the k nearest candidates of each query that a walk finds.

    The steps of the walk are doubled until 95 % of the exact neighbors are found, and a warning
    tells how many are.

    Args:
        queries: n rows.
        candidates: m rows.
        k: At most m.
        last_effort: The most steps of a walk.
        least_recall: The share of the exact neighbors that must be found.

    Returns:
        Cosines (n, k) float32, falling, and row numbers of the candidates (n, k) int64; None if too
        few neighbors are found.

    Raises:
        ImportError: faiss is not installed.
    """
    graph = _build_graph(candidates)
    effort, recall = _tune(graph, queries, candidates, k, last_effort)
    if recall < least_recall:
        return None
    size = f"{len(queries):,} x {len(candidates):,} x {candidates.shape[1]:,}"
    logger.warning(
        "Approximate search of %s by HNSW (M = %d, efSearch = %d), which finds %.1f %% of the "
        "exact neighbors",
        size,
        LINKS,
        effort,
        100 * recall,
    )
    cosines = np.empty((len(queries), k), np.float32)
    numbers = np.empty((len(queries), k), np.int64)
    for rows, query_block in queries.blocks("Searching"):
        cosines[rows], numbers[rows] = graph.search(query_block, k)
        # Where the graph is not connected, a walk may end before it has found k candidates.
        incomplete = np.flatnonzero((numbers[rows] < 0).any(axis=1))
        if len(incomplete):
            again = UnitRows("queries", query_block[incomplete])
            exact_cosines, exact_numbers = exact_neighbors(again, candidates, k)
            cosines[rows.start + incomplete] = exact_cosines
            numbers[rows.start + incomplete] = exact_numbers
    return np.clip(cosines, -1, 1), numbers


def _build_graph(candidates: UnitRows) -> Any:
    import faiss  # It belongs to the extra `search`.

    graph = faiss.IndexHNSWFlat(candidates.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    for _, candidate_block in candidates.blocks("Indexing"):
        graph.add(candidate_block)
    return graph


def _tune(
    graph: Any, queries: UnitRows, candidates: UnitRows, k: int, last_effort: int
) -> tuple[int, float]:
    """Set the steps of the graph's walks, and return them and the share of neighbors they find."""
    sample_size = min(len(queries), SAMPLE)
    drawn = np.random.default_rng(42).choice(len(queries), sample_size, replace=False)
    sample = UnitRows("sample", queries[np.sort(drawn)])
    exact_cosines, _ = exact_neighbors(sample, candidates, k)
    lowest_cosines = exact_cosines[:, -1:]  # (sample, 1)
    effort = min(FIRST_EFFORT, last_effort)
    while True:
        graph.hnsw.efSearch = effort
        cosines, _ = graph.search(sample[:], k)
        recall = float((cosines >= lowest_cosines - TIE).mean())
        if recall >= RECALL or effort >= last_effort:
            return effort, recall
        effort = min(2 * effort, last_effort)
