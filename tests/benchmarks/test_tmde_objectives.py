"""The ablation of the objectives of `tmde`: differences from distillation alone."""

import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script

objectives = load_script("tmde_objectives")

RUNS = {
    "distillation": {42: {"questions": 80.0}, 43: {"questions": 82.0}},
    "+ translation": {42: {"questions": 84.0}, 43: {"questions": 86.0}},
}


def test_differences_from_distillation_have_pooled_intervals():
    """Both variances are 2, with 1 + 1 degrees of freedom: t = 4.302653, the interval ± 6.0849."""
    baseline, variant = objectives.describe(RUNS)
    assert baseline["mean"] == {"questions": 81.0}
    assert baseline["difference"] == {}
    assert variant["mean"] == {"questions": 85.0}
    assert variant["difference"]["questions"] == pytest.approx(
        [4.0, -2.084877, 10.084877], abs=1e-5
    )
    assert objectives.table_row(variant) == {
        "objectives": "+ translation",
        "questions": "85.0 (+4.0, -2.1 to +10.1)",
    }
