"""What it costs to align consecutive sentences of two documents: by their vectors, their number, their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modeling_tmde.documents.length_model import LengthModel

Spans = Sequence[np.ndarray]

_SHORT = 20  # sentences of a document, too few of which say what unrelated ones have in common
_SMALLEST = 1e-6  # of the mean distance to the other document, which a cost is divided by
_LARGEST_SURPRISE = 5.0  # a probability of 1 in 150: what is rarer counts no more, so that no length forbids a pair


@dataclass(frozen=True)
class _Side:
    """Unit vectors of spans by length, float32, and 1 - their mean cosine to the sentences of the other document."""

    units: list[np.ndarray]
    distances: list[np.ndarray]


class VectorCosts:
    """a b (1 - cos(x, y)) by the mean of both distances.

    means: (d,) of each side, the mean unit vector of sentences of many documents. It stands for those that a document
    of fewer than 20 lacks, so that the distances are not those of the pair alone.
    """

    def __init__(
        self,
        first: list[np.ndarray],
        second: list[np.ndarray],
        means: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        of_first, of_second = (
            _filled_mean(units[0], None if means is None else means[side])
            for side, units in enumerate((first, second))
        )
        self.first = _Side(first, [1 - units @ of_second for units in first])
        self.second = _Side(second, [1 - units @ of_first for units in second])

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        cosines = self.first.units[a - 1][rows] @ self.second.units[b - 1][columns].T
        distances = self.first.distances[a - 1][rows, None] + self.second.distances[b - 1][None, columns]
        # a cosine of equal vectors may be above 1 by a rounding
        return a * b * np.maximum(1 - cosines, 0) / np.maximum(distances / 2, _SMALLEST)


@dataclass(frozen=True)
class BeadCosts:
    """What vectors cost, sentences beyond one on each side, and the surprise at lengths where these are known."""

    vectors: VectorCosts
    merge: float
    lengths: LengthModel | None
    length_weight: float

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        costs = self.vectors(a, b, rows, columns) + self.merge * (a + b - 2)
        if self.lengths is not None:
            surprise = np.minimum(self.lengths(a, b, rows, columns), _LARGEST_SURPRISE)
            costs += self.length_weight * surprise
        return costs

    def halved(self) -> BeadCosts:
        """Those of single sentences, where two neighbours are one."""
        vectors = VectorCosts(*([_halved(side.units[0])] for side in (self.vectors.first, self.vectors.second)))
        lengths = None if self.lengths is None else self.lengths.halved()
        return BeadCosts(vectors, self.merge, lengths, self.length_weight)


def unit_spans(name: str, given: np.ndarray | Spans, largest: int) -> list[np.ndarray]:
    """Unit vectors of spans of 1, 2, ... sentences, as many lengths as moves have; sums of units where none are given.

    Raises:
        ValueError: Shapes that do not fit, numbers that are not finite.
    """
    spans = [np.asarray(some) for some in ([given] if isinstance(given, np.ndarray) else given)]
    if not spans:
        raise ValueError(f"{name}: found no arrays, expected at least the vectors of sentences")
    n = len(spans[0])
    if n == 0:
        return [spans[0]]
    dimensions = spans[0].shape[-1]
    for size, some in enumerate(spans[:largest], 1):
        rows = max(n - size + 1, 0)
        if some.shape != (rows, dimensions) and not (rows == 0 and len(some) == 0) or some.ndim != 2:
            raise ValueError(
                f"{name}: found shape {some.shape} for spans of {size} sentences, expected ({rows}, {dimensions})"
            )
        bad = np.flatnonzero(~np.isfinite(some).all(axis=1))
        if len(bad):
            raise ValueError(f"{name}: found a vector that is not finite, span {bad[0]} of {size} sentences")
    units = [unit_rows(some.reshape(-1, dimensions)) for some in spans[:largest]]
    while len(units) < largest:
        size = len(units) + 1
        rows = max(n - size + 1, 0)
        units.append(unit_rows(sum(units[0][start : start + rows].astype(np.float64) for start in range(size))))
    return units


def checked_lengths(name: str, given: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
    """As float64.

    Raises:
        ValueError: Not one for each of n sentences, negative, not finite.
    """
    lengths = np.asarray(given, np.float64)
    if lengths.shape != (n,):
        raise ValueError(f"lengths: found shape {lengths.shape} for {name}, expected ({n},), one of each sentence")
    if not np.all((lengths >= 0) & np.isfinite(lengths)):
        raise ValueError(f"lengths: found a number of {name} that is negative or not finite, expected characters")
    return lengths


def _filled_mean(units: np.ndarray, background: np.ndarray | None) -> np.ndarray:
    """Mean of (n, d) units and of as many of the background as 20 sentences are short of; float64."""
    mean = units.mean(axis=0, dtype=np.float64)
    if background is None or len(units) >= _SHORT:
        return mean
    return background + (mean - background) * len(units) / _SHORT


def _halved(units: np.ndarray) -> np.ndarray:
    """Directions of the means of two neighbours; the last one alone where their number is odd."""
    even = len(units) // 2 * 2
    return unit_rows(np.concatenate([units[0:even:2] + units[1:even:2], units[even:]]))


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)
