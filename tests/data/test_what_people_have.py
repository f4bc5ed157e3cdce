"""Files as people have them, in whole kinds: each is read right, or refused with a clear error."""

import csv
import io
import json
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.data.plain_rows import translations
from tmde.data import CorpusError, load_parallel, tables
from tmde.data.documents import Documents
from tmde.data.parts import languages_of
from tmde.data.tables import FILE, ROW, Table, values_of
from tmde.documents.corpus_writer import tsv_field, write_corpus
from tmde.eval.tasks.labeled_documents import LabeledDocuments
from tmde.eval.tasks.labeled_rows import open_labeled
from tmde.training.recipe import load_recipe
from tmde.training.run_data import choose_languages, load_data

FIRST = {"de": "Das Haus", "en": "The house"}


def documents_of(source, **options) -> list[str]:
    """Return the texts of the documents of a source."""
    with ExitStack() as stack:
        documents = Documents(stack, str(source), None, None, True, 100, **options)
        return [text for chunk in documents.chunks for text in chunk.texts]


# ---- One reader


def test_every_format_gives_batches_with_file_and_row(write, tmp_path):
    rows = [FIRST, {"de": "Der Hund", "en": "The dog"}]
    first_rows = {"parquet-flat": 1, "jsonl-flat": 1, "tsv": 2, "moses": 1}
    for kind, first_row in first_rows.items():
        (table,) = tables.find_tables(write(kind, rows, folder=tmp_path / kind))
        (batch,) = table.batches()
        assert values_of(batch, "de") == ["Das Haus", "Der Hund"]
        assert values_of(batch, ROW) == [first_row, first_row + 1]
        assert all(name.startswith(str(tmp_path)) for name in values_of(batch, FILE))


@pytest.mark.parametrize("view", ["parallel", "documents", "labeled"])
def test_folders_behind_links_are_walked_by_every_view(view, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "a.csv").write_text("text,label,de,en\na,b,c,d\n")
    (folder / "linked").symlink_to(other)
    if view == "parallel":
        assert len(load_parallel(str(folder))) == 1
    elif view == "documents":
        assert documents_of(folder) == ["a"]
    else:
        (table,) = open_labeled(LabeledDocuments(), str(folder))
        assert next(table.rows())[1]["text"] == "a"


# ---- TSV and CSV

TRICKY = ['"No, thanks, I am fine"', 'say "yes"', '"', '""', "a\tb", "one\ntwo", "a,b", "plain", ""]


@pytest.mark.parametrize("first", TRICKY)
@pytest.mark.parametrize("second", ["Nein, danke", '"Ja" sagt sie', "plain"])
def test_what_the_commands_write_as_tsv_is_read_as_it_was(first, second, tmp_path):
    target = tmp_path / "out.tsv"
    rows = [{"de": second, "en": first}, {"de": "Ende", "en": "end"}]
    write_corpus(target, ["de", "en"], False, [(row, None) for row in rows])
    assert [row for _, row in Table("tsv", (str(target),)).rows()] == rows
    frame = pd.read_csv(target, sep="\t", keep_default_na=False)
    assert frame.to_dict("records") == rows


def test_fields_are_quoted_as_pandas_does():
    for text in TRICKY[:-1]:
        written = pd.DataFrame({"a": [text], "b": [""]}).to_csv(sep="\t", index=False, header=False)
        assert f"{tsv_field(text)}\t\n" == written


def test_a_long_plain_tsv_file_keeps_its_quotes(tmp_path):
    """The first 4 MB look as if Excel had quoted them."""
    lines = ["de\ten", '"Nein, danke"\t"No, thanks, I am fine"']
    lines += ["Das ist ein Satz, der lang ist.\tThis is a sentence without end."] * 60_000
    lines += ['"Ja" sagt sie.\t"Yes" she says.']
    path = tmp_path / "in.tsv"
    path.write_text("\n".join(lines) + "\n")
    rows = list(Table("tsv", (str(path),)).rows())
    assert rows[0] == (2, {"de": '"Nein, danke"', "en": '"No, thanks, I am fine"'})
    assert rows[-1] == (60_003, {"de": '"Ja" sagt sie.', "en": '"Yes" she says.'})


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize(("quoting", "text"), [("minimal", "a"), ("none", '"a"')])
def test_the_user_says_what_the_quotes_are(kind, quoting, text, tmp_path):
    path = tmp_path / f"in.{kind}"
    path.write_text('id\ttext\n1\t"a"\n2\tb\n')
    assert documents_of(path, quoting=quoting) == [text, "b"]
    source = tmp_path / f"rows.{kind}"
    source.write_text('de\ten\n"a"\tb\n')
    assert translations(load_parallel(str(source), quoting=quoting)) == [{"de": text, "en": "b"}]


def test_every_view_is_told_what_the_quotes_are(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('text,label,de,en\n"Ja, x,"Ja,yes\n')
    with pytest.raises(CorpusError, match="--quoting none .tmde eval: --set labeled_documents.quo"):
        languages_of(path)
    assert languages_of(path, quoting="none") == ["de", "en"]
    (table,) = open_labeled(LabeledDocuments(), str(path), quoting="none")
    ((_, row),) = table.rows()
    assert row == {"text": '"Ja', "label": " x", "de": '"Ja', "en": "yes"}
    settings = {"data.train": str(path), "data.quoting": "none", "data.dev_rows": 0}
    recipe = choose_languages(load_recipe("bag", settings)).recipe
    assert load_data(recipe).train["translation"][0] == {"de": '"Ja', "en": "yes"}


def test_one_column_of_tsv_that_two_readings_fit_is_refused(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text('text\n"Ich gehe.\nUnd du?"\n')
    with pytest.raises(CorpusError, match="--quoting minimal if .* --quoting none"):
        documents_of(path)
    assert documents_of(path, quoting="minimal") == ["Ich gehe.\nUnd du?"]
    assert documents_of(path, quoting="none") == ['"Ich gehe.', 'Und du?"']


CELL = st.text(st.sampled_from("ab,;\t\n\r\"' é\u2028"), max_size=6)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cells=st.lists(CELL, min_size=1, max_size=6),
    separator=st.sampled_from(",;\t"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    columns=st.integers(1, 3),
    index=st.booleans(),
)
@example(cells=[" ", "\n "], separator=",", quoting=csv.QUOTE_MINIMAL, columns=1, index=True)
@example(cells=["", ","], separator=";", quoting=csv.QUOTE_MINIMAL, columns=1, index=False)
def test_as_many_rows_as_pandas(cells, separator, quoting, columns, index, tmp_path):
    frame = pd.DataFrame({"text": cells})
    for column in range(1, columns):
        frame[f"c{column}"] = cells[::-1]
    content = frame.to_csv(index=index, sep=separator, quoting=quoting)
    path = tmp_path / "in.csv"
    path.write_text(content, newline="")
    expected = pd.read_csv(io.StringIO(content), sep=separator, dtype=str, keep_default_na=False)
    try:
        texts = documents_of(path, bad_rows="raise")
    except CorpusError as error:
        # Python's csv writes some of these without quotes, and pandas takes them for line ends.
        # In a file of one column, no separator shows which one it has.
        has_other_separator = columns == 1 and not index and "field(s), expected 1" in str(error)
        assert "\r" in content or has_other_separator
        return
    assert len(texts) == len(expected)
    assert texts == [text.replace("\r\n", "\n") for text in expected["text"]]


def test_empty_cells_are_documents(tmp_path):
    path = tmp_path / "in.csv"
    pd.DataFrame({"text": ["a", "", "b"]}).to_csv(path, index=False)
    assert documents_of(path) == ["a", "", "b"]
    pd.DataFrame({"text": ["a", "", "b"]}).to_csv(path)
    assert documents_of(path) == ["a", "", "b"]


@pytest.mark.parametrize(("separator", "count"), [(",", 2), ("\t", 3)])
def test_lines_of_blanks_are_no_rows(separator, count, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(f"text{separator}n\na{separator}1\n \n\t\nb{separator}2\n")
    assert len(documents_of(path)) == count == len(pd.read_csv(path, sep=separator))


def test_blanks_before_a_quote(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text('id, text\n1, "b, c"\n2, d\n')
    assert documents_of(path) == ["b, c", "d"]
    path.write_text('id,text\n1,"he said, ""yes"""\n2, d\n')
    assert documents_of(path) == ['he said, "yes"', " d"]


def test_errors_of_a_row_that_is_far_down_name_it(tmp_path):
    path = tmp_path / "in.csv"
    rows = "".join(f"{number},text\n" for number in range(200_000))
    path.write_text(f"id,text\n{rows}7\n")
    with pytest.raises(CorpusError, match=r"row 200002: found 1 field"):
        documents_of(path, bad_rows="raise")
    path.write_bytes(f"id,text\n{rows}7,".encode() + b"caf\xe9\n")
    with pytest.raises(CorpusError, match=r"row 200002: found the undecodable bytes b'.xe9'"):
        documents_of(path)


# ---- Other files


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be", "utf-16"])
@pytest.mark.parametrize("suffix", ["txt", "csv", "tsv", "jsonl"])
def test_utf_16_is_told_with_or_without_a_mark(encoding, suffix, tmp_path):
    path = tmp_path / f"in.{suffix}"
    path.write_bytes("text\nGrüße\n".encode(encoding))
    with pytest.raises(CorpusError, match=f"iconv -f {encoding} "):
        documents_of(path)


def test_text_with_the_line_ends_of_old_macs(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"eins\rzwei\rdrei")
    assert documents_of(path) == ["eins", "zwei", "drei"]


@pytest.mark.parametrize("type", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_texts_of_any_arrow_type(type, tmp_path):
    path = tmp_path / "in.parquet"
    column = pa.array(["Haus"]).cast(type)
    notes = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"de": column, "en": column, "text": column, "notes": notes}), path)
    assert translations(load_parallel(str(path))) == [{"de": "Haus", "en": "Haus"}]
    assert translations(load_parallel(str(path), streaming=True))[0]["de"] == "Haus"
    assert documents_of(path) == ["Haus"]


@pytest.mark.parametrize("streaming", [False, True])
def test_no_rows(streaming, tmp_path):
    path = tmp_path / "in.parquet"
    pq.write_table(
        pa.table({"de": pa.array([], pa.string()), "en": pa.array([], pa.string())}), path
    )
    with pytest.raises(CorpusError, match=r"in.parquet: found no rows"):
        load_parallel(str(path), streaming=streaming)


def test_names_of_files_that_are_not_utf_8(tmp_path):
    folder = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    os.mkdir(folder)
    for name in (b"\xe9.txt", b"b.txt"):
        Path(os.fsdecode(os.path.join(folder, name))).write_text("Haus")
    with ExitStack() as stack:
        documents = Documents(stack, os.fsdecode(folder), None, None, True, 10)
        (chunk,) = documents.chunks
        assert chunk.values("id") == ["b", "\\xe9"]
        assert chunk.place(0, "text").encode().startswith(os.fsencode(tmp_path))
    table = Path(os.fsdecode(os.path.join(folder, b"\xe9.csv")))
    table.write_text("de,en\na,b\n")
    (row,) = load_parallel(str(table), places=True)
    assert row["file"].endswith("caf\\xe9/\\xe9.csv")


# ---- Values of different types


def test_values_of_different_types_are_no_error_unless_a_parquet_file_is_to_hold_them(tmp_path):
    path = tmp_path / "in.jsonl"
    rows = [{"text": "a", "year": 2020}, {"text": "b", "year": "2021"}, {"text": "c", "year": None}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with ExitStack() as stack:
        documents = Documents(stack, str(path), None, None, True, 2)
        assert [value for chunk in documents.chunks for value in chunk.values("year")] == [
            2020,
            "2021",
            None,
        ]
        with pytest.raises(CorpusError, match=r"row 2, field 'year': found '2021', expected int64"):
            documents.schema  # noqa: B018 - a property


def test_values_pass_through_as_they_are(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [
        '{"text": "a", "n": 1, "big": 9007199254740993, "nested": {"x": 1}}',
        '{"text": "b", "n": 2.5, "nested": {"y": [1, "z", null]}}',
        '{"text": "c",  "n": [], "only": true}',
    ]
    path.write_text("\n".join(lines) + "\n")
    with ExitStack() as stack:
        documents = Documents(stack, str(path), None, None, True, 2)
        chunks = list(documents.chunks)
    assert [line for chunk in chunks for line in chunk.json_rows()] == lines
    values = [value for chunk in chunks for value in chunk.values("n")]
    assert [(value, type(value)) for value in values] == [(1, int), (2.5, float), ([], list)]
    assert chunks[0].values("big") == [2**53 + 1, None]
    assert chunks[0].values("nested")[0] == {"x": 1}


def test_numbers_that_are_no_json_become_null(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a", "n": NaN}\n{"text": "b", "n": -Infinity}\n')
    table = tmp_path / "in.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "n": np.array([np.nan, np.inf])}), table)
    for source in (path, table):
        with ExitStack() as stack:
            (chunk,) = Documents(stack, str(source), None, None, True, 9).chunks
            assert [json.loads(line)["n"] for line in chunk.json_rows()] == [None, None]


# ---- Codes of languages


@pytest.mark.parametrize(
    "header",
    [
        "De,En",
        "DEU,ENG",
        "de-DE,En-US",
        "de,eN-uS",
        "de_DE.UTF-8,en_US.UTF-8",
        " de , en ",
        "de_AT,EN-GB",
        "ger,EN",
    ],
)
def test_codes_are_read_without_case(header, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(f"{header}\nDas Haus,The house\n")
    assert translations(load_parallel(str(path), ["de", "en"])) == [FIRST]
    (row,) = translations(load_parallel(str(path)))
    assert sorted(row.values()) == ["Das Haus", "The house"]


@pytest.mark.parametrize("code", ["De", "DEU", "de_DE.UTF-8", " de ", "eN-uS", "fil"])
def test_codes_of_translation_memories(code, tmp_path):
    path = tmp_path / "a.tmx"
    unit = "<tu><tuv xml:lang='{}'><seg>a</seg></tuv><tuv xml:lang='fr'><seg>b</seg></tuv></tu>"
    path.write_text(f"<tmx><body>{unit.format(code)}</body></tmx>")
    (row,) = translations(load_parallel(str(path)))
    assert sorted(row.values()) == ["a", "b"]


@pytest.mark.parametrize(
    ("keys", "languages"),
    [
        (["greeting.hello", "menu_file", "cancel"], ["de", "en"]),
        (["17", "18", "19"], ["de", "en"]),
        (["Selamat pagi", "Menu berkas", "Batalkan pesanan"], ["de", "en", "id"]),
    ],
)
def test_a_column_of_keys_is_not_indonesian(keys, languages, tmp_path):
    path = tmp_path / "in.csv"
    lines = [f"{key},Hallo {key},Hello {key}" for key in keys]
    path.write_text("\n".join(["id,de,en", *lines]) + "\n")
    assert list(load_parallel(str(path)).features["translation"]) == languages


def test_a_column_of_numbers_is_no_language_beside_words(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("ts,de,en\n1700000000,Haus,house\n")
    assert list(load_parallel(str(path)).features["translation"]) == ["de", "en"]


@pytest.mark.parametrize(
    ("header", "advice"),
    [
        ("en,Quelle", "for example --columns de=Quelle ("),
        ("Source,En", "for example --columns de=Source ("),
        ("En,Fr", "'de', expected one of the languages in the data (en, fr)"),
    ],
)
def test_the_advice_names_the_right_column_or_none(header, advice, tmp_path):
    path = tmp_path / "in.csv"
    path.write_text(f"{header}\na,b\n")
    with pytest.raises(CorpusError) as caught:
        load_parallel(str(path), ["de", "en"])
    assert advice in str(caught.value)


# ---- Translation memories


def memory(*units: str, encoding: str = "UTF-8") -> str:
    """Return a TMX file of units."""
    body = "".join(f"<tu>{unit}</tu>" for unit in units)
    return (
        f'<?xml version="1.0" encoding="{encoding}"?><tmx version="1.4"><body>{body}</body></tmx>'
    )


def variant(language: str, segment: str) -> str:
    """Return a variant of a unit."""
    return f'<tuv xml:lang="{language}"><seg>{segment}</seg></tuv>'


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("GB18030", "gb18030", "房子"),
        ("gb2312", "gb2312", "房子"),
        ("Shift_JIS", "shift_jis", "家"),
        ("Shift_JIS", "cp932", "①家"),
        ("ANSI", "cp1252", "Häuser – klein"),
        ("utf8", "utf-8", "Häuser"),
        ("iso-8859-1", "latin-1", "Häuser"),
        ("UTF-16", "utf-16", "Häuser"),
        ("UTF-16", "utf-16le", "Häuser"),
        ("utf-16", "utf-8", "Häuser"),
    ],
)
def test_encodings_of_memories(declared, encoding, text, tmp_path):
    path = tmp_path / "a.tmx"
    content = memory(variant("de", text) + variant("en", "b"), encoding=declared)
    path.write_bytes(content.encode(encoding))
    assert translations(load_parallel(str(path))) == [{"de": text, "en": "b"}]


@pytest.mark.parametrize(
    ("declared", "data", "message"),
    [
        ("klingon", b"a", "row 1: found 'klingon', expected a known encoding"),
        ("utf-8", b"caf\xe9", r"row 1: found the undecodable bytes b'.xe9', expected utf-8"),
    ],
)
def test_encodings_that_cannot_be_read(declared, data, message, tmp_path):
    path = tmp_path / "a.tmx"
    content = memory(variant("de", "TEXT") + variant("en", "b"), encoding=declared).encode()
    path.write_bytes(content.replace(b"TEXT", data))
    with pytest.raises(CorpusError, match=message):
        load_parallel(str(path))


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("a&#31;b", "ab"),
        ("a&#x1F;b&#xE4;&amp;&#60;", "abä&<"),
        ("&#xD83D;&#xDE00;", "\U0001f600"),
        ("&#55357;&#56832;!", "\U0001f600!"),
        ("a\x1fb", "ab"),
        ("a&#9;b", "a\tb"),
        ("First line<ph><br/></ph>second line", "First line second line"),
        ("un<bpt i='1'>b</bpt>believ<ept i='1'>b</ept>able", "unbelievable"),
        ("Click <ph/>, then <ph/>.", "Click , then ."),
        ("one<ph/><ph/>two", "one two"),
        ("Delete <ph x='1'>{1}</ph> of <ph>%2$s</ph>", "Delete {1} of %2$s"),
        ("<ph>%.2f</ph> of <ph>%05ld</ph>, <ph>{:,.2f}</ph>", "%.2f of %05ld, {:,.2f}"),
        ("one<ph>{\\cs6 </ph>two", "one two"),
    ],
)
def test_text_of_segments(segment, text, tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(memory(variant("de", segment) + variant("en", "b")))
    assert translations(load_parallel(str(path))) == [{"de": text, "en": "b"}]


def test_the_first_variant_with_text_is_taken(tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(memory(variant("de", "") + variant("de", "a") + variant("en", "b")))
    assert translations(load_parallel(str(path))) == [{"de": "a", "en": "b"}]


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        ("<tuv><seg>a</seg></tuv><tuv><seg>b</seg></tuv>", "row 1: found <tuv> without xml:lang"),
        (
            '<tuv xml:lang="de">a</tuv><tuv xml:lang="en">b</tuv>',
            "row 1: found <tuv> without <seg>",
        ),
    ],
)
def test_memories_without_languages_or_segments(unit, message, tmp_path):
    path = tmp_path / "a.tmx"
    path.write_text(memory(unit))
    with pytest.raises(CorpusError, match=message):
        load_parallel(str(path))


def test_references_are_whole_wherever_the_file_is_cut(tmp_path):
    path = tmp_path / "a.tmx"
    unit = variant("de", "&#xD83D;&#xDE00;" * 50) + variant("en", "b &amp; c")
    path.write_text(memory(*[unit] * 3000))
    rows = translations(load_parallel(str(path)))
    assert rows == [{"de": "\U0001f600" * 50, "en": "b & c"}] * 3000
