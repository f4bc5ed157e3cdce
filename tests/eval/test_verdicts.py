"""Verdicts on claims: numbers by hand, and the rules."""

import numpy as np
import pytest
from scipy import stats

from tmde.eval.verdicts import (
    CANNOT_BE_TOLD,
    DOES_NOT_HOLD,
    HOLDS,
    NO_PRIOR,
    SeedDifference,
    VariancePrior,
    holm,
    seed_difference,
    variance_prior,
    verdict_of,
)

# Differences 4, 6, 8: mean 6, deviation 2, standard error 2 / sqrt(3) = 1.154701, t = 5.196152.
# With 2 degrees of freedom the two-sided p is 1 - t / sqrt(t² + 2) = 1 - 5.196152 / sqrt(29)
# = 0.035098, and the 97.5 % quantile of t is 4.302653: 6 ± 4.968275.
HIGH = {42: 14.0, 43: 16.0, 44: 28.0}
LOW = {42: 10.0, 43: 10.0, 44: 20.0}


def test_paired_difference_by_hand():
    difference = seed_difference(HIGH, LOW)
    assert difference.variance == pytest.approx(4.0)
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


def test_only_the_seeds_of_both_count():
    difference = seed_difference(HIGH | {45: 99.0}, LOW | {46: 0.0})
    assert difference == seed_difference(HIGH, LOW)
    assert seed_difference({1: 2.0, 2: 4.0}, {3: 1.0, 4: 1.0}) is None


def test_one_seed_has_no_difference():
    assert seed_difference({42: 1.0}, {42: 2.0}) is None
    assert seed_difference(HIGH, {42: 2.0}) is None


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_a_difference_without_variance_says_nothing(value):
    """Two or three equal differences happen by chance: of accuracies on few items, often."""
    shifted = {seed: number + value for seed, number in LOW.items()}
    difference = seed_difference(shifted, LOW)
    assert (difference.mean, difference.low, difference.high) == (value, value, value)
    assert difference.p == 1.0


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


# ---- The moderated t-test


def test_moderated_difference_by_hand():
    """The variance of HIGH - LOW is 4 with 2 degrees, the prior 1 with 4: (4 * 1 + 2 * 4) / 6 = 2.

    The standard error is sqrt(2 / 3) = 0.816497, t = 7.348469, with 6 degrees of freedom.
    """
    prior = VariancePrior(variance=1.0, degrees=4.0, pooled_degrees=20)
    difference = seed_difference(HIGH, LOW, prior=prior)
    assert difference.mean == pytest.approx(6.0)
    assert difference.variance == pytest.approx(4.0)
    assert difference.high - 6.0 == pytest.approx(2.446912 * 0.816497, rel=1e-5)
    assert difference.p == pytest.approx(2 * stats.t.sf(7.348469, 6), rel=1e-5)


def test_no_variance_is_known_better_than_by_all_differences():
    loose = VariancePrior(variance=1.0, degrees=4.0, pooled_degrees=20)
    few = VariancePrior(variance=1.0, degrees=4.0, pooled_degrees=3)
    assert seed_difference(HIGH, LOW, prior=few).p > seed_difference(HIGH, LOW, prior=loose).p


def test_a_difference_without_variance_is_moderated():
    prior = VariancePrior(variance=1.0, degrees=4.0, pooled_degrees=20)
    shifted = {seed: number + 3.0 for seed, number in LOW.items()}
    difference = seed_difference(shifted, LOW, prior=prior)
    assert difference.low < difference.mean < difference.high
    assert 0 < difference.p < 1


def differences_of(true_variances, seeds=3, seed=0):
    """Return differences of normal numbers with the true variances."""
    random = np.random.default_rng(seed)
    made = []
    for variance in true_variances:
        numbers = random.normal(scale=np.sqrt(variance), size=seeds)
        values = dict(enumerate(numbers))
        made.append(seed_difference(values, dict.fromkeys(values, 0.0)))
    return made


def test_equal_variances_are_pooled():
    prior = variance_prior(differences_of([2.0] * 4000), 8000)
    assert prior.variance == pytest.approx(2.0, rel=0.05)
    assert prior.degrees > 50


@pytest.mark.parametrize("degrees", [3.0, 8.0])
def test_the_prior_is_found_again(degrees):
    """True variances are d0 s0² / chi²(d0), with s0² = 2."""
    random = np.random.default_rng(1)
    true_variances = degrees * 2.0 / random.chisquare(degrees, size=20000)
    prior = variance_prior(differences_of(true_variances), 40000)
    assert prior.variance == pytest.approx(2.0, rel=0.05)
    assert prior.degrees == pytest.approx(degrees, rel=0.15)
    assert prior.pooled_degrees == 40000


def test_moderated_p_values_are_uniform_without_a_difference():
    """One in twenty is below 0.05, which the ordinary normal test of so few seeds does not keep."""
    random = np.random.default_rng(2)
    true_variances = 4.0 * 2.0 / random.chisquare(4.0, size=4000)
    prior = variance_prior(differences_of(true_variances, seed=3), 8000)
    random = np.random.default_rng(4)
    rejected = 0
    for variance in true_variances:
        values = dict(enumerate(random.normal(scale=np.sqrt(variance), size=3)))
        difference = seed_difference(values, dict.fromkeys(values, 0.0), prior=prior)
        rejected += difference.p < 0.05
    assert 0.04 < rejected / 4000 < 0.06


def test_systems_that_are_shared_count_once():
    """Ten differences of three systems have six degrees of freedom and not twenty."""
    differences = differences_of([1.0] * 10)
    prior = variance_prior(differences, systems=3)
    assert prior.pooled_degrees == 6
    assert prior.degrees <= 6


def test_few_differences_say_nothing_of_variances():
    assert variance_prior(differences_of([1.0, 1.0]), 4) == NO_PRIOR
    constant = seed_difference({1: 1.0, 2: 1.0}, {1: 0.0, 2: 0.0})
    assert variance_prior([constant] * 5, 10) == NO_PRIOR


def difference_of(mean: float) -> SeedDifference:
    return SeedDifference(mean=mean, low=mean - 1, high=mean + 1, p=0.01, variance=1.0, seeds=3)


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
