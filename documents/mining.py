"""Bitext mining: translations among the sentences of two collections that are not parallel."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np

from modeling_tmde.documents.margins import ScoredPairs, matched_pairs, scored_pairs
from modeling_tmde.documents.nearest import Matrix

RETRIEVALS = ("forward", "backward", "intersection", "max")


def mine_bitext(
    first: Matrix,
    second: Matrix,
    first_texts: Sequence[str] | None = None,
    second_texts: Sequence[str] | None = None,
    scoring: str = "ratio",
    k: int = 4,
    retrieval: str = "max",
    threshold: float | None = None,
    max_pairs: int | None = None,
    drop_identical: bool = False,
    search: str = "auto",
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("first", "second"),
) -> ScoredPairs:
    """Pairs of rows that are likely translations, by the margins of Artetxe & Schwenk 2019 (arXiv 1811.01136).

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        first_texts, second_texts: (n,) and (m,) texts of the rows. Of equal ones only the first takes part, and empty
            ones none; see [`first_occurrences`]. None: all rows take part.
        scoring, k: `cosine`, `ratio` or `distance`, and the neighbours of these margins; see
            [`~modeling_tmde.documents.margins.scored_pairs`].
        retrieval, threshold, max_pairs: See [`retrieved_pairs`].
        drop_identical: Leave out pairs of equal texts, which crawled pages have many of that nobody translated.
        search: `auto`, `exact`, `ivf` or `hnsw`; see
            [`~modeling_tmde.documents.neighbours.find_neighbours`], also for `say` and `show_progress_bar`.
        names: Of the two sides, in messages.

    Returns:
        Pairs, best first.

    Raises:
        ValueError: Unknown scoring, retrieval or search, `k` below 1, a threshold that is not a number, `max_pairs`
            below 0, no rows, different dimensions, numbers that are not finite, not one text for each row, or none
            that is not empty; `drop_identical` without texts.
        ImportError: Dense vectors without faiss.

    Example:
        >>> vectors = np.eye(3, dtype=np.float32)
        >>> mined = mine_bitext(vectors, vectors[[2, 0]])
        >>> list(zip(mined.first.tolist(), mined.second.tolist()))
        [(0, 1), (2, 0)]
    """
    check_retrieval(retrieval, threshold, max_pairs)
    if drop_identical and (first_texts is None or second_texts is None):
        raise ValueError("drop_identical: found no texts of both sides, expected first_texts and second_texts")
    first, second = (each if hasattr(each, "shape") else np.asarray(each) for each in (first, second))  # lists
    rows = _taking_part(names[0], first, first_texts)
    others = _taking_part(names[1], second, second_texts)
    sides = (each if chosen is None else each[chosen] for each, chosen in ((first, rows), (second, others)))
    options = {"search": search, "say": say, "show_progress_bar": show_progress_bar, "names": names}
    pairs = scored_pairs(*sides, scoring, k, **options)
    mined = retrieved_pairs(pairs, retrieval, threshold)
    mined = ScoredPairs(
        mined.first if rows is None else rows[mined.first],
        mined.second if others is None else others[mined.second],
        mined.scores,
    )
    if drop_identical:
        texts = zip(mined.first.tolist(), mined.second.tolist(), strict=True)
        mined = mined[np.array([plain_text(first_texts[i]) != plain_text(second_texts[j]) for i, j in texts], bool)]
    return mined[:max_pairs]


def retrieved_pairs(
    pairs: ScoredPairs, retrieval: str = "max", threshold: float | None = None, max_pairs: int | None = None
) -> ScoredPairs:
    """Chooses among candidate pairs (Artetxe & Schwenk 2019, section 3.2).

    Args:
        pairs: Scored candidates. A row's best pair is its best one here, in whichever direction it was found.
        retrieval: `forward`, the best pair of each row of the first side; `backward`, of each row of the second;
            `intersection`, those in both; `max`, those in either, best first, as long as both rows are unused.
        threshold: Lowest score; None for all.
        max_pairs: At most so many, the best; None for all.

    Returns:
        Pairs, best first.

    Raises:
        ValueError: Unknown retrieval, a threshold that is not a number, `max_pairs` below 0.
    """
    check_retrieval(retrieval, threshold, max_pairs)
    ordered = pairs.best_first()
    _, forward = np.unique(ordered.first, return_index=True)  # the first occurrence is the best
    _, backward = np.unique(ordered.second, return_index=True)
    chosen = {
        "forward": lambda: np.sort(forward),
        "backward": lambda: np.sort(backward),
        "intersection": lambda: np.intersect1d(forward, backward),
        "max": lambda: np.union1d(forward, backward),
    }[retrieval]()
    mined = ordered[chosen]
    if retrieval == "max":
        mined = matched_pairs(mined)
    if threshold is not None:
        mined = mined[mined.scores.astype(np.float64) >= threshold]  # a threshold lies between float32 scores
    return mined[:max_pairs]


def plain_text(text: str) -> str:
    """The text in NFC, with one space for each run of white space and none around: what equal sentences agree in."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def first_occurrences(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Finds the texts that repeat an earlier one, and the empty ones; equal are those of equal [`plain_text`].

    Returns:
        occurrences (n,) int64: for each text the row number of the first that equals it, its own if none does.
        kept (at most n,) int64: row numbers of the texts that are neither empty nor repeat another.
    """
    seen: dict[str, int] = {}
    occurrences = np.array([seen.setdefault(plain_text(text), row) for row, text in enumerate(texts)], np.int64)
    kept = np.flatnonzero(occurrences == np.arange(len(occurrences)))
    return occurrences, kept[kept != seen.get("", -1)]


def _taking_part(name: str, matrix: Matrix, texts: Sequence[str] | None) -> np.ndarray | None:
    """Row numbers, or None for all: then the matrix need not be copied."""
    if texts is None:
        return None
    if len(texts) != matrix.shape[0]:
        raise ValueError(f"{name}: found {len(texts)} texts, expected {matrix.shape[0]}, one for each row")
    _, kept = first_occurrences(texts)
    if not len(kept):
        raise ValueError(f"{name}: found {len(texts)} texts, all of them empty, expected at least one that is not")
    return None if len(kept) == len(texts) else kept


def check_retrieval(retrieval: str, threshold: float | None, max_pairs: int | None) -> None:
    """ValueError if these are none of [`retrieved_pairs`]'s arguments."""
    if retrieval not in RETRIEVALS:
        raise ValueError(f"retrieval: found {retrieval!r}, expected one of {', '.join(RETRIEVALS)}")
    if threshold is not None and np.isnan(threshold):
        raise ValueError(f"threshold: found {threshold}, expected a number, or None for all pairs")
    if max_pairs is not None and max_pairs < 0:
        raise ValueError(f"max_pairs: found {max_pairs}, expected at least 0, or None for all")
