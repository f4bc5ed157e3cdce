"""Sentences of two translated documents, aligned in order: one to one, one to two, two to one, or left alone.

first, second = (embedded_spans([sentences], embedder.encode, 2)[0] for sentences in (german, english))
lengths = [len(sentence) for sentence in german], [len(sentence) for sentence in english]
for bead in align_sentences(first, second, lengths=lengths):
    print(bead.similarity, [german[i] for i in bead.first], [english[j] for j in bead.second])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

Spans = Sequence[np.ndarray]
Windows = tuple[np.ndarray, np.ndarray]
Encode = Callable[[list[str]], np.ndarray]

_SHORT = 20  # sentences of a document, too few of which say what unrelated ones have in common
_SMALLEST = 1e-6  # of the mean distance to the other document, which a cost is divided by
_LARGEST_SURPRISE = 5.0  # a probability of 1 in 150: what is rarer counts no more, so that no length forbids a pair
_VARIANCE = 6.8  # of the characters of a translation, for each of the original: section 2.3 of the paper
_FULL = 300  # sentences of both documents up to which every cell is computed, as in vecalign
_ROWS = 32  # rows of cells whose cosines are computed at once
_SKIP_FIRST, _SKIP_SECOND, _OUTSIDE = 253, 254, 255  # steps besides the numbers of moves


class Bead(NamedTuple):
    """Consecutive sentences of both documents that are translations; one side is empty where a sentence has none.

    cost: in the program; similarity: cosine of both sides; score: 1 - what of the cost is that of the vectors, so 1
    where they are equal and about 0 for two unrelated sentences. Both are None where one side is empty.
    """

    first: range
    second: range
    cost: float
    similarity: float | None
    score: float | None = None


def align_sentences(
    first: np.ndarray | Spans,
    second: np.ndarray | Spans,
    max_size: int = 3,
    skip: float = 0.55,
    merge: float = 0.3,
    lengths: tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray] | None = None,
    length_weight: float = 0.05,
    width: int = 20,
    means: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[Bead]:
    """The cheapest alignment of two documents that keeps the order of both.

    Costs are those of vecalign (Thompson & Koehn 2019, "Vecalign: Improved sentence alignment in linear time and
    space", section 3.2): with a and b sentences on the two sides, a b (1 - cos(x, y)), divided by the mean of what x
    is from the sentences of the other document and what y is, so that a text that is near to everything gains nothing
    by it (vecalign draws sentences for that mean, here it is of all), and single sentences that have nothing to do
    with each other cost about 1. One that is left alone costs `skip`. vecalign takes a quantile of the costs of pairs
    for that, a fifth; but right pairs are a fifth of all in a document of five sentences and a hundredth in one of
    a hundred.

    Two costs are not vecalign's, and their defaults were chosen on development documents, together with `skip`: what
    each sentence beyond one on each side costs, as most beads are one to one; and, where lengths are known, how
    surprising those of the two sides are (Gale & Church 1993; see
    [`LengthModel`]).

    Above 300 sentences the path is searched near that of a coarser pass, over means of two neighbouring
    vectors, as in vecalign; near is made wider where the path touches its edge. Time and memory grow with n + m but
    for documents of which long parts have no counterpart.

    Args:
        first: Vectors of the n sentences, (n, d); or a list of such arrays by length of span, the s-th (n - s + 1, d)
            of the texts that s consecutive sentences make (see [`embedded_spans`]). Spans without vectors of their own
            are represented by the sum of their sentences' unit vectors. n may be 0.
        second: Those of the m sentences of the other document.
        max_size: Sentences of a bead, both sides together: 3 for 1-1, 1-2 and 2-1, 4 for 1-3, 2-2 and 3-1 as well.
        skip: Above 0; the lower, the more sentences are left alone. From 2 - sqrt(2) + `merge` = 0.89 on, even with
            perfect vectors, a sentence without counterpart is cheaper as part of the bead beside it than alone.
        merge: 0 or more; cost of each sentence of a bead beyond one on each side.
        lengths: Characters of each sentence of the first document (n,), and of the second (m,).
        length_weight: 0 or more; what one unit of surprise (-log of a probability, here at most 5) costs.
        width: Cells on each side of the coarser path.
        means: For scores alone, (d,) of each side: the mean unit vector of sentences of many documents, which stands
            for those that a document of fewer than 20 lacks. Without it, scores of short documents mean little: that
            of two documents of one sentence is always 0.

    Returns:
        Beads in order; every sentence is in one.

    Raises:
        ValueError: Options out of range, arrays whose shapes do not fit, numbers that are not finite.
    """
    if max_size < 2 or not 0 < skip < np.inf:
        raise ValueError(f"max_size, skip: found {max_size}, {skip}, expected at least 2 and a number above 0")
    sides = [unit_spans(name, spans, max_size - 1) for name, spans in (("first", first), ("second", second))]
    n, m = (len(side[0]) for side in sides)
    if n and m and sides[0][0].shape[1] != sides[1][0].shape[1]:
        raise ValueError(
            f"Found {sides[0][0].shape[1]} dimensions in first and {sides[1][0].shape[1]} in second, expected as many"
        )
    if lengths is not None:
        lengths = tuple(np.asarray(given, np.float64) for given in lengths)
        if [given.shape for given in lengths] != [(n,), (m,)]:
            raise ValueError(f"lengths: found {len(lengths[0])} and {len(lengths[1])}, expected {n} and {m}")
    if not n or not m:
        alone = [(range(i, i + 1), range(0)) for i in range(n)] + [(range(0), range(j, j + 1)) for j in range(m)]
        return [Bead(*both, skip, None) for both in alone]
    model = None if lengths is None or not length_weight else LengthModel(*lengths)
    costs = BeadCosts(VectorCosts(*sides), merge, model, length_weight)
    skips = np.full(n, skip), np.full(m, skip)
    path = _path(costs, skips, _moves(max_size), _coarse_path(costs, skip, width), width)
    return list(_beads(path, costs, skips, costs.vectors if means is None else VectorCosts(*sides, means)))


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
        """Surprise of aligning spans of a and b sentences, which begin at these rows and columns: (rows, columns)."""
        first, second = (
            before[size:] - before[:-size] for before, size in zip(self._before, (a, b), strict=True)
        )  # (n - a + 1,), (m - b + 1,)
        return self._surprise(first[rows, None], second[None, columns])

    def halved(self) -> LengthModel:
        """That of two neighbours as one sentence; the last one alone where their number is odd."""
        return LengthModel(*(np.add.reduceat(side, range(0, len(side), 2)) for side in (self.first, self.second)))

    def _surprise(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        mean = (first + second / self._ratio) / 2
        delta = np.abs(second - first * self._ratio) / np.sqrt(np.maximum(mean, 1) * _VARIANCE)
        return -np.log(2) - log_ndtr(-delta)


def span_texts(sentences: Sequence[str], size: int) -> list[str]:
    """Texts of all `size` consecutive sentences, joined by spaces; n - size + 1 of them, or none."""
    return [" ".join(sentences[start : start + size]) for start in range(len(sentences) - size + 1)]


def embedded_spans(documents: Sequence[Sequence[str]], encode: Encode, largest: int) -> list[list[np.ndarray]]:
    """Vectors of the sentences of many documents, and of what up to `largest` consecutive ones make as one text.

    Args:
        documents: Sentences of each.
        encode: n texts to (n, d), such as `DocumentEmbedder.encode`. Every different text is encoded once.
        largest: Sentences of the longest span.

    Returns:
        For each document what [`align_sentences`] takes: `largest` arrays, the s-th (n - s + 1, d).
    """
    texts = [[span_texts(sentences, size) for size in range(1, largest + 1)] for sentences in documents]
    position: dict[str, int] = {}
    for spans in texts:
        for some in spans:
            for text in some:
                position.setdefault(text, len(position))
    vectors = encode(list(position)) if position else np.empty((0, 1), np.float32)
    return [[vectors[[position[text] for text in some]] for some in spans] for spans in texts]


def _coarse_path(costs: BeadCosts, skip: float, width: int) -> np.ndarray | None:
    """Nodes (p, 2) of a path of one-to-one moves over means of two neighbours; None where every cell is computed."""
    n, m = (len(side.units[0]) for side in (costs.vectors.first, costs.vectors.second))
    if n * m <= _FULL**2 or min(n, m) < 4:
        return None
    half = costs.halved()
    skips = np.full((n + 1) // 2, skip), np.full((m + 1) // 2, skip)
    path = _path(half, skips, [(1, 1)], _coarse_path(half, skip, width), width)
    return np.minimum(2 * np.array(path), [n, m])


def _path(
    costs: BeadCosts,
    skips: tuple[np.ndarray, np.ndarray],
    moves: list[tuple[int, int]],
    near: np.ndarray | None,
    width: int,
) -> list[tuple[int, int]]:
    """Nodes of the cheapest path from (0, 0) to (n, m), within windows that no path touches but where they end."""
    n, m = (len(side) for side in skips)
    while True:
        low, high = windows = _windows(n, m, near, width)
        path = _trace(_steps(costs, skips, moves, windows), low, moves, n, m)
        touched = any((j == low[i] and j > 0) or (j == high[i] and j < m) for i, j in path)
        if near is None or not touched:
            return path
        near, width = np.array(path), 2 * width
        if width > max(n, m):
            near = None


def _windows(n: int, m: int, near: np.ndarray | None, width: int) -> Windows:
    """Lowest and highest column of each row of nodes, (n + 1,): all, or those within `width` cells of a path."""
    if near is None:
        return np.zeros(n + 1, np.int64), np.full(n + 1, m)
    low, high = np.full(n + 1, m), np.zeros(n + 1, np.int64)
    for (i0, j0), (i1, j1) in zip(near[:-1], near[1:], strict=True):
        low[i0 : i1 + 1] = np.minimum(low[i0 : i1 + 1], j0)
        high[i0 : i1 + 1] = np.maximum(high[i0 : i1 + 1], j1)
    rows = np.arange(n + 1)
    return (
        np.maximum(low[np.maximum(rows - width, 0)] - width, 0),
        np.minimum(high[np.minimum(rows + width, n)] + width, m),
    )


def _steps(
    costs: BeadCosts, skips: tuple[np.ndarray, np.ndarray], moves: list[tuple[int, int]], windows: Windows
) -> list[np.ndarray]:
    """The last step of the cheapest path to each node, row by row: number of a move, or a skip; uint8."""
    n, m = (len(side) for side in skips)
    paid = np.concatenate([[0.0], np.cumsum(skips[1])])  # for skipping all sentences before a column
    best: dict[int, np.ndarray] = {}  # cost of the cheapest path to each node, of the rows that a move comes from
    steps = []
    for start in range(0, n + 1, _ROWS):
        stop = min(start + _ROWS, n + 1)
        blocks = [_block(costs, move, start, stop, windows, m) for move in moves]
        for i in range(start, stop):
            low, high = windows[0][i], windows[1][i]
            total = np.full(high - low + 1, np.inf)
            step = np.full(len(total), _OUTSIDE, np.uint8)
            if i == 0:
                total[0] = 0.0
            for number, (a, b) in enumerate(moves):
                block, first_row, first_column = blocks[number]
                if i >= a and (left_right := _reached(i, a, b, windows)):
                    left, right = left_right
                    cost = block[i - a - first_row, left - b - first_column : right - b - first_column]
                    before = best[i - a][left - b - windows[0][i - a] : right - b - windows[0][i - a]]
                    _improve(total, step, slice(left - low, right - low), before + cost, number)
            if i and (left_right := _reached(i, 1, 0, windows)):
                left, right = left_right
                before = best[i - 1][left - windows[0][i - 1] : right - windows[0][i - 1]]
                _improve(total, step, slice(left - low, right - low), before + skips[0][i - 1], _SKIP_FIRST)
            # Skips along the row come from its cheapest node to the left, which a running minimum finds for them all.
            without = total - paid[low : high + 1]
            least = np.minimum.accumulate(without)
            skipped = least < without
            step[skipped] = _SKIP_SECOND
            best[i] = np.where(skipped, least + paid[low : high + 1], total)
            best.pop(i - moves[-1][0], None)
            steps.append(step)
    return steps


def _block(
    costs: BeadCosts, move: tuple[int, int], start: int, stop: int, windows: Windows, m: int
) -> tuple[np.ndarray, int, int]:
    """Costs of a move to the nodes of some rows, and the sentences of both documents that the first of them is of."""
    a, b = move
    first_row, last_row = max(start - a, 0), stop - 1 - a
    if last_row < first_row:
        return np.empty((0, 0)), 0, 0
    left, right = max(windows[0][first_row + a] - b, 0), windows[1][last_row + a] - b
    columns = slice(left, max(min(right, m - b) + 1, left))
    return costs(a, b, slice(first_row, last_row + 1), columns), first_row, left


def _reached(i: int, a: int, b: int, windows: Windows) -> tuple[int, int] | None:
    """Columns (from, to) of row i that a move of a rows and b columns leads to from within its window."""
    low, high = windows
    left, right = max(low[i], low[i - a] + b), min(high[i], high[i - a] + b) + 1
    return (int(left), int(right)) if left < right else None


def _improve(total: np.ndarray, step: np.ndarray, where: slice, arrived: np.ndarray, number: int) -> None:
    """Ties stay with the earlier move."""
    better = arrived < total[where]
    total[where][better] = arrived[better]
    step[where][better] = number


def _trace(
    steps: list[np.ndarray], low: np.ndarray, moves: list[tuple[int, int]], n: int, m: int
) -> list[tuple[int, int]]:
    i, j = n, m
    path = [(n, m)]
    while i or j:
        step = int(steps[i][j - low[i]])
        a, b = {_SKIP_FIRST: (1, 0), _SKIP_SECOND: (0, 1)}.get(step) or moves[step]
        i, j = i - a, j - b
        path.append((i, j))
    return path[::-1]


def _beads(
    path: list[tuple[int, int]],
    costs: BeadCosts,
    skips: tuple[np.ndarray, np.ndarray],
    vectors: VectorCosts | None,
) -> Iterator[Bead]:
    for (i0, j0), (i1, j1) in zip(path, path[1:], strict=False):
        a, b = i1 - i0, j1 - j0
        similarity = score = None
        if a and b:
            one = a, b, slice(i0, i0 + 1), slice(j0, j0 + 1)
            cost = costs(*one)[0, 0]
            if vectors is not None:
                similarity = float(np.clip(vectors.first.units[a - 1][i0] @ vectors.second.units[b - 1][j0], -1, 1))
                score = float(1 - vectors(*one)[0, 0])
        else:
            cost = skips[0][i0] if a else skips[1][j0]
        yield Bead(range(i0, i1), range(j0, j1), float(cost), similarity, score)


def _moves(max_size: int) -> list[tuple[int, int]]:
    """Sentences on both sides, small beads first: ties go to them."""
    sizes = range(1, max_size)
    return sorted(((a, b) for a in sizes for b in sizes if a + b <= max_size), key=lambda move: (sum(move), move))


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
        if not np.isfinite(some).all():
            raise ValueError(f"{name}: found a vector that is not finite among spans of {size} sentences")
    units = [unit_rows(some.reshape(-1, dimensions)) for some in spans[:largest]]
    while len(units) < largest:
        size = len(units) + 1
        rows = max(n - size + 1, 0)
        units.append(unit_rows(sum(units[0][start : start + rows].astype(np.float64) for start in range(size))))
    return units


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
