"""Contrastive minimal pairs across languages: is a sentence nearer to its translation than to its contrast's?"""

from __future__ import annotations

import itertools

import numpy as np

from tmde.documents.neighbours import TIE, Matrix, row_cosines
from tmde.eval.results import ACCURACY_OF, CONTROL, Cell
from tmde.eval.systems import System
from tmde.eval.tasks import ContrastData, TaskError


def evaluate_contrast(data: ContrastData, system: System) -> list[Cell]:
    """Share of right choices between the two sentences of a minimal pair, for ordered pairs of languages.

    Each of the two sentences of an item in the source language chooses, by cosine, between the two of the target
    language. Cosines less than `neighbours.TIE` (1e-6, on vectors of length 1) apart are a tie, which counts as half a
    right choice: a sum of word vectors differs that much by order of summation, in float32. A system that gives both
    sentences of an item one vector, in the source language or in the target language, so gets exactly 50 %.

    Args:
        data: Minimal pairs; all languages have all items.
        system: What represents texts; it may be fitted on all texts of both languages.

    Returns:
        One cell a pair of languages. `outcomes` holds the mean of each item's two choices (0, 0.5 or 1; quarters if
        one of them ties). Items of `data.controls` are neither in it nor in `value`. `extra` holds the accuracy on
        each group as `accuracy_of_<group>` (`control_<group>` of a control), `ties` (share of the choices of `value`)
        and `size` (items).

    Raises:
        TaskError: Fewer than two languages.
        ValueError: Vectors that are not finite.
    """
    if len(data.languages) < 2:
        raise TaskError(
            f"Found the languages {data.languages}, expected at least two to choose across"
        )
    # firsts, then contrasts: the same list for every pair of languages, because a system keeps what it knows by list
    texts = {
        code: [pair[side] for side in (0, 1) for pair in items]
        for code, items in data.texts.items()
    }
    groups = np.array(data.groups, dtype=object)
    counted = ~np.isin(groups, list(data.controls))
    cells = []
    for source, target in itertools.permutations(data.languages, 2):
        fit_on = texts[source] + texts[target]
        choices = _choices(
            *(system.represent(texts[code], fit_on, code) for code in (source, target))
        )
        outcomes = choices.mean(axis=0)
        extra = {
            f"{CONTROL if group in data.controls else ACCURACY_OF}{group}": float(
                outcomes[groups == group].mean()
            )
            for group in dict.fromkeys(data.groups)
        }
        cells.append(
            Cell(
                source=source,
                target=target,
                metric="contrast_accuracy",
                value=float(outcomes[counted].mean()),
                ids=[name for name, kept in zip(data.ids, counted, strict=True) if kept],
                outcomes=outcomes[counted],
                chance=0.5,
                extra=extra
                | {"ties": float((choices[:, counted] == 0.5).mean()), "size": int(counted.sum())},
            )
        )
    return cells


def _choices(sources: Matrix, targets: Matrix) -> np.ndarray:
    """(2, n): 1 where a sentence (row 0) or its contrast (row 1) chooses its translation, 0 where not, 0.5 for a tie.

    Args:
        sources, targets: (2n, d), n sentences and then their contrasts.
    """
    half = sources.shape[0] // 2
    exchanged = np.r_[half : 2 * half, :half]
    margins = row_cosines(sources, targets) - row_cosines(sources, targets[exchanged])
    return np.where(np.abs(margins) < TIE, 0.5, margins > 0).reshape(2, half)
