"""Published tables: sums that they print, and which measurements stand beside which of them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.eval.test_report import lines_of, matrix
from tmde.eval.published import published_tables
from tmde.eval.report import markdown_report

FIVE = ("de", "en", "es", "fr", "it")


def test_tables_are_whole_and_printed_means_are_those_of_their_numbers():
    wrong = set()
    for table in published_tables():
        for (label, values), row in zip(table.printed(), table.rows, strict=True):
            assert len(row) == len(table.labels) + len(table.columns) and all(map(str, row)), (
                table.number,
                row,
            )
            *numbers, mean = list(values.values())
            if list(values)[-1] in ("All", "Avg.", "Average", "Δ") and numbers and None not in row:
                if abs(np.mean(numbers) - mean) > 0.1001:  # both are rounded
                    wrong.add((table.short, table.number, label))
            elif {"Same", "Cross", "All"} <= values.keys():  # of five languages
                found = (5 * values["Same"] + 20 * values["Cross"]) / 25
                if abs(found - values["All"]) > 0.1001:
                    wrong.add((table.short, table.number, label))
    assert wrong == {
        ("Li, 2021", "4.3", "LASER 2018"),
        ("Yu et al., 2018", "4", "similarity loss, Training language = De"),
    }
    noted = {(table.short, table.number) for table in published_tables() if table.inconsistent}
    assert {name[:2] for name in wrong} <= noted


def measured(
    task, pairs, protocol="zero-shot", metric="accuracy", data=None, extra=None, **settings
) -> str:
    """The report of a system with 60 % on each pair."""
    cell = replace(matrix().cells[0], metric=metric, value=0.6, extra=extra or {})
    cells = [replace(cell, source=source, target=target) for source, target in pairs]
    changes = {
        "task": task,
        "protocol": protocol,
        "intervals": {},
        "data": {"rows": data},
        "settings": settings,
    }
    return markdown_report([replace(matrix(), cells=cells, **changes)])


def mldoc(languages=FIVE, head="ffn", test=4000) -> str:
    rows = {code: {"train": 1000, "dev": 1000, "test": test} for code in languages}
    pairs = [(source, target) for source in languages for target in languages]
    return measured("mldoc", pairs, data=rows, head={"head": head})


def test_the_thesis_stands_beside_its_protocol():
    text = mldoc((*FIVE, "ru"))  # Russian is left aside
    assert "### Beside table 4.2 of Li, 2021" in text and "### Beside table 4.3 of Li, 2021" in text
    for row in (
        "|T-MDE\\*|84.6|73.8|74.9|70.5|76.0|",
        "|cT-MDE|75.2|89.2|78.0|",
        "|cT-MDE,β=0.5|88.9|74.2|",
    ):
        assert row in lines_of(text)
    assert (
        "Not comparable with Yu et al., 2018, table 4, 5, 6: mine (head ffn, published logistic_regression)"
        in text
    )
    assert "Beside table 3 of Mao" in mldoc(head="logistic_regression")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"head": "svm"}, "head svm, published ffn"), ({"test": 200}, "de: test 200 instead of 4000")],
)
def test_other_conditions_are_not_compared(changes, expected):
    text = mldoc(**changes)
    assert (
        f"Li, 2021, table 4.2, 4.3, 4.5, 4.6, 4.7: mine ({expected}" in text
        and "Beside table 4.2" not in text
    )


def test_columns_that_are_tasks():
    rows, head = {"en": {"train": 100_000, "test": 10_000}}, {"head": "logistic_regression"}
    text = measured("probing_bshift", [("en", "en")], data=rows, head=head)
    assert "|System|BShift|" in lines_of(text) and "|**mine(measured)**|60.0|" in lines_of(text)
    assert "|BiLSTM-max,NLI|63.8|" in lines_of(text) and "|BiLSTM-max,NLI|65.1|" not in lines_of(
        text
    )  # of the MLP
    assert (
        "Not comparable with Conneau, 2019, table 3.10: mine (head logistic_regression, published mlp)"
        in text
    )
    rows, extra = {"en-en": 4927}, {"pearson": 0.71}
    text = measured("senteval_sick_r", [("en", "en")], "similarity", "spearman", rows, extra)
    assert "|**mine(measured)**|71.0|" in lines_of(text) and "|InferSent|88.4|" in lines_of(text)


def test_pairs_that_columns_name():
    pairs, rows = (
        [("de", "en"), ("en", "de"), ("de", "fr")],
        dict.fromkeys(("de", "en", "fr"), 200_000),
    )
    of_xsr = {"protocol": "retrieval", "metric": "precision_at_1", "scoring": "cosine"}
    text = measured("xsr", pairs, data=rows | {"en": 800_000}, max_queries=2000, **of_xsr)
    assert "|System|en->de|de->en|" in lines_of(text) and "|LASER|94.6|94.3|" in lines_of(
        text
    )  # and no mean
    text = measured("xsr", pairs, data=rows | {"de": 9}, max_queries=5, **of_xsr)
    assert "table 3" not in text and "mine (de-en: 9 instead of 200000; en-de: 9" in text
    assert "max_queries 5, published 2000" in text and "Beside" not in text
