"""What it costs to align sentences of two documents, by their vectors and their lengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_ndtr

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import unit_vectors

Spans = Sequence[np.ndarray]

SHORT = 20  # sentences; fewer do not show what unrelated sentences have in common
SMALLEST_DISTANCE = 1e-6  # the floor of the mean distance to the other document

# The surprise at a probability of 1 in 150. Rarer lengths cost no more, so that no length forbids a
# pair.
LARGEST_SURPRISE = 5.0

# The variance of the characters of a translation per character of the original, from section 2.3 of
# the paper that `BeadCosts` names.
VARIANCE = 6.8


class BeadCosts:
    """The costs of beads of two documents.

    The cost of a and b sentences with the vectors x and y is

        a b (1 - cos(x, y)) / ((distance of x + distance of y) / 2) + merge (a + b - 2)

    where the distance of a span is the mean of 1 - cos to the sentences of the other document. The
    surprise at the lengths is added. Lengths are compared as by Gale & Church 1993 ("A program
    for aligning sentences in bilingual corpora", Computational Linguistics 19(1)): a translation of
    l characters has about c l, with variance s^2 l, s^2 = 6.8. So

        delta = (l2 - c l1) / sqrt(s^2 (l1 + l2 / c) / 2)

    is standard normal for translations (the length in the denominator is the mean of both sides, as
    in their program), and the surprise is -log of the probability that |delta| is as large or
    larger: 0 for the expected length, and 1 in the mean over translations. c is the ratio of the
    totals of the two documents, which is off where one lacks a long part. (Theirs is 1 for all
    languages.)

    Args:
        sides: Of each document, the unit vectors of spans by length, float32.
        merge: The cost of each sentence beyond one on each side.
        lengths: The characters of each sentence of both documents; None where they are not known.
        length_weight: What one unit of surprise costs.
        means: Of each side the mean unit vector of sentences of many documents, (d,). It stands for
            those that a document of fewer than 20 lacks, so that the distances are not those of the
            pair alone.
    """

    def __init__(
        self,
        sides: Sequence[Spans],
        merge: float = 0.0,
        lengths: Sequence[Sequence[int] | np.ndarray] | None = None,
        length_weight: float = 0.0,
        means: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.first, self.second = sides
        self.merge = merge
        self.lengths = lengths
        self.length_weight = length_weight
        first_mean, second_mean = (None, None) if means is None else means
        self.first_distances = _distances(self.first, _center(self.second, second_mean))
        self.second_distances = _distances(self.second, _center(self.first, first_mean))
        if lengths is not None:
            self.first_ends = _ends(lengths[0])
            self.second_ends = _ends(lengths[1])
            self.ratio = max(self.second_ends[-1], 1) / max(self.first_ends[-1], 1)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences of both documents."""
        return len(self.first[0]), len(self.second[0])

    def similarity(self, a: int, b: int, row: int, column: int) -> float:
        """Return the cosine of two spans of a and b sentences that begin at this row and column."""
        cosine = self.first[a - 1][row] @ self.second[b - 1][column]
        return float(np.clip(cosine, -1, 1))

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
        return a * b * distances / np.maximum(mean_distances, SMALLEST_DISTANCE)

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


def _center(side: Spans, mean: np.ndarray | None) -> np.ndarray:
    """Return the mean unit vector of the sentences of a document, (d,) float64.

    In a short document, the sentences that are missing have the mean of many documents.
    """
    sentences = side[0]
    center = sentences.mean(axis=0, dtype=np.float64)
    if mean is None:
        return center
    share = min(len(sentences) / SHORT, 1)
    return mean + (center - mean) * share


def _distances(side: Spans, center: np.ndarray) -> list[np.ndarray]:
    """Return the distance of each span to the other document, by length of span."""
    return [1 - units @ center for units in side]


def _ends(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return where sentences of these lengths end, (n + 1,), from 0."""
    return np.concatenate([[0.0], np.cumsum(lengths, dtype=np.float64)])


def _sums_of_two(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the sums of rows 0 and 1, 2 and 3, ..."""
    return np.add.reduceat(values, range(0, len(values), 2))


def unit_spans(name: str, spans: np.ndarray | Spans, longest: int) -> list[np.ndarray]:
    """Return the unit vectors of spans of 1, 2, ... sentences.

    Args:
        name: The name of the document in messages.
        spans: The vectors of the sentences, (n, d); or a list of arrays by length of span.
        longest: The sentences of the longest span. Spans that have no vectors get the sums of the
            unit vectors of their sentences.

    Raises:
        TmdeError: Shapes that do not fit, numbers that are not finite.
    """
    if isinstance(spans, np.ndarray):
        spans = [spans]
    arrays = [np.asarray(array) for array in spans[:longest]]
    n = len(arrays[0])
    if n == 0:
        return [arrays[0]]
    units = []
    for size, array in enumerate(arrays, 1):
        shape = max(n - size + 1, 0), arrays[0].shape[-1]
        is_empty = len(array) == 0 and shape[0] == 0
        if array.shape != shape and not is_empty:
            raise TmdeError(
                f"{name}: found shape {array.shape} for spans of {size} sentences, expected {shape}"
            )
        if not np.isfinite(array).all():
            raise TmdeError(
                f"{name}: found a vector that is not finite among spans of {size} sentences"
            )
        units.append(unit_vectors(array.reshape(shape)))
    for size in range(len(units) + 1, longest + 1):
        units.append(_summed_spans(units[0], size))
    return units


def _summed_spans(sentences: np.ndarray, size: int) -> np.ndarray:
    """Return the unit vectors of the sums of `size` consecutive sentences, (n - size + 1, d)."""
    count = max(len(sentences) - size + 1, 0)
    total = np.zeros((count, sentences.shape[1]))
    for start in range(size):
        total += sentences[start : start + count]
    return unit_vectors(total)
