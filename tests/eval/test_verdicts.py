"""Verdicts on claims: numbers by hand, and the rules."""

import pytest

from tmde.eval.verdicts import (
    CANNOT_BE_TOLD,
    DOES_NOT_HOLD,
    HOLDS,
    SeedDifference,
    holm,
    seed_difference,
    verdict_of,
)

# Differences 4, 6, 8: mean 6, deviation 2, standard error 2 / sqrt(3) = 1.154701, t = 5.196152.
# With 2 degrees of freedom the two-sided p is 1 - t / sqrt(t² + 2) = 1 - 5.196152 / sqrt(29)
# = 0.035098, and the 97.5 % quantile of t is 4.302653: 6 ± 4.968275.
HIGH = {42: 14.0, 43: 16.0, 44: 28.0}
LOW = {42: 10.0, 43: 10.0, 44: 20.0}


def test_paired_difference_by_hand():
    difference = seed_difference(HIGH, LOW)
    assert difference.paired
    assert difference.seeds == 3
    assert difference.mean == pytest.approx(6.0)
    assert difference.low == pytest.approx(1.031725, abs=1e-6)
    assert difference.high == pytest.approx(10.968275, abs=1e-6)
    assert difference.p == pytest.approx(0.035098, abs=1e-6)


def test_the_other_direction_has_the_same_p():
    difference = seed_difference(LOW, HIGH)
    assert difference.mean == pytest.approx(-6.0)
    assert difference.p == pytest.approx(0.035098, abs=1e-6)


def test_pairs_are_made_by_seed_and_not_by_order():
    shuffled = {44: 20.0, 42: 10.0, 43: 10.0}
    assert seed_difference(HIGH, shuffled) == seed_difference(HIGH, LOW)


def test_other_seeds_are_not_paired():
    """Welch by hand.

    2, 4, 6 against 1, 1, 1, 5: means 4 and 2, variances 4 and 4, squared standard error
    4 / 3 + 4 / 4 = 7 / 3, t = 2 / 1.527525 = 1.309307, degrees of freedom
    (7 / 3)² / ((4 / 3)² / 2 + 1² / 3) = 5.444444 / 1.222222 = 4.454545.
    """
    difference = seed_difference({1: 2.0, 2: 4.0, 3: 6.0}, {4: 1.0, 5: 1.0, 6: 1.0, 7: 5.0})
    assert not difference.paired
    assert difference.seeds == 3
    assert difference.mean == pytest.approx(2.0)
    half_width = difference.high - difference.mean
    # Between the quantiles of t with 4 and with 5 degrees of freedom, 2.776445 and 2.570582.
    assert 2.570582 * 1.527525 < half_width < 2.776445 * 1.527525


def test_one_seed_has_no_difference():
    assert seed_difference({42: 1.0}, {42: 2.0}) is None
    assert seed_difference(HIGH, {42: 2.0}) is None


@pytest.mark.parametrize(("value", "p"), [(3.0, 0.0), (0.0, 1.0)])
def test_a_difference_without_variance(value, p):
    """Without variance, t is infinite or 0 / 0."""
    shifted = {seed: number + value for seed, number in LOW.items()}
    difference = seed_difference(shifted, LOW)
    assert (difference.mean, difference.low, difference.high) == (value, value, value)
    assert difference.p == p


def test_other_seeds_without_variance():
    difference = seed_difference({1: 2.0, 2: 2.0}, {3: 1.5, 4: 1.5})
    assert (difference.mean, difference.low, difference.p) == (0.5, 0.5, 0.0)


# Differences 0, 0.2, 0.1: mean 0.1, standard error 0.1 / sqrt(3) = 0.057735, and the interval is
# 0.1 ± 0.248414, from -0.148414 to 0.348414.
CLOSE = {42: 1.0, 43: 2.2, 44: 3.1}
NEAR = {42: 1.0, 43: 2.0, 44: 3.0}


@pytest.mark.parametrize(("margin", "is_within"), [(0.3485, True), (0.3483, False)])
def test_equal_says_the_same_as_the_interval_within_the_margin(margin, is_within):
    assert (seed_difference(CLOSE, NEAR, margin).p < 0.05) == is_within


@pytest.mark.parametrize(("margin", "is_outside"), [(1.031, True), (1.032, False)])
def test_unequal_says_the_same_as_the_interval_outside_of_the_margin(margin, is_outside):
    """The interval begins at 1.031725."""
    difference = seed_difference(HIGH, LOW, margin)
    assert (difference.p < 0.05) == is_outside
    expected = DOES_NOT_HOLD if is_outside else CANNOT_BE_TOLD
    assert verdict_of(difference, difference.p, margin) == expected


def difference_of(mean: float) -> SeedDifference:
    return SeedDifference(mean=mean, low=mean - 1, high=mean + 1, p=0.01, paired=True, seeds=3)


@pytest.mark.parametrize(
    ("mean", "corrected_p", "margin", "verdict"),
    [
        (2.0, 0.049, None, HOLDS),
        (-2.0, 0.049, None, DOES_NOT_HOLD),
        (2.0, 0.05, None, CANNOT_BE_TOLD),
        (-2.0, 1.0, None, CANNOT_BE_TOLD),
        (-2.0, 0.01, 3.0, HOLDS),
        (-2.0, 0.01, 1.5, DOES_NOT_HOLD),
        (0.0, 0.2, 1.5, CANNOT_BE_TOLD),
    ],
)
def test_verdicts(mean, corrected_p, margin, verdict):
    assert verdict_of(difference_of(mean), corrected_p, margin) == verdict


def test_holm_by_hand():
    """Sorted: 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; none below one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_a_claim_without_result_makes_no_verdict_easier():
    """With p = 1 for those to come, a corrected p never grows when they come."""
    before = holm([0.01, 0.02, 1.0, 1.0])
    for later in ([0.01, 0.02, 0.001, 0.9], [0.01, 0.02, 0.015, 0.015]):
        after = holm(later)
        assert after[0] <= before[0]
        assert after[1] <= before[1]
