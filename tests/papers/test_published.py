"""Published tables: sums that they print, and which measurements stand beside which of them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.eval.test_report import lines_of, matrix
from tmde.cli.run_evaluation import _write_report
from tmde.eval.results import TaskResult
from tmde.papers.published import published_markdown, published_tables

FIVE_LANGUAGES = ("de", "en", "es", "fr", "it")
TITLES_OF_MEANS = ("All", "Avg.", "Average", "Δ")
ROUNDING = 0.1001  # of two rounded numbers


# ---- Transcription


def expected_mean(values: dict) -> float | None:
    """The mean of the numbers of a row; None if the row prints no mean, or not all numbers."""
    numbers = list(values.values())[:-1]
    last_title = list(values)[-1]
    if last_title in TITLES_OF_MEANS and numbers and None not in values.values():
        return np.mean(numbers)
    if {"Same", "Cross", "All"} <= values.keys():
        # Five languages have 5 pairs within and 20 pairs across languages.
        return (5 * values["Same"] + 20 * values["Cross"]) / 25
    return None


def printed_mean(values: dict) -> float:
    last_title = list(values)[-1]
    return values[last_title] if last_title in TITLES_OF_MEANS else values["All"]


def rows_with_wrong_means() -> set[tuple[str, str, str]]:
    wrong = set()
    for table in published_tables():
        for label, values in table.printed():
            expected = expected_mean(values)
            if expected is not None and abs(expected - printed_mean(values)) > ROUNDING:
                wrong.add((table.short, table.number, label))
    return wrong


def test_tables_have_a_value_for_each_column():
    for table in published_tables():
        for row in table.rows:
            assert len(row) == len(table.labels) + len(table.columns), (table.number, row)
            assert all(map(str, row)), (table.number, row)


def test_printed_means_are_those_of_their_numbers_but_for_known_errors():
    assert rows_with_wrong_means() == {
        ("Li, 2021", "4.3", "LASER 2018"),
        ("Yu et al., 2018", "4", "similarity loss, Training language = De"),
    }


def test_tables_with_wrong_means_say_so():
    noted = {(table.short, table.number) for table in published_tables() if table.inconsistent}

    for short, number, _ in rows_with_wrong_means():
        assert (short, number) in noted


# ---- Comparison


def result_of(
    task, pairs, protocol="zero-shot", metric="accuracy", data=None, extra=None, **settings
) -> TaskResult:
    """The result of a system with 60% on each pair."""
    cell = replace(matrix().cells[0], metric=metric, value=0.6, extra=extra or {})
    return replace(
        matrix(),
        cells=[replace(cell, source=source, target=target) for source, target in pairs],
        task=task,
        protocol=protocol,
        intervals={},
        data={"rows": data},
        settings=settings,
    )


def result_of_mldoc(languages=FIVE_LANGUAGES, head="ffn", test=4000) -> TaskResult:
    rows = dict.fromkeys(languages, {"train": 1000, "dev": 1000, "test": test})
    pairs = list(itertools.product(languages, repeat=2))
    return result_of("mldoc", pairs, data=rows, head={"head": head})


def report_of(*arguments, **options) -> str:
    """What is published beside such a result."""
    return published_markdown([result_of(*arguments, **options)])


def report_of_mldoc(*arguments, **options) -> str:
    return published_markdown([result_of_mldoc(*arguments, **options)])


@pytest.mark.parametrize(
    "row",
    [
        "|T-MDE\\*|84.6|73.8|74.9|70.5|76.0|",
        "|cT-MDE|75.2|89.2|78.0|",
        "|cT-MDE,β=0.5|88.9|74.2|",
    ],
)
def test_the_thesis_stands_beside_its_protocol(row):
    # No table has Russian, so it is left aside.
    report = report_of_mldoc((*FIVE_LANGUAGES, "ru"))

    assert "#### Beside table 4.2 of Li, 2021" in report
    assert "#### Beside table 4.3 of Li, 2021" in report
    assert row in lines_of(report)


def test_papers_with_another_classifier_are_not_comparable():
    report = report_of_mldoc((*FIVE_LANGUAGES, "ru"))

    difference = "mine (head ffn, published logistic_regression)"
    assert f"Not comparable with Yu et al., 2018, table 4, 5, 6: {difference}" in report


def test_papers_with_the_same_classifier_are_comparable():
    assert "Beside table 3 of Mao" in report_of_mldoc(head="logistic_regression")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"head": "svm"}, "head svm, published ffn"),
        ({"test": 200}, "de: test 200 instead of 4000"),
    ],
    ids=["head", "rows"],
)
def test_other_conditions_are_not_compared(changes, expected):
    report = report_of_mldoc(**changes)

    assert f"Li, 2021, table 4.2, 4.3, 4.5, 4.6, 4.7: mine ({expected}" in report
    assert "Beside table 4.2" not in report


def test_columns_that_are_tasks():
    rows = {"en": {"train": 100_000, "test": 10_000}}
    head = {"head": "logistic_regression"}

    report = report_of("probing_bshift", [("en", "en")], data=rows, head=head)

    lines = lines_of(report)
    assert "|System|BShift|" in lines
    assert "|**mine(measured)**|60.0|" in lines
    assert "|BiLSTM-max,NLI|63.8|" in lines
    # The same system with an MLP is in another table.
    assert "|BiLSTM-max,NLI|65.1|" not in lines
    difference = "mine (head logistic_regression, published mlp)"
    assert f"Not comparable with Conneau, 2019, table 3.10: {difference}" in report


def test_metrics_that_are_further_measures():
    rows = {"en-en": 4927}
    extra = {"pearson": 0.71}

    report = report_of("senteval_sick_r", [("en", "en")], "similarity", "spearman", rows, extra)

    assert "|**mine(measured)**|71.0|" in lines_of(report)
    assert "|InferSent|88.4|" in lines_of(report)


XSR_PAIRS = [("de", "en"), ("en", "de"), ("de", "fr")]
XSR = {"protocol": "retrieval", "metric": "precision_at_1", "scoring": "cosine"}


def test_pairs_that_columns_name():
    rows = {"de": 200_000, "en": 800_000, "fr": 200_000}

    report = report_of("xsr", XSR_PAIRS, data=rows, max_queries=2000, **XSR)

    # Some pairs were not measured, so there is no mean.
    assert "|System|en->de|de->en|" in lines_of(report)
    assert "|LASER|94.6|94.3|" in lines_of(report)


def test_pairs_with_another_number_of_rows_are_not_compared():
    rows = {"de": 9, "en": 200_000, "fr": 200_000}

    report = report_of("xsr", XSR_PAIRS, data=rows, max_queries=5, **XSR)

    assert "mine (de-en: 9 instead of 200000; en-de: 9" in report
    assert "max_queries 5, published 2000" in report
    assert "Beside" not in report


def test_a_report_has_published_tables_after_those_of_tasks(tmp_path):
    _write_report(tmp_path, [result_of_mldoc()], differences=[], figures=[])

    report = (tmp_path / "report.md").read_text()
    assert report.index("\n## mldoc: ") < report.index("\n## Published results\n")
    assert "#### Beside table 4.3 of Li, 2021" in report


def test_nothing_is_said_of_a_task_without_published_tables():
    assert published_markdown([matrix()]) == ""
