"""Metadata as columns: names, types, conversions, conditions in SQL, and kills between commits."""

import datetime
import json
import signal
import subprocess
import sys

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lancedb")

from modeling_tmde import TmdeError
from tests.conftest import nightly_except
from tmde.documents.index import DocumentIndex
from tmde.documents.index_columns import FIXED_COLUMNS, column_of, name_of, stored_values


@given(st.text())
def test_columns_are_names_again(name):
    column = column_of(name)
    assert name_of(column) == name
    assert column not in FIXED_COLUMNS
    assert not column.startswith("_")
    assert not set(column) & set(".`\"'()[]/\\\n")


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("year", "year"),
        ("Straße 2-b_c", "Straße 2-b_c"),
        ("a.b", "a%2Eb"),
        ("100%", "100%25"),
        ("€", "%E2%82%AC"),
        ("text", "%74ext"),
        ("_score", "%5Fscore"),
    ],
)
def test_columns_of_names(name, column):
    assert column_of(name) == column


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.int16(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        ((1, 2.5, None), [1, 2.5, None]),
        (2**63, "9223372036854775808"),
        (datetime.date(2024, 5, 1), "2024-05-01"),
        ({"b": [1], "a": None}, '{"a": null, "b": [1]}'),
        ([{"a": 1}, {"a": 2}], ['{"a": 1}', '{"a": 2}']),
        ([[1], []], ["[1]", "[]"]),
        ([1, "x", True, 2.0], ["1", "x", "true", "2"]),
        ([], []),
    ],
)
def test_stored_values(value, stored):
    assert stored_values({"name": value}) == {"name": stored}


def test_values_that_are_none():
    assert stored_values({"a": None, "b": float("nan"), "c": np.float32("inf")}) == {}


def add(index, metadata):
    """Add a document for each mapping, whose id is its number in the index."""
    ids = [str(len(index) + number) for number in range(len(metadata))]
    index.upsert(ids, [f"text {id}" for id in ids], metadata, np.ones((len(ids), 2)))


def metadata_in(index):
    return [hit.metadata for hit in index.documents(sorted(index, key=int))]


@pytest.fixture
def index(tmp_path):
    return DocumentIndex.create(tmp_path / "index", dimension=2)


ODD_NAMES = {
    "": "empty",
    "text": "a title",
    "id": 7,
    "vector": [0.5],
    "metadata": True,
    "embedded_language": "xx",
    "_distance": 3,
    "_score": 4,
    "year": 2024,
    "Year": "other",
    "order": "a word of SQL",
    "a.b": 1,
    "`\"'": "quotes",
    "100% [new]\n/\\": "signs",
    "価格": 2.5,
}


def test_any_name_can_be_stored_and_filtered(index):
    add(index, [ODD_NAMES, {}])
    index.upsert(["1"], ["text"], [{"year": 1990}], np.ones((1, 2)))  # a merge
    assert metadata_in(index) == [ODD_NAMES, {"year": 1990}]
    for mode in ("meaning", "words"):
        query = "text" if mode == "words" else np.ones(2, np.float32)
        for name, value in ODD_NAMES.items():
            (hit,) = index.search(query, mode=mode, filter={name: value}, snippet_width=0)
            assert hit.id == "0"
            assert hit.metadata == ODD_NAMES
            expected = value if isinstance(value, list) else [value]
            assert index.values(name) == {*expected, 1990 if name == "year" else None}


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"n": "1e1"}, ["0"]),
        ({"n": 10.0}, ["0"]),
        ({"n": "ten"}, []),
        ({"n": True}, []),
        ({"n": 2**53 + 1}, ["1"]),
        ({"n": 2**70}, []),
        ({"x": "-2.5"}, ["0"]),
        ({"x": ["3", "x"]}, ["1"]),
        ({"x": 10**400}, []),
        ({"code": 10}, ["0"]),
        ({"good": True}, ["0"]),
        ({"good": "false"}, ["1"]),
        ({"good": 1}, []),
        ({"ns": "2"}, ["0"]),
        ({"ns": 2.5}, []),
        ({"code": None, "n": 10}, []),
    ],
)
def test_filters_by_type(index, filter, expected):
    first = {"n": 10, "x": -2.5, "code": "10", "good": True, "ns": [1, 2]}
    second = {"n": 2**53 + 1, "x": 3, "code": "x", "good": False, "ns": []}
    add(index, [first, second])
    hits = index.search(np.ones(2, np.float32), filter=filter)
    assert [hit.id for hit in hits] == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("year >= 2024", ["1", "2"]),
        ("year >= 2024 AND array_has(topics, 'trains')", ["2"]),
        ("topics IS NULL OR year < 2000", ["0", "1"]),
        ("`a%2Eb` = 'x'", ["0"]),
        ("text LIKE '%2' OR id = '0' -- a comment", ["0", "2"]),
        ("year IN (1999, 2025) AND year <> 1999", ["2"]),
    ],
)
def test_where(index, where, expected):
    documents = [
        {"year": 1999, "a.b": "x"},
        {"year": 2024},
        {"year": 2025, "topics": ["trains", "Rome"], "a.b": "y"},
    ]
    add(index, documents)
    vector = np.ones(2, np.float32)
    assert sorted(hit.id for hit in index.search(vector, where=where)) == expected
    words = index.search("text", mode="words", where=where)
    assert sorted(hit.id for hit in words) == expected
    both = index.search(vector, where=where, filter={"year": [2024, 2025]})
    assert {hit.id for hit in both} == set(expected) & {"1", "2"}


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("year >", "Expected: an expression"),
        ("", "sql parser error"),
        ("month = 3", "No field named month"),
        ("year = 'x'", "could not convert"),
        ("year > 0) OR (true", "is not supported SQL"),
        ("year > 0, false) OR coalesce(true", "is not supported SQL"),
        ("year > 0 topic = 'cars'", "sql parser error"),
        ("year", "does not return a boolean"),
        ("CAST(topic AS INT) > 3", "Cannot cast string"),
    ],
)
def test_a_where_that_is_no_condition(index, where, reason):
    add(index, [{"year": 2024, "topic": "pets"}])
    with pytest.raises(TmdeError, match="over the columns id, text, topic, year, such") as info:
        index.search(np.ones(2, np.float32), where=where)
    assert str(info.value).startswith(f"where: found {where!r}")
    assert reason in str(info.value)
    assert ".rs:" not in str(info.value)


def test_whole_numbers_become_numbers(index):
    add(index, [{"n": 1, "ns": [1, None], "b": True}, {"ns": []}])
    index.index_words()
    add(index, [{"n": 2.5, "ns": [0.5]}, {"n": 3, "ns": [4]}])
    expected = [
        {"n": 1, "ns": [1, None], "b": True},
        {"ns": []},
        {"n": 2.5, "ns": [0.5]},
        {"n": 3, "ns": [4]},
    ]
    opened = DocumentIndex.open(index.folder)
    assert metadata_in(opened) == metadata_in(index) == expected
    assert opened.values("n") == {None, 1, 2.5, 3}
    found = opened.search(np.ones(2, np.float32), where="n < 3")
    assert sorted(hit.id for hit in found) == ["0", "2"]
    assert len(opened.search("text", mode="words")) == 4


def test_large_whole_numbers_become_the_nearest_numbers(index):
    add(index, [{"n": 0.5}])
    add(index, [{"n": 2**60 + 1}])
    assert metadata_in(index)[1] == {"n": 2.0**60}


def test_an_empty_list_has_the_type_of_the_others(index):
    add(index, [{"a": [], "b": []}, {"a": [1]}])
    add(index, [{"b": ["x"]}])
    assert metadata_in(index) == [{"a": [], "b": []}, {"a": [1]}, {"b": ["x"]}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", r"metadata 'n' is 'x' \(a string\), expected a whole number"),
        (True, r"metadata 'n' is True \(true or false\), expected a whole number"),
        ([1], r"metadata 'n' is \[1\] \(a list, each element a whole number\), expected a whole"),
    ],
)
def test_a_value_of_another_type_changes_nothing(index, value, message):
    add(index, [{"n": 1}])
    for first in ({}, {"n": 2}):
        with pytest.raises(TmdeError, match=f"document '2': {message}.*the same type"):
            add(index, [first, {"n": value, "new": 1}])
    assert metadata_in(DocumentIndex.open(index.folder)) == [{"n": 1}]
    with pytest.raises(TmdeError, match=r"expected a metadata name: \['n'\]"):
        index.search(np.ones(2, np.float32), filter={"new": 1})


def test_a_list_of_another_type(index):
    add(index, [{"n": ["x"]}])
    with pytest.raises(TmdeError, match="expected a list, each element a string"):
        add(index, [{"n": [1]}])


def test_a_data_frame_has_columns_of_its_types(index):
    days = pandas.to_datetime(["2024-05-01", None])
    frame = pandas.DataFrame({"id": [0, 1], "text": ["a", "b"], "n": [1, None], "day": days})
    index.upsert(["x"], ["x"], [{"n": 3}], np.ones((1, 2)))
    rows = frame.drop(columns=["id", "text"]).to_dict("records")
    index.upsert(["0", "1"], ["a", "b"], rows, np.ones((2, 2)))
    assert index.documents(["0"])[0].metadata == {"n": 1, "day": "2024-05-01 00:00:00"}


def test_an_index_of_another_format(index):
    settings = json.loads((index.folder / "index.json").read_text())
    assert settings["format"] == 4
    settings["format"] = 1
    (index.folder / "index.json").write_text(json.dumps(settings))
    with pytest.raises(TmdeError, match="found format 1, expected 4.*rebuild the index"):
        DocumentIndex.open(index.folder)


# Before its n-th commit, the process is killed.
KILLED_WRITER = """
import os, signal, sys
import numpy as np
from tmde.documents.index import DocumentIndex

folder, commits = sys.argv[1], int(sys.argv[2])
index = DocumentIndex.open(folder)
table = index._table._table

def killing(method):
    def commit(*args, **kwargs):
        global commits
        if commits == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        commits -= 1
        return method(*args, **kwargs)
    return commit

for name in ("add_columns", "alter_columns", "drop_columns", "add"):
    setattr(table, name, killing(getattr(table, name)))
index.upsert(["1"], ["text"], [{"n": 0.5, "new": "x"}], np.ones((1, 2)))
"""


@pytest.mark.parametrize("commits", nightly_except([1], range(6)))
def test_a_writer_that_is_killed_before_a_commit(index, commits):
    """Three commits widen a column, one adds one, and one writes the document."""
    add(index, [{"n": 1}])
    command = [sys.executable, "-c", KILLED_WRITER, str(index.folder), str(commits)]
    code = subprocess.run(command, check=False).returncode
    assert code == (-signal.SIGKILL if commits < 5 else 0)

    opened = DocumentIndex.open(index.folder)
    new = {"n": 0.5, "new": "x"}
    assert metadata_in(opened) == ([{"n": 1}] if commits < 5 else [{"n": 1}, new])
    assert set(opened._table.metadata_types) <= {"n", "new"}
    opened.upsert(["1"], ["text"], [new], np.ones((1, 2)))
    opened.upsert(["2"], ["text"], [{"n": 2}], np.ones((1, 2)))
    assert metadata_in(DocumentIndex.open(index.folder)) == [{"n": 1}, new, {"n": 2}]
    assert opened._table.metadata_types == {"n": pa.float64(), "new": pa.string()}
    columns = set(opened._table._table.schema.names)
    assert columns == {*FIXED_COLUMNS, "n", "new"}
