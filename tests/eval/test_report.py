"""Tables and cards' metadata from results, by hand-made numbers."""

import itertools
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from tests.eval.test_results import result
from tmde.eval.report import differences_table, markdown_report, print_report, sections
from tmde.eval.results import model_index
from tmde.eval.statistics import Difference


def matrix(languages=("de", "en", "es"), **changes):
    """Accuracy 0.9 within a language, 0.6 across."""
    cell = result().cells[0]
    cells = []
    for source, target in itertools.product(languages, repeat=2):
        value = 0.9 if source == target else 0.6
        cells.append(replace(cell, source=source, target=target, value=value))
    return result(cells=cells, **changes)


def without_blanks(text: str) -> str:
    """The text without blanks, with which tables are filled up."""
    return text.replace(" ", "")


def lines_of(text: str) -> list[str]:
    return without_blanks(text).splitlines()


@pytest.fixture(scope="module")
def report() -> str:
    """The report of a system and of TF-IDF in three languages."""
    languages = ("a", "b", "c")
    baseline = matrix(languages, system="TF-IDF", truncated=None, dense=False)
    return markdown_report([matrix(languages), baseline])


def test_report_has_the_means(report):
    means = "|mine|90.0±14.1|60.0±14.1<br>[20.0,80.0]|70.0±14.1|"

    assert "## t: zero-shot, svm, Accuracy (%)" in report
    assert "|System|Same|Cross|All|" in lines_of(report)
    assert f"\n{means}" in without_blanks(report)


def test_report_has_the_baselines(report):
    lines = lines_of(report)

    assert "|chance|25.0|25.0|25.0|" in lines
    assert "|majority|30.0|30.0|30.0|" in lines


def test_report_has_further_measures(report):
    assert "|MacroF1(%)|mine|50.0|50.0|50.0|" in lines_of(report)


def test_report_has_a_matrix_of_each_system(report):
    assert "### mine: trained on (rows), tested on (columns)" in report
    assert "### TF-IDF: trained on (rows), tested on (columns)" in report
    assert "\n|**a**|90.0±" in without_blanks(report)


def test_report_tells_how_it_was_measured(report):
    assert "|`head`|svm|svm|" in lines_of(report)
    assert "Split: test." in report
    assert "Rows: 3 in each of de, en." in report
    assert "1 of 3 texts were longer than the limit of the model and were truncated" in report


def test_one_system_with_two_settings_is_told_apart():
    other_settings = {"head": {"head": "ffn"}, "seeds": [0, 1]}

    (section,) = sections([matrix(), matrix(settings=other_settings)])

    assert section.labels == ["mine (head svm)", "mine (head ffn)"]


def test_terminal_table():
    console = Console(file=StringIO(), width=150)

    print_report([result(outcomes=(0.1, 0.2, 0.3))], console)

    text = " ".join(console.file.getvalue().split())
    assert "t: zero-shot, svm, Accuracy (%)" in text
    assert "mine 20.0 20.0" in text
    assert "mine: no better than always guessing the most frequent class (Same, Cross," in text


@pytest.mark.parametrize(
    ("languages", "expected"), [(("a", "b", "c"), "60.0 [20.0, 80.0]"), (("a", "b"), "60.0 ")]
)
def test_the_terminal_shows_intervals_in_tables_of_few_columns(languages, expected):
    console = Console(file=StringIO(), width=150)

    print_report([matrix(languages)], console)

    text = " ".join(console.file.getvalue().split())
    assert expected in text
    assert ("[20.0, 80.0]" in text) == (len(languages) == 3)


def test_model_index_entries():
    entries = model_index(matrix(data={"hub_id": "someone/data", "split": "test"}))

    numbers = [(entry.dataset_config, entry.metric_type, entry.metric_value) for entry in entries]
    assert numbers == [
        ("Same", "accuracy", 0.9),
        ("Same", "f1", 0.5),
        ("Cross", "accuracy", 0.6),
        ("Cross", "f1", 0.5),
    ]
    for entry in entries:
        assert entry.dataset_type == "someone/data"
    assert entries[0].metric_args == {"protocol": "zero-shot", "head": "svm"}


def test_differences():
    difference = Difference(
        task="t",
        group="Cross",
        a=0.5,
        b=0.6,
        difference=0.1,
        interval=(0.02, 0.2),
        p=0.00005,
        fold_p=0.03,
    )

    text = differences_table("B - A", [difference])

    assert "### B - A" in text
    assert "|t|Cross|50.0|60.0|+10.0|+2.0to+20.0|5e-05|0.03|" in lines_of(text)


def test_the_note_tells_only_of_what_was_tested():
    difference = Difference("t", "All", 0.5, 0.6, 0.1, interval=(0.02, 0.2), p=0.1, fold_p=None)
    note = differences_table("B - A", [difference])
    assert "the probability of a difference this large" in note
    assert "t-test" not in note
    note = differences_table("B - A", [difference, replace(difference, fold_p=0.03)])
    assert "t-test" in note
