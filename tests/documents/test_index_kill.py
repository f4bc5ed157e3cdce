"""A document index keeps two writers apart. benchmarks/faults.py kills writers."""

import shutil

import numpy as np
import pytest
from filelock import FileLock

pytest.importorskip("lancedb")

from modeling_tmde import TmdeError
from tests.documents.index_writer import DIMENSION, check, operate
from tmde.data.io import locked
from tmde.documents.index import DocumentIndex


def test_two_writers(tmp_path):
    folder = tmp_path / "index"
    state = {}
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    operate(index, state, 0)
    with FileLock(folder / ".lock"):
        with pytest.raises(ValueError, match="another process is writing"):
            index.delete("0-0")
        check(DocumentIndex.open(folder), state)  # Readers need not wait.
    operate(index, state, 1)
    check(index, state)


def test_two_creators(tmp_path):
    with (
        locked(tmp_path / "index"),
        pytest.raises(ValueError, match="index: another process is writing to it"),
    ):
        DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    assert not list(tmp_path.iterdir())
    assert len(DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)) == 0


def test_a_reader_keeps_the_version_it_opened(tmp_path):
    writer = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    state = {}
    operate(writer, state, 0)
    reader = DocumentIndex.open(tmp_path / "index")
    old_state = dict(state)
    with writer.writing():
        for number in range(1, 5):
            operate(writer, state, number)
            with pytest.raises(ValueError):
                reader.delete("0-0")
        check(reader, old_state)
    # A writer goes on from the last commit, whichever version it had opened.
    operate(reader, state, 5)
    check(reader, state)
    check(DocumentIndex.open(tmp_path / "index"), state)


@pytest.fixture(scope="module")
def index_of_words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage") / "news.index"
    index = DocumentIndex.create(folder, dimension=2)
    index.upsert(["a"], ["a text"], vectors=np.ones((1, 2)))
    index.index_words()
    return folder


@pytest.mark.parametrize(
    ("damaged_files", "operation"),
    [
        ("_versions/*.manifest", lambda index: index.delete("a")),
        ("data/*.lance", list),
        ("data/*.lance", lambda index: index.search(np.ones(2, np.float32))),
        ("data/*.lance", lambda index: index.vectors(["a"])),
        ("data/*.lance", lambda index: index.values("language")),
        ("_indices/*/*.lance", lambda index: index.search("text", mode="words")),
    ],
)
def test_errors_of_damaged_files_name_the_folder(
    tmp_path, index_of_words, damaged_files, operation
):
    folder = tmp_path / "news.index"
    shutil.copytree(index_of_words, folder)
    index = DocumentIndex.open(folder)
    damaged = list((folder / "documents.lance").glob(damaged_files))
    for path in damaged:
        path.write_bytes(b"")
    assert damaged
    with pytest.raises(TmdeError, match=r"news.index: missing or damaged .*; build the index anew"):
        operation(index)


def test_damaged_and_half_made_indexes(tmp_path):
    folder = tmp_path / "index"
    index = DocumentIndex.create(folder, dimension=2)
    index.upsert(["a"], ["text"], vectors=np.ones((1, 2)))
    for path in (folder / "documents.lance").rglob("*.manifest"):
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="missing or damaged"):
        DocumentIndex.open(folder)
    for damaged in ("{", "[]", '{"dimension": 2}', "[" * 100_000):
        (folder / "index.json").write_text(damaged)
        with pytest.raises(ValueError, match="or a damaged one"):
            DocumentIndex.open(folder)
    DocumentIndex.create(tmp_path / "half", dimension=2)
    # The settings are written last, so a creation that was killed can be repeated.
    (tmp_path / "half" / "index.json").unlink()
    with pytest.raises(ValueError, match="no index there"):
        DocumentIndex.open(tmp_path / "half")
    assert len(DocumentIndex.create(tmp_path / "half", dimension=2)) == 0
