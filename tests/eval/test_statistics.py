"""Intervals and tests of differences, against numbers by hand, scipy, and exact enumeration."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from tmde.eval.results import Cell, TaskResult
from tmde.eval.statistics import compare, paired_t_test, summary_intervals, with_interval


def make_cell(outcomes, source="en", target="de", ids=None, metric="accuracy") -> Cell:
    outcomes = np.asarray(outcomes, dtype=np.float64)
    value = stats.spearmanr(outcomes).statistic if metric == "spearman" else outcomes.mean()
    ids = [f"d{i}" for i in range(len(outcomes))] if ids is None else ids
    return Cell(source, target, metric, float(value), ids, outcomes)


def make_result(cells, system="A", folds=(), **fields) -> TaskResult:
    return TaskResult("task", system, "zero-shot", list(cells), folds=list(folds), **fields)


def test_paired_t_test_by_hand():
    # Differences 1, 2, 3: mean 2, standard deviation 1, t = 2 / (1 / sqrt(3)) = 3.4641 with 2 degrees of freedom, for
    # which p = 1 - t / sqrt(2 + t^2) = 1 - sqrt(12 / 14).
    assert paired_t_test([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]) == pytest.approx(1 - np.sqrt(12 / 14))
    assert paired_t_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]) == pytest.approx(1 - np.sqrt(12 / 14))
    assert paired_t_test([0.5, 0.6], [0.5, 0.6]) == 1.0  # without variance
    assert paired_t_test([0.5, 0.6], [0.6, 0.7]) == 0.0


def test_interval_of_a_share_is_that_of_the_binomial():
    found = with_interval(make_cell([1] * 80 + [0] * 20), samples=20000).interval
    expected = (
        stats.binom.ppf([0.025, 0.975], 100, 0.8) / 100
    )  # n * mean of a sample is Binomial(100, 0.8)
    assert found == pytest.approx(expected, abs=0.011)
    assert with_interval(make_cell([1, 1, 1])).interval == (1.0, 1.0)
    assert with_interval(make_cell([1])).interval is None


def test_interval_of_a_correlation_matches_scipy():
    rng = np.random.default_rng(0)
    gold = rng.random(120)
    outcomes = np.stack([gold, gold + 0.3 * rng.standard_normal(120)], axis=1)
    ours = with_interval(make_cell(outcomes, metric="spearman"), samples=2000).interval
    theirs = stats.bootstrap(
        tuple(outcomes.T),
        lambda x, y: stats.spearmanr(x, y).statistic,
        paired=True,
        vectorized=False,
        method="percentile",
        n_resamples=2000,
        rng=1,
    ).confidence_interval
    assert ours == (pytest.approx(theirs.low, abs=0.02), pytest.approx(theirs.high, abs=0.02))


def test_translations_are_one_observation():
    outcomes = (np.random.default_rng(1).random(200) < 0.6).astype(float)
    targets = ("de", "es", "fr", "it")
    parallel = [make_cell(outcomes, "en", target) for target in targets]
    apart = [
        make_cell(outcomes, "en", target, ids=[f"{target}{i}" for i in range(200)])
        for target in targets
    ]
    one, four, independent = (
        np.diff(summary_intervals(cells, samples=4000)["Cross"]).item()
        for cells in (parallel[:1], parallel, apart)
    )
    # Four copies of one outcome are worth one; four independent ones halve the interval.
    assert four == pytest.approx(one, rel=1e-9) and independent == pytest.approx(one / 2, rel=0.1)


def test_p_is_that_of_clusters():
    # Six items; B is right where A is wrong on each, in both languages: 2 of the 2^6 exchanges are as extreme.
    a = [make_cell([0] * 6, "en", target) for target in ("de", "fr")]
    b = [make_cell([1] * 6, "en", target) for target in ("de", "fr")]
    (row,) = compare(make_result(a), make_result(b, "B"), permutations=9999)
    assert row.p == pytest.approx(2 / 64, abs=0.01)
    assert row.interval == (1.0, 1.0)


def test_difference_and_its_sign():
    rng = np.random.default_rng(2)
    worse = (rng.random(500) < 0.5).astype(float)
    better = np.maximum(worse, rng.random(500) < 0.4)
    a, b = make_result([make_cell(worse)]), make_result([make_cell(better)], "B")
    ((there,), (back,)) = compare(a, b, permutations=999), compare(b, a, permutations=999)
    assert there.difference == pytest.approx(better.mean() - worse.mean()) and there.p == 1 / 1000
    assert 0 < there.interval[0] < there.difference < there.interval[1]
    assert back.difference == -there.difference
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]))


def test_correlations_are_compared():
    rng = np.random.default_rng(3)
    gold = rng.random(200)
    noisy, clean = (
        np.stack([gold, gold + scale * rng.standard_normal(200)], axis=1) for scale in (1.0, 0.1)
    )
    a, b = (make_cell(outcomes, metric="spearman") for outcomes in (noisy, clean))
    (row,) = compare(make_result([a]), make_result([b], "B"), samples=300, permutations=499)
    assert row.difference == pytest.approx(b.value - a.value)
    assert row.p == 1 / 500 and row.interval[0] > 0
    # The scale of a system's similarities means nothing.
    scaled = make_cell(noisy * [1, 1000], metric="spearman")
    (row,) = compare(make_result([a]), make_result([scaled], "B"), samples=50, permutations=99)
    assert (row.difference, row.p) == (0.0, 1.0)


def test_folds_are_tested_on_cross():
    cells = [make_cell([1, 0], "en", "en"), make_cell([1, 0], "en", "de")]
    a, b = make_result(cells, folds=[0.1, 0.2, 0.3]), make_result(cells, "B", folds=[0.2, 0.4, 0.6])
    rows = {row.group: row.fold_p for row in compare(a, b)}
    assert rows == {
        "Same": None,
        "Cross": pytest.approx(paired_t_test(a.folds, b.folds)),
        "All": None,
    }


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"data": {"fingerprint": "y"}}, "data of A is 'x', of B 'y'"),
        ({"settings": {"head": "ffn"}}, "head of"),
        ({"cells": [make_cell([1, 0], ids=["d1", "d0"])]}, "not tested on the same items"),
        (
            {"cells": [make_cell([1, 0]), make_cell([1, 0], "de", "en")]},
            "not tested on the same items",
        ),
    ],
)
def test_results_that_cannot_be_compared(changes, match):
    a = make_result([make_cell([1, 0])], data={"fingerprint": "x"}, settings={"head": "svm"})
    with pytest.raises(ValueError, match=match):
        compare(a, replace(a, system="B", **changes))
