# SPDX-License-Identifier: Apache-2.0

"""How similar two vectors are: the four measures of sentence-transformers, by its names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import normalize

from modeling_tmde import TmdeError
from tmde.embedding.quantization import PACKED, check_precision, restored

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")

Embeddings: TypeAlias = np.ndarray | torch.Tensor | Sequence[np.ndarray] | Sequence[torch.Tensor]


# The precisions of vectors whose numbers are of a type.
_PRECISIONS_OF_DTYPE = {torch.int8: ("int8", "binary"), torch.uint8: ("uint8", "ubinary")}


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


def restored_vectors(
    embeddings1: Embeddings, embeddings2: Embeddings, precision: str | None, dimension: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two lists of vectors as numbers that can be compared, if they are in 8 bits or 1 bit.

    Such vectors become directions of length 1. Others stay as they are: a query in float32 may be
    compared with documents in 1 bit.

    Args:
        embeddings1: (n, d), or one vector (d,).
        embeddings2: (m, d), or one vector (d,).
        precision: How `encode` stored those that are int8 or uint8. None: in 8 bits, if they are as
            wide as the vectors of the model, which packed signs never are.
        dimension: The dimension of the model.

    Raises:
        TmdeError: The precision is unknown, is not that of the vectors, or has to be given.
    """
    if precision is not None:
        check_precision(precision)
    first = _as_tensor(embeddings1)
    second = _as_tensor(embeddings2)
    first_precision = _stored_precision("embeddings1", first, precision, dimension)
    second_precision = _stored_precision("embeddings2", second, precision, dimension)
    if first_precision is not None:
        first = restored(first, first_precision)
    if second_precision is not None:
        second = restored(second, second_precision)
    if first_precision in PACKED and second_precision is None:
        first = _without_padding(first, second.shape[-1])
    if second_precision in PACKED and first_precision is None:
        second = _without_padding(second, first.shape[-1])
    return first, second


def _stored_precision(
    name: str, vectors: torch.Tensor, precision: str | None, dimension: int
) -> str | None:
    """Return the precision in which vectors are stored; None if they are no quantized ones.

    Raises:
        TmdeError: The precision has to be given, or is not that of the vectors.
    """
    if vectors.dtype not in _PRECISIONS_OF_DTYPE:
        return None
    whole, packed = _PRECISIONS_OF_DTYPE[vectors.dtype]
    width = vectors.shape[-1]
    if precision is None and width == dimension:
        return whole
    if precision is None:
        raise TmdeError(
            f"{name}: found {whole} vectors of {width} numbers, and the model has {dimension}; "
            f"give precision={packed!r} for packed signs, or precision={whole!r} for vectors that "
            "truncate_dim has cut"
        )
    if precision not in (whole, packed):
        raise TmdeError(
            f"precision: found {precision!r}, expected {whole!r} or {packed!r}, because {name} are "
            f"{whole}"
        )
    return precision


def _without_padding(signs: torch.Tensor, dimension: int) -> torch.Tensor:
    """Return signs without those that only fill the last byte, scaled to length 1 again."""
    if not 0 < signs.shape[-1] - dimension < 8:
        return signs
    return normalize(signs[..., :dimension], dim=-1)


def _as_tensor(embeddings: Embeddings) -> torch.Tensor:
    """Return vectors as one tensor."""
    if isinstance(embeddings, torch.Tensor):
        return embeddings
    if isinstance(embeddings, np.ndarray):
        return torch.tensor(embeddings)
    return torch.stack([torch.as_tensor(vector) for vector in embeddings])


def _float_tensor(embeddings: Embeddings) -> torch.Tensor:
    """Return vectors as one tensor, in float32 if they are integers or of half precision."""
    tensor = _as_tensor(embeddings)
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
