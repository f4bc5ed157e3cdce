"""Sentences of two translated documents, aligned in order: one to one, one to two, two to one, or left alone.

first, second = (embedded_spans([sentences], embedder.encode, 2)[0] for sentences in (german, english))
lengths = [len(sentence) for sentence in german], [len(sentence) for sentence in english]
for bead in align_sentences(first, second, lengths=lengths):
    print(bead.similarity, [german[i] for i in bead.first], [english[j] for j in bead.second])
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from modeling_tmde import TmdeError

Spans = Sequence[np.ndarray]
Moves = list[tuple[int, int]]
Encode = Callable[[list[str]], np.ndarray]

_SHORT = 20  # sentences of a document, too few of which say what unrelated ones have in common
_SMALLEST = 1e-6  # of the mean distance to the other document, which a cost is divided by
_LARGEST_SURPRISE = (
    5.0  # a probability of 1 in 150: what is rarer counts no more, so that no length forbids a pair
)
_VARIANCE = (
    6.8  # of the characters of a translation, for each of the original: section 2.3 of the paper
)
_FULL = 300  # sentences of both documents up to which every cell is computed, as in vecalign
_ROWS = 32  # rows of cells whose cosines are computed at once


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
    surprising those of the two sides are (Gale & Church 1993; see [`BeadCosts`]).

    Above 300 sentences the path is searched near that of a coarser pass, over means of two neighboring
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
        raise TmdeError(
            f"max_size, skip: found {max_size}, {skip}, expected at least 2 and a number above 0"
        )
    sides = [
        unit_spans(name, spans, max_size - 1)
        for name, spans in (("first", first), ("second", second))
    ]
    n, m = (len(side[0]) for side in sides)
    if n and m and sides[0][0].shape[1] != sides[1][0].shape[1]:
        raise TmdeError(
            f"Found {sides[0][0].shape[1]} dimensions in first and {sides[1][0].shape[1]} in second, expected as many"
        )
    if lengths is not None and (len(lengths[0]), len(lengths[1])) != (n, m):
        raise TmdeError(
            f"lengths: found {len(lengths[0])} and {len(lengths[1])}, expected {n} and {m}"
        )
    if not n or not m:
        path = [(i, j) for i in range(n + 1) for j in range(m + 1)]
        return list(_beads(path, None, skip, None))
    costs = BeadCosts(sides, merge, lengths, length_weight)
    moves = [
        (a, b) for size in range(2, max_size + 1) for a in range(1, size) for b in [size - a]
    ]  # ties: small ones
    path = _path(costs, skip, moves, _coarse_path(costs, skip, width), width)
    return list(
        _beads(path, costs, skip, costs if means is None else BeadCosts(sides, means=means))
    )


class BeadCosts:
    """a b (1 - cos(x, y)) by the mean of both distances; sentences beyond one on each side; surprise at lengths.

    Lengths are compared as by Gale & Church 1993 ("A program for aligning sentences in bilingual corpora",
    Computational Linguistics 19(1)): a translation of l characters has about c l, with variance s^2 l, s^2 = 6.8. So

        delta = (l2 - c l1) / sqrt(s^2 (l1 + l2 / c) / 2)

    is standard normal for translations (the length in the denominator is the mean of both sides, as in their program),
    and the surprise is -log of the probability that |delta| is as large or larger: 0 for the expected length, and 1 in
    the mean over translations. c is the ratio of the totals of the two documents, which is off where one lacks a long
    part. (Theirs is 1 for all languages.)

    Args:
        sides: Of each document, unit vectors of spans by length, float32.
        merge: Cost of each sentence beyond one on each side.
        lengths: Characters of each sentence of both documents; None where they are not known.
        length_weight: What one unit of surprise costs.
        means: (d,) of each side, the mean unit vector of sentences of many documents. It stands for those that a
            document of fewer than 20 lacks, so that the distances are not those of the pair alone.
    """

    def __init__(
        self,
        sides: Sequence[Spans],
        merge: float = 0.0,
        lengths: Sequence[Sequence[int] | np.ndarray] | None = None,
        length_weight: float = 0.0,
        means: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self.sides, self.merge, self.lengths, self.length_weight = (
            sides,
            merge,
            lengths,
            length_weight,
        )
        centers = [side[0].mean(axis=0, dtype=np.float64) for side in sides]
        for number, side in enumerate(sides if means is not None else ()):
            centers[number] = means[number] + (centers[number] - means[number]) * min(
                len(side[0]) / _SHORT, 1
            )
        pairs = zip(sides, centers[::-1], strict=True)
        self.distances = [[1 - units @ center for units in side] for side, center in pairs]
        if lengths is not None:
            self.ends = [
                np.concatenate([[0.0], np.cumsum(side, dtype=np.float64)]) for side in lengths
            ]
            self.ratio = max(self.ends[1][-1], 1) / max(self.ends[0][-1], 1)

    def of_vectors(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """Costs by vectors alone of spans of a and b sentences that begin at these rows and columns."""
        cosines = self.sides[0][a - 1][rows] @ self.sides[1][b - 1][columns].T
        distances = self.distances[0][a - 1][rows, None] + self.distances[1][b - 1][None, columns]
        # a cosine of equal vectors may be above 1 by a rounding
        return a * b * np.maximum(1 - cosines, 0) / np.maximum(distances / 2, _SMALLEST)

    def surprise(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        """-log of the probability of the lengths of these spans, if they are translations: (rows, columns)."""
        first, second = (
            ends[size:] - ends[:-size] for ends, size in zip(self.ends, (a, b), strict=True)
        )
        first, second = first[rows, None], second[None, columns]
        mean = (first + second / self.ratio) / 2
        delta = np.abs(second - first * self.ratio) / np.sqrt(np.maximum(mean, 1) * _VARIANCE)
        return -np.log(2) - log_ndtr(-delta)

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        costs = self.of_vectors(a, b, rows, columns) + self.merge * (a + b - 2)
        if self.lengths is not None:
            costs += self.length_weight * np.minimum(
                self.surprise(a, b, rows, columns), _LARGEST_SURPRISE
            )
        return costs

    def halved(self) -> BeadCosts:
        """Costs of pairs of neighboring sentences; the last one stays alone if their number is odd."""
        sides = [
            [unit_rows(np.add.reduceat(side[0], range(0, len(side[0]), 2)))] for side in self.sides
        ]
        lengths = self.lengths and [
            np.add.reduceat(side, range(0, len(side), 2)) for side in self.lengths
        ]
        return BeadCosts(sides, self.merge, lengths, self.length_weight)


def embedded_spans(
    documents: Sequence[Sequence[str]], encode: Encode, largest: int
) -> list[list[np.ndarray]]:
    """Vectors of the sentences of many documents, and of what up to `largest` consecutive ones make as one text.

    Args:
        documents: Sentences of each.
        encode: n texts to (n, d), such as `DocumentEmbedder.encode`. Every different text is encoded once.
        largest: Sentences of the longest span.

    Returns:
        For each document what [`align_sentences`] takes: `largest` arrays, the s-th (n - s + 1, d).
    """
    position: dict[str, int] = {}  # row of each different text
    spans = []
    for sentences in documents:
        spans.append([])
        for size in range(1, largest + 1):
            texts = (
                " ".join(sentences[start : start + size])
                for start in range(len(sentences) - size + 1)
            )
            spans[-1].append([position.setdefault(text, len(position)) for text in texts])
    vectors = encode(list(position)) if position else np.empty((0, 1), np.float32)
    return [[vectors[rows] for rows in of_document] for of_document in spans]


def _coarse_path(costs: BeadCosts, skip: float, width: int) -> np.ndarray | None:
    """Nodes (p, 2) of a path of one-to-one moves over means of two neighbors; None where every cell is computed."""
    n, m = (len(side[0]) for side in costs.sides)
    if n * m <= _FULL**2 or min(n, m) < 4:
        return None
    half = costs.halved()
    path = _path(half, skip, [(1, 1)], _coarse_path(half, skip, width), width)
    return np.minimum(2 * np.array(path), [n, m])


def _path(
    costs: BeadCosts, skip: float, moves: Moves, near: np.ndarray | None, width: int
) -> list[tuple[int, int]]:
    """Nodes of the cheapest path from (0, 0) to (n, m). Windows are widened until the path stays off their edges."""
    n, m = (len(side[0]) for side in costs.sides)
    while True:
        low, high = _windows(n, m, near, width)
        steps = _steps(costs, skip, moves, low, high)
        path = [(n, m)]
        while path[-1] != (0, 0):
            i, j = path[-1]
            a, b = [*moves, (1, 0), (0, 1)][steps[i][j - low[i]]]
            path.append((i - a, j - b))
        path.reverse()
        touched = any((j == low[i] and j > 0) or (j == high[i] and j < m) for i, j in path)
        if near is None or not touched:
            return path
        near, width = np.array(path), 2 * width
        if width > max(n, m):
            near = None


def _windows(n: int, m: int, near: np.ndarray | None, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest column of each row of nodes, (n + 1,): all, or those within `width` cells of a path."""
    if near is None:
        return np.zeros(n + 1, np.int64), np.full(n + 1, m)
    low, high = np.full(n + 1, m), np.zeros(n + 1, np.int64)
    for (i0, j0), (i1, j1) in zip(near[:-1], near[1:], strict=True):
        low[i0 : i1 + 1] = np.minimum(low[i0 : i1 + 1], j0)
        high[i0 : i1 + 1] = np.maximum(high[i0 : i1 + 1], j1)
    rows = np.arange(n + 1)
    low, high = low[np.maximum(rows - width, 0)] - width, high[np.minimum(rows + width, n)] + width
    return np.maximum(low, 0), np.minimum(high, m)


def _steps(
    costs: BeadCosts, skip: float, moves: Moves, low: np.ndarray, high: np.ndarray
) -> list[np.ndarray]:
    """The last step of the cheapest path to each node in its window, row by row: number of a move, or a skip."""
    n, m = len(low) - 1, int(high[-1])
    skip_first, skip_second = len(moves), len(moves) + 1
    paid = skip * np.arange(m + 1)  # for skipping all sentences before a column
    best: dict[
        int, np.ndarray
    ] = {}  # cost of the cheapest path to each node (m + 1,), of the last rows
    steps = []
    for start in range(0, n + 1, _ROWS):
        stop = min(start + _ROWS, n + 1)
        blocks = []  # costs of each move to the nodes of these rows, in the columns of all their windows
        for a, b in moves:
            columns = slice(max(low[start] - b, 0), high[stop - 1] + 1 - b)
            blocks.append(costs(a, b, slice(max(start - a, 0), max(stop - a, 0)), columns))
        for i in range(start, stop):
            window = slice(low[i], high[i] + 1)
            total, step = np.full(m + 1, np.inf), np.full(m + 1, skip_first, np.uint8)
            if i == 0:
                total[0] = 0.0
            else:
                total[window] = best[i - 1][window] + skip
            for number, (a, b) in reversed(list(enumerate(moves))):
                left, right = max(low[i], b), high[i] + 1
                if i < a or left >= right:
                    continue
                first_column = max(low[start], b)
                cost = blocks[number][i - max(start, a), left - first_column : right - first_column]
                arrived = best[i - a][left - b : right - b] + cost
                better = arrived <= total[left:right]  # ties go to the earlier move
                total[left:right][better] = arrived[better]
                step[left:right][better] = number
            # Skips along the row come from its cheapest node to the left, which a running minimum finds for them all.
            least = np.minimum.accumulate(total[window] - paid[window])
            skipped = least < total[window] - paid[window]
            step[window][skipped] = skip_second
            total[window] = np.where(skipped, least + paid[window], total[window])
            best[i] = total
            best.pop(i - moves[-1][0], None)
            steps.append(step[window].copy())
    return steps


def _beads(
    path: list[tuple[int, int]], costs: BeadCosts | None, skip: float, scoring: BeadCosts | None
) -> Iterator[Bead]:
    """scoring: costs by which the beads are scored."""
    for (i0, j0), (i1, j1) in itertools.pairwise(path):
        a, b = i1 - i0, j1 - j0
        if a and b:
            one = a, b, slice(i0, i0 + 1), slice(j0, j0 + 1)
            similarity = float(
                np.clip(costs.sides[0][a - 1][i0] @ costs.sides[1][b - 1][j0], -1, 1)
            )
            score = float(1 - scoring.of_vectors(*one)[0, 0])
            yield Bead(range(i0, i1), range(j0, j1), float(costs(*one)[0, 0]), similarity, score)
        else:
            yield Bead(range(i0, i1), range(j0, j1), skip, None)


def unit_spans(name: str, given: np.ndarray | Spans, largest: int) -> list[np.ndarray]:
    """Unit vectors of spans of 1, 2, ... sentences, as many lengths as moves have; sums of units where none are given.

    Raises:
        ValueError: Shapes that do not fit, numbers that are not finite.
    """
    spans = [np.asarray(some) for some in ([given] if isinstance(given, np.ndarray) else given)][
        :largest
    ]
    n = len(spans[0])
    if n == 0:
        return [spans[0]]
    units = []
    for size, some in enumerate(spans, 1):
        shape = max(n - size + 1, 0), spans[0].shape[-1]
        if some.shape != shape and (len(some) or shape[0]):
            raise TmdeError(
                f"{name}: found shape {some.shape} for spans of {size} sentences, expected {shape}"
            )
        if not np.isfinite(some).all():
            raise TmdeError(
                f"{name}: found a vector that is not finite among spans of {size} sentences"
            )
        units.append(unit_rows(some.reshape(shape)))
    for size in range(len(units) + 1, largest + 1):
        rows = max(n - size + 1, 0)
        units.append(
            unit_rows(
                sum(units[0][start : start + rows].astype(np.float64) for start in range(size))
            )
        )
    return units


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """(n, d) float32 of length 1; zeros stay zeros."""
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)
