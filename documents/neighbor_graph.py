"""Approximate search of nearest neighbors by graphs (faiss' HNSW) of vectors in 8 bits.

A query walks along a graph (Malkov & Yashunin 2018, arXiv 1603.09320). How far it walks is tuned by
random queries, whose neighbors are also searched exactly. The candidates that a walk finds are
compared once more, by their vectors themselves.

A graph holds at most a million candidates, about 660 bytes each for 384 numbers. Of more
candidates, each million has a graph of its own, one after the other, so that memory does not grow
with their number.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from tmde.documents.exact_search import exact_neighbors, merge_neighbors
from tmde.documents.unit_rows import TIE, UnitRows

logger = logging.getLogger(__name__)

RECALL = 0.95  # share of the exact neighbors for which a graph is tuned
SAMPLE = 256  # queries by which it is tuned
FIRST_EFFORT = 8  # nodes that a query looks at in the first walk
LAST_EFFORT = 4096  # nodes that it looks at most
LINKS = 32  # links of a node of a graph
SHARD = 1_000_000  # candidates of a graph
_TRAINING_ROWS = 50_000  # vectors whose numbers show the range that 8 bits have to cover
# How many times as many candidates as asked for are compared by their vectors themselves.
_COMPARED = 2


class NeighborGraph:
    """A graph of candidates that queries walk along.

    Args:
        candidates: m rows. They are read again to compare what a walk has found.

    Raises:
        ImportError: faiss is not installed.
    """

    def __init__(self, candidates: UnitRows) -> None:
        import faiss  # It belongs to the extra `search`.

        self.candidates = candidates
        self._graph: Any = faiss.IndexHNSWSQ(
            candidates.shape[1],
            faiss.ScalarQuantizer.QT_8bit,  # type: ignore[arg-type]  # The stubs are wrong.
            LINKS,
            faiss.METRIC_INNER_PRODUCT,
        )
        self._graph.train(random_rows(candidates, _TRAINING_ROWS))
        for _, candidate_block in candidates.blocks("Indexing"):
            self._graph.add(candidate_block)

    @property
    def effort(self) -> int:
        """The number of nodes that a query looks at."""
        effort: int = self._graph.hnsw.efSearch
        return effort

    def tune(self, sample: UnitRows, k: int, last_effort: int) -> float:
        """Lengthen the walks until 95 % of the exact neighbors are found.

        Args:
            sample: Queries.
            k: The number of neighbors, at most m.
            last_effort: The most nodes that a query may look at.

        Returns:
            The share of the exact neighbors that the walks find.
        """
        exact_cosines, _ = exact_neighbors(sample, self.candidates, k)
        lowest_cosines = exact_cosines[:, -1:]  # (sample, 1)
        effort = min(FIRST_EFFORT, last_effort)
        while True:
            self._graph.hnsw.efSearch = effort
            cosines, _ = self.nearest(sample[:], k)
            recall = float((cosines >= lowest_cosines - TIE).mean())
            if recall >= RECALL or effort >= last_effort:
                return recall
            effort = min(2 * effort, last_effort)

    def nearest(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest candidates that a walk finds for each query.

        Args:
            queries: (q, d) of length 1.
            k: The number of neighbors, at most m.

        Returns:
            Cosines (q, k) float32, falling, and row numbers of the candidates (q, k) int64.
        """
        width = min(_COMPARED * k, len(self.candidates))
        _, numbers = self._graph.search(queries, width)  # (q, width), -1 for none
        cosines = self._cosines(queries, numbers)
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        cosines = np.take_along_axis(cosines, best, axis=1)
        numbers = np.take_along_axis(numbers, best, axis=1)
        # Where the graph is not connected, a walk may end before it has found k candidates.
        incomplete = np.flatnonzero((numbers < 0).any(axis=1))
        if len(incomplete):
            again = UnitRows("queries", queries[incomplete])
            cosines[incomplete], numbers[incomplete] = exact_neighbors(again, self.candidates, k)
        return np.clip(cosines, -1, 1), numbers

    def _cosines(self, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the cosines of queries to candidates, -inf for none.

        Args:
            queries: (q, d) of length 1.
            numbers: The candidates of each query, (q, width), -1 for none.

        Returns:
            (q, width) float32.
        """
        cosines = np.empty(numbers.shape, np.float32)
        for column in range(numbers.shape[1]):
            vectors = self.candidates[np.maximum(numbers[:, column], 0)]  # (q, d)
            cosines[:, column] = np.einsum("qd,qd->q", queries, vectors)
        cosines[numbers < 0] = -np.inf
        return cosines


def graph_neighbors(
    queries: UnitRows, candidates: UnitRows, k: int, last_effort: int, least_recall: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the k nearest candidates of each query that walks find.

    A warning tells how many of the exact neighbors are found.

    Args:
        queries: n rows.
        candidates: m rows.
        k: At most m.
        last_effort: The most nodes that a query may look at.
        least_recall: The share of the exact neighbors that must be found.

    Returns:
        Cosines (n, k) float32, falling, and row numbers of the candidates (n, k) int64; None if too
        few neighbors are found.

    Raises:
        ImportError: faiss is not installed.
    """
    sample = UnitRows("sample", random_rows(queries, SAMPLE))
    cosines = np.full((len(queries), k), -np.inf, np.float32)
    numbers = np.full((len(queries), k), len(candidates), np.int64)
    recalls = []
    efforts = []
    for shard in shards(len(candidates)):
        graph = NeighborGraph(UnitRows("candidates", candidates.matrix[shard]))
        shard_k = min(k, len(graph.candidates))
        recall = graph.tune(sample, shard_k, last_effort)
        if recall < least_recall:
            return None
        recalls.append(recall)
        efforts.append(graph.effort)
        for rows, query_block in queries.blocks("Searching"):
            nearest_cosines, nearest_numbers = graph.nearest(query_block, shard_k)
            cosines[rows], numbers[rows] = merge_neighbors(
                (cosines[rows], numbers[rows]), (nearest_cosines, nearest_numbers + shard.start), k
            )
    size = f"{len(queries):,} x {len(candidates):,} x {candidates.shape[1]:,}"
    logger.warning(
        "Approximate search of %s by HNSW (M = %d, 8 bits, efSearch = %d), which finds %.1f %% of "
        "the exact neighbors",
        size,
        LINKS,
        max(efforts),
        100 * min(recalls),
    )
    return cosines, numbers


def shards(count: int) -> list[slice]:
    """Return slices of about equal size, of at most a million, that together hold `count` rows."""
    shard_count = math.ceil(count / SHARD)
    size = math.ceil(count / shard_count)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def random_rows(rows: UnitRows, most: int) -> np.ndarray:
    """Return some rows, chosen at random, in their order, (at most `most`, d)."""
    size = min(len(rows), most)
    chosen = np.random.default_rng(42).choice(len(rows), size, replace=False)
    return rows[np.sort(chosen)]
