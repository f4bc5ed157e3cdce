"""The search for neighbours among many vectors: exact, or through an approximate index of faiss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from tqdm.auto import tqdm

from modeling_tmde.documents.nearest import BLOCK, TIE, Matrix, UnitRows, two_sides, unit_neighbours

if TYPE_CHECKING:
    import faiss

SEARCHES = ("auto", "exact", "ivf", "hnsw")
EXACT_COST = 1e13  # n m d, that of 100,000 x 100,000 x 1,024: some 4 minutes on one core
FOUND = 0.95  # share of the exact neighbours for which an index is set
SAMPLE = 256  # queries by which it is set
FIRST_EFFORT = 8
LAST_EFFORT = 4096
WORTHWHILE = 400  # candidates for each step of a walk through the graph: with fewer, exact search is faster
LIST_ROWS = 40  # training vectors of a list's centre; faiss warns of fewer than 39
LINKS = 32  # of a node of the graph
SEED = 42


def find_neighbours(
    queries: Matrix,
    candidates: Matrix,
    k: int,
    search: str = "exact",
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("queries", "candidates"),
) -> tuple[np.ndarray, np.ndarray]:
    """The `k` candidates of highest cosine to each query, or nearly these: the nearest that an index finds.

    `ivf` is an inverted file: the candidates in 4 sqrt(m) lists, of which a query looks at the nearest few. `hnsw` is
    a graph of neighbours that a query walks along (Malkov & Yashunin 2018, arXiv 1603.09320). How far a query looks is
    doubled until 95 % of the exact neighbours of 256 queries are found, which are drawn at random. `auto` is `exact`
    up to n m d = 1e13, and for sparse rows; beyond it `hnsw`, and `exact` again if a walk would have to be so long
    that it takes longer.

    faiss takes as many threads as OMP_NUM_THREADS says; with more than one, a graph differs a little from run to run.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        k: All m candidates if there are fewer.
        search: `exact`, `ivf`, `hnsw` or `auto`.
        say: Called with a line that names the search, its settings, and what share of the exact neighbours it finds.
        show_progress_bar: On stderr.
        names: Of the two sides, in messages.

    Returns:
        Cosines (n, min(k, m)) float32, falling, and row numbers of the candidates (n, min(k, m)) int64. Whatever is
        found, its cosine is exact.

    Raises:
        ValueError: Unknown search, one of sparse rows by an index, `k` below 1, no rows, different dimensions, or
            numbers that are not finite.
        ImportError: Dense vectors without faiss.
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

    def tell(line: str) -> None:
        if say is not None:
            say(f"{names[0]} -> {names[1]}, {len(rows):,} x {len(others):,} x {others.shape[1]:,}: {line}")

    if kind != "exact":
        index = _build(kind, others, show_progress_bar)
        found = _tune(index, rows, others, k, limit)
        settings = f"{_settings(index)}, which finds {found:.1%} of the exact neighbours of {min(len(rows), SAMPLE)}"
        if search != "auto" or found >= FOUND:
            tell(f"searched by {settings} of the rows")
            return _search(index, rows, others, k, show_progress_bar)
        tell(f"not searched by {settings} of the rows: longer walks take longer than exact search")
        del index  # before the other search takes memory
    tell("exact search")
    return unit_neighbours(rows, others, k, show_progress_bar)


def _build(kind: str, candidates: UnitRows, show_progress_bar: bool) -> faiss.Index:
    try:
        import faiss
    except ImportError as error:
        raise ImportError("Nearest neighbours need faiss: pip install 'tmde[eval]'") from error
    number, dimensions = candidates.shape
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimensions, LINKS, faiss.METRIC_INNER_PRODUCT)
    else:
        lists = max(1, min(int(4 * number**0.5), number // LIST_ROWS))
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.seed = 10, SEED
        size = min(number, lists * LIST_ROWS)
        chosen = np.sort(np.random.default_rng(SEED).choice(number, size, replace=False))
        index.cp.min_points_per_centroid = 1  # a few candidates make one list, which needs no warning
        index.train(candidates[chosen])
    with _bar("Indexing", number, show_progress_bar) as bar:
        for _, unit in candidates.blocks(BLOCK):
            index.add(unit)
            bar.update(len(unit))
    return index


def _tune(index: faiss.Index, queries: UnitRows, candidates: UnitRows, k: int, limit: int) -> float:
    """Doubles the effort of the index until it finds enough, or it is at `limit`; the share that it finds then."""
    chosen = np.random.default_rng(SEED).choice(len(queries), min(len(queries), SAMPLE), replace=False)
    sample = UnitRows("sample", queries[np.sort(chosen)])
    farthest = unit_neighbours(sample, candidates, k)[0][:, -1:]
    effort = FIRST_EFFORT
    while True:
        most = _set_effort(index, min(effort, limit))
        cosines, _ = index.search(sample[:], k)  # those that are missing are far below -1
        found = float((cosines >= farthest - TIE).mean())
        if found >= FOUND or effort >= min(limit, most):
            return found
        effort *= 2


def _set_effort(index: faiss.Index, effort: int) -> int:
    """Returns the largest that makes a difference."""
    if hasattr(index, "nlist"):
        index.nprobe = min(effort, index.nlist)
        return index.nlist
    index.hnsw.efSearch = effort
    return index.ntotal


def _settings(index: faiss.Index) -> str:
    if hasattr(index, "nlist"):
        return f"IVF (nlist = {index.nlist:,}, nprobe = {index.nprobe:,})"
    return f"HNSW (M = {LINKS}, efConstruction = {index.hnsw.efConstruction}, efSearch = {index.hnsw.efSearch:,})"


def _search(
    index: faiss.Index, queries: UnitRows, candidates: UnitRows, k: int, show_progress_bar: bool
) -> tuple[np.ndarray, np.ndarray]:
    cosines = np.empty((len(queries), k), np.float32)
    indices = np.empty((len(queries), k), np.int64)
    with _bar("Searching", len(queries), show_progress_bar) as bar:
        for rows, unit in queries.blocks(BLOCK):
            cosines[rows], indices[rows] = index.search(unit, k)
            short = np.flatnonzero((indices[rows] < 0).any(axis=1))  # the lists they looked at hold fewer than k
            if len(short):
                again = unit_neighbours(UnitRows("queries", unit[short]), candidates, k)
                cosines[rows.start + short], indices[rows.start + short] = again
            bar.update(len(unit))
    return np.clip(cosines, -1, 1), indices


def _bar(what: str, total: int, shown: bool) -> tqdm:
    return tqdm(total=total, desc=what, unit=" rows", unit_scale=True, disable=not shown)
