"""CSV and TSV: separators, quotes, line ends, and what is wrong with a row."""

import csv
import gzip

import pandas as pd
import pytest

from tmde.data import delimited, lines
from tmde.data.checks import CorpusError
from tmde.data.delimited import header_of
from tmde.data.tables import Table


def rows_of(path, kind="csv", **options):
    return list(Table(kind, (str(path),), **options).rows())


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        *((f"id{mark}text\n7{mark}Guten Tag\n", [(2, "7", "Guten Tag")]) for mark in ",;\t"),
        *((f"sep=\nid{mark}text\n7{mark}Haus\n", [(3, "7", "Haus")]) for mark in ",;\t"),
        *((f"id{mark}text\r7{mark}A\r8{mark}B\r", [(2, "7", "A"), (3, "8", "B")]) for mark in ",;"),
        ("sep=\n", []),
        ("", []),
        # As Excel writes it in Germany.
        (
            '\ufeffsep=;\r\nid;text\r\n1;"Hallo; sagt ""er"""\r\n2;zwei, drei\r\n',
            [(3, "1", 'Hallo; sagt "er"'), (4, "2", "zwei, drei")],
        ),
        ('id,text\r\n7,"Haus\rHof"\r\n', [(2, "7", "Haus\rHof")]),
        ('id,text\n1,"eins\n\nzwei"\n\n2,drei\n', [(2, "1", "eins\n\nzwei"), (6, "2", "drei")]),
        # The index that pandas writes.
        (",id,text\n0,7,Haus\n", [(2, "7", "Haus")]),
        ("id,text\n7," + "x" * 200_000, [(2, "7", "x" * 200_000)]),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_rows_of_csv(content, rows, suffix, tmp_path):
    path = tmp_path / f"in.csv{suffix}"
    data = content.encode()
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert [(number, *row.values()) for number, row in rows_of(path)] == rows
    assert header_of(str(path), "csv", "in") == (["id", "text"] if rows else [])


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('"de\n(source)";"en"\nJa, ja;yes\n', {"de\n(source)": "Ja, ja", "en": "yes"}),
        ("de;note, short, long\nJa;no\n", {"de": "Ja", "note, short, long": "no"}),
        ("\nde;en\n\nJa, ja, ja;yes\n", {"de": "Ja, ja, ja", "en": "yes"}),
    ],
)
def test_the_separator_fits_the_first_two_records(content, row, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(content)
    assert [row for _, row in rows_of(path)] == [row]


# ---- Quotes of TSV

PANDAS_TEXTS = ['say "yes", please', "one\ntwo\tthree", "a,b;c", "x" * 200_000, "é\u2028e"]


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("a.tsv.gz", "\t")]
)
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_what_pandas_writes(name, separator, quoting, tmp_path):
    path = tmp_path / name
    frame = pd.DataFrame({"text": PANDAS_TEXTS, "label": [1, 2, 3, 4, 5]})
    frame.to_csv(path, sep=separator, index=False, quoting=quoting)
    rows = rows_of(path, name[2:5])
    assert [row["text"] for _, row in rows] == PANDAS_TEXTS
    assert [number for number, _ in rows] == [2, 3, 5, 6, 7]


@pytest.mark.parametrize(
    "content",
    [
        'id\ttext\n1\t"Hallo\n2\tsagt "sie"\n',
        'id\ttext\n1\t"Hallo\n2\tdu"\n3\t"Ja" sagt er\n',
        'id\ttext\n1\t"Hallo" sagt sie\n2\t"Nein"\n',
        'id\ttext\n1\ta\n2\t"Anfang ohne Ende\n',
        'id\ttext\n"1\ta\n2\tb\n3"\tc\n',
        '"id\ttext\n1"\ta\n',
        'id\ttext\n1\t5" breit\n',
        'id\ttext\n1\t""\n2\t"Ja."\n',
    ],
)
def test_stray_quotes_of_tsv_are_plain_characters(content, tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text(content)
    lines = content.splitlines()
    rows = rows_of(path, "tsv")
    assert [list(row) for _, row in rows] == [lines[0].split("\t")] * (len(lines) - 1)
    assert [list(row.values()) for _, row in rows] == [line.split("\t") for line in lines[1:]]


def test_the_quotes_of_a_tsv_file_are_decided_where_they_begin(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("text\tlabel\n" + "a\tx\n" * 3 + '"b\nc"\ty\n')
    assert rows_of(path, "tsv")[-1] == (5, {"text": "b\nc", "label": "y"})


def test_tsv_of_excel_quotes_fields_with_commas(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_bytes(b'id\ttext\r\n1\t"Hallo, Max"\r\n2\tHallo\r\n')
    assert [row["text"] for _, row in rows_of(path, "tsv")] == ["Hallo, Max", "Hallo"]


def test_a_quoted_header_of_tsv(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text('"id"\t"text"\n1\ta\n')
    assert header_of(str(path), "tsv", "in") == ["id", "text"]
    assert rows_of(path, "tsv") == [(2, {"id": "1", "text": "a"})]


def test_a_field_that_ends_after_the_deciding_part(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_DECIDING_CHARACTERS", 30)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 15)
    path = tmp_path / "in.tsv"
    path.write_text('id\ttext\n1\t"a\nb"\n2\t"' + "c\n" * 30 + '"\n3\td\n')
    texts = [row["text"] for _, row in rows_of(path, "tsv")]
    assert texts == ["a\nb", "c\n" * 30, "d"]


def test_a_stray_quote_after_the_deciding_part_is_an_error(tmp_path, monkeypatch):
    """Else it would be lost, or the rows up to the next one."""
    monkeypatch.setattr(delimited, "_DECIDING_CHARACTERS", 20)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", 15)
    path = tmp_path / "in.tsv"
    path.write_text('id\ttext\n1\t"a, b"\n2\t"bbbbbbb"\n3\t"Ja" sagt sie\n')
    with pytest.raises(CorpusError, match=r"row 4: found a broken quotation .*rows before it are"):
        rows_of(path, "tsv")


def test_rows_of_empty_fields_are_rows_and_blank_lines_are_none(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("id\ttext\n1\ta\n\t\n\n2\tb\n")
    assert [number for number, _ in rows_of(path, "tsv")] == [2, 3, 5]


# ---- Columns and errors


def test_names_of_columns_from_outside(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("1\tHaus\n")
    assert rows_of(path, "tsv", header=("id", "text")) == [(1, {"id": "1", "text": "Haus"})]


@pytest.mark.parametrize(
    ("kind", "content", "parts"),
    [
        ("csv", b"id,text\n1,a\n2\n", ("row 3", "1 field", "2 (id, text)")),
        ("csv", b"id,text\n1,a,b\n", ("row 2", "3 field", "2 (id, text)")),
        ("csv", b'id,text\n1,"a"b\n', ("row 2", "broken quotation")),
        ("csv", b'id,text\n1,a\n2,"b\n', ("row 3", "broken quotation")),
        ("csv", b'sep="\nid,text\n', ("row 1", "'sep=\"'", "sep=;")),
        ("csv", b"text,text\n1,a\n", ("row 1", "header", "different names")),
        ("csv", b"id,text\n1,caf\xe9\n", ("row 2", r"b'\xe9'", "iconv")),
        ("tsv", b'id\ttext\n1\t"a\nb\n', ("row 3", "1 field", "--quoting minimal")),
    ],
)
def test_a_bad_row_is_named(kind, content, parts, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        rows_of(path, kind, name="news")
    message = str(error.value)
    assert message.startswith("news, row ")
    for part in parts:
        assert part in message
