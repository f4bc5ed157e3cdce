"""The stored vectors of a teacher: of the rows that are read alone, kept after a kill too."""

import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import make_dataset
from tmde.training.teachers import storage
from tmde.training.teachers.storage import (
    PROGRESS_NAME,
    VECTORS_NAME,
    ReadRows,
    StoredVectors,
    read_once,
    read_progress,
)

NUM_ROWS = 22  # Six chunks of 4 rows; the last one has two.
ROWS = make_dataset([{"de": str(number), "en": str(number)} for number in range(NUM_ROWS)])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "CHUNK_ROWS", 4)


def vector_of(number: int) -> list[float]:
    return [number, number + 0.5, -number]


class OddRows:
    """Reads the rows with odd numbers, and counts the chunks.

    Args:
        killed_at: The chunk at which the process is killed, with half of it on the disk.
    """

    def __init__(self, folder: Path | None = None, killed_at: int | None = None):
        self.folder = folder
        self.killed_at = killed_at
        self.chunks = 0

    def __call__(self, table: pa.Table) -> ReadRows:
        if self.chunks == self.killed_at:
            (store,) = self.folder.glob("*.teacher")
            with (store / VECTORS_NAME).open("ab") as file:
                file.write(b"half of a chunk")
            os.kill(os.getpid(), signal.SIGKILL)
        self.chunks += 1
        numbers = [int(row["en"]) for row in table["translation"].to_pylist()]
        places = [place for place, number in enumerate(numbers) if number % 2]
        vectors = [vector_of(numbers[place]) for place in places]
        return ReadRows(np.array(places), np.array(vectors, np.float16), truncated=1)


def read(folder: Path | None, reader: OddRows) -> StoredVectors:
    return read_once(ROWS, reader, "name", folder, "Teacher reading")


def assert_complete(stored: StoredVectors) -> None:
    assert stored.rows.tolist() == list(range(1, NUM_ROWS, 2))
    assert stored.vectors.tolist() == [vector_of(number) for number in range(1, NUM_ROWS, 2)]
    assert stored.progress.truncated == 6


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_only_the_rows_that_are_read_have_vectors(is_in_memory, tmp_path):
    stored = read(None if is_in_memory else tmp_path, OddRows())
    assert_complete(stored)
    vectors, is_taught = stored.look_up(np.array([21, 4, 3, 3, 0]), 3)
    assert is_taught.tolist() == [True, False, True, True, False]
    expected = [vector_of(21), [0, 0, 0], vector_of(3), vector_of(3), [0, 0, 0]]
    assert vectors.tolist() == expected
    assert isinstance(stored.vectors, np.memmap) != is_in_memory


def test_the_file_holds_the_vectors_that_are_read_and_no_zeros(tmp_path):
    stored = read(tmp_path, OddRows())
    assert (stored.folder / VECTORS_NAME).stat().st_size == NUM_ROWS // 2 * 3 * 2


def test_what_was_read_is_not_read_again(tmp_path):
    read(tmp_path, OddRows())
    again = OddRows()
    assert_complete(read(tmp_path, again))
    assert again.chunks == 0


def test_reading_that_was_killed_continues_behind_its_last_chunk(tmp_path):
    killed = OddRows(tmp_path, killed_at=4)
    process = multiprocessing.get_context("fork").Process(target=read, args=(tmp_path, killed))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert read_progress(tmp_path / "name.teacher").rows_done == 16

    rest = OddRows()
    stored = read(tmp_path, rest)

    assert rest.chunks == 2
    assert_complete(stored)


def test_the_seconds_before_an_interruption_count(tmp_path):
    read(tmp_path, OddRows())
    progress = tmp_path / "name.teacher" / PROGRESS_NAME
    text = progress.read_text().replace(f'"rows_done": {NUM_ROWS}', '"rows_done": 20')
    seconds = read_progress(progress.parent).seconds
    progress.write_text(text)
    assert read(tmp_path, OddRows()).progress.seconds > seconds > 0


def test_vectors_that_were_lost_are_read_again(tmp_path):
    read(tmp_path, OddRows())
    (tmp_path / "name.teacher" / VECTORS_NAME).write_bytes(b"")
    again = OddRows()
    assert_complete(read(tmp_path, again))
    assert again.chunks == 6


def test_a_dataset_of_which_nothing_is_read(tmp_path):
    def read_nothing(table: pa.Table) -> ReadRows:
        return ReadRows(np.zeros(0, np.int64), np.zeros((0, 0), np.float16))

    stored = read_once(ROWS, read_nothing, "none", tmp_path, "Teacher reading")
    vectors, is_taught = stored.look_up(np.array([0, 21]), 3)
    assert vectors.tolist() == [[0, 0, 0]] * 2
    assert not is_taught.any()


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_process_that_loads_data_opens_the_same_vectors(is_in_memory, tmp_path):
    stored = read(None if is_in_memory else tmp_path, OddRows())
    content = pickle.dumps(stored)
    assert_complete(pickle.loads(content))
    if not is_in_memory:
        assert b"vectors" not in content  # It holds the name of the folder, and no vector.


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set token_cache_dir to a folder with room"):
        read(tmp_path / "file", OddRows())
