"""Verdicts on claims of the form "A is better than B", with the seed as the unit of inference.

The rules, in one place:

1. Each system is trained with several seeds, and measured once with each. Whether the means of two
   systems differ is tested by Welch's t-test, which does not expect that both vary equally. Two
   measures of the same models are compared by a paired t-test over the seeds.
2. The p-values of all claims that are tested are corrected by Holm's method. A claim that is to be
   tested and is not measured yet counts as one with p = 1.
3. A claim `holds` if its corrected p is below 0.05 and the difference is on the paper's side. It
   `does not hold` if its corrected p is below 0.05 and the difference is on the other side.
   Otherwise it `cannot be told at this size`.
4. A claim that two systems are about equal states a margin. It holds if the difference lies within
   the margin (two one-sided t-tests at 2.5 % each), and does not hold if it lies outside.
5. There is no verdict before all seeds of both systems are measured (`not run yet`), and none for a
   claim that is `not tested`, which states why.

Without the correction, p < 0.05 says the same as the 95 % interval: it excludes 0, or, with a
margin, lies within the margin or outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

HOLDS = "holds"
DOES_NOT_HOLD = "does not hold"
CANNOT_BE_TOLD = "cannot be told at this size"
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
        low: The lower bound of the 95 % t interval of the mean.
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
    mean_difference = _paired(values, other_values) if is_paired else _welch(values, other_values)
    if mean_difference is None:
        return None
    half_width = mean_difference.standard_error * mean_difference.quantile((1 + CONFIDENCE) / 2)
    return SeedDifference(
        mean=mean_difference.mean,
        low=mean_difference.mean - half_width,
        high=mean_difference.mean + half_width,
        p=_p_value(mean_difference, margin),
        standard_error=mean_difference.standard_error,
        degrees=mean_difference.degrees,
    )


def smallest_told(difference: SeedDifference, claims: int) -> float:
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
        return CANNOT_BE_TOLD
    if margin is None:
        is_as_claimed = difference.mean > 0
    else:
        is_as_claimed = abs(difference.mean) <= margin
    return HOLDS if is_as_claimed else DOES_NOT_HOLD


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the order in which they came."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[place])
        corrected[place] = min(1.0, largest)
    return corrected


# ---- t-tests


@dataclass(frozen=True)
class _MeanDifference:
    """A mean difference with what a t-test needs.

    Attributes:
        mean: The mean difference.
        standard_error: Its standard error.
        degrees: The degrees of freedom of the standard error.
    """

    mean: float
    standard_error: float
    degrees: float

    def quantile(self, share: float) -> float:
        return float(stats.t.ppf(share, self.degrees))

    def p_against(self, difference: float) -> float:
        """Return the two-sided p-value of the null hypothesis that the mean is `difference`."""
        distance = abs(self.mean - difference)
        if self.standard_error == 0:
            # The same with every seed. That few numbers are equal happens by chance.
            return 1.0
        return float(2 * stats.t.sf(distance / self.standard_error, self.degrees))


def _paired(
    values: Mapping[int, float], other_values: Mapping[int, float]
) -> _MeanDifference | None:
    """Return the mean of the differences of the seeds that both have."""
    differences = [values[seed] - other_values[seed] for seed in values if seed in other_values]
    if len(differences) < FEWEST_SEEDS:
        return None
    mean, error_variance = _mean_and_its_variance(differences)
    return _MeanDifference(mean, float(np.sqrt(error_variance)), len(differences) - 1)


def _welch(
    values: Mapping[int, float], other_values: Mapping[int, float]
) -> _MeanDifference | None:
    """Return the difference of the means, with the degrees of freedom of Welch (1947)."""
    if min(len(values), len(other_values)) < FEWEST_SEEDS:
        return None
    mean, error_variance = _mean_and_its_variance(values.values())
    other_mean, other_error_variance = _mean_and_its_variance(other_values.values())
    both = error_variance + other_error_variance
    uncertainty = error_variance**2 / (len(values) - 1)
    other_uncertainty = other_error_variance**2 / (len(other_values) - 1)
    degrees = len(values) + len(other_values) - 2.0
    if both > 0:
        degrees = both**2 / (uncertainty + other_uncertainty)
    return _MeanDifference(mean - other_mean, float(np.sqrt(both)), degrees)


def _mean_and_its_variance(numbers: Iterable[float]) -> tuple[float, float]:
    """Return the mean of numbers and the variance of that mean, s² / n."""
    array = np.array(list(numbers))
    mean = float(array.mean())
    if np.ptp(array) <= _ROUNDING:
        return mean, 0.0
    return mean, float(array.var(ddof=1) / len(array))


def _p_value(tested: _MeanDifference, margin: float | None) -> float:
    if margin is None:
        return tested.p_against(0.0)
    if abs(tested.mean) > margin:
        nearer_bound = float(np.copysign(margin, tested.mean))
        return tested.p_against(nearer_bound)
    # Both one-sided tests must reject. The mean lies between the bounds, so that each two-sided p
    # is twice the one-sided one, which is what belongs to a 95 % interval.
    return max(tested.p_against(-margin), tested.p_against(margin))
