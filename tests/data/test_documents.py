"""Documents of files and folders: formats, fields that make a text, columns that are missing."""

import gzip
import json
from contextlib import ExitStack

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from modeling_tmde import TmdeError
from tmde.data.documents import Documents
from tmde.data.tables import ROW

ROWS = [
    {"id": "1", "title": "Haus", "text": "Ein Haus."},
    {"id": "2", "title": "", "text": "Une maison."},
]
TEXTS = [row["text"] for row in ROWS]


def chunks_of(source, field=None, format=None, keep=True, size=100, **options):
    with ExitStack() as stack:
        documents = Documents(stack, str(source), format, field, keep, size, **options)
        return documents, list(documents.chunks)


def texts_of(source, field=None, **options):
    _, chunks = chunks_of(source, field, **options)
    return [text for chunk in chunks for text in chunk.texts]


def column_of(chunks, name):
    return [value for chunk in chunks for value in chunk.values(name)]


def error_of(source, field=None, **options):
    with pytest.raises(TmdeError) as error:
        chunks_of(source, field, **options)
    return str(error.value)


def write_table(path, rows=ROWS):
    """Write rows in the format of the suffix, gzipped if it ends in .gz."""
    name = path.name.removesuffix(".gz")
    plain = path.with_name(name)
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), plain)
    elif name.endswith(".jsonl"):
        plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        separator = "\t" if name.endswith(".tsv") else ";"
        lines = [separator.join(rows[0])]
        for row in rows:
            lines.append(separator.join(row.values()))
        plain.write_text("\n".join(lines) + "\n")
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    return path


def write_texts(folder, names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Text of {name}\n\nsecond paragraph\n")
    return folder


# ---- Formats


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    "suffix", ["csv", "tsv", "jsonl", "parquet", "csv.gz", "tsv.gz", "jsonl.gz"]
)
def test_tables_of_every_format(suffix, keep, tmp_path):
    path = write_table(tmp_path / f"in.{suffix}")
    assert texts_of(path, keep=keep) == TEXTS


def test_gzipped_parquet_is_refused(tmp_path):
    path = write_table(tmp_path / "in.parquet.gz")
    assert f"{path}: found gzipped parquet, expected plain parquet" in error_of(path)


def test_lines_of_gzipped_text(tmp_path):
    path = tmp_path / "in.txt.gz"
    path.write_bytes(gzip.compress(b"eins\nzwei\n"))
    assert texts_of(path) == ["eins", "zwei"]


def test_csv_keeps_its_columns_as_strings(tmp_path):
    documents, chunks = chunks_of(write_table(tmp_path / "in.csv"))
    assert set(documents.schema.names) == {"id", "title", "text"}
    assert column_of(chunks, "id") == ["1", "2"]


def test_tsv_without_a_header_is_read_if_its_format_is_named(tmp_path):
    path = tmp_path / "in.tsv"
    path.write_text("1\tHaus\n2\tmaison\n")
    documents, chunks = chunks_of(path, format="tsv")
    assert chunks[0].texts == ["Haus", "maison"]
    assert column_of(chunks, "id") == ["1", "2"]
    assert "no column 'text'; its columns are: 1, Haus" in error_of(path)


def test_a_text_with_a_csv_suffix_needs_no_renaming(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("eins, zwei\n")
    assert texts_of(path, format="text") == ["eins, zwei"]


def test_an_unknown_suffix_is_refused(tmp_path):
    message = error_of(tmp_path / "in.pdf")
    assert ".pdf is not an input format" in message
    assert ".csv" in message


# ---- Folders


def test_a_file_of_a_folder_is_a_document(tmp_path):
    folder = write_texts(tmp_path / "in", ["b.txt", "a.md", "sub/c.txt", ".hidden.txt", "x.png"])
    documents, chunks = chunks_of(folder, size=2)
    assert column_of(chunks, "id") == ["a", "b", "sub/c"]
    assert texts_of(folder)[0] == "Text of a.md\n\nsecond paragraph"
    assert [len(chunk.texts) for chunk in chunks] == [2, 1]
    assert documents.rows == 3
    assert documents.language_field is None


def test_folders_that_are_languages(tmp_path):
    folder = write_texts(tmp_path / "in", ["de/a.txt", "en_US/a.txt"])
    _, chunks = chunks_of(folder)
    assert chunks[0].languages == ["de", "en"]
    assert column_of(chunks, "id") == ["de/a", "en_US/a"]


@pytest.mark.parametrize(
    "names",
    [["my-notes"], ["to_read"], ["law"], ["art"], ["de", "new"], ["de", "src"], ["de", "xq"]],
    ids=str,
)
def test_folders_that_are_no_languages(names, tmp_path):
    folder = write_texts(tmp_path / "in", [f"{name}/a.txt" for name in names])
    documents, chunks = chunks_of(folder)
    assert documents.language_field is None
    assert chunks[0].languages is None


@pytest.mark.parametrize(
    ("name", "code"),
    [("pt-br", "pt"), ("zh-Hant-TW", "zh"), ("DE", "de"), ("eng_Latn", "eng"), ("es-419", "es")],
)
def test_folders_that_are_locales(name, code, tmp_path):
    _, chunks = chunks_of(write_texts(tmp_path / "in", [f"{name}/a.txt"]))
    assert chunks[0].languages == [code]


def test_a_file_beside_the_folders_of_languages_has_none(tmp_path):
    folder = write_texts(tmp_path / "in", ["de/a.txt", "b.txt"])
    documents, chunks = chunks_of(folder)
    assert documents.language_field is None
    assert chunks[0].languages is None


def test_a_folder_of_tables_is_one_list_of_documents(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write_table(folder / "a.csv")
    write_table(folder / "b.jsonl", [{"text": "Casa", "n": 3}])
    write_table(folder / "c.parquet", [{"text": "Dom", "n": 4}])
    (folder / "README.md").write_text("About these tables.")
    documents, chunks = chunks_of(folder, size=3)
    assert [chunk.texts for chunk in chunks] == [[*TEXTS, "Casa"], ["Dom"]]
    assert column_of(chunks, "n") == [None, None, 3, 4]
    assert chunks[0].place(2, "text") == f"{folder}/b.jsonl, row 1, field 'text'"
    assert chunks[0].numbers == [2, 3, 1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.txt", "b.csv"], "found both texts, such as a.txt, and tables, such as b.csv"),
        (["a.txt", "a.md"], "found a.md and a.txt, which have the same id 'a'"),
        (["x.png"], "found no documents in this folder"),
    ],
)
def test_a_folder_that_is_not_clear(names, message, tmp_path):
    assert message in error_of(write_texts(tmp_path / "in", names))


@pytest.mark.parametrize("name", ["README.md", "LICENSE.txt", "metadata.json", ".a/b.txt"])
@pytest.mark.parametrize("data_name", ["a.csv", "de/a.txt"])
def test_files_beside_the_documents(name, data_name, tmp_path):
    folder = write_texts(tmp_path / "in", [name, data_name])
    if data_name == "a.csv":
        write_table(folder / data_name)
    documents, _ = chunks_of(folder)
    assert [str(path) for path in documents.files] == [f"{folder}/{data_name}"]


@pytest.mark.parametrize("names", [["1/README.md", "2/README.md"], ["a.json"]], ids=str)
def test_files_that_are_documents_where_there_is_nothing_else(names, tmp_path):
    folder = write_texts(tmp_path / "in", names)
    if names == ["a.json"]:
        (folder / "a.json").write_text('{"text": "Haus"}\n')
    documents, _ = chunks_of(folder)
    assert [str(path) for path in documents.files] == [f"{folder}/{name}" for name in names]


def test_a_format_is_that_of_a_file(tmp_path):
    folder = write_texts(tmp_path / "in", ["a.txt"])
    assert "expected a file" in error_of(folder, format="text")


# ---- Fields


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_several_fields_are_joined_by_a_blank_line(suffix, tmp_path):
    path = write_table(tmp_path / f"in.{suffix}")
    assert texts_of(path, ["title", "text"]) == ["Haus\n\nEin Haus.", "Une maison."]
    assert texts_of(path, ["text", "title"])[0] == "Ein Haus.\n\nHaus"


def test_a_part_that_is_missing_is_left_out_and_no_part_is_a_bad_row(tmp_path):
    rows = [{"title": "a"}, {"title": None, "text": "b"}, {"text": ""}, {"id": 3}]
    path = write_table(tmp_path / "in.jsonl", rows[:3])
    assert texts_of(path, ["title", "text"]) == ["a", "b", ""]
    write_table(path, rows)
    message = error_of(path, ["title", "text"], bad_rows="raise")
    assert "row 4, field 'title + text': found none of these fields, expected a text" in message


def test_a_part_that_is_no_text_is_a_bad_row(tmp_path):
    path = write_table(tmp_path / "in.jsonl", [{"title": 5, "text": "b"}])
    assert "row 1, field 'title': found 5" in error_of(path, ["title", "text"])


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("bad_line", ['{"text": 5}', '{"text": ', '{"title": "x"}', "[]"])
def test_a_bad_row_is_reported_and_left_out_or_stops(bad_line, size, tmp_path, caplog):
    lines = [json.dumps({"text": f"a{number}"}) for number in range(4)]
    lines[2] = bad_line
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines))
    documents, chunks = chunks_of(path, size=size)
    assert [text for chunk in chunks for text in chunk.texts] == ["a0", "a1", "a3"]
    assert column_of(chunks, ROW) == [1, 2, 4]
    assert caplog.text.count(f"Left out a bad row. {path}, row 3") == 1
    list(documents.read(size))
    assert caplog.text.count("row 3") == 1
    assert f"{path}, row 3" in error_of(path, bad_rows="raise")
    assert "bad_rows: found 'skip'" in error_of(path, bad_rows="skip")


def test_many_bad_rows_are_counted(tmp_path, caplog):
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a"}\n' + '{"text": 1}\n' * 50)
    assert texts_of(path) == ["a"]
    assert caplog.text.count("Left out a bad row") == 10
    assert f"{path}: 50 bad rows were skipped" in caplog.text


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_all_missing_columns_are_in_one_error(suffix, tmp_path):
    rows = [{"key": "1", "Body": "b", "lang": "de"}]
    path = write_table(tmp_path / f"in.{suffix}", rows)
    message = error_of(path, language_field="langage", required={"id": "--id-field"})
    assert "no column 'text' and no column 'langage' and no column 'id'" in message
    assert "its columns are: key, Body, lang" in message
    assert "--field Body --language-field lang --id-field key" in message


def test_a_field_of_several_that_no_row_has_is_missing(tmp_path):
    path = write_table(tmp_path / "in.jsonl")
    message = error_of(path, ["titel", "text"], keep=False)
    assert "no column 'titel'" in message
    assert "--field title" in message


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("keep", [True, False, ["key"]])
def test_columns_may_differ_by_case(suffix, keep, tmp_path, caplog):
    rows = [{"KEY": "1", "Text": "a", "n": "x"}, {"KEY": "2", "Text": "b", "n": "y"}]
    path = write_table(tmp_path / f"in.{suffix}", rows)
    with ExitStack() as stack:
        documents = Documents(stack, str(path), None, None, keep, 1, required={"key": "--id-field"})
        chunks = list(documents.chunks)
    assert [text for chunk in chunks for text in chunk.texts] == ["a", "b"]
    assert documents.fields == ["key", "text", "n"]
    if keep:
        assert chunks[1].values("key") == ["2"]
        assert chunks[1].values("text") == ["b"]
    assert f"in.{suffix}: the column 'Text' is read as 'text'" in caplog.text


def test_columns_that_differ_from_each_other_by_case_alone(tmp_path):
    rows = [{"Text": "a", "TEXT": "b"}]
    path = write_table(tmp_path / "in.csv", rows)
    message = error_of(path)
    assert "found the columns 'Text' and 'TEXT'" in message
    assert "--field Text." in message
    assert texts_of(path, "TEXT") == ["b"]
    rows[0]["text"] = "c"
    assert texts_of(write_table(tmp_path / "exact.csv", rows)) == ["c"]


# ---- Parallel text is no list of documents


@pytest.mark.parametrize("name", ["memory.tmx", "memory.TMX", "memory.tmx.gz"])
def test_the_texts_of_one_language_of_a_memory_are_documents(name, tmp_path):
    path = tmp_path / name
    text = "<tmx><body>"
    for row in ({"de": "a", "en": "b"}, {"en": "c"}, {"de": "d", "en": "e"}):
        variants = [f"<tuv xml:lang='{code}'><seg>{seg}</seg></tuv>" for code, seg in row.items()]
        text += f"<tu>{''.join(variants)}</tu>"
    data = f"{text}<tu><tuv></tu></body></tmx>".encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    documents, chunks = chunks_of(path, "de")
    assert chunks[0].texts == ["a", "d"]
    assert chunks[0].numbers == [1, 3]
    assert chunks[0].rows() == [{"de": "a", "en": "b"}, {"de": "d", "en": "e"}]
    assert texts_of(path, ["de", "en"]) == ["a\n\nb", "c", "d\n\ne"]
    message = error_of(path)
    assert f"{path}: found no column 'text'; its columns are: de, en." in message
    assert "those of one are documents: --field de" in message


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("field", "found"),
    [
        (None, "no column 'text'"),
        ("translation.de", "no column 'translation.de'"),
        ("translation", "texts by language (de, en)"),
    ],
)
def test_parallel_rows_are_refused_in_one_step(suffix, field, found, tmp_path):
    """The advice is the same for every field, and following it works."""
    rows = [{"translation": {"de": "Ein Haus.", "en": "A house."}}]
    path = write_table(tmp_path / f"rows.{suffix}", rows)
    message = error_of(path, field)
    assert f"found {found}" in message
    assert f"tmde clean {path} -o rows.tsv" in message
    assert "rows.tsv --field de" in message
    assert "Name the right column" not in message


def test_a_text_called_translation_is_a_text(tmp_path):
    path = write_table(tmp_path / "rows.jsonl", [{"translation": "A house."}])
    assert texts_of(path, "translation") == ["A house."]


def test_the_schema_of_parquet_keeps_the_features_of_datasets(tmp_path):
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])}
    )
    rows = datasets.Dataset.from_list([{"text": "a", "label": 1}], features=features)
    path = tmp_path / "in.parquet"
    rows.to_parquet(path)
    documents, (chunk,) = chunks_of(path)
    assert datasets.Features.from_arrow_schema(documents.schema) == features
    assert chunk.table(documents.schema).to_pylist() == [{"text": "a", "label": 1}]
