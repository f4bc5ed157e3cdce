"""Contrastive minimal pairs across languages.

Is a sentence nearer to its translation than to that of its contrast?
"""

from __future__ import annotations

import itertools

import numpy as np

from tmde.documents.unit_rows import TIE, Matrix, row_cosines
from tmde.eval.results import ACCURACY_OF, CONTROL, Cell
from tmde.eval.systems import System
from tmde.eval.tasks import ContrastData, TaskError


def evaluate_contrast(data: ContrastData, system: System) -> list[Cell]:
    """Evaluate how often a system selects the right sentence of a minimal pair.

    For each ordered language pair, both source sentences of an item choose, by cosine, between the
    two target sentences. Cosines within `unit_rows.TIE` (1e-6) are a tie and count as half a
    correct choice, so a system that does not distinguish the sentences scores exactly 50%.

    Args:
        data: Minimal pairs; all languages have all items.
        system: The system to evaluate; it may be fitted to all texts of both languages.

    Returns:
        One cell per language pair. `outcomes` is the mean of each item's two choices (0, 0.5 or 1;
        quarters with ties), excluding the items in `data.controls`. `extra` contains the accuracy
        of each group as `accuracy_of_<group>` (`control_<group>` for a control), `ties` (share of
        choices) and `size` (items).

    Raises:
        TaskError: There are fewer than two languages.
        TmdeError: A vector is not finite.
    """
    if len(data.languages) < 2:
        raise TaskError(f"Found the languages {data.languages}, expected at least two")
    # A system keeps what it knows by list of texts: the list is the same for every pair of
    # languages.
    texts = {}
    for language, items in data.texts.items():
        sentences = [sentence for sentence, _ in items]
        contrasts = [contrast for _, contrast in items]
        texts[language] = sentences + contrasts
    cells = []
    for source, target in itertools.permutations(data.languages, 2):
        fit_on = texts[source] + texts[target]
        source_vectors = system.represent(texts[source], fit_on, source)
        target_vectors = system.represent(texts[target], fit_on, target)
        choices = _choices(source_vectors, target_vectors)
        cells.append(_cell(data, source, target, choices))
    return cells


def _choices(sources: Matrix, targets: Matrix) -> np.ndarray:
    """Return which choices are right: 1 for a right one, 0 for a wrong one, 0.5 for a tie.

    Args:
        sources: (2n, d), n sentences and then their contrasts.
        targets: (2n, d), their translations.

    Returns:
        (2, n), the choices of the sentences and those of their contrasts.
    """
    item_count = sources.shape[0] // 2
    rows = np.arange(2 * item_count)
    contrast_rows = np.roll(rows, item_count)
    margins = row_cosines(sources, targets) - row_cosines(sources, targets[contrast_rows])  # (2n,)
    choices = np.where(np.abs(margins) < TIE, 0.5, margins > 0)
    return choices.reshape(2, item_count)


def _cell(data: ContrastData, source: str, target: str, choices: np.ndarray) -> Cell:
    """Return the scores of one pair of languages."""
    groups = np.array(data.groups, dtype=object)
    is_counted = ~np.isin(groups, list(data.controls))
    item_outcomes = choices.mean(axis=0)  # (n,)
    outcomes = item_outcomes[is_counted]
    extra: dict[str, float] = {}
    for group in dict.fromkeys(data.groups):
        prefix = CONTROL if group in data.controls else ACCURACY_OF
        extra[f"{prefix}{group}"] = float(item_outcomes[groups == group].mean())
    extra["ties"] = float((choices[:, is_counted] == 0.5).mean())
    extra["size"] = int(is_counted.sum())
    return Cell(
        source=source,
        target=target,
        metric="contrast_accuracy",
        value=float(outcomes.mean()),
        ids=list(itertools.compress(data.ids, is_counted)),
        outcomes=outcomes,
        chance=0.5,
        extra=extra,
    )
