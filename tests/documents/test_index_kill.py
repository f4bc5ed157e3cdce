"""A document index keeps two writers apart. benchmarks/faults.py kills writers."""

import shutil
import signal
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

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
    index.upsert(["a"], ["a text"], [{"n": 1}], vectors=np.ones((1, 2)))
    index.index_words()
    return folder


@pytest.mark.parametrize(
    ("damaged_files", "operation"),
    [
        ("_versions/*.manifest", lambda index: index.delete("a")),
        ("data/*.lance", list),
        ("data/*.lance", lambda index: index.search(np.ones(2, np.float32))),
        ("data/*.lance", lambda index: index.vectors(["a"])),
        ("data/*.lance", lambda index: index.values("n")),
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
    with pytest.raises(TmdeError, match=r"news.index: missing or damaged .*; rebuild the index"):
        operation(index)


def halve(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def overwrite(path):
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize("damage", [Path.unlink, halve, overwrite])
@pytest.mark.parametrize(
    "operation",
    [
        lambda index: index.search(np.ones(2, np.float32), where="n = 1"),
        lambda index: index.upsert(["b"], ["text"], vectors=np.ones((1, 2))),
        lambda index: index.delete("a"),
    ],
)
def test_data_files_that_are_damaged_in_any_way(tmp_path, index_of_words, damage, operation):
    folder = tmp_path / "news.index"
    shutil.copytree(index_of_words, folder)
    index = DocumentIndex.open(folder)
    for path in (folder / "documents.lance").glob("data/*.lance"):
        damage(path)
    with pytest.raises(TmdeError, match=r"news.index: missing or damaged files"):
        operation(index)


def test_a_condition_that_fails_on_a_value_is_no_damage(index_of_words):
    index = DocumentIndex.open(index_of_words)
    with pytest.raises(TmdeError, match=r"^where: found 'CAST.*Cannot cast string 'a text' to"):
        index.search(np.ones(2, np.float32), where="CAST(text AS INT) > 3")


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
    with pytest.raises(ValueError, match="found no tmde index"):
        DocumentIndex.open(tmp_path / "half")
    assert len(DocumentIndex.create(tmp_path / "half", dimension=2)) == 0


@pytest.fixture
def full_disk():
    """Return a context in which no file can grow, as on a full disk."""
    resource = pytest.importorskip("resource")

    @contextmanager
    def limited():
        _, hard_limit = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard_limit))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)

    return limited


@pytest.mark.parametrize(
    "operation",
    [
        lambda index: index.delete("a"),
        lambda index: index.upsert(["c"], ["text"], vectors=np.ones((1, 2))),
        lambda index: index.index_words(),
        lambda index: index._table.maintain(None),
    ],
)
def test_a_full_disk_is_no_damage(tmp_path, monkeypatch, full_disk, operation):
    monkeypatch.setattr("tmde.documents.index_table.FRAGMENTS", 1)
    folder = tmp_path / "news.index"
    index = DocumentIndex.create(folder, dimension=2)
    with index.writing():
        for id in "ab":
            index._table.merge(
                [
                    {
                        "id": id,
                        "text": id,
                        "embedded_language": None,
                        "passages": [0],
                        "metadata": {"n": 1},
                    }
                ],
                np.ones((1, 2), np.float32),
            )
        monkeypatch.setattr(index, "_maintain", lambda: None)
    with (
        full_disk(),
        pytest.raises(TmdeError, match=r"can't be .* error 27") as info,
    ):
        operation(index)
    assert "delete the folder" not in str(info.value)
    assert sorted(DocumentIndex.open(folder)) == ["a", "b"]


def test_an_unreadable_index_is_no_damage(index_of_words, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tmde.documents.index_table._connect", refuse)
    with pytest.raises(TmdeError, match=r"news.index: can't be read .*Permission denied"):
        DocumentIndex.open(index_of_words)


def test_defects_keep_their_errors(index_of_words, monkeypatch):
    def fail():
        raise ValueError("operands could not be broadcast together")

    index = DocumentIndex.open(index_of_words)
    monkeypatch.setattr(index._table, "_table", SimpleNamespace(count_rows=fail))
    with pytest.raises(ValueError, match="^operands could not be broadcast") as info:
        len(index)
    assert not isinstance(info.value, TmdeError)
