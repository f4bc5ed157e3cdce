"""The column `doc_id`: kept where it is asked for, and never taken for a language."""

import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tmde.data import load_parallel

IDS = ["a", "a", None, "b"]
TEXTS = [{"de": f"de{number}", "en": f"en{number}" if number != 1 else None} for number in range(4)]
TEXTS[1]["es"] = None  # a row that is dropped, with its id


def write(kind: str, nested: bool, path: Path, ids: list) -> str:
    """Rows of `TEXTS` with ids, in a parquet or JSONL file, with `translation` or one column per language."""
    rows = [
        {"doc_id": name} | ({"translation": text} if nested else text)
        for name, text in zip(ids, TEXTS, strict=True)
    ]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("nested", [True, False], ids=["translation", "columns"])
@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("ids", [IDS, [7, 7, None, 8]], ids=["texts", "numbers"])
def test_ids_stay_with_their_rows(kind, nested, ids, tmp_path):
    source = write(kind, nested, tmp_path / f"corpus.{kind}", ids)
    for languages in (["de", "en"], None):
        rows = load_parallel(source, languages, document_ids=True)
        assert rows.features["doc_id"] == datasets.Value("string")
        assert rows["doc_id"][:] == [
            None if name is None else str(name) for name in (ids[0], ids[2], ids[3])
        ]
        assert [text["de"] for text in rows["translation"]] == ["de0", "de2", "de3"]
        assert "doc_id" not in rows.features["translation"]
        assert list(load_parallel(source, languages, document_ids=True, streaming=True)) == list(
            rows
        )
    assert load_parallel(source, ["de", "en"]).column_names == ["translation"]
    assert load_parallel(source, ["de", "en"], streaming=True).column_names == ["translation"]
