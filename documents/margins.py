"""Scores of pairs: the cosine, or its margin over the cosines to other neighbors.

The margins are those of Artetxe & Schwenk 2019 (arXiv 1811.01136, section 3). With the mean
m(x, y) = (a(x) + a(y)) / 2 of a(x), the mean cosine of x to its k nearest neighbors on the other
side, and a(y), that of y to its k nearest, `distance` is cos - m and `ratio` is cos / m.

If m(x, y) is 1e-6 or less, neighbors say nothing about the pair, and a positive cosine over the
floor would be a ratio above all others. Such a pair has no ratio. It scores (cos - 3) / 1e-6, from
-4e6 to -2e6: below all ratios, which are at least -1e6, and by cosine among its like.
"""

from __future__ import annotations

import logging

import numpy as np

from modeling_tmde import TmdeError

logger = logging.getLogger(__name__)

SCORINGS = ("cosine", "ratio", "distance")
SMALLEST_MEAN = 1e-6  # the largest m(x, y) that gives no ratio
_LOWERED_BY = 3  # subtracted from the cosine of a pair without a ratio
_WITHOUT_RATIO = -1.5e6  # between the scores of pairs that have no ratio and those that have one


def check_scoring(scoring: str, k: int) -> None:
    """Raise TmdeError if these are not the arguments of a margin."""
    if scoring not in SCORINGS or k < 1:
        raise TmdeError(
            f"scoring, k: found {scoring!r}, {k}, "
            f"expected one of {', '.join(SCORINGS)}, and at least 1"
        )


def ranked_scores(scoring: str, cosines: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the scores by which pairs are ranked, in place of the cosines.

    Args:
        scoring: `cosine`, `ratio` or `distance`.
        cosines: The cosines, which are overwritten.
        means: m(x, y) of each pair, of the same shape; overwritten, too.
    """
    if scoring == "cosine":
        return cosines
    if scoring == "distance":
        return np.subtract(cosines, means, out=cosines)
    np.subtract(cosines, _LOWERED_BY, out=cosines, where=means <= SMALLEST_MEAN)
    denominators = np.maximum(means, SMALLEST_MEAN, out=means)
    return np.divide(cosines, denominators, out=cosines)


def cosines_of_scores(scoring: str, scores: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return the cosines of pairs with these [`ranked_scores`], which this function inverts.

    Args:
        scoring: `ratio` or `distance`.
        scores: The scores.
        means: m(x, y) of each pair, of a shape that broadcasts with the scores.
    """
    if scoring == "distance":
        return scores + means
    cosines = scores * np.maximum(means, SMALLEST_MEAN)
    return np.add(cosines, _LOWERED_BY, out=cosines, where=means <= SMALLEST_MEAN)


def warn_without_ratio(scoring: str, scores: np.ndarray) -> None:
    """Log how many of these [`ranked_scores`] have no ratio, if any."""
    if scoring != "ratio":
        return
    without_ratio = int(np.count_nonzero(scores < _WITHOUT_RATIO))
    if without_ratio:
        logger.warning(
            "%s of %s pairs have no ratio: the mean cosine of their neighbors is 1e-6 or less. "
            "They score below all others, by cosine; distance scores them like all others",
            f"{without_ratio:,}",
            f"{len(scores):,}",
        )
