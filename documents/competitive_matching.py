"""Competitive matching: the pair of the best score, then the best of those left, and so on."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np

from tmde.documents.distinct_pairs import distinctness_of
from tmde.documents.neighbors import ranked_scores
from tmde.documents.unit_rows import Matrix, largest, products, slices, slices_with_bar, two_sides

CANDIDATES = 32  # candidates that a row lists
CELLS = 2**22  # scores held at a time: 32 MiB, and twice as much to sort them
COLUMNS = 4096  # vectors of the second side in float64 at a time

# Scores that are equal to so many decimals are ties, because the last digits of a sum of float64
# depend on its order.
DECIMALS = 9
_COMPARED = 2  # the nearest candidate, and the next one


class PairScorer:
    """Scores of any rows and columns, in float64, so that equal documents tie.

    Args:
        first: The vectors of the rows, (n, d), dense or sparse.
        second: The vectors of the columns, (m, d), of the same kind.
        scoring: `cosine`, `ratio` or `distance`.
        k: The neighbors of a margin.
    """

    def __init__(self, first: Matrix, second: Matrix, scoring: str, k: int) -> None:
        self.first, self.second = two_sides(("first", first), ("second", second), dtype=np.float64)
        self.shape = len(self.first), len(self.second)
        self.scoring = scoring
        self.row_nearest, self.column_nearest = self._nearest_cosines(max(k, _COMPARED))
        if scoring == "cosine":
            self.row_means = np.zeros(self.shape[0])
            self.column_means = np.zeros(self.shape[1])
        else:
            self.row_means = self.row_nearest[:, :k].mean(axis=1)
            self.column_means = self.column_nearest[:, :k].mean(axis=1)

    def score(self, row: int, column: int) -> float:
        """Return the score of one pair."""
        return float(self._scores(np.array([row]), np.array([column]))[0, 0])

    def distinctness(self, row: int, column: int) -> float:
        """Return how much nearer a pair is than its next best; see `distinct_pairs`.

        The next best is any other text of the other side, whatever its website. If that has a copy
        of one of the texts, this is 0.
        """
        cosine = self._cosines(np.array([row]), np.array([column]))[0, 0]
        next_in_row = _next_cosine(self.row_nearest[row], cosine)
        next_in_column = _next_cosine(self.column_nearest[column], cosine)
        return float(distinctness_of(cosine, np.maximum(next_in_row, next_in_column)))

    def best(
        self, rows: np.ndarray, columns: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of highest score for each row.

        Returns:
            Their numbers and scores, (rows, count) each, falling, ties in order of column.
        """
        best_columns = np.empty((len(rows), count), np.int64)
        best_scores = np.empty((len(rows), count))
        for part in self._parts(rows, columns):
            best_scores[part], places = largest(self._scores(rows[part], columns), count)
            best_columns[part] = columns[places]
        return best_columns, best_scores

    def _nearest_cosines(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the cosines of each row and each column to its k nearest, falling.

        Returns:
            (n, k) and (m, k); fewer than k numbers for a row if the other side has fewer.
        """
        rows = np.arange(self.shape[0])
        columns = np.arange(self.shape[1])
        row_k = min(k, len(columns))
        column_k = min(k, len(rows))
        nearest_columns = np.empty((len(rows), row_k))
        nearest_rows = np.full((column_k, len(columns)), -np.inf)
        for part in self._parts(rows, columns):
            cosines = self._cosines(rows[part], columns)
            nearest_columns[part] = np.partition(cosines, -row_k, axis=1)[:, -row_k:]
            candidates = np.vstack([nearest_rows, cosines])
            nearest_rows = np.partition(candidates, -column_k, axis=0)[-column_k:]
        return np.sort(nearest_columns)[:, ::-1], np.sort(nearest_rows.T)[:, ::-1]

    def _parts(self, rows: np.ndarray, columns: np.ndarray) -> Iterable[slice]:
        """Return slices of the rows whose scores to all columns fit into memory."""
        return slices_with_bar(len(rows), max(1, CELLS // len(columns)), "Searching")

    def _cosines(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        row_vectors = self.first[rows]
        cosines = np.empty((len(rows), len(columns)))
        for part in slices(len(columns), COLUMNS):
            cosines[:, part] = products(row_vectors, self.second[columns[part]])
        return cosines

    def _scores(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        means = (self.row_means[rows, None] + self.column_means[None, columns]) / 2
        scores = ranked_scores(self.scoring, self._cosines(rows, columns), means)
        return np.round(scores, DECIMALS)


def _next_cosine(nearest: np.ndarray, cosine: float) -> float:
    """Return the highest of the falling cosines, leaving out that of the pair; -1 without any."""
    if np.round(nearest[0] - cosine, DECIMALS) > 0:
        return float(nearest[0])
    return float(nearest[1]) if len(nearest) > 1 else -1.0


def competitive_matching(
    scorer: PairScorer, rows: np.ndarray, columns: np.ndarray, threshold: float | None
) -> Iterator[tuple[int, int, float]]:
    """Yield the pairs of highest score and their scores, no row and no column twice, best first.

    The result is that of sorting all scores, but not all are held. Each row lists its best
    candidates. A heap holds for each row the score of its best free candidate, or of one that was
    taken since, which is higher. What comes out on top with this very score is the best of all
    pairs that are left.

    Args:
        scorer: The scores.
        rows: The numbers of the rows to pair.
        columns: The numbers of the columns.
        threshold: The lowest score of a pair; None for any.
    """
    lists = _CandidateLists(scorer, rows, columns)
    heap = [(-score, place) for place, score in enumerate(lists.scores[:, 0].tolist())]
    heapq.heapify(heap)
    while heap and lists.free_count:
        negative_score, place = heapq.heappop(heap)
        column, score, is_free = lists.best_free(place)
        if score < -negative_score:
            heapq.heappush(heap, (-score, place))
        elif threshold is not None and score < threshold:
            return
        elif is_free:
            yield int(rows[place]), column, score
            lists.take(place, column)
        else:
            lists.search_again()
            heapq.heappush(heap, (negative_score, place))


class _CandidateLists:
    """The best candidates of each row, and which of them are free.

    Args:
        scorer: The scores.
        rows: The numbers of the rows.
        columns: The numbers of the columns.

    Attributes:
        free_count: The number of free columns.
    """

    def __init__(self, scorer: PairScorer, rows: np.ndarray, columns: np.ndarray) -> None:
        self.scorer = scorer
        self.rows = rows
        self.width = min(CANDIDATES, len(columns))
        self.free_count = len(columns)
        self.no_column = columns.max() + 1  # fills lists, and is never free
        self.is_free = np.zeros(self.no_column + 1, bool)
        self.is_free[columns] = True
        self.is_waiting = np.ones(len(rows), bool)  # the rows without a pair
        self.columns, self.scores = scorer.best(rows, columns, self.width)  # (rows, width)

    def best_free(self, place: int) -> tuple[int, float, bool]:
        """Return the best free candidate of a row, its score and True.

        If none is free, it is the last candidate, and False: others may be free that the row does
        not list, but their scores are not higher.
        """
        candidates = self.columns[place]
        free_places = np.flatnonzero(self.is_free[candidates])
        if len(free_places):
            best = free_places[0]
            return int(candidates[best]), float(self.scores[place, best]), True
        return int(candidates[-1]), float(self.scores[place, -1]), False

    def take(self, place: int, column: int) -> None:
        """Note that a row and a column are paired."""
        self.is_free[column] = False
        self.is_waiting[place] = False
        self.free_count -= 1

    def search_again(self) -> None:
        """Search new candidates for all waiting rows whose candidates are all taken."""
        waiting = np.flatnonzero(self.is_waiting)
        has_free = self.is_free[self.columns[waiting]].any(axis=1)
        waiting = waiting[~has_free]
        count = min(self.width, self.free_count)
        self.columns[waiting] = self.no_column
        self.scores[waiting] = -np.inf
        free_columns = np.flatnonzero(self.is_free)
        columns, scores = self.scorer.best(self.rows[waiting], free_columns, count)
        self.columns[waiting, :count] = columns
        self.scores[waiting, :count] = scores
