"""Nearest neighbors by cosine, and margins of pairs over the cosines to their neighbors.

[`find_neighbors`] searches exactly, or by graphs if that takes too long.

**Graphs** are those of faiss' HNSW, of vectors in 8 bits. A query walks along a graph (Malkov &
Yashunin 2018, arXiv 1603.09320). How far it walks is tuned by random queries, whose neighbors are
also searched exactly. The candidates that a walk finds are compared once more, by their vectors
themselves.

A graph holds at most a million candidates, about 660 bytes each for 384 numbers. Of more
candidates, each million has a graph of its own, one after the other, so that memory does not grow
with their number.

**Margins** are those of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3). With the mean
m(x, y) = (a(x) + a(y)) / 2 of a(x), the mean cosine of x to its k nearest neighbors on the other
side, and a(y), that of y to its k nearest, `distance` is cos - m and `ratio` is cos / m.

If m(x, y) is 1e-6 or less, neighbors say nothing about the pair, and a positive cosine over the
floor would be a ratio above all others. Such a pair has no ratio. It scores (cos - 3) / 1e-6, from
-4e6 to -2e6: below all ratios, which are at least -1e6, and by cosine among its like.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import TIE, Matrix, UnitRows, largest, products, two_sides

logger = logging.getLogger(__name__)

SEARCHES = ("auto", "exact", "hnsw")
EXACT_COST = 1e13  # n m d of 100,000 x 100,000 x 1,024, which takes some 4 minutes on one core
# Candidates for each step of a walk through the graph. With fewer, exact search is faster.
WORTHWHILE = 400

# Graphs.
RECALL = 0.95  # share of the exact neighbors for which a graph is tuned
SAMPLE = 256  # queries by which it is tuned
FIRST_EFFORT = 8  # nodes that a query looks at in the first walk
LAST_EFFORT = 4096  # nodes that it looks at most
LINKS = 32  # links of a node of a graph
SHARD = 1_000_000  # candidates of a graph
_TRAINING_ROWS = 50_000  # vectors whose numbers show the range that 8 bits have to cover
# How many times as many candidates as asked for are compared by their vectors themselves.
_COMPARED = 2

# Margins.
SCORINGS = ("cosine", "ratio", "distance")
SMALLEST_MEAN = 1e-6  # the largest m(x, y) that gives no ratio
_LOWERED_BY = 3  # subtracted from the cosine of a pair without a ratio
_WITHOUT_RATIO = -1.5e6  # between the scores of pairs that have no ratio and those that have one


def find_neighbors(
    queries: Matrix, candidates: Matrix, k: int, search: str = "exact"
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `k` candidates of highest cosine to each query.

    An approximate search is warned of, with its recall. `hnsw` is a graph that a query walks along,
    with vectors in 8 bits. How far a query walks is doubled until 95% of the exact neighbors of
    256 random queries are found. `auto` is `exact` up to
    n m d = 1e13, and for sparse rows; beyond, it is `hnsw`, unless the walk would have to be so
    long that exact search is faster.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: The number of neighbors; all m candidates if there are fewer.
        search: `exact`, `hnsw` or `auto`.

    Returns:
        Cosines (n, min(k, m)) float32, falling, and row numbers of the candidates (n, min(k, m))
        int64. The cosines are exact, whatever the search.

    Raises:
        TmdeError: Unknown search, a graph of sparse rows, `k` below 1, no rows, different
            dimensions, or numbers that are not finite.
        ImportError: `hnsw` without faiss.
    """
    if search not in SEARCHES or k < 1:
        raise TmdeError(
            f"search, k: found {search!r}, {k}, "
            f"expected one of {', '.join(SEARCHES)}, and at least 1"
        )
    query_rows, candidate_rows = two_sides(("first", queries), ("second", candidates))
    k = min(k, len(candidate_rows))
    if search == "hnsw":
        if candidate_rows.is_sparse:
            raise TmdeError(
                "search: found 'hnsw' for sparse rows, expected exact or auto, because faiss "
                "indexes dense rows"
            )
        neighbors = graph_neighbors(query_rows, candidate_rows, k, LAST_EFFORT, least_recall=0.0)
        assert neighbors is not None  # No recall is below 0.
        return neighbors
    cost = len(query_rows) * len(candidate_rows) * candidate_rows.shape[1]
    if search == "auto" and cost > EXACT_COST and not candidate_rows.is_sparse:
        # Longer walks take longer than exact search.
        graph_size = min(len(candidate_rows), SHARD)
        last_effort = min(graph_size // WORTHWHILE, LAST_EFFORT)
        neighbors = graph_neighbors(query_rows, candidate_rows, k, last_effort, RECALL)
        if neighbors is not None:
            return neighbors
    return exact_neighbors(query_rows, candidate_rows, k)


# ---- Exact search


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


# ---- Search by graphs


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
        """Lengthen the walks until 95% of the exact neighbors are found.

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


# ---- Margins


def check_scoring(scoring: str, k: int) -> None:
    """Raise TmdeError if these are not the arguments of a margin."""
    if scoring not in SCORINGS or k < 1:
        raise TmdeError(
            f"scoring, k: found {scoring!r}, {k}, "
            f"expected one of {', '.join(SCORINGS)}, and at least 1"
        )


def ranked_scores(scoring: str, cosines: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the scores by which pairs are ranked, in place of the cosines.

    Args:
        scoring: `cosine`, `ratio` or `distance`.
        cosines: The cosines, which are overwritten.
        means: m(x, y) of each pair, of the same shape; overwritten, too.
    """
    if scoring == "cosine":
        return cosines
    if scoring == "distance":
        return np.subtract(cosines, means, out=cosines)
    np.subtract(cosines, _LOWERED_BY, out=cosines, where=means <= SMALLEST_MEAN)
    denominators = np.maximum(means, SMALLEST_MEAN, out=means)
    return np.divide(cosines, denominators, out=cosines)


def cosines_of_scores(scoring: str, scores: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the cosines of pairs with these [`ranked_scores`], which this function inverts.

    Args:
        scoring: `ratio` or `distance`.
        scores: The scores.
        means: m(x, y) of each pair, of a shape that broadcasts with the scores.
    """
    if scoring == "distance":
        return scores + means
    cosines = scores * np.maximum(means, SMALLEST_MEAN)
    return np.add(cosines, _LOWERED_BY, out=cosines, where=means <= SMALLEST_MEAN)


def warn_without_ratio(scoring: str, scores: np.ndarray) -> None:
    """Log how many of these [`ranked_scores`] have no ratio, if any."""
    if scoring != "ratio":
        return
    without_ratio = int(np.count_nonzero(scores < _WITHOUT_RATIO))
    if without_ratio:
        logger.warning(
            "%s of %s pairs have no ratio, because their neighbors' mean cosine is 1e-6 or "
            "less. They rank below all others, by cosine; `distance` scores them normally",
            f"{without_ratio:,}",
            f"{len(scores):,}",
        )
