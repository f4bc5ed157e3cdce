"""Cross-lingual semantic similarity: do cosines order pairs of texts as people do?"""

from __future__ import annotations

import numpy as np

from modeling_tmde.documents.neighbours import TIE, row_cosines
from modeling_tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from modeling_tmde.eval.results import Cell
from modeling_tmde.eval.systems import System
from modeling_tmde.eval.tasks import SimilarityData, TaskError


def evaluate_similarity(data: SimilarityData, system: System) -> list[Cell]:
    """Spearman's rank correlation of the cosines of pairs of texts with their gold similarity.

    Args:
        data: Pairs of texts by pair of languages.
        system: What represents texts; it may be fitted on all texts of a pair of languages.

    Returns:
        One cell a pair of languages: `value` is Spearman's correlation, `outcomes` (n, 2) gold and cosine of each
        pair, `extra` holds `pearson` and `size`. A system whose cosines are all equal has the value 0, no `pearson`,
        and `constant` 1.

    Raises:
        TaskError: Fewer than three pairs of texts of a pair of languages, or gold scores that are all equal.
    """
    cells = []
    for (first, second), pairs in data.pairs.items():
        gold = np.asarray(pairs.scores, dtype=float)
        if len(gold) < 3 or np.ptp(gold) == 0:
            found = f"found {len(gold)} pairs with {len(set(gold))} different gold scores"
            raise TaskError(f"{first}-{second}: {found}, expected at least 3 pairs and 2 scores for a correlation")
        fit_on = [*pairs.first, *pairs.second]
        cosines = row_cosines(
            system.represent(list(pairs.first), fit_on, first), system.represent(list(pairs.second), fit_on, second)
        )
        extra = {"size": len(gold)}
        if np.ptp(cosines) < TIE:  # such as n-grams of two scripts, which have none in common
            cosines = np.full_like(cosines, cosines[0])
            extra["constant"] = 1.0
        scores = correlations(cosines, gold)
        cells.append(
            Cell(
                source=first,
                target=second,
                metric="spearman",
                value=scores.pop("spearman"),
                ids=list(pairs.ids),
                outcomes=np.column_stack([gold, cosines]),
                chance=0.0,
                extra=scores | extra,
            )
        )
    return cells
