"""Intervals and tests of differences, against numbers by hand, scipy, and exact enumeration."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tests.eval.numbered import numbered
from tmde.eval.results import Cell, TaskResult
from tmde.eval.statistics import compare, holm, paired_t_test, summary_intervals, with_interval


def make_cell(outcomes, source="en", target="de", ids=None, metric="accuracy") -> Cell:
    outcomes = np.asarray(outcomes, dtype=np.float64)
    value = stats.spearmanr(outcomes).statistic if metric == "spearman" else outcomes.mean()
    if ids is None:
        ids = numbered("d", range(len(outcomes)))
    return Cell(source, target, metric, float(value), ids, outcomes)


def make_result(cells, system="A", folds=(), **fields) -> TaskResult:
    return TaskResult("task", system, "zero-shot", list(cells), folds=list(folds), **fields)


def noisy_similarities(gold: np.ndarray, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Gold similarities and measured ones with noise, (n, 2)."""
    return np.stack([gold, gold + scale * rng.standard_normal(len(gold))], axis=1)


# ---- t-tests


def test_paired_t_test_by_hand():
    # Differences 1, 2, 3: mean 2, standard deviation 1, t = 2 / (1 / sqrt(3)) = 3.4641 with 2
    # degrees of freedom, for which p = 1 - t / sqrt(2 + t^2) = 1 - sqrt(12 / 14).
    expected = pytest.approx(1 - np.sqrt(12 / 14))

    assert paired_t_test([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]) == expected
    assert paired_t_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]) == expected


def test_paired_t_test_of_differences_without_variance():
    assert paired_t_test([0.5, 0.6], [0.5, 0.6]) == 1.0
    assert paired_t_test([0.5, 0.6], [0.6, 0.7]) == 0.0


def test_holm_by_hand():
    """Sorted: 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1; none below one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_a_test_to_come_counts_as_one_with_p_1():
    """A corrected p never grows when it comes."""
    before = holm([0.01, 0.02, 1.0, 1.0])
    for later in ([0.01, 0.02, 0.001, 0.9], [0.01, 0.02, 0.015, 0.015]):
        after = holm(later)
        assert after[0] <= before[0]
        assert after[1] <= before[1]


# ---- Intervals


def test_interval_of_a_share_is_that_of_the_binomial():
    interval = with_interval(make_cell([1] * 80 + [0] * 20), samples=20000).interval

    # n times the mean of a sample is Binomial(100, 0.8).
    expected = stats.binom.ppf([0.025, 0.975], 100, 0.8) / 100
    assert interval == pytest.approx(expected, abs=0.011)


def test_interval_of_equal_outcomes_is_a_point():
    assert with_interval(make_cell([1, 1, 1])).interval == (1.0, 1.0)


def test_a_single_item_has_no_interval():
    assert with_interval(make_cell([1])).interval is None


def test_interval_of_a_correlation_matches_scipy():
    rng = np.random.default_rng(0)
    outcomes = noisy_similarities(rng.random(120), 0.3, rng)

    low, high = with_interval(make_cell(outcomes, metric="spearman"), samples=2000).interval

    expected = stats.bootstrap(
        tuple(outcomes.T),
        lambda x, y: stats.spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=1,
    ).confidence_interval
    assert low == pytest.approx(expected.low, abs=0.02)
    assert high == pytest.approx(expected.high, abs=0.02)


def width_of_cross(cells: list[Cell]) -> float:
    low, high = summary_intervals(cells, samples=4000)["Cross"]
    return high - low


def test_translations_are_one_observation():
    outcomes = (np.random.default_rng(1).random(200) < 0.6).astype(float)
    translated = [make_cell(outcomes, "en", target) for target in ("de", "es", "fr", "it")]

    # Four copies of one outcome are worth one.
    assert width_of_cross(translated) == pytest.approx(width_of_cross(translated[:1]), rel=1e-9)


def test_other_items_are_further_observations():
    outcomes = (np.random.default_rng(1).random(200) < 0.6).astype(float)
    independent = []
    for target in ("de", "es", "fr", "it"):
        ids = numbered(target, range(200))
        independent.append(make_cell(outcomes, "en", target, ids=ids))

    # Four independent outcomes halve the interval.
    one_cell = width_of_cross(independent[:1])
    assert width_of_cross(independent) == pytest.approx(one_cell / 2, rel=0.1)


# ---- Comparisons


def test_p_is_that_of_clusters():
    # Six items; B is right where A is wrong on each, in both languages: 2 of the 2^6 exchanges are
    # as extreme.
    cells_a = [make_cell([0] * 6, "en", "de"), make_cell([0] * 6, "en", "fr")]
    cells_b = [make_cell([1] * 6, "en", "de"), make_cell([1] * 6, "en", "fr")]

    (row,) = compare(make_result(cells_a), make_result(cells_b, "B"), permutations=9999)

    assert row.p == pytest.approx(2 / 64, abs=0.01)
    assert row.interval == (1.0, 1.0)


@pytest.fixture(scope="module")
def worse_and_better() -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of two systems on 500 items; the second is right wherever the first is."""
    rng = np.random.default_rng(2)
    worse = (rng.random(500) < 0.5).astype(float)
    better = np.maximum(worse, rng.random(500) < 0.4)
    return worse, better


def test_difference_of_a_better_system(worse_and_better):
    worse, better = worse_and_better
    a = make_result([make_cell(worse)])
    b = make_result([make_cell(better)], "B")

    (row,) = compare(a, b, permutations=999)

    assert row.difference == pytest.approx(better.mean() - worse.mean())
    assert row.p == 1 / 1000
    assert 0 < row.interval[0] < row.difference < row.interval[1]


def test_difference_changes_its_sign_with_the_order_of_the_systems(worse_and_better):
    worse, better = worse_and_better
    a = make_result([make_cell(worse)])
    b = make_result([make_cell(better)], "B")

    (forward,) = compare(a, b, permutations=999)
    (backward,) = compare(b, a, permutations=999)

    low, high = forward.interval
    assert backward.difference == -forward.difference
    assert backward.interval == pytest.approx((-high, -low))


def test_correlations_are_compared():
    rng = np.random.default_rng(3)
    gold = rng.random(200)
    a = make_cell(noisy_similarities(gold, 1.0, rng), metric="spearman")
    b = make_cell(noisy_similarities(gold, 0.1, rng), metric="spearman")

    (row,) = compare(make_result([a]), make_result([b], "B"), samples=300, permutations=499)

    assert row.difference == pytest.approx(b.value - a.value)
    assert row.p == 1 / 500
    assert row.interval[0] > 0


def test_the_scale_of_similarities_means_nothing():
    rng = np.random.default_rng(3)
    outcomes = noisy_similarities(rng.random(200), 1.0, rng)
    a = make_cell(outcomes, metric="spearman")
    b = make_cell(outcomes * [1, 1000], metric="spearman")

    (row,) = compare(make_result([a]), make_result([b], "B"), samples=50, permutations=99)

    assert row.difference == 0.0
    assert row.p == 1.0


def test_folds_are_tested_on_cross():
    cells = [make_cell([1, 0], "en", "en"), make_cell([1, 0], "en", "de")]
    a = make_result(cells, folds=[0.1, 0.2, 0.3])
    b = make_result(cells, "B", folds=[0.2, 0.4, 0.6])

    fold_p_by_group = {row.group: row.fold_p for row in compare(a, b)}

    expected = pytest.approx(paired_t_test(a.folds, b.folds))
    assert fold_p_by_group == {"Same": None, "Cross": expected, "All": None}


def test_only_sparse_vectors_may_have_another_classifier():
    """A task's network is for vectors of a fixed length, so TF-IDF has another head."""
    a = make_result([make_cell([1, 0])], settings={"head": "ffn", "seeds": [0, 1]})
    sparse = replace(a, system="TF-IDF", settings={"head": "svm", "seeds": []}, dense=False)
    assert [row.difference for row in compare(a, sparse)] == [0]
    with pytest.raises(ValueError, match="head of A is 'ffn', of TF-IDF 'svm'"):
        compare(a, replace(sparse, dense=True))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"data": {"fingerprint": "y"}}, "data of A is 'x', of B 'y'"),
        ({"settings": {"head": "ffn"}}, "head of"),
        ({"cells": [make_cell([1, 0], ids=["d1", "d0"])]}, "not tested on the same items"),
        ({"cells": [make_cell([1, 0]), make_cell([1, 0], "de", "en")]}, "cells of A is"),
    ],
    ids=["data", "settings", "items", "cells"],
)
def test_results_that_cannot_be_compared(changes, match):
    a = make_result([make_cell([1, 0])], data={"fingerprint": "x"}, settings={"head": "svm"})

    with pytest.raises(ValueError, match=match):
        compare(a, replace(a, system="B", **changes))
