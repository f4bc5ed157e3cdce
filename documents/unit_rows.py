"""Matrices of vectors, dense or sparse, whose rows are compared by cosine, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias, TypeGuard

import numpy as np
import scipy.sparse
import torch

from modeling_tmde import TmdeError
from tmde.embedding.progress import progress_bar

Matrix: TypeAlias = np.ndarray | scipy.sparse.csr_matrix

BLOCK = 4096  # rows of a block on each side: 64 MiB of similarities

# Cosines less than this apart count as equal, because the vectors of one text differ that much in
# float32 by order of summation.
TIE = 1e-6
_BLOCKS_WITH_BAR = 10  # blocks from which on a progress bar is shown


class UnitRows:
    """The rows of a matrix at unit length.

    They are computed block by block, so that the matrix is never copied whole.

    Args:
        name: The name of the matrix in messages.
        matrix: (n, d), dense or sparse. A row of zeros stays one: its cosine to anything is 0.
        dtype: The type of the rows.

    Raises:
        TmdeError: Not two-dimensional, no rows, or a number that is not finite.
    """

    def __init__(self, name: str, matrix: Matrix, dtype: type = np.float32) -> None:
        self.matrix: Matrix
        if _is_sparse(matrix):
            self.matrix = matrix.tocsr()
        else:
            self.matrix = np.asarray(matrix)
        self.shape = self.matrix.shape
        self.dtype = dtype
        if len(self.shape) != 2 or not self.shape[0]:
            raise TmdeError(
                f"{name}: found shape {self.shape}, "
                "expected (rows, dimensions) with at least one row"
            )
        self.norms = self._norms()  # (n,) float64
        bad = np.flatnonzero(~np.isfinite(self.norms))
        if len(bad):
            raise TmdeError(
                f"{name}: found a vector that is not finite in row {bad[0]}, one of "
                f"{len(bad)} such rows out of {self.shape[0]}; check the model that produced "
                "them"
            )
        self.norms[self.norms == 0] = 1

    @property
    def is_sparse(self) -> bool:
        """Whether the matrix is sparse."""
        return _is_sparse(self.matrix)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> Matrix:
        chosen = self.matrix[rows]
        norms = self.norms[rows, None]
        if _is_sparse(chosen):
            scaled = chosen.astype(np.float64).multiply(1 / norms)
            return scipy.sparse.csr_matrix(scaled, dtype=self.dtype)
        return _divided(chosen, norms, self.dtype)

    def blocks(self, desc: str | None = None) -> Iterator[tuple[slice, Matrix]]:
        """Yield blocks of rows: where they stand, and their unit vectors.

        Args:
            desc: What a progress bar begins with, if there are many blocks; None for no bar.
        """
        parts: Iterable[slice] = slices(len(self), BLOCK)
        if desc is not None:
            parts = slices_with_bar(len(self), BLOCK, desc)
        for rows in parts:
            yield rows, self[rows]

    def _norms(self) -> np.ndarray:
        squares = []
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in slices(len(self), BLOCK):
                block = self.matrix[rows].astype(np.float64)
                squares.append(row_products(block, block))
            return np.sqrt(np.concatenate(squares))


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) at length 1, float32; a vector of zeros stays one."""
    norms = np.sqrt(row_products(vectors, vectors))  # (n,)
    norms[norms == 0] = 1
    return _divided(vectors, norms[:, None], np.float32)


def _divided(vectors: np.ndarray, norms: np.ndarray, dtype: type) -> np.ndarray:
    """Return vectors (n, d) over their norms (n, 1), computed in float64, as `dtype`."""
    result: np.ndarray = np.empty(vectors.shape, dtype)
    return np.divide(vectors, norms, out=result, casting="same_kind")


def two_sides(
    first: tuple[str, Matrix], second: tuple[str, Matrix], dtype: type = np.float32
) -> tuple[UnitRows, UnitRows]:
    """Return the unit rows of two matrices that are compared with each other.

    Args:
        first: The name in messages and the matrix of one side.
        second: Those of the other.
        dtype: The type of the rows.

    Raises:
        TmdeError: The dimensions differ, or one is sparse and the other is not; or as [`UnitRows`].
    """
    first_rows = UnitRows(*first, dtype)
    second_rows = UnitRows(*second, dtype)
    first_kind = _kind(first_rows)
    second_kind = _kind(second_rows)
    if first_kind != second_kind:
        raise TmdeError(
            f"{first[0]}, {second[0]}: found {first_kind} and {second_kind} dimensions, "
            "expected equal ones; use one system for both sides"
        )
    return first_rows, second_rows


def _is_sparse(matrix: Matrix) -> TypeGuard[scipy.sparse.csr_matrix]:
    return scipy.sparse.issparse(matrix)


def _kind(rows: UnitRows) -> str:
    density = "sparse" if rows.is_sparse else "dense"
    return f"{rows.shape[1]} {density}"


def row_cosines(first: Matrix, second: Matrix) -> np.ndarray:
    """Return the cosine of each row of `first` to the same row of `second`.

    Args:
        first: (n, d), dense or sparse.
        second: (n, d), of the same kind.

    Returns:
        (n,) float64

    Raises:
        TmdeError: Different shapes, no rows, or numbers that are not finite.
    """
    first_rows, second_rows = two_sides(("first", first), ("second", second))
    if len(first_rows) != len(second_rows):
        raise TmdeError(
            f"Found {len(first_rows)} rows in first and {len(second_rows)} in second, "
            "expected as many"
        )
    cosines = [row_products(unit, second_rows[rows]) for rows, unit in first_rows.blocks()]
    return np.concatenate(cosines)


def products(queries: Matrix, candidates: Matrix) -> np.ndarray:
    """Return the products of all rows, (n, m), dense."""
    result = queries @ candidates.T
    return result.toarray() if _is_sparse(result) else result


def row_products(first: Matrix, second: Matrix) -> np.ndarray:
    """Return the products of rows at equal positions, (n,) float64."""
    if _is_sparse(first):
        product = first.astype(np.float64).multiply(second)
        return np.asarray(product.sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", first, second, dtype=np.float64)


def largest(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest of each row, falling, and their columns, (n, k) each.

    Of equal values, the lowest columns come first.
    """
    if 2 * k >= values.shape[1]:
        columns = np.argsort(-values, axis=1, kind="stable")[:, :k]
    else:
        columns = _columns_of_largest(values, k)
    chosen = np.take_along_axis(values, columns, axis=1)
    order = np.argsort(-chosen, axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(columns, order, axis=1)


def _columns_of_largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the columns of the k largest of each row, rising, (n, k)."""
    top = torch.topk(torch.from_numpy(values), k + 1)
    top_values = top.values.numpy()
    columns = top.indices.numpy()
    # torch takes any of the columns that tie for the last place.
    for row in np.flatnonzero(top_values[:, k] == top_values[:, k - 1]):
        columns[row, :k] = np.argsort(-values[row], kind="stable")[:k]
    return np.sort(columns[:, :k], axis=1)


def slices(total: int, size: int) -> list[slice]:
    """Return slices of `size` that together hold `total` rows."""
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def slices_with_bar(total: int, size: int, desc: str) -> Iterable[slice]:
    """Return [`slices`] with a progress bar, if there are ten or more."""
    parts = slices(total, size)
    return progress_bar(parts, desc=desc, unit=" blocks", disable=len(parts) < _BLOCKS_WITH_BAR)
