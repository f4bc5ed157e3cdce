"""How often the tests of this package reject, in simulations with and without a true difference."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests.eval.test_statistics import make_cell, make_result
from tmde.eval.correlations import permutation_p_values
from tmde.eval.statistics import compare, paired_t_test
from tmde.papers.verdicts import seed_difference

RUNS = 400
ITEMS = 250
LEVEL = 0.05

pytestmark = pytest.mark.nightly


def rejections(p_value: Callable[[np.random.Generator], float]) -> int:
    """Return in how many of 400 simulated experiments the p-value is below 0.05."""
    count = 0
    for seed in range(RUNS):
        count += p_value(np.random.default_rng(seed)) < LEVEL
    return count


def check(count: int, lowest_power: float | None = None, is_conservative: bool = False) -> None:
    """Check the number of rejections.

    Args:
        count: How many of 400 experiments were rejected.
        lowest_power: What share must be rejected, because there is a true difference; None if there
            is none, so that the number must agree with the binomial distribution of 0.05.
        is_conservative: Whether fewer than 5% may be rejected without a difference.
    """
    if lowest_power is not None:
        assert count / RUNS >= lowest_power
        return
    low, high = stats.binom.interval(0.998, RUNS, LEVEL)
    assert count <= high
    assert is_conservative or count >= low


def p_of(a: np.ndarray, b: np.ndarray, metric: str = "accuracy", **options: object) -> float:
    """Return the p-value of `compare` for the outcomes of two systems on the same items."""
    first = make_result([make_cell(a, metric=metric, **options)])
    second = make_result([make_cell(b, metric=metric, **options)], "B")
    return compare(first, second, samples=2, permutations=199)[0].p


# ---- The randomization test of two systems


def similarities(rng: np.random.Generator, noise: float, scale: float) -> tuple[np.ndarray, ...]:
    """Return gold and measured similarities of two systems, (n, 2) each, the second scaled."""
    gold = rng.standard_normal(ITEMS)
    first = gold + rng.standard_normal(ITEMS)
    second = scale * (gold + noise * rng.standard_normal(ITEMS))
    return np.stack([gold, first], axis=1), np.stack([gold, second], axis=1)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_level_for_correlations(scale):
    check(rejections(lambda rng: p_of(*similarities(rng, 1.0, scale), "spearman")))


def test_power_for_correlations():
    """The correlations differ by 0.13, three standard deviations of the measured difference."""
    check(rejections(lambda rng: p_of(*similarities(rng, 0.65, 30.0), "spearman")), 0.8)


def accuracies(rng: np.random.Generator, gain: float) -> tuple[np.ndarray, np.ndarray]:
    difficulty = rng.random(ITEMS)
    first = rng.random(ITEMS) < difficulty
    second = rng.random(ITEMS) < np.minimum(difficulty + gain, 1)
    return first.astype(float), second.astype(float)


def test_level_for_accuracies():
    check(rejections(lambda rng: p_of(*accuracies(rng, 0.0))))


def test_level_for_translations_of_the_same_items():
    """Each item has two outcomes, which agree: without clusters, 17% are rejected."""

    def p_value(rng: np.random.Generator) -> float:
        a, b = accuracies(rng, 0.0)
        ids = [f"d{item}" for item in range(ITEMS)] * 2
        return p_of(np.tile(a, 2), np.tile(b, 2), ids=ids)

    check(rejections(p_value))


def test_power_for_accuracies():
    """McNemar's test has a power of 0.75 here."""
    check(rejections(lambda rng: p_of(*accuracies(rng, 0.1))), 0.65)


def f1_counts(rng: np.random.Generator, shares: tuple[float, float]) -> list[np.ndarray]:
    """Return predicted, right, gold and found pairs of 60 documents for two systems, (60, 4)."""
    gold = rng.integers(5, 15, size=60)
    outcomes = []
    for share in shares:
        right = rng.binomial(gold, share)
        outcomes.append(np.stack([gold, right, gold, right], axis=1).astype(float))
    return outcomes


def test_level_for_f1():
    check(rejections(lambda rng: p_of(*f1_counts(rng, (0.8, 0.8)), "strict_f1")))


def test_power_for_f1():
    """A test of two binomials of 600 pairs, 80 and 86%, has a power of 0.79."""
    check(rejections(lambda rng: p_of(*f1_counts(rng, (0.8, 0.86)), "strict_f1")), 0.6)


# ---- t-tests over folds and over seeds


@pytest.mark.parametrize(("gain", "lowest_power"), [(0.0, None), (1.5, 0.8)])
def test_paired_t_test(gain, lowest_power):
    """Noncentral t: ten differences of mean 1.5 and variance 2 are told with a power of 0.85."""

    def p_value(rng: np.random.Generator) -> float:
        hardness = rng.standard_normal(10)
        noise = rng.standard_normal((2, 10))
        return paired_t_test(hardness + noise[0], hardness + gain + noise[1])

    check(rejections(p_value), lowest_power)


@pytest.mark.parametrize(("mean", "lowest_power"), [(0.8, None), (0.81, 0.8)])
def test_paired_t_test_against_a_published_accuracy(mean, lowest_power):
    def p_value(rng: np.random.Generator) -> float:
        return paired_t_test([0.8] * 10, mean + 0.01 * rng.standard_normal(10))

    check(rejections(p_value), lowest_power)


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize(("gain", "lowest_power"), [(0.0, None), (4.0, 0.8)])
def test_differences_over_five_seeds(is_paired, gain, lowest_power):
    def p_value(rng: np.random.Generator) -> float:
        values = dict(enumerate(rng.standard_normal(5)))
        other_values = dict(enumerate(gain + rng.standard_normal(5)))
        return seed_difference(values, other_values, is_paired=is_paired).p

    check(rejections(p_value), lowest_power, is_conservative=not is_paired)


def test_a_margin_is_kept_by_systems_that_are_just_as_far_apart():
    """The claim that two systems are within a margin of 1 is rejected or made in 5%."""

    def p_value(rng: np.random.Generator) -> float:
        values = dict(enumerate(0.1 * rng.standard_normal(8)))
        other_values = dict(enumerate(1.0 + 0.1 * rng.standard_normal(8)))
        return seed_difference(values, other_values, margin=1.0).p

    check(rejections(p_value), None, is_conservative=True)


# ---- Correlations of scores over systems


@pytest.mark.parametrize("systems", [6, 12])
@pytest.mark.parametrize(("slope", "lowest_power"), [(0.0, None), (2.5, 0.6)])
def test_correlations_over_systems(monkeypatch, systems, slope, lowest_power):
    monkeypatch.setattr("tmde.eval.correlations.PERMUTATIONS", 999)

    def p_value(rng: np.random.Generator) -> float:
        first = rng.standard_normal(systems)
        second = slope * first + rng.standard_normal(systems)
        rows = []
        for row in (first, second):
            centered = row - row.mean()
            rows.append(centered / np.linalg.norm(centered))
        return permutation_p_values(rows[0][None], rows[1][None])[0, 0]

    check(rejections(p_value), lowest_power)
