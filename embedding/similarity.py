# SPDX-License-Identifier: Apache-2.0

"""How similar two vectors are: the four measures of sentence-transformers, by its names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import normalize

from modeling_tmde import TmdeError

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

Embeddings: TypeAlias = np.ndarray | torch.Tensor | Sequence[np.ndarray] | Sequence[torch.Tensor]


def check_similarity_name(name: str) -> None:
    """Raise TmdeError if there is no such measure."""
    if name not in SIMILARITIES:
        raise TmdeError(f"similarity_fn_name: found {name!r}, expected one of {SIMILARITIES}")


def similarity_matrix(name: str, embeddings1: Embeddings, embeddings2: Embeddings) -> torch.Tensor:
    """Return the similarity of every vector of one list to every vector of another.

    Args:
        name: `"cosine"`, `"dot"`, or the negative distance `"euclidean"` or `"manhattan"`.
        embeddings1: (n, d), or one vector (d,).
        embeddings2: (m, d), or one vector (d,).

    Returns:
        (n, m), on the device of the first.

    Raises:
        TmdeError: The measure is unknown, or the vectors differ in width.
    """
    check_similarity_name(name)
    first = _as_rows(_float_tensor(embeddings1))
    second = _as_rows(_float_tensor(embeddings2)).to(first.device)
    _check_widths(first, second)
    return _MATRICES[name](first, second)


def pairwise_similarity(
    name: str, embeddings1: Embeddings, embeddings2: Embeddings
) -> torch.Tensor:
    """Return the similarity of each vector to the vector at the same place of another list.

    Args:
        name: See `similarity_matrix`.
        embeddings1: (n, d), or one vector (d,).
        embeddings2: (n, d), or one vector (d,).

    Returns:
        (n,), on the device of the first; a number for two single vectors.

    Raises:
        TmdeError: The measure is unknown, or the vectors differ in width or number.
    """
    check_similarity_name(name)
    first = _float_tensor(embeddings1)
    second = _float_tensor(embeddings2).to(first.device)
    _check_widths(first, second)
    if first.ndim == second.ndim == 2 and len(first) != len(second):
        raise TmdeError(
            f"embeddings2: found {len(second)} vectors, expected {len(first)}, one for each of "
            "embeddings1; similarity() compares all with all"
        )
    return _PAIRS[name](first, second)


def _float_tensor(embeddings: Embeddings) -> torch.Tensor:
    """Return vectors as one tensor, in float32 if they are integers or of half precision."""
    if isinstance(embeddings, torch.Tensor):
        tensor = embeddings
    elif isinstance(embeddings, np.ndarray):
        tensor = torch.tensor(embeddings)
    else:
        tensor = torch.stack([torch.as_tensor(vector) for vector in embeddings])
    if tensor.dtype == torch.float64:
        return tensor
    return tensor.float()


def _check_widths(first: torch.Tensor, second: torch.Tensor) -> None:
    if first.shape[-1] != second.shape[-1]:
        raise TmdeError(
            f"embeddings2: found vectors of {second.shape[-1]} numbers, expected "
            f"{first.shape[-1]}, as in embeddings1"
        )


# ---- Measures


def _as_rows(vectors: torch.Tensor) -> torch.Tensor:
    """Return vectors (n, d) as they are, and one vector (d,) as (1, d)."""
    if vectors.ndim < 2:
        return vectors.reshape(1, -1)
    return vectors


def _cosine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return normalize(first, dim=-1) @ normalize(second, dim=-1).T


def _dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return first @ second.T


def _euclidean(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(first, second)


def _manhattan(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return -torch.cdist(first, second, p=1.0)


def _pairwise_cosine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return _pairwise_dot(normalize(first, dim=-1), normalize(second, dim=-1))


def _pairwise_dot(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return (first * second).sum(dim=-1)


def _pairwise_euclidean(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    distances: torch.Tensor = torch.linalg.vector_norm(first - second, dim=-1)
    return -distances


def _pairwise_manhattan(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return -(first - second).abs().sum(dim=-1)


_Measure: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_MATRICES: dict[str, _Measure] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}
_PAIRS: dict[str, _Measure] = {
    "cosine": _pairwise_cosine,
    "dot": _pairwise_dot,
    "euclidean": _pairwise_euclidean,
    "manhattan": _pairwise_manhattan,
}
