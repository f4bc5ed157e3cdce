"""Verdicts on claims of the form "A is better than B", with the seed as the unit of inference.

The rules, in one place:

1. The difference A - B is measured once with each seed. If both systems were trained with the same
   seeds, differences are paired by seed and tested by the one-sample t-test; otherwise both lists
   of values are tested by Welch's t-test.
2. The p-values of all claims that are tested are corrected by Holm's method. A claim that is to be
   tested and is not measured yet counts as one with p = 1, so that a later result never takes a
   verdict back.
3. A claim `holds` if its corrected p is below 0.05 and the difference is on the paper's side. It
   `does not hold` if its corrected p is below 0.05 and the difference is on the other side.
   Otherwise it `cannot be told at this size`.
4. A claim that two systems are about equal states a margin. It holds if the difference lies within
   the margin (two one-sided t-tests), and does not hold if it lies outside.
5. There is no verdict before all seeds of both systems are measured (`not run yet`), and none for a
   claim that is `not tested`, which states why.

Without the correction, p < 0.05 says the same as the 95 % interval: it excludes 0, or, with a
margin, lies within the margin or outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
_ROUNDING = 1e-12  # Differences that vary less than this vary by rounding alone.


@dataclass(frozen=True)
class SeedDifference:
    """The difference of two systems over seeds.

    Attributes:
        mean: The mean difference, A - B.
        low: The lower bound of the 95 % t interval of the mean.
        high: The upper bound of the interval.
        p: The two-sided p-value, not corrected.
        paired: Whether the values were paired by seed.
        seeds: The number of differences, or of the values of the system that has fewer.
    """

    mean: float
    low: float
    high: float
    p: float
    paired: bool
    seeds: int


def seed_difference(
    values: Mapping[int, float], other_values: Mapping[int, float], margin: float | None = None
) -> SeedDifference | None:
    """Return the difference of two systems, or None if one has fewer than two seeds.

    Args:
        values: The values of system A by seed.
        other_values: Those of system B.
        margin: None tests whether A and B differ. A margin, in the unit of the values, tests
            whether they differ by less than it, or by more if the mean difference is larger.
    """
    if min(len(values), len(other_values)) < FEWEST_SEEDS:
        return None
    numbers = np.array(list(values.values()))
    other_numbers = np.array(list(other_values.values()))
    tested: _PairedTest | _WelchTest
    if values.keys() == other_values.keys():
        differences = np.array([values[seed] - other_values[seed] for seed in values])
        tested = _PairedTest(differences)
        has_variance = np.ptp(differences) > _ROUNDING
    else:
        tested = _WelchTest(numbers, other_numbers)
        has_variance = max(np.ptp(numbers), np.ptp(other_numbers)) > _ROUNDING
    fewest_seeds = min(len(numbers), len(other_numbers))
    is_paired = isinstance(tested, _PairedTest)
    if not has_variance:
        # The same with every seed: t is infinite or 0 / 0.
        p = float(_is_undecided(tested.mean, margin))
        return SeedDifference(tested.mean, tested.mean, tested.mean, p, is_paired, fewest_seeds)
    interval = tested.against(0.0).confidence_interval(CONFIDENCE)
    return SeedDifference(
        mean=tested.mean,
        low=float(interval.low),
        high=float(interval.high),
        p=_p_value(tested, margin),
        paired=is_paired,
        seeds=fewest_seeds,
    )


def verdict_of(difference: SeedDifference, corrected_p: float, margin: float | None = None) -> str:
    """Return the verdict on a measured claim: rules 3 and 4.

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


# ---- Tests


class _PairedTest:
    """The one-sample t-test of differences that are paired by seed."""

    def __init__(self, differences: np.ndarray) -> None:
        self._differences = differences

    @property
    def mean(self) -> float:
        return float(self._differences.mean())

    def against(self, difference: float) -> Any:  # noqa: ANN401 - scipy's result has no public type
        """Return scipy's two-sided test of the null hypothesis that the mean is `difference`."""
        return stats.ttest_1samp(self._differences, difference)


class _WelchTest:
    """Welch's t-test of the values of two systems, whose variances may differ."""

    def __init__(self, values: np.ndarray, other_values: np.ndarray) -> None:
        self._values = values
        self._other_values = other_values

    @property
    def mean(self) -> float:
        return float(self._values.mean() - self._other_values.mean())

    def against(self, difference: float) -> Any:  # noqa: ANN401 - scipy's result has no public type
        """Return scipy's two-sided test of the null hypothesis that the mean is `difference`."""
        return stats.ttest_ind(self._values - difference, self._other_values, equal_var=False)


def _p_value(tested: _PairedTest | _WelchTest, margin: float | None) -> float:
    if margin is None:
        return float(tested.against(0.0).pvalue)
    if abs(tested.mean) > margin:
        nearer_bound = float(np.copysign(margin, tested.mean))
        return float(tested.against(nearer_bound).pvalue)
    # Both one-sided tests must reject. The mean lies between the bounds, so that each two-sided p
    # is twice the one-sided one, which is what belongs to a 95 % interval.
    return float(max(tested.against(-margin).pvalue, tested.against(margin).pvalue))


def _is_undecided(mean: float, margin: float | None) -> bool:
    """Return whether a difference without variance is exactly at the border of a claim."""
    return abs(abs(mean) - (margin or 0.0)) < _ROUNDING
