"""Cross-lingual semantic similarity: do cosines order pairs of texts as people do?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from tmde.documents.neighbours import TIE, Matrix, row_cosines
from tmde.eval.heads import pair_features
from tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import SimilarityData, TaskError

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of the regression, which the dev set chooses


def predict_scores(
    pairs: Sequence[tuple[Matrix, Matrix]], scores: Sequence[float], dev_scores: Sequence[float]
) -> np.ndarray:
    """Scores (n,) of the test pairs, by a logistic regression on |u - v| and u * v.

    It predicts a distribution over the whole scores, whose mean is the score (Tai et al., 2015; 004, section 3.1): 3.6
    is 3 with probability 0.4 and 4 with 0.6. The C with the best Pearson correlation on the dev pairs is kept.

    Args:
        pairs: Vectors (n, d) of the first and of the second texts, of the train, dev and test pairs.
        scores, dev_scores: Gold.
    """
    features = [pair_features(*pair)[:, 2 * pair[0].shape[1] :] for pair in pairs]
    scaler = (MaxAbsScaler() if scipy.sparse.issparse(features[0]) else StandardScaler()).fit(
        features[0]
    )
    train, dev, test = map(scaler.transform, features)
    lower, upper = np.floor(scores), np.floor(scores) + 1
    labels, weights = (
        np.concatenate([lower, upper]),
        np.concatenate([upper - scores, scores - lower]),
    )
    rows, used = np.tile(np.arange(len(lower)), 2), weights > 0
    best, predicted = -math.inf, np.zeros(test.shape[0])
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=1000)
        model.fit(train[rows[used]], labels[used], sample_weight=weights[used])
        expected, of_test = (model.predict_proba(part) @ model.classes_ for part in (dev, test))
        found = correlations(expected, np.asarray(dev_scores)).get("pearson", -1.0)
        if found > best:
            best, predicted = found, of_test
    return predicted


def evaluate_similarity(data: SimilarityData, system: System) -> list[Cell]:
    """Spearman's rank correlation of gold similarity with the cosines of pairs of texts, or with predicted scores.

    Args:
        data: Pairs of texts by pair of languages.
        system: What represents texts; it may be fitted on all texts of a pair of languages.

    Returns:
        One cell a pair of languages: `value` is Spearman's correlation, `outcomes` (n, 2) gold and cosine of each
        pair, or the predicted score, `extra` holds `pearson` and `size`. A system whose cosines are all equal has the
        value 0, no `pearson`, and `constant` 1.

    Raises:
        TaskError: Fewer than three pairs of texts of a pair of languages, or gold scores that are all equal.
    """
    cells = []
    for (first, second), pairs in data.pairs.items():
        gold = np.asarray(pairs.scores, dtype=float)
        if len(gold) < 3 or np.ptp(gold) == 0:
            found = f"found {len(gold)} pairs with {len(set(gold))} different gold scores"
            raise TaskError(
                f"{first}-{second}: {found}, expected at least 3 pairs and 2 scores for a correlation"
            )
        parts = [*data.supervised.values(), pairs]
        fit_on = [text for part in parts[:2] for text in (*part.first, *part.second)]
        vectors = [
            (
                system.represent(list(part.first), fit_on, first),
                system.represent(list(part.second), fit_on, second),
            )
            for part in parts
        ]
        if data.supervised:
            cosines = predict_scores(vectors, *(part.scores for part in parts[:2]))
        else:
            cosines = row_cosines(*vectors[0])
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
