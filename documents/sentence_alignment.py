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

    One side is empty if a sentence has no translation.

    Attributes:
        first: The sentences of the first document.
        second: The sentences of the second document.
        cost: Its cost in the program.
        similarity: The cosine of both sides; None if one side is empty.
        score: 1 if the vectors of both sides are equal, and about 0 for two unrelated
            sentences; None if one side is empty. See
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
    """Align the sentences of two documents, keeping their order, at the lowest total cost.

    Costs follow vecalign (Thompson and Koehn, 2019, section 3.2): a bead of a and b sentences costs
    (a + b) / 2 (1 - cos(x, y)), divided by the distances of x and y to sentences in the other
    document, so that a text that is close to everything has no advantage.

    Differences from vecalign: the factor is (a + b) / 2 instead of a b; distances to the other
    document use all its sentences and some near ones (see [`~tmde.documents.beads.BeadCosts`])
    instead of random ones; several sentences are represented by the sum of their vectors; and the
    mean of both documents is first subtracted from all vectors.

    If n * m exceeds 300² and both documents have at least four sentences, the path is searched near
    a coarser pass's path. Time and memory then grow with n + m, unless long parts of a document
    have no counterpart.

    Args:
        first: The vectors of the n sentences, (n, d). n may be 0.
        second: The vectors of the other document's m sentences.
        max_size: The maximum number of sentences in a bead, both sides together: 3 allows 1-1, 1-2
            and 2-1; 4 also allows 1-3, 2-2 and 3-1.
        skip: The cost of an unaligned sentence, above 0. Lower values leave more unaligned.
        merge: The cost of each sentence beyond one per side, at least 0.
        lengths: The lengths in characters of both documents' sentences, (n,) and (m,), to increase
            the cost of unlikely length ratios (Gale and Church, 1993).
        length_weight: The cost of one unit of length surprisal (the negative log probability, at
            most 5), at least 0.
        width: The number of cells to search on each side of the coarser path.
        means: The mean unit vectors of sentences of many documents, (d,) per side. They pad
            documents with fewer than 20 sentences, which have unreliable means.

    Returns:
        Beads in order, containing every sentence once.

    Raises:
        TmdeError: An option is out of range, shapes do not match, or numbers are not finite.

    Example:
        ```python
        from tmde import DocumentEmbedder, align_sentences

        embedder = DocumentEmbedder.from_pretrained()
        german = embedder.encode(["Die Brücke ist zu.", "Morgen regnet es.", "Gute Nacht!"])
        english = embedder.encode(["The bridge is closed.", "It will rain tomorrow."])
        for bead in align_sentences(german, english):
            print(bead)
        ```
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
