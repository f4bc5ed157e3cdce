"""Metadata of an index: types that change from one document to the next, and filters against plain loops."""

import random
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("faiss")

from modeling_tmde.documents import index_files
from modeling_tmde.documents.index import DocumentIndex
from modeling_tmde.documents.index_metadata import DocumentIndexError
from tests.documents.index_helpers import DIMENSION, vector_of


def test_filters_against_plain_loops(tmp_path):
    rng = random.Random(0)
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    rows = {}
    for start in (0, 40):  # the first documents have no year
        for number in range(start, start + 40):
            rows[str(number)] = {"language": rng.choice(["de", "en", None]), "good": rng.random() < 0.5}
            rows[str(number)] |= {"year": rng.choice([1999, 2000])} if start else {}
        ids = [str(number) for number in range(start, start + 40)]
        vectors = np.stack([vector_of(id) for id in ids])
        index.add(ids, ids, [rows[id] for id in ids], vectors=vectors)
    index.delete(["7", "50"])
    query = np.ones((1, DIMENSION))
    for filter, wanted in [
        ({"language": "de"}, lambda row: row["language"] == "de"),
        ({"language": ["de", "en"]}, lambda row: row["language"] is not None),
        ({"language": "de", "good": True}, lambda row: row["language"] == "de" and row["good"]),
        ({"year": 1999}, lambda row: row.get("year") == 1999),
        ({"year": ["1999", "2000"], "good": "false"}, lambda row: "year" in row and not row["good"]),
        ({"language": "xx"}, lambda row: False),
    ]:
        (hits,) = index.search(query, k=100, filter=filter)
        expected = [id for id, row in rows.items() if wanted(row) and id not in ("7", "50")]
        assert sorted(hit.id for hit in hits) == sorted(expected), filter
        assert all(hit.metadata == {"year": None} | rows[hit.id] for hit in hits if int(hit.id) >= 40)


def test_filters_where_segments_have_other_types(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    rows = {
        "a": {"topic": None, "n": 1, "tags": None, "nothing": None},
        "b": {"topic": "pets", "n": 2, "tags": [], "nothing": None},
        "c": {"topic": "pets", "n": 2.5, "tags": ["x", "y"]},
        "d": {"topic": "cars", "tags": ["y", None], "x.topic": "pets"},
        "e": {},
    }
    for id, row in rows.items():  # a segment each
        index.add([id], ["text"], [row], vectors=np.ones((1, 2)))
    index.add(["f", "g"], ["text", "text"], [{"tags": ["x"]}, {"tags": ["z", "x"]}], vectors=np.ones((2, 2)))
    assert len(index._store.segments) == 6
    for filter, expected in [
        ({"topic": "pets"}, "bc"),
        ({"topic": None}, "aefg"),
        ({"topic": [None, "cars"]}, "adefg"),
        ({"n": 2}, "b"),
        ({"n": ["2.5", "1"]}, "ac"),
        ({"tags": "x"}, "cfg"),
        ({"tags": ["y", "z"], "topic": ["pets", None]}, "cg"),
        ({"tags": None}, "ade"),  # no list, or one with a null
        ({"nothing": None}, "abcdefg"),
        ({"nothing": "x"}, ""),
        ({"x.topic": "pets"}, "d"),
        ({"topic": []}, ""),
    ]:
        (hits,) = index.search(np.ones((1, 2)), k=9, filter=filter)
        assert "".join(sorted(hit.id for hit in hits)) == expected, filter
    assert index.values("topic") == {None, "pets", "cars"} and index.values("n") == {None, 1, 2, 2.5}
    assert index.values("tags") == {None, "x", "y", "z"} and index.values("x.topic") == {None, "pets"}
    assert index.values("nothing") == index.values("unknown") == {None}
    index.delete(["d", "c"])  # the only car, and the only 2.5
    assert index.values("topic") == {None, "pets"} and index.values("n") == {None, 1, 2}
    index.add(["h"], ["text"], [{"place": {"x": 1}}], vectors=np.ones((1, 2)))
    with pytest.raises(DocumentIndexError, match=r"^'place' holds struct<x: int64>; expected a column of values"):
        index.values("place")
    assert DocumentIndex.create(tmp_path / "empty", dimension=2).values("topic") == set()


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (2**53 + 1, 0.5, "found double in 'y', which would make the column double"),
        (0.5, 2**53 + 1, "found int64 in 'y', which would make the column double"),
        (
            pa.scalar(datetime(1500, 1, 1), pa.timestamp("us")),
            pa.scalar(1, pa.timestamp("ns")),
            r"found timestamp.ns. in 'y', which would make the column timestamp.ns.",
        ),
    ],
)
def test_metadata_that_a_merge_could_not_hold_are_refused_at_once(tmp_path, monkeypatch, first, second, found):
    monkeypatch.setattr(index_files, "MERGED", 2)
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.add(["a"], ["text"], pa.table({"y": pa.array([first])}), vectors=np.ones((1, 2)))
    with pytest.raises(DocumentIndexError, match=found):
        index.add(["b"], ["text"], pa.table({"y": pa.array([second])}), vectors=np.ones((1, 2)))
    for id in "bcd":  # the index can be written still
        index.add([id], ["text"], pa.table({"y": pa.array([first])}), vectors=np.ones((1, 2)))
    assert sorted(DocumentIndex.open(tmp_path / "index")) == list("abcd")


def test_metadata_of_tables_and_of_later_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(index_files, "MERGED", 2)
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    table = pa.table({"kind": pa.array(["x", "y"]).dictionary_encode(), "n": [1, 2]})
    table = table.append_column("view", pa.array(["v", None], pa.string_view()))
    index.add(["a", "b"], ["text", "text"], table, vectors=np.eye(2))
    index.add(["c"], ["text"], [{"n": 2.5, "id": "other", "tags": ["p", "q"]}], vectors=np.ones((1, 2)))
    index.add(["d"], ["text"], vectors=np.ones((1, 2)))
    assert len(index._store.segments) == 1  # merged: one schema for all
    stored = {
        id: {key: value for key, value in index.document(id).metadata.items() if value is not None} for id in "abcd"
    }
    assert stored == {
        "a": {"kind": "x", "n": 1, "view": "v"}, "b": {"kind": "y", "n": 2}, "d": {},
        "c": {"n": 2.5, "id": "other", "tags": ["p", "q"]},
    }  # fmt: skip
