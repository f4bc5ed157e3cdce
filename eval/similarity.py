"""Cross-lingual semantic similarity: do cosines order pairs of texts as people do?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from tmde.documents.unit_rows import TIE, Matrix, row_cosines
from tmde.eval.heads import pair_features
from tmde.eval.metrics.sts_correlation.sts_correlation import correlations
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import SimilarityData, SimilarityPairs, TaskError

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # The C's of the regression; the dev set chooses.


def predict_scores(
    pairs: Sequence[tuple[Matrix, Matrix]], scores: Sequence[float], dev_scores: Sequence[float]
) -> np.ndarray:
    """Predict the scores of test pairs, by a logistic regression on |u - v| and u * v.

    It predicts a distribution over the whole scores, whose mean is the score (Tai et al., 2015;
    004, section 3.1): 3.6 is 3 with probability 0.4 and 4 with 0.6. The C with the best Pearson
    correlation on the dev pairs is kept.

    Args:
        pairs: Vectors (n, d) of the first and of the second texts, of the train, dev and test
            pairs.
        scores: Gold scores of the train pairs.
        dev_scores: Gold scores of the dev pairs.

    Returns:
        (n,) scores of the test pairs.
    """
    train_features, dev_features, test_features = _scaled_features(pairs)
    train_scores = np.asarray(scores)
    lower = np.floor(train_scores)
    upper = lower + 1
    # Each train pair counts twice: as its lower and as its upper whole score.
    labels = np.concatenate([lower, upper])
    weights = np.concatenate([upper - train_scores, train_scores - lower])
    rows = np.tile(np.arange(len(train_scores)), 2)
    is_used = weights > 0
    best_correlation = -math.inf
    predicted = np.zeros(test_features.shape[0])
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=1000)
        model.fit(train_features[rows[is_used]], labels[is_used], sample_weight=weights[is_used])
        dev_predicted = model.predict_proba(dev_features) @ model.classes_
        # There is no Pearson correlation if all predictions are equal.
        correlation = correlations(dev_predicted, np.asarray(dev_scores)).get("pearson", -1.0)
        if correlation > best_correlation:
            best_correlation = correlation
            predicted = model.predict_proba(test_features) @ model.classes_
    return predicted


def _scaled_features(pairs: Sequence[tuple[Matrix, Matrix]]) -> list[Matrix]:
    """Return [|u - v|, u * v] of the pairs of each part, scaled as the first part asks."""
    parts = []
    for first, second in pairs:
        width = first.shape[1]
        parts.append(pair_features(first, second)[:, 2 * width :])  # (n, 2 d)
    scaler = StandardScaler()
    if scipy.sparse.issparse(parts[0]):
        scaler = MaxAbsScaler()
    scaler.fit(parts[0])
    return [scaler.transform(part) for part in parts]


def evaluate_similarity(data: SimilarityData, system: System) -> list[Cell]:
    """Evaluate Spearman's rank correlation of gold similarities with cosines or predicted scores.

    Args:
        data: Pairs of texts by language pair. If there are `supervised` pairs, a regression trained
            on them predicts the scores.
        system: The system to evaluate; it may be fitted to all texts of a language pair.

    Returns:
        One cell per language pair. `value` is Spearman's correlation, `outcomes` (n, 2) the gold
        and predicted score of each pair, and `extra` contains `pearson` and `size`. If all cosines
        are equal, the value is 0, `pearson` is missing, and `constant` is 1.

    Raises:
        TaskError: A language pair has fewer than three pairs of texts, or equal gold scores.
    """
    cells = []
    for (first_language, second_language), pairs in data.pairs.items():
        gold = np.asarray(pairs.scores, dtype=float)
        if len(gold) < 3 or np.ptp(gold) == 0:
            raise TaskError(
                f"{first_language}-{second_language}: found {len(gold)} pairs with "
                f"{len(set(gold))} different gold scores, expected at least 3 pairs and 2 scores "
                "for a correlation"
            )
        if data.supervised:
            measured = _predicted_scores(data, system, first_language, second_language, pairs)
        else:
            fit_on = _all_texts([pairs])
            vectors = _vectors(system, pairs, fit_on, first_language, second_language)
            measured = row_cosines(*vectors)
        cells.append(_cell(first_language, second_language, pairs, gold, measured))
    return cells


def _predicted_scores(
    data: SimilarityData,
    system: System,
    first_language: str,
    second_language: str,
    test_pairs: SimilarityPairs,
) -> np.ndarray:
    """Return the scores of the test pairs by a regression on the supervised pairs."""
    train_pairs = data.supervised["train"]
    dev_pairs = data.supervised["dev"]
    fit_on = _all_texts([train_pairs, dev_pairs])
    vectors = []
    for pairs in (train_pairs, dev_pairs, test_pairs):
        vectors.append(_vectors(system, pairs, fit_on, first_language, second_language))
    return predict_scores(vectors, train_pairs.scores, dev_pairs.scores)


def _all_texts(parts: Iterable[SimilarityPairs]) -> list[str]:
    """Return the first and the second texts of all parts."""
    texts: list[str] = []
    for pairs in parts:
        texts += pairs.first
        texts += pairs.second
    return texts


def _vectors(
    system: System,
    pairs: SimilarityPairs,
    fit_on: Sequence[str],
    first_language: str,
    second_language: str,
) -> tuple[Matrix, Matrix]:
    """Return vectors (n, d) of the first and of the second texts."""
    first = system.represent(list(pairs.first), fit_on, first_language)
    second = system.represent(list(pairs.second), fit_on, second_language)
    return first, second


def _cell(
    first_language: str,
    second_language: str,
    pairs: SimilarityPairs,
    gold: np.ndarray,
    measured: np.ndarray,
) -> Cell:
    """Return the correlations of one pair of languages."""
    extra: dict[str, float] = {"size": len(gold)}
    # All cosines may be equal: n-grams of two scripts, for example, have none in common.
    if np.ptp(measured) < TIE:
        measured = np.full_like(measured, measured[0])
        extra["constant"] = 1.0
    scores = correlations(measured, gold)
    spearman = scores.pop("spearman")
    return Cell(
        source=first_language,
        target=second_language,
        metric="spearman",
        value=spearman,
        ids=list(pairs.ids),
        outcomes=np.column_stack([gold, measured]),
        chance=0.0,
        extra=scores | extra,
    )
