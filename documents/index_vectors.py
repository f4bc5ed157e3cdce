"""How the vectors of an index are stored: float32, 8 bits, or 1 bit a number.

A table has one of these sets of columns:

- float32: `vector`, the unit vectors.
- int8: `_levels`, the numbers that [`quantized`] returns, and `_signs`.
- ubinary: `_signs` alone.

LanceDB searches neither int8 vectors nor float queries among signs. `_signs` holds 1 bit for each
number that says on which side of the documents' mean it is. The inverted file of a large index goes
over it by Hamming distance, and what it finds is compared by the cosine of the restored vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from modeling_tmde import TmdeError
from tmde.documents.index_columns import SMALL_VECTOR_COLUMNS
from tmde.documents.unit_rows import unit_vectors
from tmde.embedding.quantization import quantized

PRECISIONS = ("float32", "int8", "ubinary")  # those of `quantized` that an index can have
FITTED_FROM = 256  # documents from which their mean is computed, at least
FITTED_ON = 10_000  # documents from which it is computed, at most

FLOATS = "vector"
LEVELS, SIGNS = SMALL_VECTOR_COLUMNS
VECTOR_COLUMNS = (FLOATS, LEVELS, SIGNS)  # The first of them that a table has is compared.


@dataclass(frozen=True)
class Center:
    """Where the vectors of an index lie: what their signs are relative to, and stand for.

    Vectors of a model often lie in a narrow cone, where most numbers have the same sign in nearly
    all of them. Signs of the differences to the mean tell them apart.

    Attributes:
        mean: The mean of unit vectors, (d,) float32.
        spread: The mean absolute difference of a number to its mean.
    """

    mean: np.ndarray
    spread: float

    @classmethod
    def fitted(cls, vectors: np.ndarray) -> Center:
        """Return the center of unit vectors, (n, d)."""
        mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        return cls(mean, float(np.abs(vectors - mean).mean()))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Center | None:
        """Return the center that the settings of an index store; None if there is none."""
        stored = settings.get("center")
        if stored is None:
            return None
        return cls(np.array(stored["mean"], np.float32), stored["spread"])

    def as_settings(self) -> dict[str, Any]:
        """Return the center as JSON values."""
        return {"mean": self.mean.tolist(), "spread": self.spread}

    def signs(self, vectors: np.ndarray) -> np.ndarray:
        """Return for each number whether it is above its mean, (n, d / 8) packed into uint8."""
        return quantized(vectors - self.mean, "ubinary")

    def restored(self, signs: np.ndarray) -> np.ndarray:
        """Return the unit vectors that packed signs stand for, (n, d) float32.

        A number is its mean, plus or minus the spread. Because the mean is added again, the cosines
        to whole vectors are close to those of the vectors that the signs were made of.
        """
        return unit_vectors(self._from_differences(signs, np.float32(self.spread)))

    def sampled(self, signs: np.ndarray, seed: int) -> np.ndarray:
        """Return unit vectors with these signs and random magnitudes, (n, d) float32.

        The magnitudes are those of a normal distribution with the same spread.
        """
        shape = (len(signs), len(self.mean))
        magnitudes = np.abs(np.random.default_rng(seed).standard_normal(shape, np.float32))
        magnitudes *= self.spread / np.sqrt(2 / np.pi)  # E|x| of a standard normal x.
        return unit_vectors(self._from_differences(signs, magnitudes))

    def _from_differences(
        self, signs: np.ndarray, magnitudes: np.ndarray | np.float32
    ) -> np.ndarray:
        """Return the mean plus differences that have these signs and magnitudes, (n, d)."""
        bits = np.unpackbits(signs, axis=1, count=len(self.mean))
        return self.mean + np.where(bits == 1, magnitudes, -magnitudes)


def check_precision(precision: str) -> None:
    """Raise TmdeError if an index cannot have this precision."""
    if precision not in PRECISIONS:
        raise TmdeError(
            f"precision: found {precision!r}, expected one of {PRECISIONS} for an index"
        )


def float_field(dimension: int) -> pa.Field:
    """Return the column of vectors in float32."""
    return pa.field(FLOATS, pa.list_(pa.float32(), dimension))


def comparable_column(schema: pa.Schema) -> str:
    """Return the column from which the vectors of a table are restored."""
    for name in VECTOR_COLUMNS:
        if name in schema.names:
            return name
    raise AssertionError(f"{schema.names}: no column of vectors")


def small_columns(vectors: np.ndarray, precision: str, center: Center) -> pa.Table:
    """Return the columns that store unit vectors, (n, d), in 8 bits or 1 bit a number."""
    columns = {SIGNS: _column(center.signs(vectors), pa.uint8())}
    if precision == "int8":
        columns[LEVELS] = _column(quantized(vectors, "int8"), pa.int8())
    return pa.table(columns)


def float_columns(vectors: np.ndarray) -> pa.Table:
    """Return the column that stores unit vectors, (n, d), as they are."""
    return pa.table({FLOATS: _column(vectors, pa.float32())})


def restored_vectors(table: pa.Table, center: Center | None) -> np.ndarray:
    """Return the unit vectors that the stored ones stand for, (n, d) float32.

    Args:
        table: n rows with the column `comparable_column`.
        center: The center of the index. Only signs need it.
    """
    name = comparable_column(table.schema)
    numbers = _numbers(table, name)
    if name == FLOATS:
        return numbers
    if name == LEVELS:
        return unit_vectors(numbers.astype(np.float32))
    assert center is not None
    return center.restored(numbers)


def stored_signs(table: pa.Table) -> np.ndarray:
    """Return the packed signs of n rows, (n, d / 8) uint8."""
    return _numbers(table, SIGNS)


def _column(numbers: np.ndarray, type: pa.DataType) -> pa.Array:
    values = pa.array(np.ascontiguousarray(numbers).reshape(-1), type)
    return pa.FixedSizeListArray.from_arrays(values, numbers.shape[1])


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    column = table[name].combine_chunks()
    return column.flatten().to_numpy().reshape(-1, column.type.list_size)
