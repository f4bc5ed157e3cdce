"""The vectors of the rows that a teacher read, in a folder of the token cache.

A row has one vector, in float16: 2 d bytes, 1.5 GB for a million rows of LaBSE. Storing moves a
vector of length 1 by less than 0.0005, its cosine with others by less than 1e-6. Rows that are not
read take no room.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import datasets
import numpy as np
import pyarrow as pa
from filelock import FileLock

from tmde.data.io import write_atomically
from tmde.data.tokens import is_first_process, writable_cache
from tmde.embedding.progress import announce, progress_bar

CHUNK_ROWS = 2048  # The rows that are read at a time. A run that is killed loses no more.
PROGRESS_NAME = "progress.json"
ROWS_NAME = "rows.i64"
VECTORS_NAME = "vectors.f16"


@dataclass(frozen=True)
class ReadRows:
    """What became of some rows.

    Attributes:
        rows: (taught rows,), their numbers in ascending order.
        vectors: (taught rows, d) float16.
        truncated: The number of texts that were longer than the teacher reads.
    """

    rows: np.ndarray
    vectors: np.ndarray
    truncated: int = 0


@dataclass(frozen=True)
class Progress:
    """How far the reading is.

    Attributes:
        rows_done: The number of rows that were looked at.
        taught: The number of those that have a vector.
        width: The width of the vectors; 0 while there is none.
        truncated: The number of texts that were longer than the teacher reads.
        seconds: The seconds that reading took, those before an interruption included.
        cpu_seconds: The seconds of CPU time that it took, of all threads.
    """

    rows_done: int = 0
    taught: int = 0
    width: int = 0
    truncated: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass
class StoredVectors:
    """The vectors of the rows that were read, memory-mapped if they are in a folder.

    Args:
        total: The number of rows of the dataset.
        progress: The progress, which is complete.
        rows: (taught rows,), the numbers of the rows that have a vector, in ascending order.
        vectors: (taught rows, d) float16.
        fingerprint: Identifies the rows and the teacher.
        folder: The folder; None in memory.
    """

    total: int
    progress: Progress
    rows: np.ndarray = field(repr=False)
    vectors: np.ndarray = field(repr=False)
    fingerprint: str
    folder: Path | None = None

    def __reduce__(self) -> tuple:
        if self.folder is not None:
            # A process that loads data maps the files itself.
            return open_stored, (self.folder, self.total, self.fingerprint)
        parts = (self.total, self.progress, self.rows, self.vectors, self.fingerprint)
        return StoredVectors, parts

    @property
    def width(self) -> int:
        """The width of the vectors; 0 without any."""
        return self.progress.width

    def look_up(self, rows: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of rows, and which of them have one.

        Args:
            rows: (rows,), their numbers in any order, perhaps repeated.
            width: The width of the vectors, which is not known if there are none.

        Returns:
            (rows, width) float16, zero where there is no vector; and bool (rows,).
        """
        vectors = np.zeros((len(rows), width), np.float16)
        places = np.searchsorted(self.rows, rows)
        is_taught = places < len(self.rows)
        is_taught[is_taught] = self.rows[places[is_taught]] == rows[is_taught]
        if is_taught.any():
            vectors[is_taught] = self.vectors[places[is_taught]]
        return vectors, is_taught


def read_once(
    rows: datasets.Dataset,
    read: Callable[[pa.Table], ReadRows],
    fingerprint: str,
    folder: str | os.PathLike | None,
    desc: str,
) -> StoredVectors:
    """Return the vectors of rows, which are read once and kept in a folder.

    Several processes may call this at once: one reads, the others wait for it. The one that reads
    shows its progress as a bar, or in a log as a line every 30 seconds. Reading that was killed
    continues behind the last chunk that it finished.

    Args:
        rows: The rows.
        read: Reads a table of rows.
        fingerprint: Identifies the rows and whatever decides the vectors; the name of the folder.
        folder: The folder of all caches, see `map_once`. None keeps the vectors in memory.
        desc: What the progress bar and the lines of a log begin with.

    Raises:
        OSError: The folder can't be written.
    """
    if folder is None:
        writer = MemoryWriter()
        # Every process reads by itself, and only the first shows its progress.
        _read_chunks(rows, read, writer, desc, is_shown=is_first_process())
        return writer.finish(len(rows), fingerprint)
    with locked_store(folder, fingerprint) as store:
        if read_progress(store).rows_done < len(rows):
            with folder_writer(store) as writer_to_folder:
                _read_chunks(rows, read, writer_to_folder, desc)
        return open_stored(store, len(rows), fingerprint)


@contextlib.contextmanager
def locked_store(folder: str | os.PathLike, fingerprint: str) -> Iterator[Path]:
    """Yield the folder of some vectors, which no other process writes meanwhile.

    Args:
        folder: The folder of all caches.
        fingerprint: Identifies the vectors.

    Raises:
        OSError: The folder can't be written.
    """
    with writable_cache(folder) as parent, FileLock(parent / f"{fingerprint}.lock"):
        store = parent / f"{fingerprint}.teacher"
        store.mkdir(exist_ok=True)
        yield store


def read_progress(store: Path) -> Progress:
    """Return how far the reading is that a folder keeps.

    Nothing was read if the folder has no record, or has lost what the record counts.
    """
    path = store / PROGRESS_NAME
    if not path.is_file():
        return Progress()
    progress = Progress(**json.loads(path.read_text(encoding="utf-8")))
    for name, size in _sizes(progress).items():
        file = store / name
        if not file.is_file() or file.stat().st_size < size:
            return Progress()
    return progress


def _sizes(progress: Progress) -> dict[str, int]:
    """Return the bytes of each file."""
    return {ROWS_NAME: 8 * progress.taught, VECTORS_NAME: 2 * progress.taught * progress.width}


def _read_chunks(
    rows: datasets.Dataset,
    read: Callable[[pa.Table], ReadRows],
    writer: MemoryWriter | FolderWriter,
    desc: str,
    is_shown: bool = True,
) -> None:
    tables = rows.with_format("arrow")
    first = writer.progress.rows_done
    if is_shown:
        announce(f"{desc}: {len(rows) - first:,} rows")
    with progress_bar(
        total=len(rows), initial=first, desc=desc, unit=" rows", disable=not is_shown
    ) as bar:
        for begin in range(first, len(rows), CHUNK_ROWS):
            clock = Clock()
            table = tables[begin : begin + CHUNK_ROWS]
            chunk = read(table)
            chunk = replace(chunk, rows=chunk.rows + begin)
            writer.write(chunk, len(table), clock)
            bar.update(len(table))


class Clock:
    """Counts seconds from the moment that it is made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._cpu_begin = time.process_time()

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return time.perf_counter() - self._begin

    @property
    def cpu_seconds(self) -> float:
        """The seconds of CPU time so far, of all threads."""
        return time.process_time() - self._cpu_begin


def _advance(progress: Progress, chunk: ReadRows, num_rows: int, clock: Clock) -> Progress:
    return Progress(
        rows_done=progress.rows_done + num_rows,
        taught=progress.taught + len(chunk.rows),
        width=chunk.vectors.shape[1] if len(chunk.rows) else progress.width,
        truncated=progress.truncated + chunk.truncated,
        seconds=progress.seconds + clock.seconds,
        cpu_seconds=progress.cpu_seconds + clock.cpu_seconds,
    )


class MemoryWriter:
    """Keeps chunks in memory."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._chunks: list[ReadRows] = []

    def write(self, chunk: ReadRows, num_rows: int, clock: Clock) -> None:
        """Keep a chunk, see `FolderWriter.write`."""
        if len(chunk.rows):
            self._chunks.append(chunk)
        self.progress = _advance(self.progress, chunk, num_rows, clock)

    def finish(self, total: int, fingerprint: str) -> StoredVectors:
        """Return the vectors of all chunks."""
        rows = np.zeros(0, np.int64)
        vectors = np.zeros((0, self.progress.width), np.float16)
        if self._chunks:
            rows = np.concatenate([chunk.rows for chunk in self._chunks])
            vectors = np.concatenate([chunk.vectors for chunk in self._chunks])
        return StoredVectors(total, self.progress, rows, vectors, fingerprint)


class FolderWriter:
    """Appends chunks to the files of a folder, see `folder_writer`.

    Args:
        store: The folder.
        progress: How far the reading is.
        rows_file: The file of the numbers of the rows.
        vectors_file: The file of the vectors.
    """

    def __init__(
        self, store: Path, progress: Progress, rows_file: BinaryIO, vectors_file: BinaryIO
    ):
        self.store = store
        self.progress = progress
        self._rows = rows_file
        self._vectors = vectors_file

    def write(self, chunk: ReadRows, num_rows: int, clock: Clock) -> None:
        """Append a chunk.

        Args:
            chunk: What was read.
            num_rows: The number of rows that were looked at.
            clock: The clock that ran meanwhile.
        """
        self._rows.write(chunk.rows.astype(np.int64).tobytes())
        self._vectors.write(chunk.vectors.astype(np.float16).tobytes())
        for file in (self._rows, self._vectors):
            file.flush()
            os.fsync(file.fileno())
        self.progress = _advance(self.progress, chunk, num_rows, clock)
        # The record comes last: what it counts is on the disk.
        write_atomically(self.store / PROGRESS_NAME, json.dumps(asdict(self.progress)))


@contextlib.contextmanager
def folder_writer(store: Path) -> Iterator[FolderWriter]:
    """Yield what writes to a folder, behind the last chunk that it has in full.

    What a killed process has written of a chunk that it did not finish is cut off.

    Args:
        store: The folder.
    """
    progress = read_progress(store)
    sizes = _sizes(progress)
    with open(store / ROWS_NAME, "ab") as rows_file, open(store / VECTORS_NAME, "ab") as vectors:
        rows_file.truncate(sizes[ROWS_NAME])
        vectors.truncate(sizes[VECTORS_NAME])
        yield FolderWriter(store, progress, rows_file, vectors)


def open_stored(store: Path, total: int, fingerprint: str) -> StoredVectors:
    """Open the vectors of a folder that has all of them."""
    progress = read_progress(store)
    rows = _map(store / ROWS_NAME, np.int64, (progress.taught,))
    vectors = _map(store / VECTORS_NAME, np.float16, (progress.taught, progress.width))
    return StoredVectors(total, progress, rows, vectors, fingerprint, store)


def _map(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    if 0 in shape:
        return np.zeros(shape, dtype)  # An empty file can't be mapped.
    return np.memmap(path, dtype, "r", shape=shape)
