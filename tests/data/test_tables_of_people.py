"""Parallel text as people have it: CSV of spreadsheets, gzipped files, and columns of any name."""

import gzip
import logging
from pathlib import Path

import pytest

from tests.data.plain_rows import translations
from tmde.data import CorpusError, CorpusReport, load_parallel

ROWS = [{"de": "Das Haus", "en": "The house"}, {"de": "Er sagte: ja", "en": "He said: yes"}]


def write_bytes(folder: Path, name: str, content: bytes) -> str:
    """Write a file, gzipped if its name says so, and return its path."""
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(path)


@pytest.fixture(params=[False, True], ids=["map", "stream"])
def streaming(request: pytest.FixtureRequest) -> bool:
    """Both ways to load."""
    return request.param


def error_of(source: object, **options: object) -> str:
    """Return the message of the error that loading raises."""
    with pytest.raises(CorpusError) as caught:
        list(load_parallel(source, **options))
    return str(caught.value)


# ---- Formats


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'de,en\na,b\n"c" d,e\n', ("a.csv, row 3", "quot", "Correct the quotes")),
        (b"Das Haus.,The house.\nDer Hund.,The dog.\n", ("first row must name the columns",)),
    ],
)
def test_bad_csv(content, parts, streaming, tmp_path):
    message = error_of(write_bytes(tmp_path, "a.csv", content), streaming=streaming)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("content", [b'[{"de": "a", "en": "b"}]', b'[\n{"de": "a", "en": "b"}\n]'])
def test_an_array_of_json_is_told_how_to_become_lines(content, tmp_path):
    message = error_of(write_bytes(tmp_path, "a.json", content))
    for part in ("a.json, row 1: found an array, expected a JSON object", "jq -c '.[]'"):
        assert part in message


def test_json_in_a_folder_is_no_corpus(tmp_path):
    write_bytes(tmp_path, "settings.json", b'{"seed": 1}\n')
    write_bytes(tmp_path, "a.ndjson", b'{"de": "Haus", "en": "house"}\n')
    assert translations(load_parallel(tmp_path)) == [{"de": "Haus", "en": "house"}]


@pytest.mark.parametrize("suffix", ["gz", "txt", "txt.gz"])
def test_suffixes_of_moses_files(suffix, tmp_path):
    write_bytes(tmp_path, f"corpus.de.{suffix}", b"Das Haus\nEr sagte: ja\n")
    write_bytes(tmp_path, f"corpus.en.{suffix}", b"The house\nHe said: yes\n")
    assert translations(load_parallel(str(tmp_path / "corpus"))) == ROWS


def test_a_folder_of_many_formats(tmp_path):
    write_bytes(tmp_path, "a.csv", b"de,en\n1,2\n")
    write_bytes(tmp_path, "b.tsv.gz", b"de\ten\n3\t4\n")
    write_bytes(tmp_path, "c.jsonl.gz", b'{"de": "5", "en": "6"}\n')
    texts = [row["de"] for row in translations(load_parallel(tmp_path))]
    assert texts == ["1", "3", "5"]


# ---- Columns


def test_columns_of_any_name(streaming, tmp_path):
    content = b"Doc,Source,Target,id\nx,Das Haus,The house,eins zwei\n"
    source = write_bytes(tmp_path, "a.csv", content)
    columns = {"de": "Source", "en": "Target", "doc_id": "Doc"}
    rows = load_parallel(source, columns=columns, document_ids=True, streaming=streaming)
    expected = {"translation": {"de": "Das Haus", "en": "The house"}, "doc_id": "x"}
    assert list(rows) == [expected]


@pytest.mark.parametrize("kind", ["parquet", "parquet-flat", "jsonl", "jsonl-flat", "tsv", "moses"])
def test_columns_of_every_format(kind, streaming, write):
    source = write(kind, [{"src": "Haus", "trg": "house"}])
    if kind == "moses":
        assert set(source) == {"src", "trg"}
    rows = load_parallel(source, columns={"de": "src", "en": "trg"}, streaming=streaming)
    assert translations(rows) == [{"de": "Haus", "en": "house"}]


def test_two_columns_that_change_their_names(tmp_path):
    source = write_bytes(tmp_path, "a.tsv", b"de\ten\nhouse\tHaus\n")
    rows = load_parallel(source, columns={"de": "en", "en": "de"})
    assert translations(rows) == [{"de": "Haus", "en": "house"}]


def test_a_source_with_names_of_its_own(tmp_path):
    """Held-out rows may have other columns than the training rows of one run."""
    source = write_bytes(tmp_path, "a.tsv", b"de\ten\nHaus\thouse\n")
    rows = load_parallel(source, columns={"de": "Source", "en": "Target"})
    assert translations(rows) == [{"de": "Haus", "en": "house"}]


@pytest.mark.parametrize(
    ("columns", "languages", "parts"),
    [
        (None, None, ("Source, Target", "--columns de=Source,en=Target")),
        (None, ["fr", "it"], ("Source, Target", "--columns fr=Source,it=Target")),
        ({"de": "Sorce", "en": "Targt"}, None, ("'Sorce', 'Targt'", "nr, Source, Target")),
        ({"Source": "de"}, None, ("Source=de", "NAME=COLUMN", "de=Source")),
        ({"de": "Source", "en": "Source"}, None, ("'Source'", "different columns")),
    ],
)
def test_errors_of_columns(columns, languages, parts, tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"nr,Source,Target\n1,Haus,house\n")
    message = error_of(source, columns=columns, languages=languages)
    for part in parts:
        assert part in message


def test_texts_of_one_language_are_no_parallel_text(tmp_path):
    source = write_bytes(tmp_path, "german.csv", b"id,text\n1,Haus\n")
    assert "paired with those of another by `tmde align` or `tmde mine`" in error_of(source)


def test_a_folder_without_tables_is_called_one(tmp_path):
    write_bytes(tmp_path, "notes.md", b"Haus\n")
    assert "found a folder without such files, expected" in error_of(tmp_path)


def test_the_column_that_has_no_name_is_proposed(tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"nr,de,English\n1,Haus,house\n")
    assert "--columns en=English" in error_of(source, languages=["de", "en"])


# ---- Locales


def test_rows_of_jsonl_have_locales_of_their_own(streaming, tmp_path):
    content = b'{"de": "a", "en-US": "b"}\n{"de-AT": "c", "en_GB": "d"}\n'
    source = write_bytes(tmp_path, "a.jsonl", content)
    rows = load_parallel(source, ["de", "en"], streaming=streaming)
    assert translations(rows) == [{"de": "a", "en": "b"}, {"de": "c", "en": "d"}]


def test_a_locale_that_is_asked_for(tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"de,pt-BR\nHaus,casa\n")
    assert translations(load_parallel(source, ["de-DE", "pt_br"])) == [
        {"de-DE": "Haus", "pt_br": "casa"}
    ]


def test_exact_names_go_first(tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"en-US,de,en\ncolor,Farbe,colour\n")
    rows = load_parallel(source, ["de", "en"])
    assert translations(rows) == [{"de": "Farbe", "en": "colour"}]


def test_two_locales_of_a_language(streaming, tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"de,en-US,en-GB\nFarbe,color,colour\n")
    message = error_of(source, languages=["de", "en"], streaming=streaming)
    for part in ("a.csv", "'en'", "en-US, en-GB", "--columns en=en-US"):
        assert part in message
    rows = load_parallel(source, ["de", "en"], columns={"en": "en-GB"}, streaming=streaming)
    assert translations(rows) == [{"de": "Farbe", "en": "colour"}]


def test_another_region_is_another_language(tmp_path):
    source = write_bytes(tmp_path, "a.csv", b"de,en-GB\nFarbe,colour\n")
    assert "'en-US'" in error_of(source, languages=["de", "en-US"])


# ---- Empty cells


EMPTY_CELLS = b"de,en,fr\na,b,\nc,,d\n,,e\nf,g,h\n"


@pytest.mark.parametrize("bad_rows", ["report", "raise"])
def test_empty_cells_are_missing_languages(bad_rows, tmp_path, caplog):
    source = write_bytes(tmp_path, "a.csv", EMPTY_CELLS.replace(b",,e\n", b""))
    with caplog.at_level(logging.WARNING, logger="tmde.data"):
        rows = load_parallel(source, bad_rows=bad_rows)
    assert translations(rows)[:2] == [
        {"de": "a", "en": "b", "fr": None},
        {"de": "c", "en": None, "fr": "d"},
    ]
    assert not caplog.records


def test_bad_rows_are_told_in_one_line(tmp_path, caplog):
    source = write_bytes(tmp_path, "a.csv", EMPTY_CELLS)
    report = CorpusReport()
    with caplog.at_level(logging.WARNING, logger="tmde.data"):
        load_parallel(source, report=report)
    assert report.kept == 3
    assert report.empty_texts == 0
    assert report.reasons == {"with an empty text": 1}
    (message,) = caplog.messages
    assert message == (
        f"{source}: 4 rows read, 3 kept, 1 bad row dropped (1 with an empty text). "
        "First: row 4, field 'de': found '', expected a text"
    )


def test_a_stream_tells_of_bad_rows_once(tmp_path, caplog):
    content = b"de,en\n" + b"a,b\n,c\n" * 2000
    source = write_bytes(tmp_path, "a.csv", content)
    report = CorpusReport()
    with caplog.at_level(logging.WARNING, logger="tmde.data"):
        list(load_parallel(source, streaming=True, report=report))
    assert report.dropped_rows == 2000
    assert len(caplog.messages) == 1
