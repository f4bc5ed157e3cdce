"""Verdicts on claims: numbers by hand, and the rules."""

import numpy as np
import pytest
from scipy import stats

from tmde.papers.verdicts import (
    DOES_NOT_REPLICATE,
    INCONCLUSIVE,
    REPLICATES,
    SeedDifference,
    detectable_difference,
    pooled_difference,
    pooled_variance,
    seed_difference,
    verdict_of,
)

# Means 58/3 and 40/3, the difference is 6. Variances of the values: 172/3 and 100/3, and of the
# means 172/9 and 100/9: together 272/9, the standard error is 5.497474. The degrees of freedom are
# (272/9)² / ((172/9)²/2 + (100/9)²/2) = 73984 / 19792 = 3.738076.
HIGH = {42: 14.0, 43: 16.0, 44: 28.0}
LOW = {42: 10.0, 43: 10.0, 44: 20.0}


def test_difference_of_two_systems_by_hand():
    difference = seed_difference(HIGH, LOW)
    assert difference.mean == pytest.approx(6.0)
    half_width = stats.t.ppf(0.975, 3.738076) * 5.497474
    assert difference.low == pytest.approx(6 - half_width, abs=1e-5)
    assert difference.high == pytest.approx(6 + half_width, abs=1e-5)
    assert difference.p == pytest.approx(2 * stats.t.sf(6 / 5.497474, 3.738076), abs=1e-6)


def test_it_is_the_test_of_welch():
    random = np.random.default_rng(0)
    values = random.normal(1.0, 3.0, size=4)
    other_values = random.normal(0.0, 0.5, size=3)
    difference = seed_difference(dict(enumerate(values)), dict(enumerate(other_values)))
    expected = stats.ttest_ind(values, other_values, equal_var=False)
    interval = expected.confidence_interval()
    assert difference.p == pytest.approx(expected.pvalue)
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))


# Differences 4, 6, 8: mean 6, deviation 2, standard error 2 / sqrt(3) = 1.154701, t = 5.196152.
# With 2 degrees of freedom the two-sided p is 1 - t / sqrt(t² + 2) = 1 - 5.196152 / sqrt(29)
# = 0.035098, and the 97.5% quantile of t is 4.302653: 6 ± 4.968275.


def test_paired_difference_by_hand():
    difference = seed_difference(HIGH, LOW, is_paired=True)
    assert difference.mean == pytest.approx(6.0)
    assert difference.low == pytest.approx(1.031725, abs=1e-6)
    assert difference.high == pytest.approx(10.968275, abs=1e-6)
    assert difference.p == pytest.approx(0.035098, abs=1e-6)


@pytest.mark.parametrize("is_paired", [True, False])
def test_the_other_direction_has_the_same_p(is_paired):
    difference = seed_difference(HIGH, LOW, is_paired=is_paired)
    opposite = seed_difference(LOW, HIGH, is_paired=is_paired)
    assert opposite.mean == pytest.approx(-6.0)
    assert opposite.p == pytest.approx(difference.p)


def test_pairs_are_made_by_seed_and_not_by_order():
    shuffled = {44: 20.0, 42: 10.0, 43: 10.0}
    paired = seed_difference(HIGH, LOW, is_paired=True)
    assert seed_difference(HIGH, shuffled, is_paired=True) == paired


def test_only_the_seeds_of_both_measures_count():
    difference = seed_difference(HIGH | {45: 99.0}, LOW | {46: 0.0}, is_paired=True)
    assert difference == seed_difference(HIGH, LOW, is_paired=True)
    assert seed_difference({1: 2.0, 2: 4.0}, {3: 1.0, 4: 1.0}, is_paired=True) is None


@pytest.mark.parametrize("is_paired", [True, False])
def test_one_seed_has_no_difference(is_paired):
    assert seed_difference({42: 1.0}, {42: 2.0}, is_paired=is_paired) is None
    assert seed_difference(HIGH, {42: 2.0}, is_paired=is_paired) is None


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_a_difference_without_variance_says_nothing(value):
    """Two or three equal differences happen by chance: of accuracies on few items, often."""
    shifted = {seed: number + value for seed, number in LOW.items()}
    difference = seed_difference(shifted, LOW, is_paired=True)
    assert difference.mean == difference.low == difference.high == pytest.approx(value)
    assert difference.p == 1.0
    constant = seed_difference({1: value, 2: value}, {1: 0.0, 2: 0.0})
    assert (constant.mean, constant.p) == (value, 1.0)


def test_one_system_without_variance_leaves_the_degrees_of_the_other():
    difference = seed_difference(HIGH, {42: 1.0, 43: 1.0, 44: 1.0})
    expected = stats.ttest_1samp(list(HIGH.values()), 1.0)
    assert difference.p == pytest.approx(expected.pvalue)


# Differences 0, 0.2, 0.1: mean 0.1, standard error 0.1 / sqrt(3) = 0.057735, and the interval is
# 0.1 ± 0.248414, from -0.148414 to 0.348414.
CLOSE = {42: 1.0, 43: 2.2, 44: 3.1}
NEAR = {42: 1.0, 43: 2.0, 44: 3.0}


@pytest.mark.parametrize(("margin", "is_within"), [(0.3485, True), (0.3483, False)])
def test_equal_says_the_same_as_the_interval_within_the_margin(margin, is_within):
    assert (seed_difference(CLOSE, NEAR, margin, is_paired=True).p < 0.05) == is_within


@pytest.mark.parametrize(("margin", "is_outside"), [(1.031, True), (1.032, False)])
def test_unequal_says_the_same_as_the_interval_outside_of_the_margin(margin, is_outside):
    """The interval begins at 1.031725."""
    difference = seed_difference(HIGH, LOW, margin, is_paired=True)
    assert (difference.p < 0.05) == is_outside
    expected = DOES_NOT_REPLICATE if is_outside else INCONCLUSIVE
    assert verdict_of(difference, difference.p, margin) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("deviation", [1.0, 2.0, 4.0])
def test_equal_systems_are_rarely_told_apart(deviation):
    """What Holm needs: of equal systems, p is below 0.01 about as often as it says.

    The other system varies by `deviation`. With three seeds, Welch's test rejects 0.5 to 1.4 times
    as often as it says.
    """
    random = np.random.default_rng(0)
    count = 5000
    rejected = 0
    for _ in range(count):
        values = dict(enumerate(random.normal(size=3)))
        other_values = dict(enumerate(random.normal(scale=deviation, size=3)))
        rejected += seed_difference(values, other_values).p < 0.01
    assert 0 < rejected < 2 * 0.01 * count


def difference_of(mean: float) -> SeedDifference:
    return SeedDifference(
        mean=mean, low=mean - 1, high=mean + 1, p=0.01, standard_error=0.2, degrees=4.0
    )


def test_the_smallest_difference_that_is_told():
    """At this mean, p is 0.05 by the number of claims: of one claim, the bound of the interval."""
    difference = seed_difference(HIGH, LOW)
    assert detectable_difference(difference, 1) == pytest.approx(difference.high - difference.mean)
    detectable = detectable_difference(difference, 10)
    p = 2 * stats.t.sf(detectable / difference.standard_error, difference.degrees)
    assert p == pytest.approx(0.05 / 10)


@pytest.mark.parametrize(
    ("mean", "corrected_p", "margin", "verdict"),
    [
        (2.0, 0.049, None, REPLICATES),
        (-2.0, 0.049, None, DOES_NOT_REPLICATE),
        (2.0, 0.05, None, INCONCLUSIVE),
        (-2.0, 1.0, None, INCONCLUSIVE),
        (-2.0, 0.01, 3.0, REPLICATES),
        (-2.0, 0.01, 1.5, DOES_NOT_REPLICATE),
        (0.0, 0.2, 1.5, INCONCLUSIVE),
    ],
)
def test_verdicts(mean, corrected_p, margin, verdict):
    assert verdict_of(difference_of(mean), corrected_p, margin) == verdict


# ---- The variance of a family

# Sums of squares around the means 2 and 5: 2 and 8, with 2 + 1 degrees of freedom: 10 / 3.
FAMILY = [{1: 1.0, 2: 2.0, 3: 3.0}, {1: 3.0, 2: 7.0}]


def test_variance_of_a_family_by_hand():
    variance = pooled_variance(FAMILY)
    assert variance.variance == pytest.approx(10 / 3)
    assert variance.degrees == 3
    assert pooled_variance([*FAMILY, {1: 100.0}]) == variance


def test_difference_within_a_family_by_hand():
    # The standard error is sqrt(10/3 * (1/3 + 1/2)) = 5/3, the quantile of t with 3 degrees of
    # freedom 3.182446.
    variance = pooled_variance(FAMILY)
    difference = pooled_difference(FAMILY[1], FAMILY[0], variance)
    assert difference.mean == pytest.approx(3.0)
    assert difference.degrees == 3
    assert difference.standard_error == pytest.approx(5 / 3)
    assert difference.low == pytest.approx(3 - 3.182446 * 5 / 3, abs=1e-5)
    assert difference.high == pytest.approx(3 + 3.182446 * 5 / 3, abs=1e-5)
    assert difference.p == pytest.approx(2 * stats.t.sf(1.8, 3))


def test_two_systems_with_a_pooled_variance_are_the_t_test_of_student():
    expected = stats.ttest_ind(list(HIGH.values()), list(LOW.values()), equal_var=True)
    variance = pooled_variance([HIGH, LOW])
    difference = pooled_difference(HIGH, LOW, variance)
    assert difference.p == pytest.approx(expected.pvalue)
    assert difference.degrees == expected.df


def test_families_of_one_system_each_are_the_test_of_welch():
    difference = pooled_difference(HIGH, LOW, pooled_variance([HIGH]), pooled_variance([LOW]))
    welch = seed_difference(HIGH, LOW)
    assert welch is not None
    assert difference.p == pytest.approx(welch.p)
    assert difference.degrees == pytest.approx(welch.degrees)


def test_a_family_that_does_not_vary_has_no_significant_difference():
    variance = pooled_variance([{1: 5.0, 2: 5.0}, {1: 4.0, 2: 4.0}])
    for other_variance in (None, variance):
        difference = pooled_difference({1: 5.0, 2: 5.0}, {1: 4.0, 2: 4.0}, variance, other_variance)
        assert (difference.mean, difference.low, difference.high) == (1.0, 1.0, 1.0)
        assert difference.p == 1.0


def test_a_variance_needs_a_system_with_two_seeds():
    with pytest.raises(ValueError, match="expected two seeds of at least one"):
        pooled_variance([{1: 1.0}, {2: 2.0}])
