"""Sentences of two translated documents, aligned in order.

Sentences are aligned one to one, one to two, two to one, or left alone.

```python
first, second = embedded_spans([german, english], embedder.encode, 2)
lengths = [len(sentence) for sentence in german], [len(sentence) for sentence in english]
for bead in align_sentences(first, second, lengths=lengths):
    print(bead.similarity, [german[i] for i in bead.first], [english[j] for j in bead.second])
```
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.alignment_path import Move, Node, cheapest_path
from tmde.documents.bead_costs import BeadCosts, Spans, unit_spans

Encode = Callable[[list[str]], np.ndarray]
Lengths = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]


class Bead(NamedTuple):
    """Consecutive sentences of both documents that are translations.

    One side is empty where a sentence has none.

    Attributes:
        first: The sentences of the first document.
        second: Those of the second.
        cost: Its cost in the program.
        similarity: The cosine of both sides; None where one side is empty.
        score: 1 minus the part of the cost that comes from the vectors, so 1 where they are equal
            and about 0 for two unrelated sentences; None where one side is empty.
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
    lengths: Lengths | None = None,
    length_weight: float = 0.05,
    width: int = 20,
    means: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[Bead]:
    """Return the cheapest alignment of two documents that keeps the order of both.

    Costs are those of vecalign (Thompson & Koehn 2019, "Vecalign: Improved sentence alignment in
    linear time and space", section 3.2). A bead of a and b sentences costs a b (1 - cos(x, y)),
    divided by the mean distance of x and of y to the sentences of the other document. So a text
    that is near to everything gains nothing by it, and two unrelated sentences cost about 1.
    (vecalign draws sentences for that mean; here it is taken over all.) A sentence that is left
    alone costs `skip`. vecalign sets that cost to the first quintile of the costs of all pairs. But
    right pairs are a fifth of all pairs in a document of five sentences, and a hundredth in one of
    a hundred.

    Two costs are added to vecalign's. Each sentence beyond one on each side costs `merge`, because
    most beads are one to one. If lengths are known, the surprise at those of the two sides costs,
    too (Gale & Church 1993; see [`~tmde.documents.bead_costs.BeadCosts`]). Their defaults and that
    of `skip` were chosen on development documents.

    Above 300 sentences the path is searched near that of a coarser pass, over means of two
    neighboring vectors, as in vecalign. The band around it is made wider where the path touches its
    edge. Time and memory grow with n + m, except for documents of which long parts have no
    counterpart.

    Args:
        first: The vectors of the n sentences, (n, d); or a list of such arrays by length of span,
            the s-th (n - s + 1, d). Spans that have no vectors of their own are represented by the
            sum of their sentences' unit vectors. n may be 0.
        second: Those of the m sentences of the other document.
        max_size: The most sentences of a bead, both sides together: 3 for 1-1, 1-2 and 2-1, 4 for
            1-3, 2-2 and 3-1 as well.
        skip: Above 0. The lower it is, the more sentences are left alone. From
            2 - sqrt(2) + `merge` = 0.89 on, a sentence without counterpart is cheaper as part of
            the bead beside it than alone, even with perfect vectors.
        merge: 0 or more; the cost of each sentence of a bead beyond one on each side.
        lengths: The characters of each sentence of the first document (n,), and of the second (m,).
        length_weight: 0 or more; what one unit of surprise (-log of a probability, here at most 5)
            costs.
        width: The cells on each side of the coarser path.
        means: For scores alone, (d,) of each side: the mean unit vector of sentences of many
            documents, which stands for those that a document of fewer than 20 lacks. Without it,
            scores of short documents mean little: that of two documents of one sentence is always
            0.

    Returns:
        Beads in order; every sentence is in one.

    Raises:
        TmdeError: Options out of range, arrays whose shapes do not fit, numbers that are not
            finite.
    """
    if max_size < 2 or not 0 < skip < np.inf:
        raise TmdeError(
            f"max_size, skip: found {max_size}, {skip}, expected at least 2 and a number above 0"
        )
    longest = max_size - 1
    sides = [unit_spans("first", first, longest), unit_spans("second", second, longest)]
    n, m = (len(side[0]) for side in sides)
    _check_sides(sides, lengths)
    if n == 0 or m == 0:
        return _all_alone(n, m, skip)
    costs = BeadCosts(sides, merge, lengths, length_weight)
    path = cheapest_path(costs, skip, _moves(max_size), width)
    score_costs = costs if means is None else BeadCosts(sides, means=means)
    return _beads(path, costs, skip, score_costs)


def _all_alone(n: int, m: int, skip: float) -> list[Bead]:
    """Return the beads of two documents of which one is empty."""
    beads = []
    for i in range(n):
        beads.append(Bead(range(i, i + 1), range(0), cost=skip, similarity=None))
    for j in range(m):
        beads.append(Bead(range(0), range(j, j + 1), cost=skip, similarity=None))
    return beads


def _check_sides(sides: list[list[np.ndarray]], lengths: Lengths | None) -> None:
    """Raise TmdeError if dimensions differ, or the lengths are not those of all sentences."""
    first, second = (side[0] for side in sides)
    if len(first) and len(second) and first.shape[1] != second.shape[1]:
        raise TmdeError(
            f"Found {first.shape[1]} dimensions in first and {second.shape[1]} in second, "
            "expected as many"
        )
    if lengths is None:
        return
    first_lengths, second_lengths = lengths
    if len(first_lengths) != len(first) or len(second_lengths) != len(second):
        raise TmdeError(
            f"lengths: found {len(first_lengths)} and {len(second_lengths)}, expected "
            f"{len(first)} and {len(second)}"
        )


def _moves(max_size: int) -> list[Move]:
    """Return the sizes of beads with sentences on both sides, small ones first: they win ties."""
    moves = []
    for size in range(2, max_size + 1):
        for a in range(1, size):
            moves.append((a, size - a))
    return moves


def _beads(path: list[Node], costs: BeadCosts, skip: float, score_costs: BeadCosts) -> list[Bead]:
    """Return the beads of a path.

    Args:
        path: Its nodes.
        costs: The costs in the program.
        skip: The cost of a sentence that is left alone.
        score_costs: The costs that make the scores.
    """
    beads = []
    for (row, column), (next_row, next_column) in itertools.pairwise(path):
        first = range(row, next_row)
        second = range(column, next_column)
        a, b = len(first), len(second)
        if a == 0 or b == 0:
            beads.append(Bead(first, second, cost=skip, similarity=None))
            continue
        rows = slice(row, row + 1)
        columns = slice(column, column + 1)
        bead = Bead(
            first,
            second,
            cost=float(costs(a, b, rows, columns)[0, 0]),
            similarity=costs.similarity(a, b, row, column),
            score=float(1 - score_costs.of_vectors(a, b, rows, columns)[0, 0]),
        )
        beads.append(bead)
    return beads


def embedded_spans(
    documents: Sequence[Sequence[str]], encode: Encode, longest: int
) -> list[list[np.ndarray]]:
    """Return the vectors of the sentences of documents, and of consecutive ones as one text.

    Args:
        documents: The sentences of each document.
        encode: Turns n texts into (n, d), such as `DocumentEmbedder.encode`. Every different text
            is encoded once.
        longest: The sentences of the longest span.

    Returns:
        For each document what [`align_sentences`] takes: `longest` arrays, the s-th (n - s + 1, d).
    """
    positions: dict[str, int] = {}  # the row of each different text
    rows_of_documents: list[list[list[int]]] = []
    for sentences in documents:
        rows_by_size = []
        for size in range(1, longest + 1):
            texts = _spans(sentences, size)
            rows_by_size.append([positions.setdefault(text, len(positions)) for text in texts])
        rows_of_documents.append(rows_by_size)
    vectors = encode(list(positions)) if positions else np.empty((0, 1), np.float32)
    spans = []
    for rows_by_size in rows_of_documents:
        spans.append([vectors[rows] for rows in rows_by_size])
    return spans


def _spans(sentences: Sequence[str], size: int) -> list[str]:
    """Return all `size` consecutive sentences, joined by spaces."""
    count = len(sentences) - size + 1
    return [" ".join(sentences[start : start + size]) for start in range(count)]
