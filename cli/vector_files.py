"""Writing vectors for `tmde embed`: `.npy` and `.parquet` files that are complete or not there at all."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from modeling_tmde.data.documents import VECTOR_COLUMN, EmbedError

# numpy and pyarrow are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


def check_output(
    out: Path, overwrite: bool, suffixes: Sequence[str] = (".npy", ".parquet"), option: str = "--output"
) -> Path:
    """The file to write, through links.

    Raises:
        EmbedError: A name or place that cannot be written, a file that is there and may not be replaced; `option`
            named it.
    """
    if out.suffix not in suffixes:
        raise EmbedError(f"{option} {out}: found suffix {out.suffix!r}, expected {' or '.join(suffixes)}")
    if out.is_dir():
        raise EmbedError(f"{option} {out} is a folder, expected a file name")
    if out.exists() and not overwrite:
        raise EmbedError(f"{option} {out} exists; give --overwrite to replace it")
    target = out.resolve()  # through a link, to replace what it points to and not the link
    if not target.parent.is_dir():
        raise EmbedError(f"{option} {out}: folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise EmbedError(f"{option} {out}: folder {target.parent} is not writable")
    return target


@contextmanager
def replacing(out: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `out` when all went well, and is gone when not."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


def vector_writer(target: Path, file: BinaryIO, dimension: int, schema: pa.Schema | None) -> VectorWriter:
    """For the format that the suffix of `target` names; `schema`: of the columns that parquet keeps."""
    return NpyWriter(file, dimension) if target.suffix == ".npy" else ParquetWriter(file, dimension, schema)


class NpyWriter:
    """Rows after a reserved header, which gets their number at the end: the length of a pipe is not known before."""

    HEADER = 128  # bytes, room for any two numbers

    def __init__(self, file: BinaryIO, dimension: int) -> None:
        self.file, self.dimension, self.rows = file, dimension, 0

    def __enter__(self) -> NpyWriter:
        self.file.write(bytes(self.HEADER))
        return self

    def __exit__(self, *_) -> None:
        shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.dimension}), }}"
        text = shape.ljust(self.HEADER - 11) + "\n"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii"))

    def write(self, vectors: np.ndarray, columns: pa.Table | None) -> None:
        """Vectors (n, d); there are no columns to keep."""
        self.file.write(vectors.astype("<f4", copy=False).data)
        self.rows += len(vectors)


class ParquetWriter:
    """The input's columns and their vectors, one row group a chunk."""

    def __init__(self, file: BinaryIO, dimension: int, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.schema = schema.append(pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), dimension)))
        self.writer = pq.ParquetWriter(file, self.schema)

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_) -> None:
        self.writer.close()

    def write(self, vectors: np.ndarray, columns: pa.Table) -> None:
        """Vectors (n, d) and the n rows that they are of."""
        import pyarrow as pa

        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        self.writer.write_table(pa.Table.from_arrays([*columns.columns, column], schema=self.schema))


VectorWriter = NpyWriter | ParquetWriter
