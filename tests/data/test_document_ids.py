"""The column `doc_id`: kept where it is asked for, and never taken for a language."""

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tmde.data import load_parallel

IDS = ["a", "a", None, "b"]
TEXTS = [
    {"de": "de0", "en": "en0"},
    {"de": "de1", "en": None, "es": None},  # It is dropped, with its id.
    {"de": "de2", "en": "en2"},
    {"de": "de3", "en": "en3"},
]


def write(kind: str, nested: bool, path: Path, ids: list) -> str:
    """Write `TEXTS` with ids, in parquet or JSONL, with `translation` or a column per language."""
    rows = []
    for name, text in zip(ids, TEXTS, strict=True):
        texts = {"translation": text} if nested else text
        rows.append({"doc_id": name} | texts)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.fixture(params=["translation", "columns"])
def nested(request):
    return request.param == "translation"


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("languages", [["de", "en"], None])
@pytest.mark.parametrize("ids", [IDS, [7, 7, None, 8]], ids=["texts", "numbers"])
def test_ids_stay_with_their_rows(kind, nested, languages, ids, tmp_path):
    source = write(kind, nested, tmp_path / f"corpus.{kind}", ids)
    rows = load_parallel(source, languages, document_ids=True)
    assert rows.features["doc_id"] == datasets.Value("string")
    assert "doc_id" not in rows.features["translation"]
    assert rows.flatten()["translation.de"][:] == ["de0", "de2", "de3"]
    assert rows["doc_id"][:] == [str(ids[0]), None, str(ids[3])]
    stream = load_parallel(source, languages, document_ids=True, streaming=True)
    assert list(stream) == list(rows)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("streaming", [False, True])
def test_ids_are_left_out_if_nobody_asks(kind, nested, streaming, tmp_path):
    source = write(kind, nested, tmp_path / f"corpus.{kind}", IDS)
    rows = load_parallel(source, ["de", "en"], streaming=streaming)
    assert rows.column_names == ["translation"]
