"""Pairs of rows of two matrices that may be translations, scored by cosine or by margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from modeling_tmde.documents.nearest import Matrix, margin_scores, ranked_ratios, say_without_ratio
from modeling_tmde.documents.neighbours import find_neighbours

SCORINGS = ("cosine", "ratio", "distance")


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of rows: `first` and `second` are their row numbers, (p,) int64; `scores` (p,) float32."""

    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, chosen: slice | np.ndarray) -> ScoredPairs:
        """The chosen pairs, in the order of their choice."""
        return ScoredPairs(self.first[chosen], self.second[chosen], self.scores[chosen])

    def best_first(self) -> ScoredPairs:
        """All pairs by falling score; equal scores in order of row numbers, so that two runs agree."""
        return self[np.lexsort((self.second, self.first, -self.scores))]


def scored_pairs(
    first: Matrix,
    second: Matrix,
    scoring: str = "ratio",
    k: int = 4,
    candidates: int | None = None,
    search: str = "exact",
    say: Callable[[str], None] | None = None,
    show_progress_bar: bool = False,
    names: tuple[str, str] = ("first", "second"),
) -> ScoredPairs:
    """Each row of either side with its nearest rows of the other side, scored.

    The margins of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3.1): with m(x, y) half the sum of the mean cosine
    of x to its `k` nearest of the other side and that of y to its `k` nearest, `ratio` is cos(x, y) / m(x, y),
    `distance` cos(x, y) - m(x, y), and `cosine` their `absolute` margin. A pair whose m(x, y) is 1e-6 or less
    has no ratio: its score is -2e6 or less, below all others, by cosine among its like
    ([`~modeling_tmde.documents.nearest.ranked_ratios`]); `say` is told how many there are.

    Args:
        first: (n, d), dense or sparse.
        second: (m, d), of the same kind.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbours of a margin; all rows of a side that has fewer.
        candidates: Neighbours that are listed for each row, `k` if None; all rows of a side that has fewer.
        search: `exact`, `ivf`, `hnsw` or `auto`; see [`~modeling_tmde.documents.neighbours.find_neighbours`],
            also for `say` and `show_progress_bar`.
        names: Of the two sides, in messages.

    Returns:
        Every pair once, in order of row numbers: at most (n + m) `candidates` of them.

    Raises:
        ValueError: Unknown scoring or search, `k` or `candidates` below 1, no rows, different dimensions, numbers that
            are not finite.
        ImportError: Dense vectors without faiss.
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring: found {scoring!r}, expected one of {', '.join(SCORINGS)}")
    listed = k if candidates is None else candidates
    for name, number in (("k", k), ("candidates", listed)):
        if number < 1:
            raise ValueError(f"{name}: found {number}, expected at least 1")
    width = max(k, listed)
    options = {"search": search, "say": say, "show_progress_bar": show_progress_bar}
    forward = find_neighbours(first, second, width, names=names, **options)  # (n, width) each
    backward = find_neighbours(second, first, width, names=names[::-1], **options)  # (m, width) each
    pairs = _union(forward, backward, listed)
    if scoring == "cosine":
        return pairs
    of_first, of_second = (cosines[:, :k].mean(axis=1) for cosines, _ in (forward, backward))
    means = (of_first[pairs.first] + of_second[pairs.second]) / 2
    if scoring == "distance":
        return ScoredPairs(pairs.first, pairs.second, margin_scores(scoring, pairs.scores, means))
    scores = ranked_ratios(pairs.scores, means)
    say_without_ratio(f"candidate pairs of {names[0]} and {names[1]}", scores, say)
    return ScoredPairs(pairs.first, pairs.second, scores)


def matched_pairs(pairs: ScoredPairs) -> ScoredPairs:
    """Competitive matching: pairs are taken best first, and each row of either side once; best first."""
    ordered = pairs.best_first()
    used_first: set[int] = set()
    used_second: set[int] = set()
    kept = []
    for position, (row, other) in enumerate(zip(ordered.first.tolist(), ordered.second.tolist(), strict=True)):
        if row not in used_first and other not in used_second:
            used_first.add(row)
            used_second.add(other)
            kept.append(position)
    return ordered[np.array(kept, np.int64)]


def _union(
    forward: tuple[np.ndarray, np.ndarray], backward: tuple[np.ndarray, np.ndarray], listed: int
) -> ScoredPairs:
    """The pairs of both searches by their cosines: both give (rows, width) cosines and row numbers."""
    cosines, seconds = (found[:, :listed] for found in forward)
    back_cosines, firsts = (found[:, :listed] for found in backward)
    first = np.concatenate([np.repeat(np.arange(len(seconds)), seconds.shape[1]), firsts.ravel()])
    second = np.concatenate([seconds.ravel(), np.repeat(np.arange(len(firsts)), firsts.shape[1])])
    _, kept = np.unique(first * len(firsts) + second, return_index=True)
    return ScoredPairs(first[kept], second[kept], np.concatenate([cosines.ravel(), back_cosines.ravel()])[kept])
