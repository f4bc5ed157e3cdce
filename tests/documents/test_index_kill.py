"""A document index survives killed writers, and keeps two writers apart."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lancedb")

from modeling_tmde.documents.index import DocumentIndex
from tests.documents.index_writer import DIMENSION, check, committed, operate

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="forks and kills")
def test_killed_writers(tmp_path):
    """SIGKILL at random moments: every operation that was reported is there, and at most one more, whole."""
    folder = tmp_path / "index"
    DocumentIndex.create(folder, dimension=DIMENSION)
    command = [sys.executable, "-m", "tests.documents.index_writer", str(folder), "5"]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert finished.returncode == 0, finished.stderr
    state, reported = {}, int(finished.stdout)
    assert reported > 5, finished.stdout  # the writers did write
    done = committed(DocumentIndex.open(folder), state, reported)
    operate(DocumentIndex.open(folder), state, done)  # no lock is left
    check(DocumentIndex.open(folder), state)


def test_two_writers(tmp_path):
    """Another process holds the lock; once it is killed, the lock is free."""
    folder, state = tmp_path / "index", {}
    index = DocumentIndex.create(folder, dimension=DIMENSION)
    operate(index, state, 0)
    program = (  # the lock alone: LanceDB takes seconds to import
        "import sys\nfrom filelock import FileLock\n"
        "with FileLock(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(folder / ".lock")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="another process is writing"):
            index.delete("0-0")
        check(DocumentIndex.open(folder), state)  # readers need not wait
    finally:
        process.kill()
        process.communicate()
    operate(index, state, 1)
    check(index, state)


def test_a_reader_keeps_the_version_it_opened(tmp_path):
    writer, state = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION), {}
    operate(writer, state, 0)
    reader, old = DocumentIndex.open(tmp_path / "index"), dict(state)
    with writer.writing():
        for number in range(1, 5):
            operate(writer, state, number)
            with pytest.raises(ValueError):
                reader.delete("0-0")
        check(reader, old)
    operate(reader, state, 5)  # a writer goes on from the last commit, whichever version it had opened
    check(reader, state)
    check(DocumentIndex.open(tmp_path / "index"), state)


def test_damaged_and_half_made_indexes(tmp_path):
    folder = tmp_path / "index"
    index = DocumentIndex.create(folder, dimension=2)
    index.upsert(["a"], ["text"], vectors=np.ones((1, 2)))
    for path in (folder / "documents.lance").rglob("*.manifest"):
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="missing or damaged"):
        DocumentIndex.open(folder)
    (folder / "index.json").write_text("{")
    with pytest.raises(ValueError, match="or a damaged one"):
        DocumentIndex.open(folder)
    DocumentIndex.create(tmp_path / "half", dimension=2)
    (tmp_path / "half" / "index.json").unlink()  # it is written last: a creation that was killed can be repeated
    with pytest.raises(ValueError, match="no index there"):
        DocumentIndex.open(tmp_path / "half")
    assert len(DocumentIndex.create(tmp_path / "half", dimension=2)) == 0
