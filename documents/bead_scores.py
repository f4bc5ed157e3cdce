"""How well the sentences of a bead translate each other, by their vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tmde.documents.bead_costs import SMALLEST_DISTANCE, Spans

SHORT = 20  # sentences; fewer do not show what unrelated sentences have in common


class BeadScores:
    """The cosines and scores of beads of two documents.

    The score of a and b sentences with the vectors x and y is

        1 - (a + b) / 2 * (1 - cos(x, y)) / ((distance of x + distance of y) / 2)

    where the distance of a span is the mean of 1 - cos to the sentences of the other document. So
    it is 1 where both vectors are equal, and about 0 for two unrelated sentences.

    Args:
        sides: The spans of each document.
        means: Of each side the mean unit vector of sentences of many documents, (d,). It stands for
            those that a document of fewer than 20 lacks, so that the distances are not those of the
            pair alone.
    """

    def __init__(
        self, sides: Sequence[Spans], means: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        self.first, self.second = sides
        first_mean, second_mean = (None, None) if means is None else means
        self.first_center = _center(self.first[0], first_mean)
        self.second_center = _center(self.second[0], second_mean)

    def similarity(self, a: int, b: int, row: int, column: int) -> float:
        """Return the cosine of two spans.

        Args:
            a: The sentences of the span of the first document.
            b: Those of the second.
            row: Where the span of the first document begins.
            column: Where that of the second begins.
        """
        cosine = self.first[a - 1][row] @ self.second[b - 1][column]
        return float(np.clip(cosine, -1, 1))

    def score(self, a: int, b: int, row: int, column: int) -> float:
        """Return the score of two spans; arguments as for `similarity`."""
        first_distance = 1 - self.first[a - 1][row] @ self.second_center
        second_distance = 1 - self.second[b - 1][column] @ self.first_center
        mean_distance = max((first_distance + second_distance) / 2, SMALLEST_DISTANCE)
        distance = 1 - self.similarity(a, b, row, column)
        return float(1 - (a + b) / 2 * distance / mean_distance)


def _center(sentences: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
    """Return the mean unit vector of the sentences of a document, (d,) float64.

    In a short document, the sentences that are missing have the mean of many documents.

    Args:
        sentences: Unit vectors (n, d).
        mean: The mean over many documents, (d,).
    """
    center: np.ndarray = sentences.mean(axis=0, dtype=np.float64)
    if mean is None:
        return center
    share = min(len(sentences) / SHORT, 1)
    return mean + (center - mean) * share
