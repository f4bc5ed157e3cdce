"""How well the sentences of a bead translate each other, by their vectors."""

from __future__ import annotations

import numpy as np

from tmde.documents.bead_costs import SMALLEST_DISTANCE

SHORT = 20  # sentences; fewer do not show what unrelated sentences have in common


class BeadScores:
    """The cosines and scores of beads of two documents.

    The score of a and b sentences with the vectors x and y is

        1 - (a + b) / 2 * (1 - cos(x, y)) / ((distance of x + distance of y) / 2)

    where the distance of a span is the mean of 1 - cos to the sentences of the other document. So
    it is 1 where both vectors are equal, and about 0 for two unrelated sentences.

    Args:
        first: The unit vectors of the sentences of the first document, (n, d).
        second: Those of the second.
        first_weights: The weight of each sentence of the first document in the vector of a span,
            (n, 1).
        second_weights: Those of the second.
        means: Of each side the mean unit vector of sentences of many documents, (d,). It stands for
            those that a document of fewer than 20 lacks, so that the distances are not those of the
            pair alone.
    """

    def __init__(
        self,
        first: np.ndarray,
        second: np.ndarray,
        first_weights: np.ndarray,
        second_weights: np.ndarray,
        means: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.first = first * first_weights
        self.second = second * second_weights
        first_mean, second_mean = (None, None) if means is None else means
        self.first_center = center_of(first, first_mean)
        self.second_center = center_of(second, second_mean)

    def of(self, first: range, second: range) -> tuple[float, float]:
        """Return the cosine and the score of a bead.

        Args:
            first: Its sentences of the first document, at least one.
            second: Those of the second, at least one.
        """
        x = unit_sum(self.first[first.start : first.stop])
        y = unit_sum(self.second[second.start : second.stop])
        cosine = float(np.clip(x @ y, -1, 1))
        distance_of_x = 1 - x @ self.second_center
        distance_of_y = 1 - y @ self.first_center
        mean_distance = max((distance_of_x + distance_of_y) / 2, SMALLEST_DISTANCE)
        mean_size = (len(first) + len(second)) / 2
        return cosine, float(1 - mean_size * (1 - cosine) / mean_distance)


def unit_sum(vectors: np.ndarray) -> np.ndarray:
    """Return the sum of vectors (n, d) at length 1, (d,); a sum of zeros stays one."""
    total: np.ndarray = vectors.sum(axis=0)
    length = np.linalg.norm(total)
    return total / length if length > 0 else total


def center_of(sentences: np.ndarray, mean: np.ndarray | None) -> np.ndarray:
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
