"""Several teachers as one: their vectors centered, concatenated and projected to a width."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets.fingerprint import Hasher

from tmde.data.io import replacing
from tmde.training.teachers.storage import (
    PROGRESS_NAME,
    Clock,
    FolderWriter,
    MemoryWriter,
    ReadRows,
    StoredVectors,
    folder_writer,
    locked_store,
    open_stored,
    read_progress,
)

BLOCK_ROWS = 16384  # The rows that are computed at a time, in float64.
COMBINATION_NAME = "combination.npz"
SMALLEST_LENGTH = 1e-12  # A vector that equals the mean has no direction, and becomes 0.


@dataclass(frozen=True)
class Combination:
    """How the vectors of one or more teachers become one vector.

    Each teacher's vectors are centered and scaled to length 1. They are concatenated and divided by
    the square root of the number of teachers, so that each teacher has the same share of a vector
    of length 1. Where that is wider than the student, its principal components take its place,
    rotated so that they are as close as possible to the vectors of the first teacher that is as
    wide as the student. A student that begins as that teacher then has the least to change.

    Attributes:
        widths: The width of each teacher's vectors.
        means: (sum of widths,), the mean of each teacher's vectors, one after the other.
        center: (sum of widths,), the mean of the concatenated vectors, which the projection
            subtracts.
        components: (sum of widths, d), the projection; None where there is none.
        fingerprint: Identifies the rows, the teachers and the width.
    """

    widths: tuple[int, ...]
    means: np.ndarray
    center: np.ndarray
    components: np.ndarray | None
    fingerprint: str = ""

    def __call__(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the combined vectors (rows, d) float64 of each teacher's vectors."""
        concatenated = concatenate(vectors, self.means)
        if self.components is None:
            return concatenated
        projected: np.ndarray = (concatenated - self.center) @ self.components
        return projected

    @property
    def width(self) -> int:
        """The width of the combined vectors."""
        if self.components is None:
            return sum(self.widths)
        return self.components.shape[1]


def concatenate(vectors: Sequence[np.ndarray], means: np.ndarray) -> np.ndarray:
    """Return the vectors of all teachers, centered, scaled and concatenated.

    Args:
        vectors: (rows, width) of each teacher.
        means: (sum of widths,), their means.

    Returns:
        (rows, sum of widths) float64, of length 1, or less where a vector is equal to the mean.
    """
    parts = []
    begin = 0
    for teacher_vectors in vectors:
        width = teacher_vectors.shape[1]
        centered = teacher_vectors.astype(np.float64) - means[begin : begin + width]
        lengths = np.linalg.norm(centered, axis=1, keepdims=True)
        parts.append(centered / np.maximum(lengths, SMALLEST_LENGTH))
        begin += width
    concatenated: np.ndarray = np.concatenate(parts, axis=1) / np.sqrt(len(parts))
    return concatenated


def fit_combination(
    vectors: Sequence[np.ndarray], width: int, fingerprint: str = ""
) -> Combination:
    """Return the combination of teachers, from the vectors of all rows that they read.

    The projection is the principal component analysis of the concatenated vectors, in float64: the
    eigenvectors of their covariance with the largest eigenvalues. The largest coordinate of each is
    positive, so that the same vectors give the same projection. With fewer rows than coordinates,
    or fewer independent ones, there are fewer components with any variance than the width. Then
    the remaining components are 0: no distance between the rows is lost.

    The components are then rotated, which changes no distance: see [`Combination`].

    Args:
        vectors: (rows, width) of each teacher, perhaps memory-mapped.
        width: The width of the combined vectors, at most the sum of the teachers' widths.
        fingerprint: Identifies the result.
    """
    widths = tuple(teacher_vectors.shape[1] for teacher_vectors in vectors)
    means = np.concatenate([_mean(teacher_vectors) for teacher_vectors in vectors])
    if sum(widths) == width:
        return Combination(widths, means, np.zeros_like(means), None, fingerprint)
    num_rows = len(vectors[0])
    total = np.zeros(sum(widths))
    products = np.zeros((sum(widths), sum(widths)))
    for block in _blocks(vectors):
        concatenated = concatenate(block, means)
        total += concatenated.sum(axis=0)
        products += concatenated.T @ concatenated
    center = total / num_rows
    covariance = products / num_rows - np.outer(center, center)
    components = _principal_components(covariance, width)
    columns = _columns_of_width(widths, width)
    if columns is not None:
        components = components @ _closest_rotation(components.T @ covariance[:, columns])
    return Combination(widths, means, center, components, fingerprint)


def _principal_components(covariance: np.ndarray, width: int) -> np.ndarray:
    """Return the first eigenvectors, (n, width), zero where there is no variance."""
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)  # in ascending order
    largest_first = np.argsort(-eigenvalues, kind="stable")[:width]
    variances = eigenvalues[largest_first]
    components = eigenvectors[:, largest_first]
    columns = np.arange(components.shape[1])
    largest_coordinates = components[np.abs(components).argmax(axis=0), columns]
    components = components * np.sign(largest_coordinates)
    rounding = len(covariance) * np.finfo(np.float64).eps * max(variances[0], 0.0)
    return np.where(variances > rounding, components, 0.0)


def _columns_of_width(widths: tuple[int, ...], width: int) -> slice | None:
    """Return the columns of the first teacher of a width; None if there is none."""
    if width not in widths:
        return None
    begin = sum(widths[: widths.index(width)])
    return slice(begin, begin + width)


def _closest_rotation(covariance: np.ndarray) -> np.ndarray:
    """Return the orthogonal matrix R with which x R is closest to y (orthogonal Procrustes).

    Args:
        covariance: (n, n), of the coordinates of x with those of y.
    """
    left, _, right = np.linalg.svd(covariance)
    rotation: np.ndarray = left @ right
    return rotation


def _mean(vectors: np.ndarray) -> np.ndarray:
    total = np.zeros(vectors.shape[1])
    for (block,) in _blocks([vectors]):
        total += block.sum(axis=0, dtype=np.float64)
    return total / len(vectors)


def _blocks(vectors: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield some rows of all teachers at a time."""
    for begin in range(0, len(vectors[0]), BLOCK_ROWS):
        yield [teacher_vectors[begin : begin + BLOCK_ROWS] for teacher_vectors in vectors]


# ---- Combined once


def combine_once(
    stores: Sequence[StoredVectors],
    width: int,
    folder: str | os.PathLike | None,
    combination: Combination | None = None,
) -> tuple[StoredVectors, Combination]:
    """Return the combined vectors of the rows that all teachers read, and the combination.

    Args:
        stores: The vectors of each teacher, of the same rows.
        width: The width of the student.
        folder: The folder of all caches. None keeps the vectors in memory.
        combination: The combination that was fitted on other rows; None to fit it on these.

    Raises:
        OSError: The folder can't be written.
    """
    content = ["combined and rotated teachers", [store.fingerprint for store in stores], width]
    fingerprint = Hasher.hash(content)
    if combination is not None and combination.fingerprint != fingerprint:
        # It was fitted on other rows than these.
        fingerprint = Hasher.hash([*content, combination.fingerprint])
    if folder is None:
        clock = Clock()
        if combination is None:
            combination = fit_combination(_vectors_of(stores), width, fingerprint)
        memory_writer = MemoryWriter()
        _write_combined(stores, combination, memory_writer, clock)
        return memory_writer.finish(stores[0].total, fingerprint), combination
    with locked_store(folder, fingerprint) as store:
        if read_progress(store).rows_done < stores[0].total:
            clock = Clock()
            (store / PROGRESS_NAME).unlink(missing_ok=True)
            if combination is None:
                combination = fit_combination(_vectors_of(stores), width, fingerprint)
            if combination.fingerprint == fingerprint:
                # It was fitted on these rows, and a later run will look for it here.
                _save(combination, store / COMBINATION_NAME)
            with folder_writer(store) as writer:
                _write_combined(stores, combination, writer, clock)
        elif combination is None:
            combination = _load(store / COMBINATION_NAME, fingerprint)
        return open_stored(store, stores[0].total, fingerprint), combination


def _vectors_of(stores: Sequence[StoredVectors]) -> list[np.ndarray]:
    return [store.vectors for store in stores]


def _write_combined(
    stores: Sequence[StoredVectors],
    combination: Combination,
    writer: MemoryWriter | FolderWriter,
    clock: Clock,
) -> None:
    rows = stores[0].rows
    begin = 0
    if len(rows):
        for block in _blocks(_vectors_of(stores)):
            end = begin + len(block[0])
            combined = combination(block).astype(np.float16)
            writer.write(ReadRows(rows[begin:end], combined), 0, clock)
            clock = Clock()
            begin = end
    # Only now all rows are done: what was killed before begins again.
    nothing = ReadRows(rows[:0], np.zeros((0, combination.width), np.float16))
    writer.write(nothing, stores[0].total, clock)


def _save(combination: Combination, path: Path) -> None:
    arrays: dict[str, Any] = {
        "widths": np.array(combination.widths),
        "means": combination.means,
        "center": combination.center,
    }
    if combination.components is not None:
        arrays["components"] = combination.components
    with replacing(path) as temporary:
        np.savez(temporary, **arrays)


def _load(path: Path, fingerprint: str) -> Combination:
    with np.load(path, allow_pickle=False) as arrays:
        components = arrays.get("components")
        widths = tuple(arrays["widths"].tolist())
        return Combination(widths, arrays["means"], arrays["center"], components, fingerprint)
