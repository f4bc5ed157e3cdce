"""Nearest neighbors by cosine: exact in blocks, or approximate by a graph (faiss' HNSW); ranks and margins."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import scipy.sparse
import torch

from modeling_tmde import TmdeError
from tmde.embedding.progress import progress_bar

logger = logging.getLogger(__name__)

Matrix = np.ndarray | scipy.sparse.csr_matrix

BLOCK = 4096  # rows of a block on each side: 64 MiB of similarities
SEARCHES = ("auto", "exact", "hnsw")
SCORINGS = ("cosine", "ratio", "distance")
TIE = 1e-6  # cosines less than this apart are equal: in float32, one text differs so much by order of summation
SMALLEST_MEAN = 1e-6  # of the ratio's denominator
EXACT_COST = 1e13  # n m d, that of 100,000 x 100,000 x 1,024: some 4 minutes on one core
RECALL = 0.95  # share of the exact neighbors for which the graph is tuned
SAMPLE = 256  # queries by which it is tuned
FIRST_EFFORT, LAST_EFFORT = 8, 4096  # nodes that a query looks at
WORTHWHILE = (
    400  # candidates for each step of a walk through the graph: with fewer, exact search is faster
)
LINKS = 32  # of a node of the graph


class UnitRows:
    """The rows of a matrix at unit length, computed block by block, so that the matrix is never copied whole.

    Args:
        name: In messages.
        matrix: (n, d), dense or sparse. A row of zeros stays one: its cosine to anything is 0.
        dtype: Of the rows.

    Raises:
        ValueError: Not two-dimensional, no rows, or a number that is not finite.
    """

    def __init__(self, name: str, matrix: Matrix, dtype: type = np.float32) -> None:
        self.matrix = matrix.tocsr() if scipy.sparse.issparse(matrix) else np.asarray(matrix)
        self.shape, self.dtype = self.matrix.shape, dtype
        if len(self.shape) != 2 or not self.shape[0]:
            raise TmdeError(
                f"{name}: found shape {self.shape}, expected (rows, dimensions) with at least one row"
            )
        blocks = (self.matrix[rows].astype(np.float64) for rows in slices(len(self), BLOCK))
        with np.errstate(over="ignore", invalid="ignore"):
            self.norms = np.sqrt(
                np.concatenate([row_products(block, block) for block in blocks])
            )  # (n,) float64
        bad = np.flatnonzero(~np.isfinite(self.norms))
        if len(bad):
            raise TmdeError(
                f"{name}: found a vector that is not finite in row {bad[0]}, and in {len(bad)} of {self.shape[0]} "
                "rows in all, expected finite numbers. Look at the model that made them"
            )
        self.norms[self.norms == 0] = 1

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> Matrix:
        chosen, norms = self.matrix[rows], self.norms[rows, None]
        if scipy.sparse.issparse(chosen):
            return scipy.sparse.csr_matrix(
                chosen.astype(np.float64).multiply(1 / norms), dtype=self.dtype
            )
        return np.divide(chosen, norms, out=np.empty(chosen.shape, self.dtype), casting="same_kind")

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        for rows in slices(len(self), BLOCK):
            yield rows, self[rows]


def find_neighbours(
    queries: Matrix, candidates: Matrix, k: int, search: str = "exact"
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` candidates of highest cosine to each query, and warns of an approximate search, with its recall.

    `hnsw` is a graph that a query walks along (Malkov & Yashunin 2018, arXiv 1603.09320). How far a query walks is
    doubled until 95 % of the exact neighbors of 256 random queries are found. `auto` is `exact` up to n m d = 1e13,
    and for sparse rows; beyond, it is `hnsw`, unless the walk would have to be so long that exact search is faster.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: All m candidates if there are fewer.
        search: `exact`, `hnsw` or `auto`.

    Returns:
        Cosines (n, min(k, m)) float32, falling, and row numbers of the candidates (n, min(k, m)) int64. The cosines
        are exact, whatever the search.

    Raises:
        ValueError: Unknown search, a graph of sparse rows, `k` below 1, no rows, different dimensions, or numbers
            that are not finite.
        ImportError: `hnsw` without faiss.
    """
    if search not in SEARCHES or k < 1:
        raise TmdeError(
            f"search, k: found {search!r}, {k}, expected one of {', '.join(SEARCHES)}, and at least 1"
        )
    rows, others = two_sides(("first", queries), ("second", candidates))
    sparse, k = scipy.sparse.issparse(others.matrix), min(k, len(others))
    if sparse and search == "hnsw":
        raise TmdeError(
            "search: found 'hnsw' for sparse rows, expected exact or auto: faiss indexes dense ones"
        )
    costly = len(rows) * len(others) * others.shape[1] > EXACT_COST and not sparse
    found = None
    if search == "hnsw":
        found = _walk_graph(rows, others, k, LAST_EFFORT, 0.0)
    elif search == "auto" and costly:  # longer walks take longer than exact search
        found = _walk_graph(rows, others, k, min(len(others) // WORTHWHILE, LAST_EFFORT), RECALL)
    return found or unit_neighbours(rows, others, k)


def unit_neighbours(
    queries: UnitRows, candidates: UnitRows, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Exact search: cosines (n, k) float32, falling, and row numbers (n, k), equal cosines in order of row number."""
    cosines = np.full((len(queries), k), -np.inf, np.float32)
    indices = np.full((len(queries), k), len(candidates), np.int64)
    for columns in slices_with_bar(len(candidates), BLOCK, "Searching"):
        pool = candidates[columns]
        for rows, unit in queries.blocks():
            found = largest(products(unit, pool), min(k, pool.shape[0]))
            both = (
                np.hstack([cosines[rows], found[0]]),
                np.hstack([indices[rows], found[1] + columns.start]),
            )
            order = np.lexsort((both[1], -both[0]), axis=1)[:, :k]
            cosines[rows], indices[rows] = (
                np.take_along_axis(each, order, axis=1) for each in both
            )
    return np.clip(cosines, -1, 1), indices


def row_cosines(first: Matrix, second: Matrix) -> np.ndarray:
    """Cosine of each row of `first` (n, d) to the same row of `second` (n, d), dense or sparse: (n,) float64.

    Raises:
        ValueError: Different shapes, no rows, or numbers that are not finite.
    """
    sides = two_sides(("first", first), ("second", second))
    if len(sides[0]) != len(sides[1]):
        raise TmdeError(
            f"Found {len(sides[0])} rows in first and {len(sides[1])} in second, expected as many"
        )
    return np.concatenate([row_products(unit, sides[1][rows]) for rows, unit in sides[0].blocks()])


def target_ranks(
    queries: Matrix,
    candidates: Matrix,
    targets: Sequence[int] | np.ndarray,
    scoring: str = "cosine",
    k: int = 4,
) -> np.ndarray:
    """Rank of the right candidate of each query among all candidates, by cosine or by margin.

    The margins are those of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3): with the mean m(x, y) of a(x), the
    mean cosine of query x to its `k` nearest candidates, and a(y), that of candidate y to its `k` nearest queries,
    `distance` is cos - m and `ratio` is cos / max(m, 1e-6).

    A candidate that ties with the right one counts as before it, so that a system gains nothing by equal vectors. It
    ties if its cosine is less than 1e-6 below the one that would give it the right one's score: so much do the vectors
    of one text differ in float32.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        targets: (n,) row number of the right candidate of each query.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a margin; all rows of a side that has fewer.

    Returns:
        (n,) int64, from 1 to m.

    Raises:
        ValueError: No rows, different dimensions, numbers that are not finite, targets that are no row numbers of
            candidates, unknown scoring, `k` below 1.
    """
    check_scoring(scoring, k)
    sides, targets = (
        two_sides(("queries", queries), ("candidates", candidates)),
        np.asarray(targets),
    )
    if targets.shape != (len(sides[0]),) or targets.min() < 0 or targets.max() >= len(sides[1]):
        raise TmdeError(
            f"targets: found {targets}, expected {len(sides[0])} row numbers below {len(sides[1])}"
        )
    right = np.concatenate(
        [row_products(unit, sides[1][targets[rows]]) for rows, unit in sides[0].blocks()]
    )
    if scoring == "cosine":
        score = right
    else:
        pairs = sides, sides[::-1]
        of_queries, of_candidates = (
            unit_neighbours(rows, others, min(k, len(others)))[0].mean(axis=1)
            for rows, others in pairs
        )
        means = (of_queries + of_candidates[targets]) / 2
        score = right - means if scoring == "distance" else right / np.maximum(means, SMALLEST_MEAN)
    ranks = np.ones(len(sides[0]), np.int64)
    for columns, pool in sides[1].blocks():
        for rows, unit in sides[0].blocks():
            cosines = products(unit, pool)  # (rows, columns)
            here = np.flatnonzero((targets[rows] >= columns.start) & (targets[rows] < columns.stop))
            cosines[
                here, targets[rows][here] - columns.start
            ] = -np.inf  # the right one is not before itself
            needed = score[rows, None].astype(
                np.float32
            )  # the cosine that gives a candidate the right one's score
            if scoring != "cosine":
                means = (of_queries[rows, None] + of_candidates[None, columns]) / 2
                needed = (
                    needed + means
                    if scoring == "distance"
                    else needed * np.maximum(means, SMALLEST_MEAN)
                )
            ranks[rows] += np.count_nonzero(cosines >= needed - np.float32(TIE), axis=1)
    return ranks


def ranked_scores(scoring: str, cosines: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The scores by which pairs are ranked, in place of the cosines; `means` is overwritten, too.

    If m(x, y) is 1e-6 or less, neighbors say nothing about the pair, and a positive cosine over the floor would be a
    ratio above all others. Such a pair scores (cos - 3) / 1e-6, from -4e6 to -2e6: below all ratios, which are at
    least -1e6, and by cosine among its like. See [`target_ranks`] for the margins.
    """
    if scoring == "cosine":
        return cosines
    if scoring == "distance":
        return np.subtract(cosines, means, out=cosines)
    np.subtract(cosines, 3, out=cosines, where=means <= SMALLEST_MEAN)
    return np.divide(cosines, np.maximum(means, SMALLEST_MEAN, out=means), out=cosines)


def warn_without_ratio(scoring: str, scores: np.ndarray) -> None:
    """Logs how many of these [`ranked_scores`] have no ratio, if any."""
    without = int(np.count_nonzero(scores < -1.5e6)) if scoring == "ratio" else 0
    if without:
        logger.warning(
            "%s of %s pairs have no ratio: the mean cosine of their neighbors is 1e-6 or less. They score below all "
            "others, by cosine; distance scores them like all others", f"{without:,}", f"{len(scores):,}"
        )  # fmt: skip


def check_scoring(scoring: str, k: int) -> None:
    """Raises ValueError if these are not the arguments of a margin."""
    if scoring not in SCORINGS or k < 1:
        raise TmdeError(
            f"scoring, k: found {scoring!r}, {k}, expected one of {', '.join(SCORINGS)}, and at least 1"
        )


def two_sides(*named: tuple[str, Matrix], dtype: type = np.float32) -> tuple[UnitRows, UnitRows]:
    """The unit rows of two named matrices; ValueError if one cannot be searched by the other."""
    first, second = (UnitRows(name, matrix, dtype) for name, matrix in named)
    kinds = [
        f"{each.shape[1]} {'sparse' if scipy.sparse.issparse(each.matrix) else 'dense'}"
        for each in (first, second)
    ]
    if kinds[0] != kinds[1]:
        raise TmdeError(
            f"{named[0][0]}, {named[1][0]}: found {kinds[0]} and {kinds[1]} dimensions, expected the same: both sides "
            "come from one system"
        )
    return first, second


def slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def slices_with_bar(total: int, size: int, what: str) -> Iterable[slice]:
    """`slices` with a progress bar, if there are ten or more."""
    found = slices(total, size)
    return progress_bar(found, desc=what, unit=" blocks", disable=len(found) < 10)


def products(queries: Matrix, candidates: Matrix) -> np.ndarray:
    """Products of all rows, (n, m), dense."""
    found = queries @ candidates.T
    return found.toarray() if scipy.sparse.issparse(found) else found


def row_products(first: Matrix, second: Matrix) -> np.ndarray:
    """Products of rows at equal positions, (n,) float64."""
    if scipy.sparse.issparse(first):
        return np.asarray(first.astype(np.float64).multiply(second).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", first, second, dtype=np.float64)


def largest(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of each row, falling, and their columns, (n, k); of equal ones the lowest columns first."""
    if 2 * k >= values.shape[1]:
        columns = np.argsort(-values, axis=1, kind="stable")[:, :k]
    else:
        found, columns = (each.numpy() for each in torch.topk(torch.from_numpy(values), k + 1))
        # torch takes any of the columns that tie for the last place
        for row in np.flatnonzero(found[:, k] == found[:, k - 1]):
            columns[row, :k] = np.argsort(-values[row], kind="stable")[:k]
        columns = np.sort(columns[:, :k], axis=1)
    found = np.take_along_axis(values, columns, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(columns, order, axis=1)


def _walk_graph(
    queries: UnitRows, candidates: UnitRows, k: int, limit: int, least: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Doubles the steps of a walk until it finds enough, or is at `limit`; None if it finds less than `least`."""
    import faiss  # of the extra `search`

    graph = faiss.IndexHNSWFlat(candidates.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    for rows in slices_with_bar(len(candidates), BLOCK, "Indexing"):
        graph.add(candidates[rows])
    drawn = np.random.default_rng(42).choice(len(queries), min(len(queries), SAMPLE), replace=False)
    sample = UnitRows("sample", queries[np.sort(drawn)])
    farthest = unit_neighbours(sample, candidates, k)[0][:, -1:]
    effort, recall = min(FIRST_EFFORT, limit) / 2, 0.0
    while recall < RECALL and effort < limit:
        effort = min(2 * effort, limit)
        graph.hnsw.efSearch = int(effort)
        recall = float((graph.search(sample[:], k)[0] >= farthest - TIE).mean())
    if recall < least:
        return None
    size = " x ".join(f"{each:,}" for each in (len(queries), *candidates.shape))
    text = "Approximate search of %s by HNSW (M = %d, efSearch = %d), which finds %.1f %% of the exact neighbors"
    logger.warning(text, size, LINKS, effort, 100 * recall)
    cosines, indices = (
        np.empty((len(queries), k), np.float32),
        np.empty((len(queries), k), np.int64),
    )
    for rows in slices_with_bar(len(queries), BLOCK, "Searching"):
        unit = queries[rows]
        cosines[rows], indices[rows] = graph.search(unit, k)
        if len(
            short := np.flatnonzero((indices[rows] < 0).any(axis=1))
        ):  # the graph is not connected
            again = unit_neighbours(UnitRows("queries", unit[short]), candidates, k)
            cosines[rows.start + short], indices[rows.start + short] = again
    return np.clip(cosines, -1, 1), indices
