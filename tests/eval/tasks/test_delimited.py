"""CSV and TSV files as spreadsheets and pandas write them."""

import gzip

import pandas as pd
import pytest

from tmde.eval.tasks import TaskError
from tmde.eval.tasks.delimited import read_delimited


def read(path, content):
    path.write_bytes(content)
    return read_delimited(str(path))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_line_ends_and_byte_order_marks(separator, line_end, mark, tmp_path):
    lines = [separator.join(fields) for fields in (("text", "label"), ("a", "x"), ("é", "y"))]
    content = (mark + line_end.join(lines) + line_end).encode()
    rows = read(tmp_path / "a.csv", content)
    assert rows == [(2, {"text": "a", "label": "x"}), (3, {"text": "é", "label": "y"})]


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("a.tsv.gz", "\t")]
)
def test_what_pandas_writes(name, separator, tmp_path):
    texts = ['say "yes", please', "one\ntwo\tthree", "a,b;c", "x" * 200_000, "é\u2028e"]
    table = pd.DataFrame({"text": texts, "label": list("ababa")})
    table.to_csv(tmp_path / name, sep=separator, index=False)
    rows = read_delimited(str(tmp_path / name))
    assert [row["text"] for _, row in rows] == texts
    assert [number for number, _ in rows] == [2, 3, 4, 5, 6]


def test_quotes_of_a_tsv_file_that_are_plain_characters(tmp_path):
    content = b'text\tlabel\n"Yes" he said\tx\n"no end\ty\n5" wide\tx\n'
    rows = read(tmp_path / "a.tsv", content)
    assert [row["text"] for _, row in rows] == ['"Yes" he said', '"no end', '5" wide']


def test_empty_rows_and_columns_without_a_name(tmp_path):
    rows = read(tmp_path / "a.csv", b"text,label,,\na,x,,\n,,,\n\nb,y,,\n")
    assert rows == [(2, {"text": "a", "label": "x"}), (5, {"text": "b", "label": "y"})]


def test_gzip(tmp_path):
    rows = read(tmp_path / "a.csv.gz", gzip.compress(b"text,label\na,x\n"))
    assert rows == [(2, {"text": "a", "label": "x"})]


def test_an_empty_file(tmp_path):
    assert read(tmp_path / "a.csv", b"") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\na,x\nb,y,z\n", r"row 3: found 3 field\(s\), expected 2 \(text, label\)"),
        (b'text,label\na,x\n"b,y\nc,x\n', r"row 3: found wrong quotes .*expected quoted CSV"),
        (b"text,text\na,x\n", r"row 1, field 'header': found \['text', 'text'\]"),
        (b"text,label\n\xe9t\xe9,x\n", r"row 2: found the undecodable bytes .*UTF-8"),
    ],
)
def test_bad_files(content, message, tmp_path):
    with pytest.raises(TaskError, match=r"a\.csv, " + message):
        read(tmp_path / "a.csv", content)
