"""CSV and TSV: separators, quotes, line ends, and what is wrong with a row."""

import gzip

import pytest

from tmde.data.checks import CorpusError
from tmde.data.tables import header_of, open_table


def rows_of(path, kind="csv", **options):
    return list(open_table(str(path), kind, **options))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_of_csv_is_found(separator, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(f"id{separator}text\n7{separator}Guten Tag\n")
    assert rows_of(path) == [(2, {"id": "7", "text": "Guten Tag"})]


def test_a_file_as_excel_writes_it_in_germany(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes('\ufeffid;text\r\n1;"Hallo; sagt ""er"""\r\n2;zwei, drei\r\n'.encode())
    assert rows_of(path) == [
        (2, {"id": "1", "text": 'Hallo; sagt "er"'}),
        (3, {"id": "2", "text": "zwei, drei"}),
    ]


def test_a_quoted_field_may_have_lines_and_rows_are_numbered_by_their_first(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('id,text\n1,"eins\n\nzwei"\n\n2,drei\n')
    assert rows_of(path) == [
        (2, {"id": "1", "text": "eins\n\nzwei"}),
        (6, {"id": "2", "text": "drei"}),
    ]


def test_a_text_may_be_longer_than_the_limit_of_the_csv_module(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("text\n" + "x" * 200_000 + "\n")
    assert len(rows_of(path)[0][1]["text"]) == 200_000


def test_a_column_without_a_name_is_left_out(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(",text\n0,Haus\n")
    assert header_of(str(path), "csv") == ["text"]
    assert rows_of(path) == [(2, {"text": "Haus"})]


def test_a_gzipped_table(tmp_path):
    path = tmp_path / "in.csv.gz"
    path.write_bytes(gzip.compress(b"text\nHaus\n"))
    assert rows_of(path) == [(2, {"text": "Haus"})]


def test_an_empty_file_has_no_columns_and_no_rows(tmp_path):
    path = tmp_path / "in.csv"
    path.touch()
    assert header_of(str(path), "csv") == []
    assert rows_of(path) == []


def test_quotes_of_tsv_are_plain_characters(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text('id\ttext\n1\t"Hallo\n2\tsagt "sie"\n')
    assert rows_of(path, "tsv") == [
        (2, {"id": "1", "text": '"Hallo'}),
        (3, {"id": "2", "text": 'sagt "sie"'}),
    ]


def test_names_of_columns_from_outside(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("1\tHaus\n")
    assert rows_of(path, "tsv", names=("id", "text")) == [(1, {"id": "1", "text": "Haus"})]


@pytest.mark.parametrize(
    ("kind", "content", "parts"),
    [
        ("csv", b"id,text\n1,a\n2\n", ("row 3", "1 field", "2 (id, text)")),
        ("csv", b"id,text\n1,a,b\n", ("row 2", "3 field", "2 (id, text)")),
        ("csv", b'id,text\n1,"a"b\n', ("row 2", "broken quotation")),
        ("csv", b'id,text\n1,a\n2,"b\n', ("row 3", "broken quotation")),
        ("csv", b"text,text\n1,a\n", ("row 1", "header", "different names")),
        ("csv", b"id,text\n1,caf\xe9\n", ("row 2", r"b'\xe9'", "iconv")),
        ("tsv", b'id\ttext\n1\t"a\nb"\n', ("row 3", "1 field", "--format csv")),
    ],
)
def test_a_bad_row_is_named(kind, content, parts, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        rows_of(path, kind, place="news")
    message = str(error.value)
    assert message.startswith("news, row ")
    for part in parts:
        assert part in message
