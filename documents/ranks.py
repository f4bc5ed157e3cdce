"""Ranks of the right candidates of queries, by cosine or by margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.neighbors import (
    check_scoring,
    cosines_of_scores,
    exact_neighbors,
    ranked_scores,
)
from tmde.documents.unit_rows import TIE, Matrix, UnitRows, products, row_products, two_sides


@dataclass(frozen=True)
class TiedRanks:
    """The ranks that right candidates may have, because others tie with them.

    Attributes:
        first: (n,) int64, the rank of each query's right candidate if it is before all that tie
            with it, from 1.
        last: (n,) int64, its rank if it is behind them.
    """

    first: np.ndarray
    last: np.ndarray

    def chance_within(self, k: int) -> np.ndarray:
        """Return the chance of a rank of at most k if ties are ordered at random, (n,).

        A candidate that is tied with t others for the first place has it with chance 1 / (t + 1).
        """
        tied_places = self.last - self.first + 1
        places_within = np.clip(k - self.first + 1, 0, tied_places)
        return places_within / tied_places

    def mean_reciprocals(self) -> np.ndarray:
        """Return the mean of 1 / rank over the ranks that ties allow, (n,)."""
        harmonic_numbers = np.cumsum(1 / np.arange(1, self.last.max() + 1))
        sums = harmonic_numbers[self.last - 1] - harmonic_numbers[self.first - 1] + 1 / self.first
        return sums / (self.last - self.first + 1)


def target_ranks(
    queries: Matrix,
    candidates: Matrix,
    targets: Sequence[int] | np.ndarray,
    scoring: str = "cosine",
    k: int = 4,
) -> np.ndarray:
    """Return the rank of the right candidate of each query, behind all that tie with it.

    The arguments and errors are those of [`tied_ranks`].

    Returns:
        (n,) int64, from 1 to m.
    """
    return tied_ranks(queries, candidates, targets, scoring, k).last


def tied_ranks(
    queries: Matrix,
    candidates: Matrix,
    targets: Sequence[int] | np.ndarray,
    scoring: str = "cosine",
    k: int = 4,
) -> TiedRanks:
    """Return the ranks of the right candidate of each query among all candidates.

    Candidates are ranked by cosine or by margin; see [`~tmde.documents.neighbors`]. A candidate
    ties with the right one if its cosine is less than 1e-6 from the one that would give it the
    right one's score: so much do the vectors of one text differ in float32.

    Args:
        queries: (n, d), dense or sparse.
        candidates: (m, d), of the same kind.
        targets: (n,) row number of the right candidate of each query.
        scoring: `cosine`, `ratio` or `distance`.
        k: The neighbors of a margin; all rows of a side that has fewer.

    Raises:
        TmdeError: No rows, different dimensions, numbers that are not finite, targets that are no
            row numbers of candidates, unknown scoring, `k` below 1.
    """
    check_scoring(scoring, k)
    query_rows, candidate_rows = two_sides(("queries", queries), ("candidates", candidates))
    targets = _checked_targets(targets, len(query_rows), len(candidate_rows))
    target_cosines = []
    for rows, query_block in query_rows.blocks():
        target_cosines.append(row_products(query_block, candidate_rows[targets[rows]]))
    margins = _margins(scoring, query_rows, candidate_rows, k)
    target_scores = margins.target_scores(np.concatenate(target_cosines), targets)  # (n,)
    first = np.ones(len(query_rows), np.int64)
    last = np.ones(len(query_rows), np.int64)
    tie = np.float32(TIE)
    for columns, candidate_block in candidate_rows.blocks():
        for rows, query_block in query_rows.blocks():
            cosines = products(query_block, candidate_block)  # (rows, columns)
            # The right candidate is not before itself.
            block_targets = targets[rows]
            is_here = (block_targets >= columns.start) & (block_targets < columns.stop)
            here = np.flatnonzero(is_here)
            cosines[here, block_targets[here] - columns.start] = -np.inf
            needed = margins.needed_cosines(target_scores[rows], rows, columns)
            first[rows] += np.count_nonzero(cosines > needed + tie, axis=1)
            last[rows] += np.count_nonzero(cosines >= needed - tie, axis=1)
    return TiedRanks(first, last)


def _checked_targets(
    targets: Sequence[int] | np.ndarray, query_count: int, candidate_count: int
) -> np.ndarray:
    targets = np.asarray(targets)
    is_right_shape = targets.shape == (query_count,)
    if not is_right_shape or targets.min() < 0 or targets.max() >= candidate_count:
        raise TmdeError(
            f"targets: found {targets}, expected {query_count} row numbers below {candidate_count}"
        )
    return targets


@dataclass(frozen=True)
class _Margins:
    """The scores of pairs, and the cosines that lead to them.

    Attributes:
        scoring: `cosine`, `ratio` or `distance`.
        query_means: The mean cosine of each query to its nearest candidates, (n,); None for
            `cosine`, which needs no neighbors.
        candidate_means: The mean cosine of each candidate to its nearest queries, (m,); or None.
    """

    scoring: str
    query_means: np.ndarray | None
    candidate_means: np.ndarray | None

    def target_scores(self, cosines: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the scores of all queries and their targets, (n,), of their cosines."""
        if self.query_means is None or self.candidate_means is None:
            return cosines
        means = (self.query_means + self.candidate_means[targets]) / 2
        return ranked_scores(self.scoring, cosines, means)

    def needed_cosines(self, scores: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
        """Return the cosines that give candidates the scores, (rows, columns) or (rows, 1)."""
        scores = scores[:, None].astype(np.float32)
        if self.query_means is None or self.candidate_means is None:
            return scores
        means = (self.query_means[rows, None] + self.candidate_means[None, columns]) / 2
        return cosines_of_scores(self.scoring, scores, means)


def _margins(scoring: str, queries: UnitRows, candidates: UnitRows, k: int) -> _Margins:
    if scoring == "cosine":
        return _Margins(scoring, query_means=None, candidate_means=None)
    return _Margins(
        scoring,
        query_means=_mean_cosines(queries, candidates, k),
        candidate_means=_mean_cosines(candidates, queries, k),
    )


def _mean_cosines(queries: UnitRows, candidates: UnitRows, k: int) -> np.ndarray:
    """Return the mean cosine of each query to its k nearest candidates, (n,)."""
    cosines, _ = exact_neighbors(queries, candidates, min(k, len(candidates)))
    return cosines.mean(axis=1)
