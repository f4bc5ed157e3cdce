"""Each format gives the same rows, map-style and streaming."""

import os
import tempfile
from itertools import islice
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.data.plain_rows import pair_rows, select_languages, translations
from tmde.data import CorpusReport, document_files, load_parallel
from tmde.data.sample import sample_parallel
from tmde.data.tables import find_tables, named_format_of

KINDS = [
    "parquet",
    "parquet-flat",
    "jsonl",
    "jsonl-flat",
    "jsonl.gz",
    "tsv",
    "tsv.gz",
    "moses",
    "moses-prefix",
]
ROWS = [
    {"de": 'Das "Haus', "en": "The house", "fr": "La maison"},
    {"de": "Der Hund\u2028bellt", "en": "The dog\u0085barks", "fr": "Le chien \x0caboie"},
    {"de": "'", "en": '""', "fr": "\\n, \\"},
]


def paths_of(source: str | dict[str, str]) -> list[str]:
    """Return the files of a source: one, or the Moses files."""
    if isinstance(source, dict):
        return list(source.values())
    return [source]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_format(kind, streaming, write):
    dataset = load_parallel(write(kind, ROWS), streaming=streaming)
    assert isinstance(dataset, datasets.IterableDataset if streaming else datasets.Dataset)
    assert translations(dataset) == ROWS
    string = datasets.Value("string")
    assert dataset.features["translation"] == {"de": string, "en": string, "fr": string}
    assert list(dataset.features["translation"]) == ["de", "en", "fr"]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_some_languages_of_every_format(kind, streaming, write):
    rows = load_parallel(write(kind, ROWS), languages=["fr", "de", "fr"], streaming=streaming)
    assert translations(rows) == select_languages(ROWS, ["de", "fr"])


TEXT = st.text(
    st.one_of(
        st.sampled_from("\"'\\,|\r\u2028\u2029\u0085\x0b\x0c\x1c\u00a0 \ufeff"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\n\t"),
    ),
    max_size=12,
).map(lambda text: f"x{text}x")


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.fixed_dictionaries({"de": TEXT, "en": TEXT}), min_size=1, max_size=8))
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv", "moses"])
def test_any_text_survives(kind, rows, write, tmp_path):
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        source = write(kind, rows, folder=Path(folder))
        assert translations(load_parallel(source)) == rows
        assert translations(load_parallel(source, streaming=True)) == rows


@pytest.mark.parametrize("kind", ["tsv", "moses"])
def test_windows_line_ends_and_byte_order_mark(kind, write):
    source = write(kind, ROWS)
    for path in paths_of(source):
        data = Path(path).read_bytes()
        Path(path).write_bytes(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    assert translations(load_parallel(source)) == ROWS


def test_a_last_line_without_end(write):
    source = write("moses", ROWS)
    path = Path(source["de"])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert translations(load_parallel(source)) == ROWS


def test_blank_lines_of_jsonl(write):
    path = Path(write("jsonl", ROWS))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\n"))
    assert translations(load_parallel(path)) == ROWS


@pytest.mark.parametrize("streaming", [False, True])
def test_list_folder_and_glob(streaming, write, tmp_path):
    first = ROWS[:2]
    second = [{"it": "La casa", "en": "The house", "de": None}]
    one = write("tsv", first, "a")
    two = write("parquet", second, "b")
    expected = select_languages(first + second, ["de", "en", "fr", "it"])
    for source in ([one, two], str(tmp_path), str(tmp_path / "*")):
        assert translations(load_parallel(source, streaming=streaming)) == expected
    (tmp_path / "sub").mkdir()
    os.rename(two, tmp_path / "sub" / "b.parquet")
    assert translations(load_parallel(tmp_path, streaming=streaming)) == expected
    nested_glob = str(tmp_path / "**" / "*.*t*")
    assert translations(load_parallel(nested_glob, streaming=streaming)) == expected


def test_language_that_jsonl_holds_only_further_down(write, monkeypatch):
    rows = [{"de": "a", "en": "b"}] * 5 + [{"de": "c", "fr": "d"}]
    source = write("jsonl", rows)
    assert translations(load_parallel(source, languages=["de", "fr"])) == [{"de": "c", "fr": "d"}]
    assert list(load_parallel(source).features["translation"]) == ["de", "en", "fr"]


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_jsonl_with_translation_and_with_columns(streaming, tmp_path):
    """Files of two kinds were put together, and some texts are null."""
    path = tmp_path / "a.jsonl"
    lines = [
        '{"translation": {"de": "a", "en": "b"}, "n": 1}',
        '{"de": "c", "en": "d"}',
        '{"translation": null}',
        '{"translation": {"en": "f", "fr": null, "de": "e"}}',
    ]
    path.write_text("\n".join(lines))
    rows = load_parallel(path, ["de", "en"], streaming=streaming, places=True)
    texts = [(row["row"], *row["translation"].values()) for row in rows]
    assert texts == [(1, "a", "b"), (2, "c", "d"), (4, "e", "f")]


@pytest.mark.parametrize("streaming", [False, True])
def test_places(streaming, tmp_path):
    """The numbers are those of the lines; a row without two texts is left out, and counts."""
    first = tmp_path / "a.jsonl"
    second = tmp_path / "b.tsv"
    first.write_text('{"de": "x"}\n\n{"de": "Haus", "en": "house"}\n', encoding="utf-8")
    second.write_text("de\ten\nHund\tdog\n", encoding="utf-8")
    rows = list(load_parallel([first, second], streaming=streaming, places=True))
    assert [(row["file"], row["row"]) for row in rows] == [(str(first), 3), (str(second), 2)]
    plain_rows = list(load_parallel([first, second], streaming=streaming))
    assert [list(row) for row in plain_rows] == [["translation"]] * 2


def test_places_in_a_table_of_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"de": ["x", "Haus"], "en": [None, "house"]}), path)
    (row,) = load_parallel(path, places=True)
    assert (row["file"], row["row"]) == (str(path), 2)


def test_max_rows(write):
    rows = pair_rows("de", "en", 50)
    good_rows = rows[:3] + rows[4:]
    source = write("tsv", [*rows[:3], {"de": "a", "en": " "}, *rows[4:]])
    report = CorpusReport()
    dataset = load_parallel(source, max_rows=7, report=report)
    assert translations(dataset) == good_rows[:6]  # One of the first seven is bad.
    assert report.rows == 7
    assert report.kept == 6
    assert report.dropped_rows == 1
    assert translations(load_parallel(source, max_rows=7, streaming=True)) == good_rows[:7]
    assert len(load_parallel(source, max_rows=1000)) == 49


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv", "moses"])
def test_the_cache_is_used_until_the_file_changes(kind, write, monkeypatch):
    source = write(kind, ROWS)
    assert translations(load_parallel(source)) == ROWS
    with monkeypatch.context() as patch:
        patch.setattr("tmde.data.row_checks.RowChecker.check", None)
        assert translations(load_parallel(source)) == ROWS
    changed = [dict(ROWS[0], de="Die Maus !")] + ROWS[1:]
    write(kind, changed)
    for path in paths_of(source):
        os.utime(path, ns=(1, 1))
    assert translations(load_parallel(source)) == changed


def test_a_stream_in_workers(write):
    sources = [write("tsv", ROWS, "a"), write("jsonl", ROWS, "b")]
    stream = load_parallel(sources, streaming=True)
    reader = DataLoader(stream, batch_size=None, num_workers=2)
    texts = [row["translation"] for row in reader]
    assert sorted(map(str, texts)) == sorted(map(str, ROWS * 2))


def test_a_resumed_stream(write):
    sources = [write("tsv", ROWS, "a"), write("jsonl", ROWS, "b")]
    stream = load_parallel(sources, streaming=True)
    list(islice(stream, 4))
    resumed = load_parallel(sources, streaming=True)
    resumed.load_state_dict(stream.state_dict())
    assert translations(resumed) == (ROWS * 2)[4:]


def test_stream_reads_no_further_than_asked(write):
    source = write("tsv", [{"de": "a", "en": "b"}] * 100_000)
    report = CorpusReport()
    assert next(iter(load_parallel(source, streaming=True, report=report)))
    assert 0 < report.rows <= 1000


@pytest.mark.parametrize("streaming", [False, True])
def test_sample(streaming):
    options = {
        "languages": ["de", "en"],
        "split": "validation",
        "seed": 3,
        "max_rows": 50,
        "streaming": streaming,
    }
    expected = select_languages(sample_parallel(50, "dev", 3)["translation"], ["de", "en"])
    assert translations(load_parallel("sample", **options)) == expected


# ---- Links


@pytest.fixture
def linked_folder(tmp_path):
    """A folder of one file and of a link to a folder of another, and links to both once more."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.tsv").write_text("de\ten\nA\ta\n")
    (folder / "a_again.tsv").symlink_to("a.tsv")
    (folder / "self").symlink_to(".")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.tsv").write_text("de\ten\nB\tb\n")
    (folder / "other").symlink_to(other)
    return folder


@pytest.mark.parametrize("pattern", ["", "**/*.tsv"])
def test_each_file_of_a_folder_with_links_is_read_once(pattern, linked_folder):
    files = find_tables(os.path.join(linked_folder, pattern))
    names = [os.path.relpath(file.place, linked_folder) for file in files]
    assert names == ["a.tsv", "other/b.tsv"]


def test_hidden_files_and_folders_are_left_out(linked_folder):
    (linked_folder / ".a.tsv").write_text("de\ten\nA\ta\n")
    (linked_folder / ".git").mkdir()
    (linked_folder / ".git" / "c.tsv").write_text("de\ten\nA\ta\n")
    assert len(find_tables(linked_folder)) == 2


# ---- Suffixes


@pytest.mark.parametrize("name", ["a.tab", "a.tab.gz", "A.TSV", "a.ndjson", "a.csv.gz", "a.json"])
def test_parallel_text_and_documents_have_the_same_suffixes(name):
    format = document_files.format_of(name)
    assert format != "text"
    assert named_format_of(name) == format
