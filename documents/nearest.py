"""Exact search by cosine among many candidates, block by block, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy.sparse
from tqdm.auto import tqdm

Matrix = np.ndarray | scipy.sparse.csr_matrix

BLOCK = 4096  # rows of a block on each side: 64 MiB of similarities
SCORINGS = ("cosine", "ratio", "distance", "absolute")
TIE = 1e-6  # cosines less than this apart are equal: one text differs so much by order of summation, in float32
SMALLEST_MEAN = 1e-6  # of the ratio's denominator
NO_RATIO = -1.5e6  # scores of `ranked_ratios` below this are none


class UnitRows:
    """The rows of a matrix at unit length, made when asked for, so that the matrix is never copied whole.

    Args:
        name: In messages.
        matrix: (n, d) of numbers, dense or sparse. A row of zeros stays one: its cosine to anything is 0.

    Raises:
        ValueError: Not two-dimensional, no rows, or a number that is not finite.
    """

    def __init__(self, name: str, matrix: Matrix) -> None:
        self.matrix = matrix.tocsr() if scipy.sparse.issparse(matrix) else np.asarray(matrix)
        self.shape = self.matrix.shape
        if len(self.shape) != 2 or not self.shape[0]:
            raise ValueError(f"{name}: found shape {self.shape}, expected (rows, dimensions) with at least one row")
        self.norms = np.concatenate([self._norms(rows) for rows in self._slices(BLOCK)])  # (n,) float64
        bad = np.flatnonzero(~np.isfinite(self.norms))
        if len(bad):
            raise ValueError(
                f"{name}: found a vector that is not finite in row {bad[0]}, and in {len(bad)} of {self.shape[0]} "
                "rows in all, expected finite numbers. Look at the model that made them"
            )
        self.norms[self.norms == 0] = 1

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> Matrix:
        """The chosen rows, float32."""
        chosen, norms = self.matrix[rows], self.norms[rows, None]
        if scipy.sparse.issparse(chosen):
            return scipy.sparse.csr_matrix(chosen.astype(np.float64).multiply(1 / norms), dtype=np.float32)
        return np.divide(chosen, norms, out=np.empty(chosen.shape, np.float32), casting="same_kind")

    def blocks(self, size: int) -> Iterator[tuple[slice, Matrix]]:
        for rows in self._slices(size):
            yield rows, self[rows]

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, min(start + size, len(self))) for start in range(0, len(self), size)]

    def _norms(self, rows: slice) -> np.ndarray:
        block = self.matrix[rows].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if scipy.sparse.issparse(block):
                return np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
            return np.sqrt(np.einsum("ij,ij->i", block, block))


def row_cosines(first: Matrix, second: Matrix) -> np.ndarray:
    """Cosine of each row of `first` to the same row of `second`.

    Args:
        first, second: (n, d), both dense or both sparse.

    Returns:
        (n,) float64.

    Raises:
        ValueError: Different shapes, no rows, or numbers that are not finite.
    """
    sides = two_sides(("first", first), ("second", second))
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"Found {len(sides[0])} rows in first and {len(sides[1])} in second, expected as many")
    return np.concatenate([_row_products(unit, sides[1][rows]) for rows, unit in sides[0].blocks(BLOCK)])


def nearest_neighbours(queries: Matrix, candidates: Matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The `k` candidates of highest cosine to each query: exact, by faiss (dense) or by sparse products.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: From 1 to m.

    Returns:
        Cosines (n, k) float32, falling, and row numbers of the candidates (n, k) int64; among these, equal cosines are
        in order of row number.

    Raises:
        ValueError: `k` out of range, no rows, different dimensions, or numbers that are not finite.
        ImportError: Dense vectors without faiss.
    """
    sides = two_sides(("queries", queries), ("candidates", candidates))
    if not 1 <= k <= len(sides[1]):
        raise ValueError(f"k: found {k}, expected 1 to {len(sides[1])}, the number of candidates")
    return unit_neighbours(*sides, k)


def unit_neighbours(
    queries: UnitRows, candidates: UnitRows, k: int, show_progress_bar: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """[`nearest_neighbours`] of rows that are checked already."""
    search = _search_sparse if scipy.sparse.issparse(candidates.matrix) else _search_dense
    cosines = np.full((len(queries), k), -np.inf, np.float32)
    indices = np.full((len(queries), k), len(candidates), np.int64)
    pairs = len(queries) * len(candidates)
    with tqdm(total=pairs, desc="Searching", unit=" pairs", unit_scale=True, disable=not show_progress_bar) as bar:
        for columns, pool in candidates.blocks(BLOCK):
            for rows, unit in queries.blocks(BLOCK):
                found = search(unit, pool, min(k, pool.shape[0]))
                both = np.hstack([cosines[rows], found[0]]), np.hstack([indices[rows], found[1] + columns.start])
                order = np.lexsort((both[1], -both[0]), axis=1)[:, :k]
                cosines[rows], indices[rows] = (np.take_along_axis(each, order, axis=1) for each in both)
                bar.update(unit.shape[0] * pool.shape[0])
    return np.clip(cosines, -1, 1), indices


def target_ranks(
    queries: Matrix,
    candidates: Matrix,
    targets: Sequence[int] | np.ndarray,
    scoring: str = "cosine",
    k: int = 4,
    block: int = BLOCK,
) -> np.ndarray:
    """Rank of the right candidate of each query among all candidates, by cosine or by margin.

    The margins are those of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3): with the mean m(x, y) of a(x), the
    mean cosine of query x to its `k` nearest candidates, and a(y), that of candidate y to its `k` nearest queries,
    `distance` is cos - m, `ratio` is cos / m, and `absolute` the cosine itself. A ratio's denominator is at least
    1e-6: neighbours that are no nearer than a right angle would turn its order round.

    A candidate that ties with the right one counts as before it, so that a system gains nothing by equal vectors. It
    ties if its cosine is less than 1e-6 below the one that would give it the right one's score: the vectors of a text
    that occurs twice differ by about so much in float32, and which is ahead would be left to the order of summation.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        targets: (n,) row number of the right candidate of each query.
        scoring: `cosine`, `ratio`, `distance` or `absolute`.
        k: Neighbours of a margin; all rows of a side that has fewer.
        block: Rows of a block on each side. The search takes some 20 `block` (`block` + d) bytes.

    Returns:
        (n,) int64, from 1 to m.

    Raises:
        ValueError: No rows, different dimensions, numbers that are not finite, targets that are no row numbers of
            candidates, unknown scoring, `k` or `block` below 1.
        ImportError: A margin of dense vectors without faiss.
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring: found {scoring!r}, expected one of {', '.join(SCORINGS)}")
    for name, number in (("k", k), ("block", block)):
        if number < 1:
            raise ValueError(f"{name}: found {number}, expected at least 1")
    sides = two_sides(("queries", queries), ("candidates", candidates))
    targets = _check_targets(targets, *sides)
    right = np.concatenate([_row_products(unit, sides[1][targets[rows]]) for rows, unit in sides[0].blocks(block)])
    means = _mean_cosines(*sides, k) if scoring in ("ratio", "distance") else None

    ranks = np.ones(len(sides[0]), np.int64)
    for columns, pool in sides[1].blocks(block):
        for rows, unit in sides[0].blocks(block):
            cosines = _products(unit, pool)  # (rows, columns)
            here = np.flatnonzero((targets[rows] >= columns.start) & (targets[rows] < columns.stop))
            cosines[here, targets[rows][here] - columns.start] = -np.inf  # the right one is not before itself
            needed = _needed_cosines(scoring, right[rows], means, targets[rows], rows, columns)
            ranks[rows] += np.count_nonzero(cosines >= needed, axis=1)
    return ranks


def margin_scores(scoring: str, cosines: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The margins `distance` or `ratio` of cosines, given m(x, y) of each pair; float32. See [`target_ranks`]."""
    if scoring == "distance":
        return (cosines - means).astype(np.float32)
    return (cosines / np.maximum(means, SMALLEST_MEAN)).astype(np.float32)


def ranked_ratios(cosines: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The margin `ratio` by which pairs are put in order, in place of the cosines; `means` is overwritten, too.

    Where m(x, y) is 1e-6 or less, neighbours say nothing about the pair: a positive cosine over the floor would be a
    ratio above all others, so that what is unlike everything would come first. Such a pair scores (cos - 3) / 1e-6,
    from -4e6 to -2e6: below all ratios, which are at least -1e6, and by cosine among its like.
    """
    np.subtract(cosines, 3, out=cosines, where=means <= SMALLEST_MEAN)
    np.maximum(means, SMALLEST_MEAN, out=means)
    return np.divide(cosines, means, out=cosines)


def say_without_ratio(what: str, scores: np.ndarray, say: Callable[[str], None] | None) -> None:
    """Tells how many of these [`ranked_ratios`] are none, if any; `what` has them."""
    without = int(np.count_nonzero(scores < NO_RATIO))
    if without and say is not None:
        say(
            f"{without:,} of {len(scores):,} {what} have no ratio: the mean cosine of their neighbours is 1e-6 or "
            "less. They score below all others, by cosine; distance scores them like all others"
        )


def _needed_cosines(
    scoring: str,
    right: np.ndarray,
    means: tuple[np.ndarray, np.ndarray] | None,
    targets: np.ndarray,
    rows: slice,
    columns: slice,
) -> np.ndarray:
    """The cosine with which a candidate ties: (rows, columns), or (rows, 1) where it is one for all, float32."""
    if means is None:
        return (right[:, None] - TIE).astype(np.float32)
    of_queries, of_candidates = means
    margins = (of_queries[rows, None] + of_candidates[None, columns]) / 2  # m(x, y) of every candidate
    margin = (of_queries[rows] + of_candidates[targets]) / 2  # m(x, y) of the right one
    score = margin_scores(scoring, right, margin)[:, None]
    if scoring == "distance":
        return score + margins - TIE
    return score * np.maximum(margins, SMALLEST_MEAN) - TIE


def _mean_cosines(queries: UnitRows, candidates: UnitRows, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosine of each query to its k nearest candidates, of each candidate to its k nearest queries; float32."""
    sides = ((queries, candidates), (candidates, queries))
    of_queries, of_candidates = (
        unit_neighbours(rows, others, min(k, len(others)))[0].mean(axis=1) for rows, others in sides
    )
    return of_queries, of_candidates


def _products(queries: Matrix, candidates: Matrix) -> np.ndarray:
    """All products of rows, (n, m) float32, dense whatever the rows are."""
    products = queries @ candidates.T
    return products.toarray() if scipy.sparse.issparse(products) else products


def _row_products(first: Matrix, second: Matrix) -> np.ndarray:
    """Products of rows at equal positions, (n,) float64."""
    if scipy.sparse.issparse(first):
        return np.asarray(first.astype(np.float64).multiply(second).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", first, second, dtype=np.float64)


def _search_dense(queries: np.ndarray, candidates: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("Nearest neighbours need faiss: pip install 'tmde[eval]'") from error
    index = faiss.IndexFlatIP(candidates.shape[1])
    index.add(candidates)
    return index.search(queries, k)


def _search_sparse(
    queries: scipy.sparse.csr_matrix, candidates: scipy.sparse.csr_matrix, k: int
) -> tuple[np.ndarray, np.ndarray]:
    cosines = _products(queries, candidates)
    # a stable sort by falling cosine keeps equal ones, of which sparse rows have many, in order of row number
    indices = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(cosines, indices, axis=1), indices


def two_sides(*named: tuple[str, Matrix]) -> tuple[UnitRows, UnitRows]:
    """The unit rows of two named matrices; ValueError if one cannot be searched by the other."""
    first, second = (UnitRows(name, matrix) for name, matrix in named)
    if scipy.sparse.issparse(first.matrix) != scipy.sparse.issparse(second.matrix):
        raise ValueError(f"Found one of {named[0][0]} and {named[1][0]} sparse, expected both dense or both sparse")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"Found {first.shape[1]} dimensions in {named[0][0]} and {second.shape[1]} in {named[1][0]}, expected as "
            "many: both sides come from one system"
        )
    return first, second


def _check_targets(targets: Sequence[int] | np.ndarray, queries: UnitRows, candidates: UnitRows) -> np.ndarray:
    targets = np.asarray(targets)
    if targets.shape != (len(queries),) or targets.dtype.kind not in "iu":
        raise ValueError(
            f"targets: found shape {targets.shape} of {targets.dtype}, expected ({len(queries)},) integers, the row "
            "number of one candidate for each query"
        )
    bad = np.flatnonzero((targets < 0) | (targets >= len(candidates)))
    if len(bad):
        raise ValueError(
            f"targets: found {targets[bad[0]]} for query {bad[0]}, expected 0 to {len(candidates) - 1}, a row number "
            "of the candidates"
        )
    return targets
