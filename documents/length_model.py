"""What the lengths of two texts say about whether one translates the other (Gale & Church 1993)."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

_VARIANCE = 6.8  # of the characters of a translation, for each of the original: section 2.3 of the paper


class LengthModel:
    """Lengths of consecutive sentences of two documents, and how surprising it is that some translate others.

    Gale & Church 1993 ("A program for aligning sentences in bilingual corpora", Computational Linguistics 19(1)): a
    translation of l characters has about c l, with variance s^2 l, s^2 = 6.8. So

        delta = (l2 - c l1) / sqrt(s^2 (l1 + l2 / c) / 2)

    is standard normal for translations (the length in the denominator is the mean of both sides, as in their program),
    and the surprise is -log of the probability that |delta| is as large or larger: 0 for the expected length, and 1 in
    the mean over translations. c is the ratio of the totals of the two documents, which is off where one lacks a long
    part. (Theirs is 1 for all languages.)

    Args:
        first: Characters of each sentence of the first document, (n,).
        second: Those of the second, (m,).
    """

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.first, self.second = (np.asarray(side, np.float64) for side in (first, second))
        self._ratio = max(self.second.sum(), 1) / max(self.first.sum(), 1)
        self._before = [np.concatenate([[0.0], np.cumsum(side)]) for side in (self.first, self.second)]

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """Surprise of aligning spans of a and b sentences; see [`BlockCosts`]."""
        first, second = (
            before[size:] - before[:-size] for before, size in zip(self._before, (a, b), strict=True)
        )  # (n - a + 1,), (m - b + 1,)
        return self._surprise(first[rows, None], second[None, columns])

    def alone(self) -> tuple[np.ndarray, np.ndarray]:
        """Surprise of each sentence of the first document (n,), and of the second (m,), as that of no text at all."""
        return self._surprise(self.first, np.zeros(1)), self._surprise(np.zeros(1), self.second)

    def halved(self) -> LengthModel:
        """That of two neighbours as one sentence; the last one alone where their number is odd."""
        return LengthModel(*(np.add.reduceat(side, range(0, len(side), 2)) for side in (self.first, self.second)))

    def _surprise(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        mean = (first + second / self._ratio) / 2
        delta = np.abs(second - first * self._ratio) / np.sqrt(np.maximum(mean, 1) * _VARIANCE)
        return -np.log(2) - log_ndtr(-delta)
