"""Tables and cards' metadata from results, by hand-made numbers."""

import itertools
from dataclasses import replace
from io import StringIO

from rich.console import Console

from tests.eval.test_results import result
from tmde.eval.report import differences_table, markdown_report, print_report, sections
from tmde.eval.results import model_index
from tmde.eval.statistics import Difference


def matrix(languages=("de", "en", "es"), **changes):
    """Accuracy 0.9 within a language, 0.6 across."""
    pairs = itertools.product(languages, repeat=2)
    cell = result().cells[0]
    cells = [replace(cell, source=x, target=y, value=0.9 if x == y else 0.6) for x, y in pairs]
    return result(cells=cells, **changes)


def lines_of(text: str) -> list[str]:
    return [line.replace(" ", "") for line in text.splitlines()]


def test_report_has_means_baselines_matrix_and_settings():
    text = markdown_report(
        [matrix(("a", "b", "c")), matrix(("a", "b", "c"), system="TF-IDF", truncated=None)]
    )
    lines = lines_of(text)
    assert "## t: zero-shot, svm, Accuracy (%)" in text and "|System|Same|Cross|All|" in lines
    assert any(
        line.startswith("|mine|90.0±14.1|60.0±14.1<br>[20.0,80.0]|70.0±14.1|") for line in lines
    )
    assert "|chance|25.0|25.0|25.0|" in lines and "|majority|30.0|30.0|30.0|" in lines
    assert "|MacroF1(%)|mine|50.0|50.0|50.0|" in lines
    assert "### mine: trained on (rows), tested on (columns)" in text
    assert any(line.startswith("|**a**|90.0±") for line in lines)
    assert (
        "|`head`|svm|svm|" in lines
        and "Split: test." in text
        and "Rows: 3 in each of de, en." in text
    )
    assert "1 of 3 texts were longer than the limit of the model and were cut" in text


def test_one_system_with_two_settings_is_told_apart():
    (section,) = sections([matrix(), matrix(settings={"head": {"head": "ffn"}, "seeds": [0, 1]})])
    assert section.labels == ["mine (head svm)", "mine (head ffn)"]


def test_terminal_table():
    console = Console(file=StringIO(), width=150)
    print_report([result(outcomes=(0.1, 0.2, 0.3))], console)
    text = " ".join(console.file.getvalue().split())
    assert "t: zero-shot, svm, Accuracy (%)" in text and "mine 20.0 20.0" in text
    assert (
        "mine: no better than always guessing the most frequent class (Same, Cross, All, " in text
    )


def test_model_index_entries():
    entries = model_index(matrix(data={"hub_id": "someone/data", "split": "test"}))
    assert [(e.dataset_config, e.metric_type, e.metric_value) for e in entries] == [
        ("Same", "accuracy", 0.9), ("Same", "f1", 0.5), ("Cross", "accuracy", 0.6), ("Cross", "f1", 0.5),
    ]  # fmt: skip
    assert {entry.dataset_type for entry in entries} == {"someone/data"}
    assert entries[0].metric_args == {"protocol": "zero-shot", "head": "svm"}


def test_differences():
    values = {"task": "t", "group": "Cross", "a": 0.5, "b": 0.6, "difference": 0.1}
    text = differences_table(
        "B - A", [Difference(**values, interval=(0.02, 0.2), p=0.00005, fold_p=0.03)]
    )
    assert (
        "|t|Cross|50.0|60.0|+10.0|+2.0to+20.0|5e-05|0.03|" in lines_of(text) and "### B - A" in text
    )
