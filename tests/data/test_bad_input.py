"""Each bad input gets one clear error that names file, row, field, found, expected and what to do."""

import gzip
import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modeling_tmde.data import CorpusError, CorpusReport, load_parallel

ROWS = [{"de": f"Satz {i}", "en": f"sentence {i}"} for i in range(5)]


def error_of(source: object, streaming: bool, **options: object) -> str:
    """Return the message of the error that loading and reading `source` raises."""
    with pytest.raises(CorpusError) as caught:
        list(load_parallel(source, streaming=streaming, **options))
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def assert_says(message: str, *parts: str) -> None:
    """Assert that the message holds all the parts."""
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in {message!r}"


@pytest.fixture(params=[False, True], ids=["map", "stream"])
def streaming(request: pytest.FixtureRequest) -> bool:
    """Both ways to load."""
    return request.param


def test_missing_files(streaming, tmp_path):
    for source in (tmp_path / "no.parquet", str(tmp_path / "*.tsv"), str(tmp_path / "europarl.de-en")):
        assert_says(error_of(source, streaming), str(source), "expected")
    (tmp_path / "c.de").write_text("a\n")
    assert_says(error_of({"de": str(tmp_path / "c.de"), "en": str(tmp_path / "c.en")}, streaming), "c.en", "no such")
    assert_says(error_of(str(tmp_path / "c"), streaming), "c.de", "one Moses file")
    assert_says(error_of(tmp_path, streaming), str(tmp_path), ".parquet")
    (tmp_path / "ep.de-en.de").write_text("a\n")
    assert_says(error_of(str(tmp_path / "ep.de-en"), streaming), "ep.de-en.en", "no such file")
    assert_says(error_of(str(tmp_path / "c.de"), streaming), "c.de", "unknown format")
    assert_says(error_of([], streaming), "source")


def test_unknown_hub_id(streaming, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    assert_says(error_of("nobody/no-such-corpus", streaming), "nobody/no-such-corpus", "Hub")


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv", "moses"])
def test_unknown_language(kind, streaming, write):
    source = write(kind, ROWS)
    assert_says(error_of(source, streaming, languages=["de", "xx"]), "corpus", "'xx'", "de, en")
    assert_says(error_of(source, streaming, languages=["de", "en-US"]), "'en-US'", "Did you mean 'en'?")
    assert_says(error_of(source, streaming, pivot_languages=["fr"]), "'fr'", "de, en")
    assert_says(error_of(source, streaming, languages=["de"]), "at least two languages")
    assert_says(error_of(source, streaming, languages="de"), "languages", "a list")


def test_names_that_are_no_codes(streaming, write):
    rows = [{"german": "a", "english": "b"}]
    for kind in ("parquet", "jsonl", "tsv"):
        message = error_of(write(kind, rows), streaming)
        assert_says(message, "corpus", "'english'", "language code")
    assert list(load_parallel(write("tsv", rows), languages=["german", "english"]))
    assert_says(error_of(write("tsv", [{"src": "a", "tgt": "b"}]), streaming), "'src'", "language code")


def test_moses_lengths(streaming, write, tmp_path):
    source = write("moses", ROWS)
    Path(source["en"]).write_text("one\ntwo\n")
    message = error_of(source, streaming)
    assert_says(message, f"{source['de']}: 5 lines", f"{source['en']}: 2 lines")
    seen = []
    with pytest.raises(CorpusError):
        seen.extend(load_parallel(source, streaming=streaming))
    assert seen == []


def test_undecodable_bytes(streaming, write, tmp_path):
    moses = write("moses", ROWS)
    Path(moses["en"]).write_bytes(b"a\nb\ncaf\xe9 ole\nd\ne\n")
    assert_says(error_of(moses, streaming), moses["en"], "row 3", "'en'", r"b'\xe9'", "UTF-8", "iconv")
    (tmp_path / "x.tsv").write_bytes(b"de\ten\na\tb\nc\tcaf\xe9\n")
    assert_says(error_of(tmp_path / "x.tsv", streaming), "x.tsv", "row 3", r"b'\xe9'")
    (tmp_path / "x.jsonl").write_bytes(b'{"de": "a", "en": "b"}\n{"de": "a", "en": "caf\xe9"}\n')
    assert_says(error_of(tmp_path / "x.jsonl", streaming), "x.jsonl", "row 2", r"b'\xe9'")
    bad = pa.array([b"a", b"caf\xe9", None]).view(pa.string())
    pq.write_table(pa.table({"de": pa.array(["a", "b", "c"]), "en": bad}), tmp_path / "x.parquet")
    assert_says(error_of(tmp_path / "x.parquet", streaming), "x.parquet", "row 2", "'en'", r"b'\xe9'")


def test_tsv_fields(streaming, tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("de\ten\na\tb\nc\n")
    assert_says(error_of(path, streaming), "x.tsv", "row 3", "1 field", "2 (de, en)")
    path.write_text('de\ten\n"a\tb\tc"\td\n')
    assert_says(error_of(path, streaming), "x.tsv", "row 2", "4 field", "2 (de, en)")
    for text in ("", "de\n", "de\tde\n"):
        path.write_text(text)
        assert_says(error_of(path, streaming), "x.tsv", "row 1", "header")


def test_wrong_types(streaming, tmp_path):
    lines = [{"translation": {"de": "a", "en": "b"}}, {"translation": {"de": "a", "en": 7}}]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert_says(error_of(path, streaming), "x.jsonl", "row 2", "'translation.en'", "found 7", "a text or null")
    path.write_text('{"translation": {"de": "a", "en": "b"}}\n{"translation": "text"}\n')
    assert_says(error_of(path, streaming), "x.jsonl", "row 2", "'translation'", "'text'")
    path.write_text('{"translation": {"de": "a", "en": "b"}}\n\n{"de": "text"}\n')
    assert_says(error_of(path, streaming), "x.jsonl", "row 3", "'translation'")
    path.write_text('{"de": "a", "en": "b"}\n{"de": "a", "en": ["b"]}\n')
    assert_says(error_of(path, streaming), "x.jsonl", "row 2", "'en'", "['b']")
    path.write_text('{"de": "a", "en": "b"}\n{"de": "a", "en": "\\ud800"}\n')
    assert_says(error_of(path, streaming), "x.jsonl", "row 2", "'en'", "surrogate")
    table = pa.table({"translation": pa.array([{"de": "a", "en": None}, {"de": "a", "en": 7}])})
    pq.write_table(table, tmp_path / "x.parquet")
    message = error_of(tmp_path / "x.parquet", streaming)
    assert_says(message, "x.parquet", "row 2", "'translation.en'", "found 7", "int64")
    pq.write_table(pa.table({"translation": ["a", "b"]}), tmp_path / "y.parquet")
    assert_says(error_of(tmp_path / "y.parquet", streaming), "y.parquet", "'translation'", "string", "struct")


def test_invalid_json(streaming, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"de": "a", "en": "b"}\n{"de": "a", \n')
    assert_says(error_of(path, streaming), "x.jsonl", "row 2", "invalid JSON", "Correct")
    path.write_text("[1, 2]\n")
    assert_says(error_of(path, streaming), "x.jsonl", "row 1", "[1, 2]", "a JSON object")
    path.write_text("")
    assert_says(error_of(path, streaming), "x.jsonl", "no rows")


def test_missing_column_and_damaged_files(streaming, tmp_path):
    pq.write_table(pa.table({"text": ["a"], "label": [1]}), tmp_path / "x.parquet")
    assert_says(error_of(tmp_path / "x.parquet", streaming), "x.parquet", "'translation'", "['text', 'label']")
    (tmp_path / "y.parquet").write_bytes(b"nothing of the kind")
    assert_says(error_of(tmp_path / "y.parquet", streaming), "y.parquet", "not parquet")
    data = gzip.compress(("de\ten\n" + "".join(f"a{i}\tb{i}\n" for i in range(9999))).encode())
    (tmp_path / "z.tsv.gz").write_bytes(data[: len(data) // 2])
    assert_says(error_of(tmp_path / "z.tsv.gz", streaming), "z.tsv.gz", "damaged gzip")


def test_options(streaming, write):
    source = write("tsv", ROWS)
    assert_says(error_of(source, streaming, bad_rows="skip"), "bad_rows", "'skip'", "report")
    assert_says(error_of(source, streaming, temperature=0), "temperature", "above 0")
    assert_says(error_of(source, streaming, max_rows=0), "max_rows", "above 0")
    assert_says(error_of(source, streaming, split="train[:9]"), "split", "max_rows")
    assert_says(error_of(source, streaming, config="de-en"), "config", "'de-en'", "README.md")


BAD_ROWS = [
    {"de": "a", "en": "b", "fr": "c"},
    {"de": "a", "en": " \u00a0", "fr": "c"},  # one empty text, two are left
    {"de": "", "en": "b", "fr": None},  # one empty text, dropped
    {"de": "a", "en": None, "fr": None},  # dropped
    {"de": None, "en": "b", "fr": "c"},  # not bad
    {"de": None, "en": "", "fr": ""},  # two empty texts, dropped
]


@pytest.mark.parametrize("kind", ["parquet", "parquet-flat", "jsonl", "jsonl-flat"])
def test_report_counts(kind, streaming, write, caplog):
    source, report = write(kind, BAD_ROWS), CorpusReport()
    with caplog.at_level(logging.WARNING, logger="modeling_tmde"):
        dataset = load_parallel(source, streaming=streaming, report=report)
        rows = [row["translation"] for row in dataset]
        rows = [row["translation"] for row in dataset]  # a second epoch counts once
    assert rows == [BAD_ROWS[0], {"de": "a", "en": None, "fr": "c"}, BAD_ROWS[4]]
    assert (report.rows, report.kept, report.dropped_rows, report.empty_texts) == (6, 3, 3, 4)
    assert report.other_rows == 0
    assert_says(report.first_examples[0], "corpus", "row 2", "translation.en")
    assert_says(report.first_examples[2], "row 4", "1 language(s) ['de']")
    assert len([record for record in caplog.records if "3 bad rows dropped" in record.getMessage()]) == 1


def test_report_comes_from_the_cache_too(write):
    source = write("parquet", BAD_ROWS)
    first, second = CorpusReport(), CorpusReport()
    load_parallel(source, report=first)
    load_parallel(source, report=second)
    assert first == second and second.empty_texts == 4 and second.first_examples


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_bad_rows_raise(kind, streaming, write):
    message = error_of(write(kind, BAD_ROWS), streaming, bad_rows="raise")
    assert_says(message, "corpus", "row 2", "'translation.en'", r"' \xa0'", "not empty", 'bad_rows="report"')
    message = error_of(write(kind, [BAD_ROWS[0], BAD_ROWS[3]]), streaming, bad_rows="raise")
    assert_says(message, "row 2", "'translation'", "1 language(s) ['de']", "at least two languages")


def test_bad_rows_of_text_files(streaming, write):
    rows = [{"de": "a", "en": "b"}, {"de": "c", "en": "  "}, {"de": "e", "en": "f"}]
    assert_says(error_of(write("tsv", rows), streaming, bad_rows="raise"), "corpus.tsv", "row 3", "translation.en")
    assert_says(error_of(write("moses", rows), streaming, bad_rows="raise"), "corpus.en", "row 2", "translation.en")
    assert len(list(load_parallel(write("moses", rows), streaming=streaming))) == 2


def test_nothing_left(write):
    source = write("tsv", [{"de": "", "en": "b"}])
    assert_says(error_of(source, False), "corpus.tsv", "no row to keep", "1 bad rows dropped")
