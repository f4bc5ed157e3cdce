"""The options `--labeled` and `--columns` become tasks."""

import pytest

from modeling_tmde import TmdeError
from tmde.cli.evaluation_options import find_tasks
from tmde.cli.options import columns_of


def planned(labeled, columns=(), specs=None, settings=None):
    return find_tasks(specs, None, settings, labeled=labeled, columns=columns_of(columns))


def test_files_are_named_by_themselves_or_by_the_user():
    plans = planned(["data/news.csv.gz", "mine=data/a.jsonl"])
    assert [(plan.name, plan.source) for plan in plans] == [
        ("news", "data/news.csv.gz"),
        ("mine", "data/a.jsonl"),
    ]


def test_a_file_with_an_equals_sign_in_its_name(tmp_path):
    path = tmp_path / "a=b.csv"
    path.touch()
    (plan,) = planned([str(path)])
    assert (plan.name, plan.source) == ("a=b", str(path))


def test_columns_of_all_files_and_of_one():
    columns = ["text=Body,a.label=Topic", "b.label=Class"]
    first, second = planned(["a.csv", "b.csv"], columns)
    assert first.options == {"columns": {"text": "Body", "label": "Topic"}}
    assert second.options == {"columns": {"text": "Body", "label": "Class"}}


def test_labeled_documents_beside_tasks():
    plans = planned(["a.csv"], specs=["sample"])
    assert [plan.name for plan in plans] == ["sample", "a"]


def test_settings_reach_labeled_documents():
    (plan,) = planned(["a.csv"], settings=["labeled_documents.seed=3"])
    assert plan.options == {"seed": 3}


@pytest.mark.parametrize(
    ("labeled", "columns", "message"),
    [
        (["sample.csv"], [], "'sample', which is a task of tmde; .*--labeled my_sample=sample.csv"),
        (["a.csv", "b/a.csv"], [], "found the name 'a' twice"),
        (["a.csv"], ["b.label=x"], r"found columns of b, expected those of .*\(a\)"),
        ([], ["label=x"], "--labeled is missing"),
    ],
)
def test_options_that_cannot_be_used(labeled, columns, message):
    with pytest.raises(TmdeError, match=message):
        planned(labeled, columns)
