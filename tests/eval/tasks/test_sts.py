"""STS from the Hub's layout and from files."""

import json
from pathlib import Path

import pytest

from tmde.eval.tasks import TASKS, TaskError, data_fingerprint

STS = TASKS["sts"]()
ROWS = [
    {"sentence1": '"a', "sentence2": "NA", "score": 4.5, "lang": "en-de"},
    {"sentence1": "c", "sentence2": "d", "score": 0.0, "lang": "en-de"},
    {"sentence1": "e", "sentence2": "f", "score": 5.0, "lang": "es-es"},
]


def write_jsonl(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write_tsv(path: Path, rows: list[dict]) -> str:
    lines = ["\t".join(rows[0])]
    lines += ["\t".join(map(str, row.values())) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def rows_of(lang: str) -> list[dict]:
    """The rows of a pair of languages, without its name."""
    rows = []
    for row in ROWS:
        if row["lang"] == lang:
            rows.append({name: value for name, value in row.items() if name != "lang"})
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
    loaded = [STS.load(source, streaming=streaming) for source in sources]
    assert len({data_fingerprint(data) for data in loaded}) == 1


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
