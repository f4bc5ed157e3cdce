"""A teacher that is a file: the vectors of any model, with the texts that they are of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from modeling_tmde import TmdeError
from tmde.embedding.loading import errors_about
from tmde.training.teachers.versions import KEY, TeacherVersion

TEXT = "text"
VECTOR = "vector"
SHOWN_CHARACTERS = 60  # The length at which an error cuts a text that it quotes.
LARGEST = float(np.finfo(np.float16).max)  # Vectors are stored in float16.


@dataclass(frozen=True)
class VectorTable:
    """The content of a file of vectors, in memory.

    Attributes:
        row_of: The row of each text.
        vectors: (rows, d), in the precision of the file.
    """

    row_of: dict[str, int]
    vectors: np.ndarray


@dataclass(frozen=True)
class FileTeacher:
    """A parquet file with the columns `text` and `vector`, of a model that need not be at hand.

    A vector is a list of numbers, of a fixed length or not, in float16, float32 or float64. The
    file knows a text if it has that very text. It is read when it is first needed, and takes as
    much memory as its vectors.

    Args:
        version: From `find_version`.
    """

    version: TeacherVersion

    @cached_property
    def table(self) -> VectorTable:
        """The texts and vectors.

        Raises:
            TmdeError: The file is not parquet, lacks a column, or has another type in it; or a row
                has no text, no vector, one of another length, or one with NaN or numbers that
                float16 can't hold; or a text has two different vectors.
        """
        return read_vector_table(self.version.path)

    @property
    def content(self) -> list[Any]:
        """What decides the vector of a text."""
        return [self.version.identity]

    def knows(self, text: str) -> bool:
        """Return whether the file has the vector of a text."""
        return text in self.table.row_of

    def encode(self, texts: list[str], language: str) -> np.ndarray:
        """Return the vectors (texts, d) of texts that the file knows."""
        rows = [self.table.row_of[text] for text in texts]
        vectors: np.ndarray = self.table.vectors[rows]
        return vectors

    def is_truncated(self, texts: list[str]) -> np.ndarray:
        """Return False for each text: the file does not say what its model has read of it."""
        return np.zeros(len(texts), bool)


def read_vector_table(path: Path, place: str | None = None) -> VectorTable:
    """Read a file of vectors.

    Args:
        path: The parquet file.
        place: How errors name the file. Default: by its key in a recipe.

    Raises:
        TmdeError: See `FileTeacher.table`.
    """
    place = place or f"{KEY}={path}"
    with errors_about(f"{place}: it can't be read as parquet"):
        names = pq.read_schema(path).names
    for name in (TEXT, VECTOR):
        if name not in names:
            raise TmdeError(
                f"{place}: found no column {name!r} among {', '.join(names)}; expected the "
                f"columns {TEXT!r} and {VECTOR!r}"
            )
    with errors_about(f"{place}: it can't be read as parquet"):
        table = pq.read_table(path, columns=[TEXT, VECTOR])
    if len(table) == 0:
        raise TmdeError(f"{place}: found no rows, expected texts with their vectors")
    texts = _read_texts(table[TEXT], place)
    vectors = _read_vectors(table[VECTOR], place)
    invalid_row = first_invalid_row(vectors)
    if invalid_row is not None:
        raise TmdeError(
            f"{place}, row {invalid_row + 1} ({_shown(texts[invalid_row])}): found a vector "
            "with NaN or too large elements, expected elements between -65504 and 65504; "
            "remove the row"
        )
    return VectorTable(_index(texts, vectors, place), vectors)


def _read_texts(column: pa.ChunkedArray, place: str) -> list[str]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise TmdeError(f"{place}, column {TEXT!r}: found {column.type}, expected strings")
    texts = column.to_pylist()
    for number, text in enumerate(texts, start=1):
        if not text:
            raise TmdeError(
                f"{place}, row {number}: found {text!r}, expected a text; remove the row"
            )
    return texts


def _read_vectors(column: pa.ChunkedArray, place: str) -> np.ndarray:
    """Return the vectors (rows, d)."""
    kind = column.type
    is_list = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise TmdeError(
            f"{place}, column {VECTOR!r}: found {kind}, expected lists of float16, float32 or "
            "float64"
        )
    lengths = pc.list_value_length(column).fill_null(0).to_numpy()
    width = int(lengths[0])
    has_other_length = lengths != (width or -1)  # The first vector may be missing or empty.
    if has_other_length.any():
        row = int(has_other_length.argmax())
        expected = f"{width}, as in row 1" if width else "one number or more"
        raise TmdeError(
            f"{place}, row {row + 1}: found a vector of length {lengths[row]}, expected {expected}"
        )
    blocks = []
    for chunk in column.chunks:
        if len(chunk):
            values = chunk.flatten()
            # A number that is missing becomes NaN, which is refused.
            blocks.append(values.to_numpy(zero_copy_only=False).reshape(len(chunk), width))
    return np.concatenate(blocks)


def _index(texts: list[str], vectors: np.ndarray, place: str) -> dict[str, int]:
    """Return the row of each text. A text may occur again with the same vector."""
    row_of: dict[str, int] = {}
    for row, text in enumerate(texts):
        first_row = row_of.setdefault(text, row)
        if first_row != row and not np.array_equal(vectors[first_row], vectors[row]):
            raise TmdeError(
                f"{place}: found different vectors of {_shown(text)} in rows {first_row + 1} "
                f"and {row + 1}, expected one; remove one of the rows"
            )
    return row_of


def first_invalid_row(vectors: np.ndarray) -> int | None:
    """Return the first row (of rows, d) with NaN or a number that float16 can't hold, if any."""
    is_valid = (np.abs(vectors) <= LARGEST).all(axis=1)  # NaN is not.
    if is_valid.all():
        return None
    return int(is_valid.argmin())


def _shown(text: str) -> str:
    return repr(text[:SHOWN_CHARACTERS])
