"""Beads, the sentences of two documents that are aligned with each other.

[`BeadCosts`] are what it costs to align them, by their vectors and their lengths. [`BeadScores`]
are how well the sentences of a bead translate each other, by their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import BLOCK, slices, unit_vectors

# The unit vectors of spans of 1, 2, ... sentences: the s-th array has shape (n - s + 1, d).
Spans = Sequence[np.ndarray]

# A sentence counts in the vector of a span by this power of its number of characters.
LENGTH_POWER = 0.25

# The sentences of the other document whose distance makes the cost of a span relative, by rank. The
# two nearest are left out, because they may be its translation.
NEIGHBORS = slice(2, 7)
LARGEST_SAMPLE = 1000  # sentences of the other document that are compared for this

SMALLEST_DISTANCE = 1e-6  # the floor of the distance to the other document

# The surprise at a probability of 1 in 150. Rarer lengths cost no more, so that no length forbids a
# pair.
LARGEST_SURPRISE = 5.0

# The variance of the characters of a translation per character of the original, from section 2.3 of
# the paper that `BeadCosts` names.
VARIANCE = 6.8

# Sentences of a document. Fewer do not show what unrelated sentences have in common.
SHORT = 20


class BeadCosts:
    """The costs of beads of two documents.

    The cost of a and b sentences with the vectors x and y is

        (a + b) / 2 * (1 - cos(x, y)) / ((distance of x + distance of y) / 2) + merge (a + b - 2)

    where the distance of a span is the mean of two numbers: its mean distance to the sentences of
    the other document, 1 - cos, and that to the 3rd to the 7th nearest of them, or of 1,000 of
    them, evenly spaced. (Comparing with neighbors is the idea of CSLS, Conneau et al. 2018.) The
    surprise at the lengths is added.
    Lengths are compared as by Gale & Church 1993 ("A program for aligning sentences in bilingual
    corpora", Computational Linguistics 19(1)): a translation of l characters has about c l, with
    variance s^2 l, s^2 = 6.8. So

        delta = (l2 - c l1) / sqrt(s^2 (l1 + l2 / c) / 2)

    is standard normal for translations (the length in the denominator is the mean of both sides, as
    in their program), and the surprise is -log of the probability that |delta| is as large or
    larger: 0 for the expected length, and 1 in the mean over translations. c is the ratio of the
    totals of the two documents, which is off where one lacks a long part. (Theirs is 1 for all
    languages.)

    Args:
        sides: The spans of each document.
        merge: The cost of each sentence beyond one on each side.
        lengths: The characters of each sentence of both documents; None where they are not known.
        length_weight: What one unit of surprise costs.
    """

    def __init__(
        self,
        sides: Sequence[Spans],
        merge: float = 0.0,
        lengths: Sequence[Sequence[int] | np.ndarray] | None = None,
        length_weight: float = 0.0,
    ) -> None:
        self.first, self.second = sides
        self.merge = merge
        self.lengths = lengths
        self.length_weight = length_weight
        self.first_distances = _distances(self.first, self.second[0])
        self.second_distances = _distances(self.second, self.first[0])
        if lengths is not None:
            self.first_ends = _ends(lengths[0])
            self.second_ends = _ends(lengths[1])
            self.ratio = max(self.second_ends[-1], 1) / max(self.first_ends[-1], 1)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences of both documents."""
        return len(self.first[0]), len(self.second[0])

    def of_vectors(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """Return the costs by vectors alone of spans of a and b sentences, (rows, columns).

        Args:
            a: The sentences of the spans of the first document.
            b: Those of the second.
            rows: Where the spans of the first document begin.
            columns: Where those of the second begin.
        """
        cosines = self.first[a - 1][rows] @ self.second[b - 1][columns].T
        first_distances = self.first_distances[a - 1][rows, None]
        second_distances = self.second_distances[b - 1][None, columns]
        mean_distances = (first_distances + second_distances) / 2
        # Rounding may lift the cosine of equal vectors above 1.
        distances = np.maximum(1 - cosines, 0)
        return (a + b) / 2 * distances / np.maximum(mean_distances, SMALLEST_DISTANCE)

    def surprise(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """Return how surprising the lengths of spans are if they are translations, (rows, columns).

        It is -log of the probability. Arguments as for `of_vectors`.
        """
        first_lengths = (self.first_ends[a:] - self.first_ends[:-a])[rows, None]
        second_lengths = (self.second_ends[b:] - self.second_ends[:-b])[None, columns]
        mean_lengths = (first_lengths + second_lengths / self.ratio) / 2
        deviations = np.sqrt(np.maximum(mean_lengths, 1) * VARIANCE)
        delta = np.abs(second_lengths - first_lengths * self.ratio) / deviations
        return -np.log(2) - log_ndtr(-delta)

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """Return the costs of spans, (rows, columns); arguments as for `of_vectors`."""
        costs = self.of_vectors(a, b, rows, columns) + self.merge * (a + b - 2)
        if self.lengths is not None:
            surprise = np.minimum(self.surprise(a, b, rows, columns), LARGEST_SURPRISE)
            costs += self.length_weight * surprise
        return costs

    def halved(self) -> BeadCosts:
        """Return the costs of pairs of neighboring sentences.

        The last sentence stays alone if their number is odd.
        """
        sides = []
        for side in (self.first, self.second):
            sides.append([unit_vectors(_sums_of_two(side[0]))])
        lengths = None
        if self.lengths is not None:
            lengths = [_sums_of_two(side_lengths) for side_lengths in self.lengths]
        return BeadCosts(sides, self.merge, lengths, self.length_weight)


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


def _distances(side: Spans, other: np.ndarray) -> list[np.ndarray]:
    """Return the distance of each span to the other document, by length of span.

    Args:
        side: The spans.
        other: The unit vectors of the sentences of the other document, (m, d).
    """
    center = other.mean(axis=0, dtype=np.float64)
    count = min(len(other), LARGEST_SAMPLE)
    sample = other[np.linspace(0, len(other) - 1, count).astype(np.int64)]
    distances = []
    for units in side:
        to_all = 1 - units @ center
        distances.append((to_all + _distances_to_neighbors(units, sample)) / 2)
    return distances


def _distances_to_neighbors(units: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return the mean distance of each vector to its 3rd to 7th nearest, (n,).

    Where there are fewer than three candidates, it is the distance to the farthest.

    Args:
        units: Unit vectors (n, d).
        candidates: Unit vectors (m, d), at least one.
    """
    stop = min(NEIGHBORS.stop, len(candidates))
    start = min(NEIGHBORS.start, stop - 1)
    means = np.empty(len(units))
    for rows in slices(len(units), BLOCK):
        distances = 1 - units[rows] @ candidates.T
        nearest = np.partition(distances, [start, stop - 1], axis=1)
        means[rows] = nearest[:, start:stop].mean(axis=1)
    return means


def _ends(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where sentences of these lengths end, (n + 1,), from 0."""
    return np.concatenate([[0.0], np.cumsum(lengths, dtype=np.float64)])


def _sums_of_two(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the sums of rows 0 and 1, 2 and 3, ..."""
    return np.add.reduceat(values, range(0, len(values), 2))


def unit_sentences(name: str, sentences: np.ndarray) -> np.ndarray:
    """Return the vectors of sentences (n, d) at length 1, float32.

    Args:
        name: The name of the document in messages.
        sentences: The vectors.

    Raises:
        TmdeError: Not two-dimensional, or a number that is not finite.
    """
    sentences = np.asarray(sentences)
    if len(sentences) == 0:
        return sentences
    if sentences.ndim != 2:
        raise TmdeError(f"{name}: found shape {sentences.shape}, expected (sentences, dimensions)")
    is_bad = ~np.isfinite(sentences).all(axis=1)
    if is_bad.any():
        raise TmdeError(
            f"{name}: found a vector that is not finite in row {is_bad.argmax()}; check the "
            "model that produced it"
        )
    return unit_vectors(sentences)


def weights_of(count: int, lengths: Sequence[int] | np.ndarray | None) -> np.ndarray:
    """Return how much each sentence counts in the vector of a span, (n, 1).

    Args:
        count: The number n of sentences.
        lengths: Their characters (n,); None for equal weights.
    """
    if lengths is None:
        return np.ones((count, 1))
    weights: np.ndarray = np.maximum(lengths, 1)[:, None] ** LENGTH_POWER
    return weights


def unit_spans(sentences: np.ndarray, weights: np.ndarray, longest: int) -> list[np.ndarray]:
    """Return the unit vectors of spans of 1, 2, ... sentences.

    The vector of a span is the weighted sum of the unit vectors of its sentences.

    Args:
        sentences: The vectors of the n sentences, (n, d).
        weights: Their weights, (n, 1).
        longest: The sentences of the longest span.
    """
    units = unit_vectors(sentences)
    weighted = units * weights
    spans = [units]
    for size in range(2, longest + 1):
        spans.append(_summed_spans(weighted, size))
    return spans


def _summed_spans(weighted: np.ndarray, size: int) -> np.ndarray:
    """Return the unit vectors of the sums of `size` consecutive vectors, (n - size + 1, d)."""
    count = max(len(weighted) - size + 1, 0)
    total = np.zeros((count, weighted.shape[1]))
    for start in range(size):
        total += weighted[start : start + count]
    return unit_vectors(total)


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
