"""Several teachers as one: their vectors centered, concatenated and projected to a width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

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
        means: (sum of widths,), the mean of each teacher's vectors, one after the other.
        center: (sum of widths,), the mean of the concatenated vectors, which the projection
            subtracts.
        components: (sum of widths, d), the projection.
    """

    means: np.ndarray
    center: np.ndarray
    components: np.ndarray

    def __call__(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the combined vectors (rows, d) float64 of each teacher's vectors."""
        projected: np.ndarray = (concatenate(vectors, self.means) - self.center) @ self.components
        return projected


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
    blocks: Iterable[Sequence[np.ndarray]], widths: Sequence[int], width: int
) -> Combination:
    """Return the combination of teachers, from the vectors of all rows that they read.

    The projection is the principal component analysis of the concatenated vectors, in float64: the
    eigenvectors of their covariance with the largest eigenvalues. The largest coordinate of each is
    positive, so that the same vectors give the same projection. With fewer rows than coordinates,
    or fewer independent ones, there are fewer components with any variance than the width. Then
    the remaining components are 0: no distance between the rows is lost.

    The components are then rotated, which changes no distance: see [`Combination`].

    Args:
        blocks: Some rows at a time, (rows, width) of each teacher. They are read twice.
        widths: The width of each teacher's vectors.
        width: The width of the combined vectors, at most the sum of the teachers' widths.
    """
    num_rows = 0
    total = np.zeros(sum(widths))
    for block in blocks:
        num_rows += len(block[0])
        sums = [vectors.sum(axis=0, dtype=np.float64) for vectors in block]
        total += np.concatenate(sums)
    means = total / num_rows
    if sum(widths) == width:
        return Combination(means, np.zeros(width), np.eye(width))
    total = np.zeros(sum(widths))
    products = np.zeros((sum(widths), sum(widths)))
    for block in blocks:
        concatenated = concatenate(block, means)
        total += concatenated.sum(axis=0)
        products += concatenated.T @ concatenated
    center = total / num_rows
    covariance = products / num_rows - np.outer(center, center)
    components = _principal_components(covariance, width)
    if width in widths:
        begin = sum(widths[: widths.index(width)])
        shared = components.T @ covariance[:, begin : begin + width]
        # The closest rotation to the teacher's directions (orthogonal Procrustes).
        rotation, _ = scipy.linalg.polar(shared)
        components = components @ rotation
    return Combination(means, center, components)


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
