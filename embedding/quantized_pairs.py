# SPDX-License-Identifier: Apache-2.0

"""Vectors in 8 bits or 1 bit, as numbers whose similarity can be computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import normalize

from modeling_tmde import TmdeError
from tmde.embedding.quantization import PACKED, check_precision, restored

Embeddings: TypeAlias = np.ndarray | torch.Tensor | Sequence[np.ndarray] | Sequence[torch.Tensor]


# The precisions of vectors whose numbers are of a type.
_PRECISIONS_OF_DTYPE = {torch.int8: ("int8", "binary"), torch.uint8: ("uint8", "ubinary")}


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
        TmdeError: The precision is unknown, is not that of the vectors, or has to be given; or the
            vectors differ in width.
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
    _check_widths(first, second)
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


def _check_widths(first: torch.Tensor, second: torch.Tensor) -> None:
    if first.shape[-1] != second.shape[-1]:
        raise TmdeError(
            f"embeddings2: found vectors of {second.shape[-1]} numbers, expected "
            f"{first.shape[-1]}, as in embeddings1"
        )
