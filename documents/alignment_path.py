"""The cheapest path through a grid of sentences, in a band around that of a coarser pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tmde.documents.beads import BeadCosts

Move = tuple[int, int]  # sentences of both documents
Node = tuple[int, int]  # sentences of both documents before the node

FULL = 300  # Every cell is computed if n * m is at most the square of this.
ROWS = 32  # rows of cells whose cosines are computed at once
SKIPS: list[Move] = [(1, 0), (0, 1)]
SMALLEST_HALVED = 4  # sentences; a shorter document is not searched in a band


def cheapest_path(costs: BeadCosts, skip: float, moves: list[Move], width: int) -> list[Node]:
    """Return the nodes of the cheapest path from (0, 0) to (n, m).

    If n * m exceeds 300² and both documents have at least four sentences, the path is searched near
    that of a coarser pass, over pairs of neighboring sentences.

    Args:
        costs: The costs of moves.
        skip: The cost of a sentence that is left alone.
        moves: The sizes of beads, in the order of preference where costs are equal.
        width: The cells on each side of the coarser path.
    """
    coarse_path = _coarse_path(costs, skip, width)
    return _path_near(costs, skip, moves, coarse_path, width)


def _coarse_path(costs: BeadCosts, skip: float, width: int) -> np.ndarray | None:
    """Return the nodes (p, 2) of a path of one-to-one moves over pairs of neighboring sentences.

    The result is None for short documents, of which every cell is computed.
    """
    n, m = costs.shape
    if n * m <= FULL**2 or min(n, m) < SMALLEST_HALVED:
        return None
    path = cheapest_path(costs.halved(), skip, [(1, 1)], width)
    return np.minimum(2 * np.array(path), [n, m])


def _path_near(
    costs: BeadCosts, skip: float, moves: list[Move], near: np.ndarray | None, width: int
) -> list[Node]:
    """Return the cheapest path within windows, which are widened until it stays off their edges."""
    n, m = costs.shape
    while True:
        low, high = windows_near(n, m, near, width)
        steps = _Program(costs, skip, moves, low, high).run()
        path = _trace_back(steps, [*moves, *SKIPS], low, (n, m))
        if near is None or not _touches_edge(path, low, high, m):
            return path
        near = np.array(path)
        width = 2 * width
        if width > max(n, m):
            near = None


def windows_near(
    n: int, m: int, near: np.ndarray | None, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest column of each row of nodes, (n + 1,) each.

    Args:
        n: The sentences of the first document.
        m: Those of the second.
        near: The nodes of a path, (p, 2), from which no cell is farther than `width`; None for all
            cells.
        width: The cells on each side of the path.
    """
    if near is None:
        return np.zeros(n + 1, np.int64), np.full(n + 1, m)
    low = np.full(n + 1, m)
    high = np.zeros(n + 1, np.int64)
    for (row, column), (next_row, next_column) in zip(near[:-1], near[1:], strict=True):
        rows = slice(row, next_row + 1)
        low[rows] = np.minimum(low[rows], column)
        high[rows] = np.maximum(high[rows], next_column)
    all_rows = np.arange(n + 1)
    low = low[np.maximum(all_rows - width, 0)] - width
    high = high[np.minimum(all_rows + width, n)] + width
    return np.maximum(low, 0), np.minimum(high, m)


def _trace_back(
    steps: list[np.ndarray], moves: list[Move], low: np.ndarray, end: Node
) -> list[Node]:
    """Return the nodes of the path that the last step to each node makes."""
    path = [end]
    while path[-1] != (0, 0):
        i, j = path[-1]
        a, b = moves[steps[i][j - low[i]]]
        path.append((i - a, j - b))
    path.reverse()
    return path


def _touches_edge(path: list[Node], low: np.ndarray, high: np.ndarray, m: int) -> bool:
    """Return whether a path touches an edge of its windows that is not one of the grid."""
    for i, j in path:
        is_lowest = j == low[i] and j > 0
        is_highest = j == high[i] and j < m
        if is_lowest or is_highest:
            return True
    return False


@dataclass(frozen=True)
class _Block:
    """The costs of the moves to the nodes of some rows, in the columns of all their windows.

    Attributes:
        first_row: The first of the rows.
        lowest_column: The lowest column of their windows.
        costs: For each move, the costs of its spans, (rows, columns) at most.
    """

    first_row: int
    lowest_column: int
    costs: list[np.ndarray]

    def costs_to(self, number: int, move: Move, row: int, left: int, right: int) -> np.ndarray:
        """Return the costs of a move to the nodes of a row from `left` to `right`, exclusive."""
        a, b = move
        # The first nodes that a move of a and b sentences can reach have row a and column b.
        first_row = max(self.first_row, a)
        first_column = max(self.lowest_column, b)
        return self.costs[number][row - first_row, left - first_column : right - first_column]


class _Program:
    """The dynamic program over the nodes within windows, row by row.

    Args:
        costs: The costs of moves.
        skip: The cost of a sentence that is left alone.
        moves: The sizes of beads, in the order of preference where costs are equal.
        low: The lowest column of each row of nodes, (n + 1,).
        high: The highest one.
    """

    def __init__(
        self,
        costs: BeadCosts,
        skip: float,
        moves: list[Move],
        low: np.ndarray,
        high: np.ndarray,
    ) -> None:
        self.costs = costs
        self.skip = skip
        self.moves = moves
        self.low = low
        self.high = high
        self.column_count = int(high[-1]) + 1
        # The cost of skipping all sentences before each column, (m + 1,).
        self.skipped_costs = skip * np.arange(self.column_count)
        # The costs of the cheapest paths to the nodes of the last rows, (m + 1,) each.
        self.totals: dict[int, np.ndarray] = {}
        self.longest_move = max(a for a, _ in moves)

    def run(self) -> list[np.ndarray]:
        """Return the last step of the cheapest path to each node in its window, row by row.

        A step is the number of a move, or of a skip, which come after the moves.
        """
        steps = []
        for block, rows in self._blocks():
            for row in rows:
                totals, row_steps = self._begin_row(row)
                self._add_moves(row, block, totals, row_steps)
                window = slice(self.low[row], self.high[row] + 1)
                self._add_skips_along(window, totals, row_steps)
                self.totals[row] = totals
                self.totals.pop(row - self.longest_move, None)
                steps.append(row_steps[window].copy())
        return steps

    def _blocks(self) -> Iterator[tuple[_Block, range]]:
        """Yield the costs of some rows at a time, and these rows."""
        row_count = len(self.low)
        for start in range(0, row_count, ROWS):
            stop = min(start + ROWS, row_count)
            block_costs = []
            for a, b in self.moves:
                rows = slice(max(start - a, 0), max(stop - a, 0))
                columns = slice(max(self.low[start] - b, 0), self.high[stop - 1] + 1 - b)
                block_costs.append(self.costs(a, b, rows, columns))
            yield _Block(start, self.low[start], block_costs), range(start, stop)

    def _begin_row(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the costs and steps of paths that come by a skip from the row before, (m + 1,)."""
        totals = np.full(self.column_count, np.inf)
        steps = np.full(self.column_count, len(self.moves), np.uint8)
        if row == 0:
            totals[0] = 0.0
        else:
            window = slice(self.low[row], self.high[row] + 1)
            totals[window] = self.totals[row - 1][window] + self.skip
        return totals, steps

    def _add_moves(self, row: int, block: _Block, totals: np.ndarray, steps: np.ndarray) -> None:
        """Update costs and steps by the paths that come by a move."""
        # The earlier move wins a tie because it comes last.
        for number in reversed(range(len(self.moves))):
            a, b = self.moves[number]
            left = max(self.low[row], b)
            right = self.high[row] + 1
            if row < a or left >= right:
                continue
            costs = block.costs_to(number, (a, b), row, left, right)
            arrived = self.totals[row - a][left - b : right - b] + costs
            is_better = arrived <= totals[left:right]
            totals[left:right][is_better] = arrived[is_better]
            steps[left:right][is_better] = number

    def _add_skips_along(self, window: slice, totals: np.ndarray, steps: np.ndarray) -> None:
        """Update costs and steps by the paths that come by skips along the row.

        They come from the cheapest node to the left, which a running minimum finds for all nodes.
        """
        skipped_costs = self.skipped_costs[window]
        without_skips = totals[window] - skipped_costs
        cheapest = np.minimum.accumulate(without_skips)
        is_skipped = cheapest < without_skips
        steps[window][is_skipped] = len(self.moves) + 1
        totals[window] = np.where(is_skipped, cheapest + skipped_costs, totals[window])
