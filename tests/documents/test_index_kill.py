"""A document index survives whatever happens to its writers: kills, failures, other writers."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("faiss")

from modeling_tmde.documents import index_files, index_store
from modeling_tmde.documents.index import DocumentIndex
from modeling_tmde.documents.index_files import LOCK, MANIFEST, DocumentIndexBusy, DocumentIndexError, Manifest
from tests.documents.index_helpers import DIMENSION, check, follow, operate

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def names_of(index):
    return index._store.manifest.files() | {MANIFEST, LOCK}


@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_killed_writers(tmp_path):
    command = [sys.executable, "-m", "tests.documents.index_helpers", str(tmp_path / "index"), "30"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert finished.returncode == 0, finished.stderr
    operations, broken = map(int, finished.stdout.split())
    # They did write, and were killed while they did: those that were at their first or second sync are four.
    assert operations > 9 and broken >= 4


class Failure(BaseException):
    """As a KeyboardInterrupt: comes at any moment, and is caught by no `except Exception`."""


@pytest.mark.parametrize("nested", [False, True])
def test_a_failure_at_every_step_leaves_the_old_state_or_the_new_one(tmp_path, monkeypatch, nested):
    """Every operation fails at its first file operation, then at its second, ... until none is left to fail at.

    nested: by one writer that keeps the lock, as `tmde index` does, and goes on from what it has in memory.
    """
    monkeypatch.setattr(index_files, "MERGED", 3)
    folder, state = tmp_path / "index", {}
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    patience, outcomes = 0, set()

    def failing(function):
        def call(*args, **kwargs):
            nonlocal patience
            patience -= 1
            if patience == -1:
                raise Failure
            return function(*args, **kwargs)

        return call

    for module, name in ((os, "fsync"), (os, "replace"), (index_store, "write_segment"), (Path, "unlink")):
        monkeypatch.setattr(module, name, failing(getattr(module, name)))
    lock, patience = contextlib.ExitStack(), -2
    if nested:
        lock.enter_context(index.writing())
    for number in range(12):
        for limit in range(40):
            patience, next_state = limit, dict(state)
            try:
                operate(index, next_state, number)
            except Failure:
                opened = index if nested else DocumentIndex.open(folder)
                committed = Manifest.read(folder).generation == number + 1
                outcomes.add(committed)
                if not committed:
                    check(opened, state)
                    continue
                next_state = dict(state)
                follow(next_state, number)
            break
        else:
            raise AssertionError("never got through")
        patience, state = -2, next_state
        index = index if nested else DocumentIndex.open(folder)
        check(index, state)
        check(DocumentIndex.open(folder), state)
    lock.close()
    assert outcomes == {False, True}


def test_interrupted_while_places_are_read(tmp_path, monkeypatch):
    """None of the ids is forgotten: an id cannot be added twice."""
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    for id in "ab":
        index.add([id], ["text"], vectors=np.ones((1, DIMENSION)))
    index, turns = DocumentIndex.open(tmp_path / "index"), []
    real = index_files.Segment.column

    def column(self, name):
        turns.append(name)
        if len(turns) == 2:
            raise Failure
        return real(self, name)

    monkeypatch.setattr(index_files.Segment, "column", column)
    with pytest.raises(Failure):
        index.add(["b"], ["text"], vectors=np.ones((1, DIMENSION)))
    with pytest.raises(DocumentIndexError, match="found 'b'"):
        index.add(["b"], ["text"], vectors=np.ones((1, DIMENSION)))
    assert sorted(index) == ["a", "b"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no /dev/full")
@pytest.mark.parametrize("suffix", ["faiss", "parquet"])
def test_a_full_disk(tmp_path, suffix):
    folder, state = tmp_path / "index", {}
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    operate(index, state, 0)
    with index.writing():  # what a killed writer left is removed when the lock is taken
        (folder / f"segment-00000002-0.{suffix}").symlink_to("/dev/full")
        with pytest.raises(
            DocumentIndexError, match=r"cannot be written .*; is the disk full\? nothing was changed"
        ) as told:
            index.add(["x"], ["text"], vectors=np.ones((1, DIMENSION)))
        assert "faiss::" not in str(told.value)
        check(index, state)
        operate(index, state, 1)
    check(DocumentIndex.open(folder), state)


def test_leftovers_go_and_other_files_stay(tmp_path):
    folder = tmp_path / "index"
    DocumentIndex.create(folder, dimension=DIMENSION)
    for name in ("segment-00000001-0.faiss", "segment-00000009-1.parquet", "live-00000007-0.npy", "notes.txt"):
        (folder / name).write_text("left")
    (folder / f".{MANIFEST}.17.tmp").write_text("left")
    index = DocumentIndex.open(folder)
    operate(index, {}, 0)
    assert set(os.listdir(folder)) == names_of(index) | {"notes.txt"}


def test_a_reader_keeps_what_it_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(index_files, "MERGED", 2)
    writer, state = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION), {}
    operate(writer, state, 0)
    readers = [(DocumentIndex.open(tmp_path / "index"), dict(state))]
    for number in range(1, 8):
        operate(writer, state, number)
        readers.append((DocumentIndex.open(tmp_path / "index"), dict(state)))
    for reader, old_state in readers:
        check(reader, old_state)
    assert set(os.listdir(tmp_path / "index")) == names_of(writer)
    operate(readers[0][0], state, 8)  # a writer goes on from the last commit, whichever state it had opened
    check(readers[0][0], state)
    check(DocumentIndex.open(tmp_path / "index"), state)


def test_files_that_a_writer_removes_between_manifest_and_opening(tmp_path, monkeypatch):
    monkeypatch.setattr(index_files, "MERGED", 2)
    writer, state = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION), {}
    operate(writer, state, 0)
    real, turns = index_store.Segment, []

    def segment(folder, entry):
        if not turns:
            turns.append(entry["name"])
            operate(writer, state, 1)  # merges, and removes the file that is about to be opened
        return real(folder, entry)

    monkeypatch.setattr(index_store, "Segment", segment)
    reader = DocumentIndex.open(tmp_path / "index")
    assert turns and turns[0] not in {entry["name"] for entry in reader._store.manifest.segments}
    check(reader, state)


def test_two_writers(tmp_path):
    """A real process holds the lock; killed, it holds it no more."""
    folder, state = tmp_path / "index", {}
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    operate(index, state, 0)
    program = (
        "import sys\nfrom modeling_tmde.documents.index import DocumentIndex\n"
        "with DocumentIndex.open(sys.argv[1]).writing():\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    try:
        assert process.stdout.readline() == b"held\n"
        for write in (lambda: operate(index, dict(state), 1), lambda: index.delete("0-0"), index.writing().__enter__):
            with pytest.raises(DocumentIndexBusy, match="another process is writing"):
                write()
        check(DocumentIndex.open(folder), state)  # readers need not wait
    finally:
        process.kill()
        process.communicate()
    operate(index, state, 1)
    check(index, state)


def test_writing_keeps_the_lock_over_several_writes(tmp_path):
    folder, state = tmp_path / "index", {}
    index, other = DocumentIndex.create(folder, dimension=DIMENSION), DocumentIndex.open(folder)
    with index.writing():
        for number in range(3):
            operate(index, state, number)
            with pytest.raises(DocumentIndexBusy):
                operate(other, {}, 0)
    operate(other, state, 3)
    check(other, state)


@pytest.mark.parametrize("suffix", ["faiss", "parquet"])
def test_damaged_files_are_named(tmp_path, suffix):
    folder = tmp_path / "index"
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    index.add(["a"], ["text"], vectors=np.ones((1, DIMENSION)))
    path = next(folder.glob(f"*.{suffix}"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DocumentIndexError, match="missing or damaged"):
        DocumentIndex.open(folder)
    path.unlink()
    with pytest.raises(DocumentIndexError, match=f"missing or damaged.*{path.name}"):
        DocumentIndex.open(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "not the manifest"),
        ('{"format": "else"}', "not the manifest"),
        ('{"format": "tmde document index", "version": 2}', "found format version 2, expected 1; update tmde"),
        ('{"format": "tmde document index", "version": 1, "dimension": 3}', "damaged"),
    ],
)
def test_manifests_that_cannot_be_read(tmp_path, content, message):
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(DocumentIndexError, match=message):
        DocumentIndex.open(tmp_path)
