"""STS from the Hub's layout and from files."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

STS = TASKS["sts"]()
ROWS = [
    {"sentence1": '"a', "sentence2": "NA", "score": 4.5, "lang": "en-de"},
    {"sentence1": "c", "sentence2": "d", "score": 0.0, "lang": "en-de"},
    {"sentence1": "e", "sentence2": "f", "score": 5.0, "lang": "es-es"},
]


def write_jsonl(path: Path, rows: list[dict]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return str(path)


def write_tsv(path: Path, rows: list[dict]) -> str:
    pd.DataFrame(rows).to_csv(path, sep="\t", index=False, quoting=csv.QUOTE_NONE)
    return str(path)


def rows_of(lang: str) -> list[dict]:
    """The rows of a pair of languages, without its name."""
    rows = []
    for row in ROWS:
        if row["lang"] == lang:
            unnamed_row = row.copy()
            del unnamed_row["lang"]
            rows.append(unnamed_row)
    return rows


@pytest.fixture
def jsonl(tmp_path) -> str:
    return write_jsonl(tmp_path / "pairs.jsonl", ROWS)


@pytest.fixture
def sources(jsonl, tmp_path, dataset_folder) -> list[str]:
    """Files with a column of languages, files named after them, and a dataset."""
    named = tmp_path / "named"
    named.mkdir()
    configs = {"default": {"test": ROWS}}
    for lang in ("en-de", "es-es"):
        write_tsv(named / f"{lang}.tsv", rows_of(lang))
        configs[lang] = {"test": rows_of(lang)}
    tsv = write_tsv(tmp_path / "pairs.tsv", ROWS)
    return [jsonl, tsv, str(named), dataset_folder(configs)]


@pytest.mark.parametrize("streaming", [False, True])
def test_every_source_is_the_same(streaming, sources):
    expected = data_fingerprint(STS.load(sources[0], streaming=streaming))
    for source in sources[1:]:
        assert data_fingerprint(STS.load(source, streaming=streaming)) == expected


def test_pairs_of_a_file(jsonl):
    data = STS.load(jsonl)
    assert list(data.pairs) == [("en", "de"), ("es", "es")]
    pairs = data.pairs["en", "de"]
    assert pairs.ids == ["en-de:0", "en-de:1"]
    assert pairs.first == ['"a', "c"]
    assert pairs.second == ["NA", "d"]
    assert pairs.scores == [4.5, 0.0]


@pytest.mark.parametrize("streaming", [False, True])
def test_only_pairs_of_the_requested_languages_are_loaded(streaming, jsonl):
    data = STS.load(jsonl, languages=["de", "en"], streaming=streaming)
    assert list(data.pairs) == [("en", "de")]


def test_languages_without_a_pair_are_an_error(tmp_path):
    path = write_jsonl(tmp_path / "more.jsonl", [*ROWS[:2], ROWS[2] | {"lang": "es-en"}])
    with pytest.raises(TaskError, match="found no pair of de, es, expected one of en-de"):
        STS.load(path, languages=["de", "es"])


def test_a_file_in_a_folder_that_does_not_exist():
    with pytest.raises(FileNotFoundError, match=r"nowhere/sts\.csv: found no such file"):
        STS.load("nowhere/sts.csv")
