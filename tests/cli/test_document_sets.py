"""Whole sets of documents: only the fields that are asked for are read, and errors say line or row."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modeling_tmde.cli.document_sets import read_document_set
from modeling_tmde.data.documents import EmbedError

ROWS = [
    {"id": 7, "text": "a", "url": "x", "year": 1999, "tags": ["u"], "score": 1.5},
    {"text": "b", "url": None, "year": "about 2000", "tags": {"v": 1}, "id": 8},
    {"text": "c", "id": 9, "year": None, "extra": [1, "two"]},
]


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in ROWS))
    return path


@pytest.fixture
def parquet(tmp_path):
    path = tmp_path / "docs.parquet"
    table = pa.table({"year": [1, 2, 3], "text": ["a", "b", "c"], "id.of": ["x", None, "z"], "url": ["p", "q", "r"]})
    pq.write_table(table, path)
    return path


def test_fields_of_mixed_types_are_not_read(jsonl):
    documents = read_document_set(str(jsonl))
    assert (documents.texts, documents.ids, documents.numbers) == (["a", "b", "c"], ["7", "8", "9"], [1, 3, 5])
    assert documents.columns.column_names == ["text", "id"]
    assert documents.fields == ["id", "text", "url", "year", "tags", "score", "extra"]
    documents = read_document_set(str(jsonl), columns=["url"])
    assert documents.columns.column("url").to_pylist() == ["x", None, None]
    with pytest.raises(EmbedError, match=r"docs.jsonl, lines 1 to 5, field 'year': not one type"):
        read_document_set(str(jsonl), columns=["year"])


def test_parquet(parquet):
    documents = read_document_set(str(parquet), columns=["url", "none"])
    assert documents.ids == ["1", "2", "3"] and documents.columns.column_names == ["text", "url"]
    assert documents.strings("url", "--url-field") == ["p", "q", "r"]
    assert read_document_set(str(parquet), id_field="year").ids == ["1", "2", "3"]


def test_errors_say_line_and_field_or_row_and_column(jsonl, parquet):
    with pytest.raises(
        EmbedError, match="docs.jsonl, line 3, field 'url': found None, expected a string or an integer"
    ):
        read_document_set(str(jsonl), columns=["url"]).strings("url", "--url-field")
    with pytest.raises(EmbedError, match="docs.jsonl, line 1, field 'score': found 1.5, expected a string or an int"):
        read_document_set(str(jsonl), id_field="score", columns=["score"])
    with pytest.raises(
        EmbedError, match=r"docs.jsonl: no field 'key', found \['id', 'text', 'url', .*; see --id-field"
    ):
        read_document_set(str(jsonl), id_field="key")
    with pytest.raises(
        EmbedError, match="docs.parquet, row 2, column 'id.of': found None, expected a string or an int"
    ):
        read_document_set(str(parquet), id_field="id.of")
    with pytest.raises(EmbedError, match=r"no column 'key', found \['year', 'text', 'id.of', 'url'\]; see --id-field"):
        read_document_set(str(parquet), id_field="key")
    with pytest.raises(EmbedError, match=r"docs.parquet: no column 'none', found \['year'"):
        read_document_set(str(parquet), columns=["none"]).strings("none", "--url-field")


def test_text_and_nothing(tmp_path):
    (tmp_path / "docs.txt").write_text("a\n\nb\n")
    assert read_document_set(str(tmp_path / "docs.txt"), columns=["url"]).ids == ["1", "2", "3"]
    with pytest.raises(EmbedError, match=r"docs.txt: no field 'id', found \['text'\]; see --id-field"):
        read_document_set(str(tmp_path / "docs.txt"), id_field="id")
    for name in ("none.txt", "none.jsonl"):
        (tmp_path / name).write_text("")
        assert read_document_set(str(tmp_path / name)).texts == []
    (tmp_path / "docs.tsv").write_text("a\tb\n")
    with pytest.raises(EmbedError, match="docs.tsv: .tsv is not an input format; give --format"):
        read_document_set(str(tmp_path / "docs.tsv"))
