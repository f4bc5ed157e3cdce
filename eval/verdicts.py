"""Verdicts on claims of the form "A is better than B", with the seed as the unit of inference.

The rules, in one place:

1. The difference A - B is measured once with each seed, both systems being trained with the same
   seeds. Whether its mean differs from 0 is tested by a t-test.
2. Three seeds say little of the variance of one difference. The variances of all differences of
   one measure are therefore taken for a sample of one distribution, and each is moved towards its
   middle, by as much as they resemble each other: the moderated t-test of Smyth (2004), made for
   many comparisons of few replicates each. Without resemblance it is the ordinary t-test. The test
   takes differences for independent. Those that share a system are not, so that no variance counts
   for more degrees of freedom than all systems together have.
3. The p-values of all claims that are tested are corrected by Holm's method. A claim that is to be
   tested and is not measured yet counts as one with p = 1.
4. A claim `holds` if its corrected p is below 0.05 and the difference is on the paper's side. It
   `does not hold` if its corrected p is below 0.05 and the difference is on the other side.
   Otherwise it `cannot be told at this size`.
5. A claim that two systems are about equal states a margin. It holds if the difference lies within
   the margin (two one-sided t-tests at 2.5 % each), and does not hold if it lies outside.
6. There is no verdict before all seeds of both systems are measured (`not run yet`), and none for a
   claim that is `not tested`, which states why.

Without the correction, p < 0.05 says the same as the 95 % interval: it excludes 0, or, with a
margin, lies within the margin or outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

HOLDS = "holds"
DOES_NOT_HOLD = "does not hold"
CANNOT_BE_TOLD = "cannot be told at this size"
NOT_RUN = "not run yet"
NOT_TESTED = "not tested"

SIGNIFICANT = 0.05
CONFIDENCE = 0.95
FEWEST_SEEDS = 2  # One seed has no variance.
FEWEST_VARIANCES = 3  # Fewer do not show whether they resemble each other.
_ROUNDING = 1e-12  # Differences that vary less than this vary by rounding alone.


@dataclass(frozen=True)
class VariancePrior:
    """The distribution of the variances of many differences: a scaled inverse chi-squared one.

    Attributes:
        variance: The middle towards which variances are moved, s0².
        degrees: The degrees of freedom that it counts for, d0; 0 says nothing.
        pooled_degrees: The degrees of freedom of all systems together. No variance is known better
            than that.
    """

    variance: float
    degrees: float
    pooled_degrees: int


NO_PRIOR = VariancePrior(variance=0.0, degrees=0.0, pooled_degrees=0)


@dataclass(frozen=True)
class SeedDifference:
    """The difference of two systems over seeds.

    Attributes:
        mean: The mean difference, A - B.
        low: The lower bound of the 95 % t interval of the mean.
        high: The upper bound of the interval.
        p: The two-sided p-value, not corrected.
        variance: The variance of the differences, as it was measured.
        seeds: The number of differences.
    """

    mean: float
    low: float
    high: float
    p: float
    variance: float
    seeds: int


def seed_difference(
    values: Mapping[int, float],
    other_values: Mapping[int, float],
    margin: float | None = None,
    prior: VariancePrior = NO_PRIOR,
) -> SeedDifference | None:
    """Return the difference of two systems over the seeds that both have.

    Args:
        values: The values of system A by seed.
        other_values: Those of system B.
        margin: None tests whether A and B differ. A margin, in the unit of the values, tests
            whether they differ by less than it, or by more if the mean difference is larger.
        prior: What other differences say of the variance.

    Returns:
        None if they have fewer than two seeds in common.
    """
    seeds = [seed for seed in values if seed in other_values]
    if len(seeds) < FEWEST_SEEDS:
        return None
    differences = np.array([values[seed] - other_values[seed] for seed in seeds])
    mean = float(differences.mean())
    measured_variance = float(differences.var(ddof=1))
    if np.ptp(differences) <= _ROUNDING:
        measured_variance = 0.0
    tested = _t_test(mean, measured_variance, len(seeds), prior)
    half_width = tested.standard_error * tested.quantile((1 + CONFIDENCE) / 2)
    return SeedDifference(
        mean=mean,
        low=mean - half_width,
        high=mean + half_width,
        p=_p_value(tested, margin),
        variance=measured_variance,
        seeds=len(seeds),
    )


def variance_prior(differences: Iterable[SeedDifference], systems: int) -> VariancePrior:
    """Return the distribution from which the variances of differences come (Smyth 2004, 6.2).

    The logarithm of a variance has a known mean and variance if the true variance is given. What
    the logarithms vary beyond that is the variation of the true variances. Where they vary no more,
    Smyth's d0 is infinite; here it is that of all systems.

    Args:
        differences: Differences of one measure. Those that do not vary at all, which have no
            logarithm, are left out.
        systems: The number of systems that they compare.

    Returns:
        `NO_PRIOR` of fewer than `FEWEST_VARIANCES` differences.
    """
    varying = [difference for difference in differences if difference.variance > 0]
    if len(varying) < FEWEST_VARIANCES:
        return NO_PRIOR
    variances = np.array([difference.variance for difference in varying])
    degrees = np.array([difference.seeds - 1 for difference in varying])
    centered = np.log(variances) - special.digamma(degrees / 2) + np.log(degrees / 2)
    excess = centered.var(ddof=1) - special.polygamma(1, degrees / 2).mean()
    pooled_degrees = min(int(degrees.sum()), systems * int(degrees.max()))
    prior_degrees = _degrees_of_excess(float(excess), pooled_degrees)
    half = prior_degrees / 2
    log_variance = centered.mean() + special.digamma(half) - np.log(half)
    return VariancePrior(float(np.exp(log_variance)), prior_degrees, pooled_degrees)


def _degrees_of_excess(excess: float, highest: int) -> float:
    """Return d0 with trigamma(d0 / 2) = excess, at most `highest`."""

    def surplus(degrees: float) -> float:
        return float(special.polygamma(1, degrees / 2)) - excess

    lowest = 1e-3  # Variances that do not resemble each other at all.
    if surplus(highest) >= 0:
        return float(highest)
    return float(optimize.brentq(surplus, lowest, highest))


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


# ---- The moderated t-test


@dataclass(frozen=True)
class _TTest:
    mean: float
    standard_error: float
    degrees: float

    def quantile(self, share: float) -> float:
        return float(stats.t.ppf(share, self.degrees))

    def p_against(self, difference: float) -> float:
        """Return the two-sided p-value of the null hypothesis that the mean is `difference`."""
        distance = abs(self.mean - difference)
        if self.standard_error == 0:
            # The same with every seed, and nothing else is known of the variance. That few numbers
            # are equal happens by chance.
            return 1.0
        return float(2 * stats.t.sf(distance / self.standard_error, self.degrees))


def _t_test(mean: float, variance: float, seeds: int, prior: VariancePrior) -> _TTest:
    own_degrees = seeds - 1
    degrees = prior.degrees + own_degrees
    moderated = (prior.degrees * prior.variance + own_degrees * variance) / degrees
    if prior.degrees > 0:
        degrees = min(degrees, prior.pooled_degrees)
    return _TTest(mean, float(np.sqrt(moderated / seeds)), degrees)


def _p_value(tested: _TTest, margin: float | None) -> float:
    if margin is None:
        return tested.p_against(0.0)
    if abs(tested.mean) > margin:
        nearer_bound = float(np.copysign(margin, tested.mean))
        return tested.p_against(nearer_bound)
    # Both one-sided tests must reject. The mean lies between the bounds, so that each two-sided p
    # is twice the one-sided one, which is what belongs to a 95 % interval.
    return max(tested.p_against(-margin), tested.p_against(margin))
