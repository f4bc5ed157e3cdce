"""Nearest neighbors by cosine: exact in blocks, or approximate by a faiss index (IVF, HNSW)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import torch
from tqdm.auto import tqdm

if TYPE_CHECKING:
    import faiss

Matrix = np.ndarray | scipy.sparse.csr_matrix

BLOCK = 4096  # rows of a block on each side: 64 MiB of similarities
SEARCHES = ("auto", "exact", "ivf", "hnsw")
SCORINGS = ("cosine", "ratio", "distance", "absolute")
TIE = 1e-6  # cosines less than this apart are equal: in float32, one text differs so much by order of summation
SMALLEST_MEAN = 1e-6  # of the ratio's denominator
NO_RATIO = -1.5e6  # scores of `ranked_ratios` below this are none
EXACT_COST = 1e13  # n m d, that of 100,000 x 100,000 x 1,024: some 4 minutes on one core
RECALL = 0.95  # share of the exact neighbors for which an index is tuned
SAMPLE = 256  # queries by which it is tuned
FIRST_EFFORT, LAST_EFFORT = 8, 4096  # lists (IVF) or nodes (HNSW) that a query looks at
WORTHWHILE = 400  # candidates for each step of a walk through the graph: with fewer, exact search is faster
LINKS = 32  # of a node of the graph


class UnitRows:
    """The rows of a matrix at unit length, computed block by block, so that the matrix is never copied whole.

    Args:
        name: In messages.
        matrix: (n, d), dense or sparse. A row of zeros stays one: its cosine to anything is 0.

    Raises:
        ValueError: Not two-dimensional, no rows, or a number that is not finite.
    """

    def __init__(self, name: str, matrix: Matrix) -> None:
        self.matrix = matrix.tocsr() if scipy.sparse.issparse(matrix) else np.asarray(matrix)
        self.shape = self.matrix.shape
        if len(self.shape) != 2 or not self.shape[0]:
            raise ValueError(f"{name}: found shape {self.shape}, expected (rows, dimensions) with at least one row")
        self.norms = np.concatenate([_norms(self.matrix[rows]) for rows in slices(len(self), BLOCK)])  # (n,) float64
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
        for rows in slices(len(self), size):
            yield rows, self[rows]


def find_neighbours(
    queries: Matrix,
    candidates: Matrix,
    k: int,
    search: str = "exact",
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("queries", "candidates"),
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` candidates of highest cosine to each query.

    `ivf` is an inverted file of 4 sqrt(m) lists, of which a query looks at the nearest few; `hnsw` is a graph that a
    query walks along (Malkov & Yashunin 2018, arXiv 1603.09320). How far a query looks is doubled until 95 % of the
    exact neighbors of 256 random queries are found. `auto` is `exact` up to n m d = 1e13, and for sparse rows; beyond,
    it is `hnsw`, unless the walk would have to be so long that exact search is faster.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: All m candidates if there are fewer.
        search: `exact`, `ivf`, `hnsw` or `auto`.
        say: Called with a line that names the search, its settings and its recall.
        show_progress_bar: On stderr.
        names: Of the two sides, in messages.

    Returns:
        Cosines (n, min(k, m)) float32, falling, and row numbers of the candidates (n, min(k, m)) int64. The cosines
        are exact, whatever the search.

    Raises:
        ValueError: Unknown search, an index for sparse rows, `k` below 1, no rows, different dimensions, or numbers
            that are not finite.
        ImportError: `ivf` or `hnsw` without faiss.
    """
    if search not in SEARCHES:
        raise ValueError(f"search: found {search!r}, expected one of {', '.join(SEARCHES)}")
    if k < 1:
        raise ValueError(f"k: found {k}, expected at least 1")
    rows, others = two_sides((names[0], queries), (names[1], candidates))
    sparse, k = scipy.sparse.issparse(others.matrix), min(k, len(others))
    if sparse and search in ("ivf", "hnsw"):
        raise ValueError(f"search: found {search!r} for sparse rows, expected exact or auto: faiss indexes dense ones")
    kind, limit = search, LAST_EFFORT
    if search == "auto":
        costly = len(rows) * len(others) * others.shape[1] > EXACT_COST
        kind, limit = "hnsw" if costly and not sparse else "exact", min(len(others) // WORTHWHILE, LAST_EFFORT)
    tell = say or (lambda line: None)
    heading = f"{names[0]} -> {names[1]}, {len(rows):,} x {len(others):,} x {others.shape[1]:,}"
    if kind != "exact":
        index = _build(kind, others, show_progress_bar)
        settings, recall = _tune(index, rows, others, k, limit)
        settings += f", which finds {recall:.1%} of the exact neighbors of {min(len(rows), SAMPLE)} of the rows"
        if search != "auto" or recall >= RECALL:
            tell(f"{heading}: searched by {settings}")
            return _search(index, rows, others, k, show_progress_bar)
        tell(f"{heading}: not searched by {settings}: longer walks take longer than exact search")
        del index  # free its memory before the exact search
    tell(f"{heading}: exact search")
    return unit_neighbours(rows, others, k, show_progress_bar)


def unit_neighbours(
    queries: UnitRows, candidates: UnitRows, k: int, show_progress_bar: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Exact search: cosines (n, k) float32, falling, and row numbers (n, k), equal cosines in order of row number."""
    cosines = np.full((len(queries), k), -np.inf, np.float32)
    indices = np.full((len(queries), k), len(candidates), np.int64)
    with _bar("Searching", len(queries) * len(candidates), "pairs", show_progress_bar) as bar:
        for columns, pool in candidates.blocks(BLOCK):
            for rows, unit in queries.blocks(BLOCK):
                found = _largest(_products(unit, pool), min(k, pool.shape[0]))
                both = np.hstack([cosines[rows], found[0]]), np.hstack([indices[rows], found[1] + columns.start])
                order = np.lexsort((both[1], -both[0]), axis=1)[:, :k]
                cosines[rows], indices[rows] = (np.take_along_axis(each, order, axis=1) for each in both)
                bar.update(unit.shape[0] * pool.shape[0])
    return np.clip(cosines, -1, 1), indices


def row_cosines(first: Matrix, second: Matrix) -> np.ndarray:
    """Cosine of each row of `first` (n, d) to the same row of `second` (n, d), dense or sparse: (n,) float64.

    Raises:
        ValueError: Different shapes, no rows, or numbers that are not finite.
    """
    sides = two_sides(("first", first), ("second", second))
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"Found {len(sides[0])} rows in first and {len(sides[1])} in second, expected as many")
    return np.concatenate([_row_products(unit, sides[1][rows]) for rows, unit in sides[0].blocks(BLOCK)])


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
    `distance` is cos - m, `ratio` is cos / max(m, 1e-6), and `absolute` the cosine itself.

    A candidate that ties with the right one counts as before it, so that a system gains nothing by equal vectors. It
    ties if its cosine is less than 1e-6 below the one that would give it the right one's score: so much do the vectors
    of one text differ in float32.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        targets: (n,) row number of the right candidate of each query.
        scoring: `cosine`, `ratio`, `distance` or `absolute`.
        k: Neighbors of a margin; all rows of a side that has fewer.
        block: Rows of a block on each side. The search takes some 20 `block` (`block` + d) bytes.

    Returns:
        (n,) int64, from 1 to m.

    Raises:
        ValueError: No rows, different dimensions, numbers that are not finite, targets that are no row numbers of
            candidates, unknown scoring, `k` below 1.
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring: found {scoring!r}, expected one of {', '.join(SCORINGS)}")
    if k < 1:
        raise ValueError(f"k: found {k}, expected at least 1")
    sides, targets = two_sides(("queries", queries), ("candidates", candidates)), np.asarray(targets)
    if targets.shape != (len(sides[0]),) or targets.min() < 0 or targets.max() >= len(sides[1]):
        raise ValueError(
            f"targets: found {targets.shape} from {targets.min()} to {targets.max()}, expected ({len(sides[0])},) row "
            f"numbers from 0 to {len(sides[1]) - 1}"
        )
    right = np.concatenate([_row_products(unit, sides[1][targets[rows]]) for rows, unit in sides[0].blocks(block)])
    means = None
    if scoring in ("ratio", "distance"):
        pairs = sides, sides[::-1]
        means = [unit_neighbours(rows, others, min(k, len(others)))[0].mean(axis=1) for rows, others in pairs]
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
    """The margin `ratio` by which pairs are ranked, in place of the cosines; `means` is overwritten, too.

    If m(x, y) is 1e-6 or less, neighbors say nothing about the pair, and a positive cosine over the floor would be a
    ratio above all others. Such a pair scores (cos - 3) / 1e-6, from -4e6 to -2e6: below all ratios, which are at
    least -1e6, and by cosine among its like.
    """
    np.subtract(cosines, 3, out=cosines, where=means <= SMALLEST_MEAN)
    np.maximum(means, SMALLEST_MEAN, out=means)
    return np.divide(cosines, means, out=cosines)


def say_without_ratio(what: str, scores: np.ndarray, say: Callable[[str], None] | None) -> None:
    """Says how many of these [`ranked_ratios`], those of `what`, are none, if any."""
    without = int(np.count_nonzero(scores < NO_RATIO))
    if without and say is not None:
        say(
            f"{without:,} of {len(scores):,} {what} have no ratio: the mean cosine of their neighbors is 1e-6 or "
            "less. They score below all others, by cosine; distance scores them like all others"
        )


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


def slices(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _needed_cosines(
    scoring: str, right: np.ndarray, means: list[np.ndarray] | None, targets: np.ndarray, rows: slice, columns: slice
) -> np.ndarray:
    """The cosine with which a candidate ties: (rows, columns), or (rows, 1) if it is one for all; float32."""
    if means is None:
        return (right[:, None] - TIE).astype(np.float32)
    of_queries, of_candidates = means
    margins = (of_queries[rows, None] + of_candidates[None, columns]) / 2  # m(x, y) of every candidate
    score = margin_scores(scoring, right, (of_queries[rows] + of_candidates[targets]) / 2)[:, None]
    if scoring == "distance":
        return score + margins - TIE
    return score * np.maximum(margins, SMALLEST_MEAN) - TIE


def _norms(block: Matrix) -> np.ndarray:
    """(n,) float64."""
    block = block.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if scipy.sparse.issparse(block):
            return np.sqrt(np.asarray(block.multiply(block).sum(axis=1)).ravel())
        return np.sqrt(np.einsum("ij,ij->i", block, block))


def _products(queries: Matrix, candidates: Matrix) -> np.ndarray:
    """Products of all rows, (n, m) float32, dense."""
    products = queries @ candidates.T
    return products.toarray() if scipy.sparse.issparse(products) else products


def _row_products(first: Matrix, second: Matrix) -> np.ndarray:
    """Products of rows at equal positions, (n,) float64."""
    if scipy.sparse.issparse(first):
        return np.asarray(first.astype(np.float64).multiply(second).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", first, second, dtype=np.float64)


def _largest(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of each row and their columns, (n, k); of equal ones those of the lowest columns."""
    if 2 * k >= values.shape[1]:
        columns = np.argsort(-values, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(values, columns, axis=1), columns
    found, columns = (each.numpy() for each in torch.topk(torch.from_numpy(values), k + 1))
    # torch takes any of the columns that tie for the last place
    for row in np.flatnonzero(found[:, k] == found[:, k - 1]):
        columns[row, :k] = np.argsort(-values[row], kind="stable")[:k]
        found[row, :k] = values[row, columns[row, :k]]
    return found[:, :k], columns[:, :k]


def _build(kind: str, candidates: UnitRows, show_progress_bar: bool) -> faiss.Index:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("An approximate search needs faiss: pip install 'tmde[search]'") from error
    number, dimensions = candidates.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, LINKS, faiss.METRIC_INNER_PRODUCT)
    else:
        lists = max(1, min(int(4 * number**0.5), number // 40))  # faiss warns of fewer than 39 vectors a list
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.min_points_per_centroid = 10, 1
        index.train(candidates[np.sort(_sample(number, lists * 40))])
    with _bar("Indexing", number, "rows", show_progress_bar) as bar:
        for _, unit in candidates.blocks(BLOCK):
            index.add(unit)
            bar.update(len(unit))
    return index


def _tune(index: faiss.Index, queries: UnitRows, candidates: UnitRows, k: int, limit: int) -> tuple[str, float]:
    """Doubles the effort of the index until it finds enough, or is at `limit`. Returns its settings and recall."""
    sample = UnitRows("sample", queries[np.sort(_sample(len(queries), SAMPLE))])
    farthest = unit_neighbours(sample, candidates, k)[0][:, -1:]
    effort = FIRST_EFFORT
    while True:
        effort = min(effort, limit)
        if hasattr(index, "nlist"):
            limit = min(limit, index.nlist)
            index.nprobe = min(effort, limit)
            settings = f"IVF (nlist = {index.nlist:,}, nprobe = {index.nprobe:,})"
        else:
            index.hnsw.efSearch = effort
            settings = f"HNSW (M = {LINKS}, efConstruction = {index.hnsw.efConstruction}, efSearch = {effort:,})"
        recall = float((index.search(sample[:], k)[0] >= farthest - TIE).mean())
        if recall >= RECALL or effort >= limit:
            return settings, recall
        effort *= 2


def _search(
    index: faiss.Index, queries: UnitRows, candidates: UnitRows, k: int, show_progress_bar: bool
) -> tuple[np.ndarray, np.ndarray]:
    cosines = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int64)
    with _bar("Searching", len(queries), "rows", show_progress_bar) as bar:
        for rows, unit in queries.blocks(BLOCK):
            cosines[rows], indices[rows] = index.search(unit, k)
            short = np.flatnonzero((indices[rows] < 0).any(axis=1))  # the probed lists hold fewer than k
            if len(short):
                again = unit_neighbours(UnitRows("queries", unit[short]), candidates, k)
                cosines[rows.start + short], indices[rows.start + short] = again
            bar.update(len(unit))
    return np.clip(cosines, -1, 1), indices


def _sample(total: int, size: int) -> np.ndarray:
    return np.random.default_rng(42).choice(total, min(total, size), replace=False)


def _bar(what: str, total: int, unit: str, shown: bool) -> tqdm:
    return tqdm(total=total, desc=what, unit=f" {unit}", unit_scale=True, disable=not shown)
