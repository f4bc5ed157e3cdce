"""Verdicts on claims of the form "A is better than B", with the seed as the unit of inference.

The rules, in one place:

1. Each system is trained with several seeds, and measured once with each. Whether the means of two
   systems differ is tested by Welch's t-test, which does not expect that both vary equally. Two
   measures of the same models are compared by a paired t-test over the seeds.
2. The p-values of all claims that are tested are corrected by Holm's method. A claim that is to be
   tested and is not measured yet counts as one with p = 1.
3. A claim `replicates` if its corrected p is below 0.05 and the difference is on the paper's side.
   It `does not replicate` if its corrected p is below 0.05 and the difference is on the other side.
   Otherwise it is `inconclusive`.
4. A claim that two systems are about equal states a margin. It replicates if the difference lies
   within the margin (two one-sided t-tests at 2.5% each), and does not if it lies outside.
5. There is no verdict before all seeds of both systems are measured (`not run yet`), and none for a
   claim that is `not tested`, which states why.

Without the correction, p < 0.05 says the same as the 95% interval: it excludes 0, or, with a
margin, lies within the margin or outside of it.

A comparison of several systems of one family can use the whole family's variance over seeds
instead of each system's own: `pooled_variance` and `pooled_difference`. The test then has more
degrees of freedom, and so more power, if the systems of the family vary equally.
benchmarks/seed_tests.py simulates the level and the power of these tests and of a bootstrap.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

REPLICATES = "replicates"
DOES_NOT_REPLICATE = "does not replicate"
INCONCLUSIVE = "inconclusive"
NOT_RUN = "not run yet"
NOT_TESTED = "not tested"

SIGNIFICANT = 0.05
CONFIDENCE = 0.95
FEWEST_SEEDS = 2  # One seed has no variance.
_ROUNDING = 1e-12  # Numbers that vary less than this vary by rounding alone.


@dataclass(frozen=True)
class SeedDifference:
    """The difference of two systems over seeds.

    Attributes:
        mean: The mean difference, A - B.
        low: The lower bound of the 95% t interval of the mean.
        high: The upper bound of the interval.
        p: The two-sided p-value, not corrected.
        standard_error: The standard error of the mean.
        degrees: The degrees of freedom of the standard error.
    """

    mean: float
    low: float
    high: float
    p: float
    standard_error: float
    degrees: float


def seed_difference(
    values: Mapping[int, float],
    other_values: Mapping[int, float],
    margin: float | None = None,
    is_paired: bool = False,
) -> SeedDifference | None:
    """Return the difference of two systems, or of two measures of the same models.

    Args:
        values: The values of A by seed.
        other_values: Those of B.
        margin: None tests whether A and B differ. A margin, in the unit of the values, tests
            whether they differ by less than it, or by more if the mean difference is larger.
        is_paired: Whether A and B are measures of the same models, so that the difference is taken
            seed by seed. Two systems are trained independently, and the same seed makes them no
            pair.

    Returns:
        None if there are fewer than two seeds: of each system, or of both measures.
    """
    if is_paired:
        shared_seeds = [seed for seed in values if seed in other_values]
        a = np.array([values[seed] for seed in shared_seeds])
        b = np.array([other_values[seed] for seed in shared_seeds])
    else:
        a = np.array(list(values.values()))
        b = np.array(list(other_values.values()))
    if min(len(a), len(b)) < FEWEST_SEEDS:
        return None
    mean = float(a.mean() - b.mean())
    if not _varies(a, b, is_paired):
        # The same with every seed. That few numbers are equal happens by chance.
        degrees = len(a) - 1
        if not is_paired:
            degrees += len(b) - 1
        return SeedDifference(mean, mean, mean, 1.0, 0.0, degrees)
    test = _t_test(a, b, 0.0, is_paired)
    low, high = test.confidence_interval(CONFIDENCE)
    half_width = (high - low) / 2
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, test.df)
    return SeedDifference(
        mean=mean,
        low=float(low),
        high=float(high),
        p=_p_value(a, b, margin, is_paired),
        standard_error=float(half_width / quantile),
        degrees=float(test.df),
    )


@dataclass(frozen=True)
class SeedVariance:
    """The variance of systems over seeds.

    Attributes:
        variance: The variance of the score of a single run.
        degrees: The degrees of freedom of the variance.
    """

    variance: float
    degrees: int


def pooled_variance(systems: Sequence[Mapping[int, float]]) -> SeedVariance:
    """Return the variance over seeds, pooled over systems.

    Args:
        systems: The values of each system by seed. A system with one seed adds nothing.

    Raises:
        ValueError: No system has two seeds.
    """
    squares = 0.0
    degrees = 0
    for values in systems:
        array = np.array(list(values.values()))
        squares += float(((array - array.mean()) ** 2).sum())
        degrees += len(array) - 1
    if degrees == 0:
        raise ValueError("found one seed of every system, expected two seeds of at least one")
    return SeedVariance(squares / degrees, degrees)


def pooled_difference(
    values: Mapping[int, float],
    other_values: Mapping[int, float],
    variance: SeedVariance,
    other_variance: SeedVariance | None = None,
) -> SeedDifference:
    """Return the difference of two systems, with the variances over seeds of their families.

    Args:
        values: The values of A by seed; one is enough.
        other_values: Those of B.
        variance: The variance of the family of A.
        other_variance: The variance of the family of B; None if A and B are of one family. With
            two families, the degrees of freedom are Satterthwaite's.
    """
    mean = float(np.mean(list(values.values())) - np.mean(list(other_values.values())))
    part = variance.variance / len(values)
    if other_variance is None:
        other_part = variance.variance / len(other_values)
    else:
        other_part = other_variance.variance / len(other_values)
    standard_error = float(np.sqrt(part + other_part))
    degrees = float(variance.degrees)
    if standard_error <= _ROUNDING:
        # The same with every seed. That few numbers are equal happens by chance.
        return SeedDifference(mean, mean, mean, 1.0, 0.0, degrees)
    if other_variance is not None:
        spread = part**2 / variance.degrees + other_part**2 / other_variance.degrees
        degrees = (part + other_part) ** 2 / spread
    half_width = float(stats.t.ppf((1 + CONFIDENCE) / 2, degrees)) * standard_error
    return SeedDifference(
        mean=mean,
        low=mean - half_width,
        high=mean + half_width,
        p=float(2 * stats.t.sf(abs(mean) / standard_error, degrees)),
        standard_error=standard_error,
        degrees=degrees,
    )


def _varies(a: np.ndarray, b: np.ndarray, is_paired: bool) -> bool:
    """Return whether values differ between seeds by more than rounding."""
    if is_paired:
        return bool(np.ptp(a - b) > _ROUNDING)
    return bool(max(np.ptp(a), np.ptp(b)) > _ROUNDING)


def _p_value(a: np.ndarray, b: np.ndarray, margin: float | None, is_paired: bool) -> float:
    if margin is None:
        return float(_t_test(a, b, 0.0, is_paired).pvalue)
    mean = a.mean() - b.mean()
    if abs(mean) > margin:
        nearer_bound = float(np.copysign(margin, mean))
        return float(_t_test(a, b, nearer_bound, is_paired).pvalue)
    # Both one-sided tests must reject. The mean lies between the bounds, so that each two-sided p
    # is twice the one-sided one, which is what belongs to a 95% interval.
    above_lower_bound = _t_test(a, b, -margin, is_paired)
    below_upper_bound = _t_test(a, b, margin, is_paired)
    return float(max(above_lower_bound.pvalue, below_upper_bound.pvalue))


def _t_test(a: np.ndarray, b: np.ndarray, difference: float, is_paired: bool) -> Any:
    """Test the null hypothesis that the mean difference is `difference`, two-sided."""
    if is_paired:
        return stats.ttest_1samp(a - b, difference)
    with warnings.catch_warnings():
        # scipy warns if one system has the same value with every seed, which is exact here.
        warnings.simplefilter("ignore", RuntimeWarning)
        return stats.ttest_ind(a - difference, b, equal_var=False)


def detectable_difference(difference: SeedDifference, claims: int) -> float:
    """Return how large a mean would have to be to be significant after Holm's first step.

    Args:
        difference: A difference, whose variation over seeds is kept.
        claims: The number of claims that are corrected together.
    """
    quantile = stats.t.ppf(1 - SIGNIFICANT / (2 * claims), difference.degrees)
    return float(quantile * difference.standard_error)


def verdict_of(difference: SeedDifference, corrected_p: float, margin: float | None = None) -> str:
    """Return the verdict on a measured claim: rules 4 and 5.

    Args:
        difference: The difference in the direction of the claim.
        corrected_p: Its p-value, corrected for the number of claims.
        margin: The margin of a claim that two systems are about equal.
    """
    if corrected_p >= SIGNIFICANT:
        return INCONCLUSIVE
    if margin is None:
        is_as_claimed = difference.mean > 0
    else:
        is_as_claimed = abs(difference.mean) <= margin
    return REPLICATES if is_as_claimed else DOES_NOT_REPLICATE
