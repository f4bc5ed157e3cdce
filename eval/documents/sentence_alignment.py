"""Sentences of two translated documents, aligned in order: one to one, one to two, two to one, or left alone.

first, second = (embedded_spans([sentences], embedder, 2)[0] for sentences in (german, english))
for bead in align_sentences(first, second):
    print(bead.similarity, [german[i] for i in bead.first], [english[j] for j in bead.second])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

Spans = Sequence[np.ndarray]
Windows = tuple[np.ndarray, np.ndarray]
Encode = Callable[[list[str]], np.ndarray]

_FULL = 300  # sentences of both documents up to which every cell is computed, as in vecalign
_ROWS = 32  # rows of cells whose cosines are computed at once
_SMALLEST = 1e-6  # of the mean distance to the other document, which a cost is divided by
_SKIP_FIRST, _SKIP_SECOND, _OUTSIDE = 253, 254, 255  # steps besides the numbers of moves


class Bead(NamedTuple):
    """Consecutive sentences of both documents that are translations; one side is empty where a sentence has none.

    cost: in the program; similarity: cosine of both sides, None where one is empty.
    """

    first: range
    second: range
    cost: float
    similarity: float | None


class BlockCosts(Protocol):
    """Costs (rows, columns) of aligning spans of a + b sentences.

    rows and columns say where spans begin: spans of `a` sentences in the first document, of `b` in the second.
    """

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray: ...


def align_sentences(
    first: np.ndarray | Spans, second: np.ndarray | Spans, max_size: int = 3, skip: float = 0.55, width: int = 20
) -> list[Bead]:
    """The cheapest alignment of two documents that keeps the order of both.

    Costs are those of vecalign (Thompson & Koehn 2019, "Vecalign: Improved sentence alignment in linear time and
    space", section 3.2): with a and b sentences on the two sides, a b (1 - cos(x, y)), divided by the mean of what x
    is from the sentences of the other document and what y is, so that a text that is near to everything gains nothing
    by it (vecalign draws sentences for that mean, here it is of all), and single sentences that have nothing to do
    with each other cost about 1. One that is left alone costs `skip`. vecalign takes a quantile of the costs of pairs
    for that, a fifth; but right pairs are a fifth of all in a document of five sentences and a hundredth in one of
    a hundred. Above 300 sentences the path is searched near that of a coarser pass, over means of two neighbouring
    vectors, as in vecalign; near is made wider where the path touches its edge. Time and memory grow with n + m but
    for documents of which long parts have no counterpart.

    Args:
        first: Vectors of the n sentences, (n, d); or a list of such arrays by length of span, the s-th (n - s + 1, d)
            of the texts that s consecutive sentences make (see [`embedded_spans`]). Spans without vectors of their own
            are represented by the sum of their sentences' unit vectors. n may be 0.
        second: Those of the m sentences of the other document.
        max_size: Sentences of a bead, both sides together: 3 for 1-1, 1-2 and 2-1, 4 for 1-3, 2-2 and 3-1 as well.
        skip: Above 0; the lower, the more sentences are left alone. From 2 - sqrt(2) = 0.59 on, even with perfect
            vectors, a sentence without counterpart is cheaper as part of the bead beside it than alone.
        width: Cells on each side of the coarser path.

    Returns:
        Beads in order; every sentence is in one.

    Raises:
        ValueError: Options out of range, arrays whose shapes do not fit, numbers that are not finite.
    """
    if max_size < 2:
        raise ValueError(f"max_size: found {max_size}, expected at least 2, one sentence on each side")
    if not 0 < skip < np.inf:
        raise ValueError(f"skip: found {skip}, expected a number above 0; unrelated sentences cost about 1")
    if width < 1:
        raise ValueError(f"width: found {width}, expected at least 1")
    sides = [_unit_spans(name, spans, max_size - 1) for name, spans in (("first", first), ("second", second))]
    n, m = (len(side[0]) for side in sides)
    if n and m and sides[0][0].shape[1] != sides[1][0].shape[1]:
        raise ValueError(
            f"Found {sides[0][0].shape[1]} dimensions in first and {sides[1][0].shape[1]} in second, expected as many"
        )
    if not n or not m:
        alone = [(range(i, i + 1), range(0)) for i in range(n)] + [(range(0), range(j, j + 1)) for j in range(m)]
        return [Bead(*both, skip, None) for both in alone]
    costs = _VectorCosts(*sides)
    skips = np.full(n, skip), np.full(m, skip)
    path = _path(costs, skips, _moves(max_size), _coarse_path(sides[0][0], sides[1][0], skip, width), width)
    return list(_beads(path, costs, skips, sides))


def align_by_costs(costs: BlockCosts, skips: tuple[np.ndarray, np.ndarray], max_size: int = 3) -> list[Bead]:
    """The same by any costs, every cell computed: what a baseline needs.

    Args:
        costs: Of all spans; see [`BlockCosts`].
        skips: What each sentence of the first document (n,), and of the second (m,), costs where it is left alone.
        max_size: See [`align_sentences`].

    Returns:
        Beads without similarity, in order.
    """
    return list(_beads(_path(costs, skips, _moves(max_size), None, 1), costs, skips, []))


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


@dataclass(frozen=True)
class _Side:
    """Unit vectors of spans by length, float32, and 1 - their mean cosine to the sentences of the other document."""

    units: list[np.ndarray]
    distances: list[np.ndarray]


class _VectorCosts:
    """a b (1 - cos(x, y)) by the mean of both distances."""

    def __init__(self, first: list[np.ndarray], second: list[np.ndarray]) -> None:
        self.first, self.second = (
            _Side(own, [1 - units @ other[0].mean(axis=0, dtype=np.float64) for units in own])
            for own, other in ((first, second), (second, first))
        )

    def __call__(self, a: int, b: int, rows: slice, columns: slice) -> np.ndarray:
        cosines = self.first.units[a - 1][rows] @ self.second.units[b - 1][columns].T
        distances = self.first.distances[a - 1][rows, None] + self.second.distances[b - 1][None, columns]
        # a cosine of equal vectors may be above 1 by a rounding
        return a * b * np.maximum(1 - cosines, 0) / np.maximum(distances / 2, _SMALLEST)


def _coarse_path(first: np.ndarray, second: np.ndarray, skip: float, width: int) -> np.ndarray | None:
    """Nodes (p, 2) of a path of one-to-one moves over means of two neighbours; None where every cell is computed."""
    if len(first) * len(second) <= _FULL**2 or min(len(first), len(second)) < 4:
        return None
    halves = [_halved(first), _halved(second)]
    skips = tuple(np.full(len(half), skip) for half in halves)
    path = _path(
        _VectorCosts(*([half] for half in halves)), skips, [(1, 1)], _coarse_path(*halves, skip, width), width
    )
    return np.minimum(2 * np.array(path), [len(first), len(second)])


def _path(
    costs: BlockCosts,
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
    costs: BlockCosts, skips: tuple[np.ndarray, np.ndarray], moves: list[tuple[int, int]], windows: Windows
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
    costs: BlockCosts, move: tuple[int, int], start: int, stop: int, windows: Windows, m: int
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
    path: list[tuple[int, int]], costs: BlockCosts, skips: tuple[np.ndarray, np.ndarray], units: list[list[np.ndarray]]
) -> Iterator[Bead]:
    for (i0, j0), (i1, j1) in zip(path, path[1:], strict=False):
        a, b = i1 - i0, j1 - j0
        similarity = None
        if a and b:
            cost = costs(a, b, slice(i0, i0 + 1), slice(j0, j0 + 1))[0, 0]
            if units:
                similarity = float(np.clip(units[0][a - 1][i0] @ units[1][b - 1][j0], -1, 1))
        else:
            cost = skips[0][i0] if a else skips[1][j0]
        yield Bead(range(i0, i1), range(j0, j1), float(cost), similarity)


def _moves(max_size: int) -> list[tuple[int, int]]:
    """Sentences on both sides, small beads first: ties go to them."""
    sizes = range(1, max_size)
    return sorted(((a, b) for a in sizes for b in sizes if a + b <= max_size), key=lambda move: (sum(move), move))


def _halved(units: np.ndarray) -> np.ndarray:
    """Directions of the means of two neighbours; the last one alone where their number is odd."""
    even = len(units) // 2 * 2
    return _unit(np.concatenate([units[0:even:2] + units[1:even:2], units[even:]]))


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(norms == 0, 1, norms)).astype(np.float32)


def _unit_spans(name: str, given: np.ndarray | Spans, largest: int) -> list[np.ndarray]:
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
    units = [_unit(some.reshape(-1, dimensions)) for some in spans[:largest]]
    while len(units) < largest:
        size = len(units) + 1
        rows = max(n - size + 1, 0)
        units.append(_unit(sum(units[0][start : start + rows].astype(np.float64) for start in range(size))))
    return units
