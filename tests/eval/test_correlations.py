"""Correlations of probing tasks with other tasks: by hand, against scipy, and what is refused."""

import csv
import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from modeling_tmde import TmdeError
from tmde.cli.evaluate import app
from tmde.eval import correlations
from tmde.eval.correlations import correlate_tasks
from tmde.eval.results import Cell, TaskResult, write_results


def result(
    system: str, task: str, *values: float, metric="accuracy", item="i", **changes
) -> TaskResult:
    cells = []
    for number, value in enumerate(values):
        cells.append(Cell("en", f"x{number}", metric, value, [item], np.array([value])))
    fields = {
        "protocol": "zero-shot",
        "data": {"fingerprint": f"data of {task}"},
        "system_fingerprint": f"model {system}",
        "truncated": (0, 10),
    }
    return TaskResult(task, system, cells=cells, **fields | changes)


def results_of(values_by_task: dict[str, list[float]]) -> list[TaskResult]:
    """The results of systems a, b, c ... on each task."""
    results = []
    for task, values in values_by_task.items():
        for system, value in zip("abcdefghijklmnopqrst", values, strict=False):
            results.append(result(system, task, value))
    return results


FOUR = {
    "probing_wc": [0.1, 0.2, 0.3, 0.4],
    "probing_sentlen": [0.9, 0.8, 0.2, 0.1],
    "senteval_mr": [0.5, 0.7, 0.6, 0.8],
    "sts": [0.4, 0.3, 0.2, 0.1],
}


def test_rank_correlations_by_hand():
    """Ranks 1 2 3 4 and 1 3 2 4 differ by 0 1 1 0: 1 - 6 * 2 / (4 * 15) = 0.8."""
    found = correlate_tasks(results_of(FOUR))
    assert found.systems == ["a", "b", "c", "d"]
    values = {}
    for correlation in found.correlations:
        values[correlation.probing_task, correlation.task] = correlation.value
    assert values == pytest.approx(
        {
            ("probing_wc", "senteval_mr"): 0.8,
            ("probing_wc", "sts"): -1,
            ("probing_sentlen", "senteval_mr"): -0.8,
            ("probing_sentlen", "sts"): 1,
        }
    )


def test_p_values_by_hand():
    """Of 24 orders of four systems, 2 have the correlation 1 or -1, and 6 more 0.8 or -0.8."""
    found = correlate_tasks(results_of(FOUR))
    p_values = [correlation.p for correlation in found.correlations]
    assert p_values == pytest.approx([8 / 24, 2 / 24, 8 / 24, 2 / 24])
    # Holm: the smallest times 4, the next times 3 but not below it, 8/24 times 2, times 1.
    corrected = [correlation.corrected_p for correlation in found.correlations]
    assert corrected == pytest.approx([2 / 3, 1 / 3, 2 / 3, 1 / 3])


def test_pearson_by_hand():
    """Deviations -1.5 -0.5 0.5 1.5 and -3 -1 -1 5: 12 / sqrt(5 * 36)."""
    tasks = {"probing_wc": [1.0, 2, 3, 4], "sts": [1.0, 3, 3, 9]}
    (correlation,) = correlate_tasks(results_of(tasks), "pearson").correlations
    assert correlation.value == pytest.approx(12 / math.sqrt(180))


@pytest.mark.parametrize("count", [5, 8, 12])
@pytest.mark.parametrize("method", ["spearman", "pearson"])
def test_values_are_those_of_scipy(count, method):
    generator = np.random.default_rng(count)
    first = generator.integers(0, 6, count) / 10  # With ties.
    second = first + generator.normal(size=count) / 5
    (found,) = correlate_tasks(
        results_of({"probing_wc": list(first), "sts": list(second)}), method
    ).correlations
    reference = {"spearman": stats.spearmanr, "pearson": stats.pearsonr}[method]
    assert found.value == pytest.approx(reference(first, second).statistic)

    def statistic(permuted):
        return abs(reference(permuted, second).statistic)

    expected = stats.permutation_test(
        (first,),
        statistic,
        permutation_type="pairings",
        alternative="greater",
        n_resamples=1000 if count > 5 else math.inf,
        rng=generator,
    )
    # Five systems have 120 orders, which both count; of more, scipy draws 1,000.
    tolerance = 1e-9 if count == 5 else 0.05
    assert found.p == pytest.approx(expected.pvalue, abs=tolerance)


def test_random_orders_agree_with_all_orders(monkeypatch):
    tasks = results_of({"probing_wc": [1.0, 2, 3, 4, 5, 6], "sts": [2.0, 1, 3, 6, 4, 5]})
    (exact,) = correlate_tasks(tasks).correlations
    monkeypatch.setattr(correlations, "_MAX_ENUMERATED", 5)
    (sampled,) = correlate_tasks(tasks).correlations
    assert sampled.p != exact.p
    assert sampled.p == pytest.approx(exact.p, abs=0.005)


def test_a_p_value_of_random_orders_is_never_zero():
    """Twenty systems in one order: no random order has it, and the one that was found counts."""
    order = list(map(float, range(20)))
    (found,) = correlate_tasks(results_of({"probing_wc": order, "sts": order})).correlations
    assert found.p == 1 / 100_000


def test_unrelated_tasks_are_rarely_significant():
    """Of 400 pairs of random tasks, 5% have a p below 0.05."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(20, 6))
    second = generator.normal(size=(20, 6))
    for rows in (first, second):
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    p_values = correlations.permutation_p_values(first, second)
    assert 0.02 < (p_values < 0.05).mean() < 0.08


def test_equal_results_have_no_correlation():
    """They are not counted as a test, either."""
    tasks = FOUR | {"probing_tense": [0.5, 0.5, 0.5, 0.5 + 1e-15]}
    found = {
        c.probing_task + " " + c.task: c for c in correlate_tasks(results_of(tasks)).correlations
    }
    assert math.isnan(found["probing_tense sts"].value)
    assert math.isnan(found["probing_tense sts"].corrected_p)
    assert found["probing_wc sts"].corrected_p == pytest.approx(1 / 3)


def test_the_result_of_a_task_is_the_mean_of_its_cells():
    results = results_of({"probing_wc": [0.1, 0.2, 0.3, 0.4]})
    # The means rise, and the first cells fall.
    for number, system in enumerate("abcd"):
        results.append(result(system, "sts", 0.5 - number / 10, 0.1 + number / 4))
    (found,) = correlate_tasks(results).correlations
    assert found.value == pytest.approx(1)


def test_baselines_and_systems_that_lack_a_task_are_left_out():
    results = results_of(FOUR)
    results.append(result("lacking", "sts", 0.3))
    for task in FOUR:
        results.append(result("TF-IDF", task, 0.3, truncated=None, dense=False))
    found = correlate_tasks(results)
    assert found.systems == ["a", "b", "c", "d"]
    assert found.left_out == {"lacking": ["probing_wc", "probing_sentlen", "senteval_mr"]}
    assert found.correlations == correlate_tasks(results_of(FOUR)).correlations


def test_a_result_of_two_evaluations_counts_once():
    results = results_of(FOUR)
    found = correlate_tasks([*results, *results])
    assert found == correlate_tasks(results)


def test_what_a_result_owes_to_its_system_and_to_chance_may_differ():
    """Also the order of cells and of training languages, which changes no number."""
    results = results_of({"probing_wc": FOUR["probing_wc"]})
    for number, (system, value) in enumerate(zip("abcd", FOUR["sts"], strict=True)):
        settings = {
            "system": {"pooling": f"pooling {number}"},
            "folds": {"left_out": f"reason {number}"},
            "seed": number,
            "seeds": [number],
            "bootstrap_samples": number,
            "train_languages": ["de", "en"] if number % 2 else ["en", "de"],
            "scoring": "cosine",
        }
        one = result(system, "sts", value, 0.5, settings=settings)
        if number % 2:
            one.cells.reverse()
        results.append(one)
    (found,) = correlate_tasks(results).correlations
    assert found.value == pytest.approx(-1)


@pytest.mark.parametrize(
    ("method", "systems", "expected"),
    [
        # Ranks: the order of equal results and its reverse, of 24, 120 and 40,320 orders.
        ("spearman", 4, 2 / 24),
        ("spearman", 5, 2 / 120),
        ("spearman", 8, 2 / 40_320),
        # The reversed order is less extreme, if the results are not symmetric.
        ("pearson", 4, 1 / 24),
        # The one that was found, and 99,999 random ones.
        ("spearman", 9, 1 / 100_000),
        ("pearson", 9, 1 / 100_000),
    ],
)
def test_the_smallest_p_value_by_hand(method, systems, expected):
    assert correlations.smallest_p_value(systems, method) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["spearman", "pearson"])
@pytest.mark.parametrize("count", [4, 5, 6, 7])
def test_the_smallest_p_value_is_that_of_equal_results(method, count):
    values = [number**2 for number in range(count)]
    correlated = correlate_tasks(results_of({"probing_wc": values, "sts": values}), method)
    (correlation,) = correlated.correlations
    assert correlation.p == pytest.approx(correlated.smallest_p)


def test_the_smallest_p_value_is_corrected_for_the_pairs_that_are_tested():
    tasks = FOUR | {"probing_tense": [0.5, 0.5, 0.5, 0.5]}
    correlated = correlate_tasks(results_of(tasks))
    # Four pairs; the two of equal results are not tested.
    assert correlated.smallest_p == pytest.approx(4 * 2 / 24)
    many = {f"probing_{name}": FOUR["sts"] for name in ("wc", "sentlen", "tense", "bshift")}
    many_tasks = many | {f"task_{number}": FOUR["sts"] for number in range(4)}
    assert correlate_tasks(results_of(many_tasks)).smallest_p == 1


THREE = {"probing_wc": [0.1, 0.2, 0.3], "sts": [0.1, 0.3, 0.2]}


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (
            results_of(THREE),
            r"Found 3 systems evaluated on all of probing_wc, sts; expected at least 4",
        ),
        ([*results_of(THREE), result("d", "sts", 0.1)], r"\(d lacks probing_wc\)"),
        (
            results_of({"sts": FOUR["sts"]}),
            "no probing task among the tasks sts; expected",
        ),
        (results_of({"probing_wc": FOUR["sts"]}), r"only probing tasks \(probing_wc\); expected"),
        ([], "no probing task among the tasks none"),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, data={"fingerprint": "other"})],
            "sts: data of a is 'data of sts', of e 'other', expected the same",
        ),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, settings={"head": {"head": "svm"}})],
            "sts: head of a is None, of e {'head': 'svm'}, expected the same",
        ),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, settings={"scoring": "ratio"})],
            "sts: scoring of a is None, of e 'ratio', expected the same",
        ),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, 0.2)],
            r"sts: cells of a is \['en -> x0'\], of e \['en -> x0', 'en -> x1'\], expected the",
        ),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, metric="spearman")],
            "sts: metric of a is 'accuracy', of e 'spearman', expected the same",
        ),
        (
            [*results_of(FOUR), result("e", "sts", 0.1, item="another")],
            "sts: a and e were not tested on the same items",
        ),
        (
            [*results_of(FOUR), result("b", "sts", 0.1, system_fingerprint="other")],
            "two models called 'b'; evaluate each under its own name",
        ),
        (
            [*results_of(FOUR), result("b", "sts", 0.31)],
            "sts: found 0.3000 and 0.3100 for b, expected one result",
        ),
    ],
)
def test_results_that_cannot_be_correlated(results, message):
    with pytest.raises(TmdeError, match=message):
        correlate_tasks(results)


# ---- The command


def call(*arguments, status: int = 0) -> str:
    outcome = CliRunner().invoke(
        app, ["correlate", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )
    assert outcome.exit_code == status, (outcome.output, outcome.exception)
    return outcome.output


@pytest.fixture
def folders(tmp_path):
    """An evaluation for each system."""
    paths = []
    for system in "abcd":
        of_system = [found for found in results_of(FOUR) if found.system == system]
        paths.append(tmp_path / system)
        write_results(paths[-1], of_system, {})
    return paths


def test_the_printed_table(folders):
    lines = call(*folders).splitlines()
    (row,) = [line.split() for line in lines if "probing_wc" in line]
    assert row == ["probing_wc", "+0.80", "(0.67)", "-1.00", "(0.33)"]
    text = " ".join(" ".join(lines).split())
    assert "Spearman correlation over 4 systems (a, b, c, d)" in text
    assert "corrected by Holm's method for 4 pairs of tasks" in text


def test_too_few_systems_for_a_significant_correlation_are_told(folders):
    text = " ".join(call(*folders).split())
    assert "smallest p that 4 systems can reach, after correction for 4 pairs, is 0.33." in text
    assert "No correlation can be significant at 0.05: measure more systems or name fewer" in text


def test_enough_systems_are_told_their_smallest_p(folders, tmp_path):
    """2 of 120 orders, times two pairs: 0.033."""
    fifth_results = [result("e", task, 0.35) for task in FOUR]
    write_results(tmp_path / "e", fifth_results, {})
    text = " ".join(call(*folders, tmp_path / "e", "--tasks", "probing,sts").split())
    assert "smallest p that 5 systems can reach, after correction for 2 pairs, is 0.033." in text
    assert "No correlation can be" not in text


def test_the_written_table(folders, tmp_path):
    target = tmp_path / "correlations.tsv"
    call(*folders, "-o", target)
    with target.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 4
    assert rows[1] == {
        "probing_task": "probing_wc",
        "task": "sts",
        "systems": "4",
        "correlation": "-1",
        "p": "0.0833333",
        "corrected_p": "0.333333",
    }
    assert "exists; set --overwrite" in call(*folders, "-o", target, status=1)


def test_tasks_and_groups_are_selected(folders):
    output = call(*folders, "--tasks", "probing_wc,senteval")
    assert "sentlen" not in output
    assert "sts" not in output
    assert "for 1 pair of tasks" in output
    assert "found no result of 'mldoc', expected one of probing_wc" in call(
        *folders, "--tasks", "mldoc", status=1
    )


def test_systems_that_lack_a_task_are_named(folders, tmp_path):
    write_results(tmp_path / "e", [result("e", "sts", 0.1)], {})
    output = " ".join(call(*folders, tmp_path / "e").split())
    assert "e is left out, because it lacks probing_wc, probing_sentlen, senteval_mr" in output


def test_a_folder_without_an_evaluation(tmp_path):
    assert "found no eval.json" in call(tmp_path, status=1)
