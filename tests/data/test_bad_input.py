"""Each bad input gets one error that names file, row, field, found, expected and what to do."""

import gzip
import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.plain_rows import pair_rows, translations
from tmde.data import CorpusError, CorpusReport, load_parallel

ROWS = pair_rows("de", "en", 5)


def error_of(source: object, streaming: bool, **options: object) -> str:
    """Return the message of the error that loading and reading `source` raises."""
    with pytest.raises(CorpusError) as caught:
        list(load_parallel(source, streaming=streaming, **options))
    return str(caught.value)


def assert_says(message: str, *parts: str) -> None:
    """Assert that the message holds all the parts."""
    for part in parts:
        assert part in message


@pytest.fixture(params=[False, True], ids=["map", "stream"])
def streaming(request: pytest.FixtureRequest) -> bool:
    """Both ways to load."""
    return request.param


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("no.parquet", ("no.parquet: found no such file", "expected files ending in .parquet")),
        ("*.tsv", ("*.tsv: found", "no file that matches")),
        ("", ("expected files ending in .parquet",)),
        ("one", ("two or more Moses files",)),
        ("one.de", ("one.de: found a file of unknown format",)),
    ],
)
def test_missing_files(source, parts, streaming, tmp_path):
    (tmp_path / "one.de").write_text("a\n")
    assert_says(error_of(str(tmp_path / source), streaming), str(tmp_path), *parts)


def test_unknown_hub_id(streaming, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="nobody/no-such-corpus.*Hub"):
        load_parallel("nobody/no-such-corpus", streaming=streaming)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"languages": ["de", "sv"]}, ("corpus", "'sv'", "de, en")),
        ({"languages": ["de", "enx"]}, ("'enx'", "Did you mean 'en'?")),
        ({"languages": ["de", "sv", "fi"]}, ("'fi', 'sv'", "de, en")),
        ({"pivot_languages": ["fr"]}, ("'fr'", "de, en")),
        ({"languages": ["de"]}, ("at least two languages",)),
        ({"languages": "de"}, ("languages", "a list")),
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv", "moses"])
def test_bad_languages(kind, options, parts, streaming, write):
    assert_says(error_of(write(kind, ROWS), streaming, **options), *parts)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv"])
def test_names_that_are_no_codes(kind, streaming, write):
    rows = [{"german": "a", "english": "b"}]
    assert_says(error_of(write(kind, rows), streaming), "corpus", "english", "named by its code")
    assert list(
        load_parallel(write(kind, rows), languages=["german", "english"], streaming=streaming)
    )


def test_a_moses_file_that_is_missing(streaming, write):
    source = write("moses", ROWS)
    missing = source["de"].replace(".de", ".fr")
    with pytest.raises(FileNotFoundError, match="corpus.fr"):
        load_parallel(source | {"fr": missing}, streaming=streaming)


@pytest.mark.parametrize(
    "source",
    [
        [{"de": "Das Haus.", "en": "The house."}],
        [{"translation": {"de": "Das Haus.", "en": "The house."}}],
        {"de": ["Das Haus."], "en": ["The house."]},
        [("Das Haus.", "The house.")],
    ],
)
def test_rows_in_memory(source, streaming):
    """A row is not taken for Moses files by language."""
    parts = ("found", "Das Haus.", "Dataset.from_list(rows)", "Dataset.from_dict(columns)")
    assert_says(error_of(source, streaming), *parts)


def test_a_data_frame(streaming):
    """Its column names are not taken for files."""
    frame = pd.DataFrame({"de": ["Das Haus."], "en": ["The house."]})
    assert_says(error_of(frame, streaming), "a DataFrame", "Dataset.from_pandas(frame)")


def test_moses_files_of_different_lengths(streaming, write):
    """The error comes before any row is read."""
    source = write("moses", ROWS)
    Path(source["en"]).write_text("one\ntwo\n")
    with pytest.raises(CorpusError, match="corpus.de': 5, .*corpus.en': 2"):
        load_parallel(source, streaming=streaming)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("x.tsv", b"de\ten\na\tb\nc\tcaf\xe9\n", ("row 3", r"b'\xe9'", "UTF-8", "iconv")),
        ("x.tsv", b"de\nHaus\n", ("at least two languages",)),
        (
            "x.jsonl",
            b'{"de": "a", "en": "b"}\n{"de": "a", "en": "caf\xe9"}\n',
            ("row 2", r"b'\xe9'"),
        ),
        ("x.jsonl", b"[1, 2]\n", ("row 1", "[1, 2]", "a JSON object")),
        ("x.jsonl", b"", ("no rows",)),
        ("x.parquet", b"nothing of the kind", ("not parquet",)),
        (
            "x.tsv.gz",
            gzip.compress(b"de\ten\n" + b"a\tb\n" * 9999, mtime=0)[:40],
            ("damaged file",),
        ),
    ],
)
def test_bad_files(name, content, parts, streaming, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert_says(error_of(tmp_path / name, streaming), name, *parts)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("x.jsonl", '{"de": "a", "en": "b"}\n{"de": "a", \n', ("invalid JSON", "Correct")),
        (
            "x.jsonl",
            '{"translation": {"de": "a", "en": "b"}}\n{"translation": "a"}\n',
            ("'a'", "an object of texts"),
        ),
        ("x.jsonl", '{"de": "a", "en": "b"}\n{"de": "a", "en": ["b"]}\n', ("'en'", "['b']")),
        (
            "x.jsonl",
            '{"de": "a", "en": "b"}\n{"de": "a", "en": "\\ud800"}\n',
            ("'en'", "found '\\ud800'"),
        ),
        ("x.tsv", "de\ten\na\tb\na\tb\tc\n", ("row 3", "3 field(s)", "2 (de, en)")),
        ("x.csv", 'de,en\na,b\n"a"\n', ("row 3", "1 field(s)", "2 (de, en)")),
        (
            "x.tmx",
            "<tmx><body><tu><tuv lang='de'><seg>a</seg></tuv><tuv lang='en'><seg>b</seg></tuv></tu>"
            "<tu><tuv lang='de'><seg>a & b</seg></tuv></tu></body></tmx>",
            ("invalid XML",),
        ),
    ],
)
def test_a_bad_row_is_reported_and_left_out_or_stops(name, content, parts, streaming, tmp_path):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    report = CorpusReport()
    rows = load_parallel(path, streaming=streaming, report=report)
    assert translations(rows) == [{"de": "a", "en": "b"}]
    assert report.reasons == {"that cannot be read": 1}
    row = "row 3" if name.endswith(("csv", "tsv")) else "row 2"
    assert_says(report.first_examples[0], name, row, *parts)
    assert_says(error_of(path, streaming, bad_rows="raise"), name, row, *parts)


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (
            {"translation": ["a", "b"]},
            ("row 1", "'translation'", "found 'a'", "an object of texts"),
        ),
        ({"text": ["a"], "label": [1]}, ("'translation'", "text, label")),
    ],
)
def test_bad_columns(table, parts, streaming, tmp_path):
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    assert_says(error_of(tmp_path / "x.parquet", streaming), "x.parquet", *parts)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"bad_rows": "skip"}, ("bad_rows", "'skip'", "report")),
        ({"split": "train[:9]"}, ("train[:9]", "README.md")),
        ({"config": "de-en"}, ("config", "'de-en'", "README.md")),
    ],
)
def test_options(options, parts, streaming, write):
    assert_says(error_of(write("tsv", ROWS), streaming, **options), *parts)


BAD_ROWS = [
    {"de": "a", "en": "b", "fr": "c"},
    {"de": "a", "en": " \u00a0", "fr": "c"},  # It has one empty text, and two are left.
    {"de": "", "en": "b", "fr": None},  # It has one empty text, and is dropped.
    {"de": "a", "en": None, "fr": None},  # It is dropped.
    {"de": None, "en": "b", "fr": "c"},  # It is not bad.
    {"de": None, "en": "", "fr": ""},  # It has two empty texts, and is dropped.
]


KINDS_WITH_NULLS = ["parquet", "parquet-flat", "jsonl", "jsonl-flat"]


@pytest.mark.parametrize("kind", KINDS_WITH_NULLS)
def test_bad_rows_are_dropped(kind, streaming, write):
    rows = load_parallel(write(kind, BAD_ROWS), streaming=streaming)
    assert translations(rows) == [BAD_ROWS[0], {"de": "a", "en": None, "fr": "c"}, BAD_ROWS[4]]


@pytest.mark.parametrize("kind", KINDS_WITH_NULLS)
def test_report_counts(kind, streaming, write):
    report = CorpusReport()
    rows = load_parallel(write(kind, BAD_ROWS), streaming=streaming, report=report)
    for _ in range(2):  # A second epoch counts once.
        list(rows)
    assert report.rows == 6
    assert report.kept == 3
    assert report.dropped_rows == 3
    assert report.empty_texts == 4
    assert report.other_rows == 0
    assert_says(report.first_examples[0], "corpus", "row 2", "'en'")
    assert_says(report.first_examples[2], "row 4", "1 language(s) ['de']")


@pytest.mark.parametrize("kind", KINDS_WITH_NULLS)
def test_bad_rows_are_logged_once(kind, streaming, write, caplog):
    with caplog.at_level(logging.WARNING, logger="tmde.data"):
        rows = load_parallel(write(kind, BAD_ROWS), streaming=streaming)
        for _ in range(2):
            list(rows)
    assert caplog.text.count("3 bad rows dropped") == 1


@pytest.mark.parametrize("kind", KINDS_WITH_NULLS)
def test_the_cache_gives_the_same_report(kind, streaming, write):
    source = write(kind, BAD_ROWS)
    first = CorpusReport()
    second = CorpusReport()
    list(load_parallel(source, streaming=streaming, report=first))
    list(load_parallel(source, streaming=streaming, report=second))
    assert second == first


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_bad_rows_raise(kind, streaming, write):
    message = error_of(write(kind, BAD_ROWS), streaming, bad_rows="raise")
    assert_says(
        message, "corpus", "row 2", "'en'", r"' \xa0'", "expected a text", 'bad_rows="report"'
    )
    message = error_of(write(kind, [BAD_ROWS[0], BAD_ROWS[3]]), streaming, bad_rows="raise")
    assert_says(message, "row 2", "'translation'", "1 language(s) ['de']", "at least two languages")


def test_nothing_to_keep(write):
    source = write("jsonl", [{"de": "a", "en": " "}] * 3)
    with pytest.raises(CorpusError, match="no row to keep .3 rows read, 0 kept"):
        load_parallel(source)
