"""The directions that the vectors of a language share (Gong et al., 2021, section 3.2).

The directions are the right singular vectors of the matrix of a language's vectors, which is not
centered. They are computed as eigenvectors of its Gram matrix (d, d), a sum over the vectors in
float64, so that the vectors need not fit into memory.
"""

from __future__ import annotations

import numpy as np

from modeling_tmde import TmdeError


def gram(vectors: np.ndarray) -> np.ndarray:
    """Return the Gram matrix of the dimensions, (d, d) float64: a sum over vectors (n, d).

    Raises:
        TmdeError: A number is not finite.
    """
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise TmdeError("vectors: found a number that is not finite; look at the model")
    return vectors.T @ vectors


def dominant_directions(gram_matrix: np.ndarray) -> np.ndarray:
    """Return all directions that vectors span, orthonormal, the dominant first.

    Args:
        gram_matrix: The Gram matrix of the vectors, (d, d).

    Returns:
        (directions, d) float64.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(gram_matrix)  # (d,) rising, (d, d)
    rounding = eigenvalues[-1] * len(eigenvalues) * np.finfo(float).eps
    is_spanned = eigenvalues > rounding
    dominant_first = eigenvectors[:, is_spanned][:, ::-1]
    return np.ascontiguousarray(dominant_first.T)


def highest_rank(directions: np.ndarray) -> int:
    """Return how many of the directions (directions, d) can be removed: one dimension must stay."""
    count, dimension = directions.shape
    return min(count, dimension - 1)


def without_directions(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Return vectors (n, d) without their components in orthonormal directions (rank, d).

    Returns:
        (n, d) float64.
    """
    vectors = np.asarray(vectors, np.float64)
    return vectors - (vectors @ directions.T) @ directions
