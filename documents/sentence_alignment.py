"""Sentences of two translated documents, aligned in order.

Up to six sentences of both sides together form a pair: one to one, one to five, three to three. A
sentence is left alone if the other side has nothing in its place. Where it has something else, the
two are paired with a low score.

```python
lengths = [len(sentence) for sentence in german], [len(sentence) for sentence in english]
first = embedder.encode(german)
second = embedder.encode(english)
for bead in align_sentences(first, second, lengths=lengths):
    print(bead.similarity, [german[i] for i in bead.first], [english[j] for j in bead.second])
```
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.alignment_path import Move, Node, cheapest_path
from tmde.documents.beads import (
    BeadCosts,
    BeadScores,
    center_of,
    unit_sentences,
    unit_spans,
    weights_of,
)

Lengths = tuple[Sequence[int] | np.ndarray, Sequence[int] | np.ndarray]


class Bead(NamedTuple):
    """Consecutive sentences of both documents that are translations.

    One side is empty where a sentence has none.

    Attributes:
        first: The sentences of the first document.
        second: Those of the second.
        cost: Its cost in the program.
        similarity: The cosine of both sides; None where one side is empty.
        score: 1 where the vectors of both sides are equal, and about 0 for two unrelated
            sentences; None where one side is empty. See
            [`~tmde.documents.beads.BeadScores`].
    """

    first: range
    second: range
    cost: float
    similarity: float | None
    score: float | None = None


def align_sentences(
    first: np.ndarray,
    second: np.ndarray,
    max_size: int = 6,
    skip: float = 0.7,
    merge: float = 0.28,
    lengths: Lengths | None = None,
    length_weight: float = 0.08,
    width: int = 20,
    means: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[Bead]:
    """Return the cheapest alignment of two documents that keeps the order of both.

    The costs are similar to those of vecalign (Thompson & Koehn 2019, "Vecalign: Improved sentence
    alignment in linear time and space", section 3.2). A bead of a and b sentences costs
    (a + b) / 2 (1 - cos(x, y)), divided by the distance of x and of y to sentences of the other
    document. So a text that is near to everything gains nothing by it. A sentence that is left
    alone costs `skip`.

    What differs from vecalign:

    - The factor is (a + b) / 2, where vecalign has a b: the vectors of many sentences are no
      farther apart than those of a few.
    - Distances to the other document are those to all its sentences and to some near ones; see
      [`~tmde.documents.beads.BeadCosts`]. vecalign takes random ones.
    - The vector of several sentences is the sum of theirs, where vecalign embeds them again as one
      text. The sum changes more by a short sentence that does not belong to it.
    - `skip` is a number. vecalign takes the first quintile of the costs of all pairs. But right
      pairs are a fifth of all pairs in a document of five sentences, and a hundredth in one of a
      hundred.
    - The mean of both documents is subtracted from all vectors first, because the vectors of many
      encoders lie in a narrow cone.
    - Each sentence beyond one on each side costs `merge`, because most beads are one to one.
    - If lengths are known, the surprise at those of the two sides costs, too (Gale & Church 1993).

    The defaults were chosen on development documents.

    Above 300 sentences the path is searched near that of a coarser pass, over means of two
    neighboring vectors, as in vecalign. The band around it is made wider where the path touches its
    edge. Time and memory grow with n + m, except for documents of which long parts have no
    counterpart.

    Args:
        first: The vectors of the n sentences, (n, d). n may be 0.
        second: Those of the m sentences of the other document.
        max_size: The most sentences of a bead, both sides together: 3 for 1-1, 1-2 and 2-1, 4 for
            1-3, 2-2 and 3-1 as well.
        skip: Above 0. The lower it is, the more sentences are left alone.
        merge: 0 or more; the cost of each sentence of a bead beyond one on each side.
        lengths: The characters of each sentence of the first document (n,), and of the second (m,).
        length_weight: 0 or more; what one unit of surprise (-log of a probability, here at most 5)
            costs.
        width: The cells on each side of the coarser path.
        means: The mean unit vector of sentences of many documents, (d,) of each side. It stands for
            the sentences that a document of fewer than 20 lacks. Without it, scores of short
            documents mean little: that of two documents of one sentence is 0, unless they are
            equal.

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
    if not (0 <= merge < np.inf and 0 <= length_weight < np.inf):
        raise TmdeError(
            f"merge, length_weight: found {merge}, {length_weight}, expected numbers of 0 or more"
        )
    _check_sides(first, second, lengths)
    n, m = len(first), len(second)
    first = unit_sentences("first", first)
    second = unit_sentences("second", second)
    if n == 0 or m == 0:
        return _all_alone(n, m, skip)
    first_lengths, second_lengths = (None, None) if lengths is None else lengths
    first_weights = weights_of(n, first_lengths)
    second_weights = weights_of(m, second_lengths)
    center = _common_center(first, second, means)
    sides = [
        unit_spans(first - center, first_weights, max_size - 1),
        unit_spans(second - center, second_weights, max_size - 1),
    ]
    costs = BeadCosts(sides, merge, lengths, length_weight)
    path = cheapest_path(costs, skip, _moves(max_size), width)
    scores = BeadScores(first, second, first_weights, second_weights, means)
    return _beads(path, costs, skip, scores)


def _common_center(
    first: np.ndarray, second: np.ndarray, means: tuple[np.ndarray, np.ndarray] | None
) -> np.ndarray:
    """Return the vector that is subtracted from the sentences of both documents, (d,).

    Args:
        first: The unit vectors of the sentences of the first document, (n, d).
        second: Those of the second, (m, d).
        means: The mean vectors of sentences of many documents; without them, a short document is
            taken to have more sentences of mean 0.
    """
    zero = np.zeros(first.shape[1])
    first_mean, second_mean = (zero, zero) if means is None else means
    return (center_of(first, first_mean) + center_of(second, second_mean)) / 2


def _all_alone(n: int, m: int, skip: float) -> list[Bead]:
    """Return the beads of two documents of which one is empty."""
    beads = []
    for i in range(n):
        beads.append(Bead(range(i, i + 1), range(0), cost=skip, similarity=None))
    for j in range(m):
        beads.append(Bead(range(0), range(j, j + 1), cost=skip, similarity=None))
    return beads


def _check_sides(first: np.ndarray, second: np.ndarray, lengths: Lengths | None) -> None:
    """Raise TmdeError if dimensions differ, or the lengths are not those of all sentences."""
    if len(first) and len(second) and first.shape[1:] != second.shape[1:]:
        raise TmdeError(
            f"Found vectors of shape {first.shape[1:]} in first and {second.shape[1:]} in second, "
            "expected the same"
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


def _beads(path: list[Node], costs: BeadCosts, skip: float, scores: BeadScores) -> list[Bead]:
    """Return the beads of a path.

    Args:
        path: Its nodes.
        costs: The costs in the program.
        skip: The cost of a sentence that is left alone.
        scores: The scores of the beads.
    """
    beads = []
    for (row, column), (next_row, next_column) in itertools.pairwise(path):
        first = range(row, next_row)
        second = range(column, next_column)
        if len(first) == 0 or len(second) == 0:
            beads.append(Bead(first, second, cost=skip, similarity=None))
            continue
        rows = slice(row, row + 1)
        columns = slice(column, column + 1)
        cost = float(costs(len(first), len(second), rows, columns)[0, 0])
        similarity, score = scores.of(first, second)
        beads.append(Bead(first, second, cost, similarity, score))
    return beads
