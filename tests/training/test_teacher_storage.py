"""The stored vectors of a teacher: of the rows that are read alone, kept after a kill too."""

import os
import pickle
import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import make_dataset
from tests.training.teachers import arguments, static_teacher, student
from tmde.training.teachers import TeacherVectors, open_teachers, vectors
from tmde.training.teachers.models import ModelTeacher

pytest.importorskip("sentence_transformers")

NUM_ROWS = 22  # Six files of 4 rows; the last one has two.
TAUGHT = list(range(1, NUM_ROWS, 2))
ROWS = []
for number in range(NUM_ROWS):
    ROWS.append({"de": str(number), "en": str(number) if number % 2 else None})


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SHARD_ROWS", 4)


class Numbers:
    """Encodes a number as three, and counts the calls.

    Args:
        killed_at: The call at which the process is killed.
    """

    def __init__(self, killed_at: int | None = None):
        self.killed_at = killed_at
        self.calls = 0

    def __call__(self, texts: list[str], language: str) -> np.ndarray:
        if self.calls == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        return np.array([vector_of(int(text)) for text in texts])


def vector_of(number: int) -> list[float]:
    return [number, number + 0.5, -number]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that reads the rows by a teacher that encodes as it is told."""
    static_teacher(tmp_path / "teacher")

    def read_rows(encode: Numbers, folder: Path | None = tmp_path / "caches") -> TeacherVectors:
        monkeypatch.setattr(ModelTeacher, "encode", lambda self, *texts: encode(*texts))
        cache = None if folder is None else str(folder)
        args = arguments(tmp_path, token_cache_dir=cache)
        parallel = student(tmp_path / "teacher", width=3, teacher_languages=["en"])
        return open_teachers(parallel, args).vectors_of(make_dataset(ROWS))

    return read_rows


def assert_complete(stored: TeacherVectors) -> None:
    numbers, is_taught = stored(np.arange(NUM_ROWS))
    assert np.flatnonzero(is_taught).tolist() == TAUGHT
    assert numbers[TAUGHT].tolist() == [vector_of(number) for number in TAUGHT]


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_rows_are_looked_up_in_any_order(is_in_memory, read, tmp_path):
    stored = read(Numbers(), None if is_in_memory else tmp_path / "caches")
    assert_complete(stored)
    numbers, is_taught = stored(np.array([21, 4, 3, 3, 0]))
    assert is_taught.tolist() == [True, False, True, True, False]
    assert numbers.dtype == np.float16
    expected = [vector_of(21), [0, 0, 0], vector_of(3), vector_of(3), [0, 0, 0]]
    assert numbers.tolist() == expected
    assert bool(stored.rows.cache_files) != is_in_memory


def test_rows_that_are_not_read_take_no_room(read):
    columns = read(Numbers()).rows.with_format("arrow")[:]
    values = sum(len(chunk.values) for chunk in columns["vector"].chunks)
    assert values == 3 * len(TAUGHT)
    assert columns["vector"].type == pa.list_(pa.float16())


def test_what_was_read_is_not_read_again(read):
    read(Numbers())
    again = Numbers()
    assert_complete(read(again))
    assert again.calls == 0


def test_reading_that_was_killed_continues_behind_its_last_file(read):
    process = get_context("fork").Process(target=read, args=(Numbers(killed_at=4),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL

    rest = Numbers()
    stored = read(rest)

    assert rest.calls == 2
    assert_complete(stored)


def test_the_seconds_of_what_was_read_before_count(read, monkeypatch):
    clock = iter(range(0, 10**6, 10))
    monkeypatch.setattr(vectors, "perf_counter", lambda: next(clock))
    assert read(Numbers()).seconds == pytest.approx(60)  # Ten for each of six blocks.
    assert read(Numbers()).seconds == pytest.approx(60)


def test_a_dataset_of_which_nothing_is_read(read, monkeypatch):
    monkeypatch.setattr("tests.training.test_teacher_storage.ROWS", [{"de": "1", "en": None}] * 9)
    numbers, is_taught = read(Numbers())(np.array([0, 8]))
    assert numbers.tolist() == [[0, 0, 0]] * 2
    assert not is_taught.any()


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_process_that_loads_data_opens_the_same_vectors(is_in_memory, read, tmp_path):
    stored = read(Numbers(), None if is_in_memory else tmp_path / "caches")
    content = pickle.dumps(stored)
    assert_complete(pickle.loads(content))
    if not is_in_memory:
        # It holds the names of the files, and no vector.
        assert np.array(vector_of(1), np.float16).tobytes() not in content


def test_a_folder_that_cannot_be_written_says_what_to_do(read, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="set token_cache_dir to a folder with free space"):
        read(Numbers(), tmp_path / "file")
