"""The ablation of the objectives of `tmde`: differences from distillation alone."""

import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script

objectives = load_script("tmde_objectives")

RUNS = {
    "distillation": {42: {"questions": 80.0}, 43: {"questions": 82.0}},
    "+ translation": {42: {"questions": 84.0}, 43: {"questions": 88.0}},
    "all": {42: {"questions": 90.0}, 43: {"questions": 90.0}},
}


def test_differences_from_distillation_have_pooled_intervals():
    """The variances are 2, 8 and 0 with a degree of freedom each, 10 / 3 together.

    t = 3.182446 of 3 degrees; the standard error is the root of 10 / 3; the interval ± 5.810326.
    """
    baseline, variant, everything = objectives.describe(RUNS)
    assert baseline["mean"] == {"questions": 81.0}
    assert baseline["difference"] == {}
    assert variant["mean"] == {"questions": 86.0}
    interval = [5 - 5.810326, 5, 5 + 5.810326]
    assert sorted(variant["difference"]["questions"]) == pytest.approx(interval, abs=1e-5)
    assert everything["difference"]["questions"][0] == 9.0
    assert objectives.table_row(variant) == {
        "objectives": "+ translation",
        "questions": "86.0 (+5.0, -0.8 to +10.8)",
    }
