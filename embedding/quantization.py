"""Vectors in 8 bits or 1 bit a number, and back.

The names are those of sentence-transformers, and so are the values of `"binary"` and `"ubinary"`.
Its `"int8"` divides the range of each column over the texts of a call, so that a text has other
numbers beside other texts. Here every vector has a scale of its own: a text has the same numbers in
every call, one text alone has some, and the cosine is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from modeling_tmde import TmdeError

Embeddings: TypeAlias = np.ndarray | torch.Tensor | Sequence[np.ndarray] | Sequence[torch.Tensor]

# The numbers of each precision in memory.
DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "binary": np.dtype(np.int8),
    "ubinary": np.dtype(np.uint8),
}
PRECISIONS = tuple(DTYPES)
PACKED = ("binary", "ubinary")  # Each number holds the signs of eight.
LARGEST_LEVEL = 127
# The precisions of vectors whose numbers are of a type.
_PRECISIONS_OF_DTYPE = {torch.int8: ("int8", "binary"), torch.uint8: ("uint8", "ubinary")}


def check_precision(precision: str) -> None:
    """Raise TmdeError if there is no such precision."""
    if precision not in PRECISIONS:
        raise TmdeError(f"precision: found {precision!r}, expected one of {PRECISIONS}")


def stored_width(dimension: int, precision: str) -> int:
    """Return how many numbers store a vector of `dimension` numbers."""
    if precision in PACKED:
        return -(-dimension // 8)
    return dimension


def quantized(vectors: np.ndarray, precision: str) -> np.ndarray:
    """Return vectors in less memory.

    `"int8"` scales each vector by its largest absolute number, which becomes 127 or -127, and
    rounds: `round(127 x / max |x|)`. The direction is kept, and the length is not: compare by
    cosine. `"uint8"` is the same plus 128. `"binary"` and `"ubinary"` keep the signs, 8 of them in
    an int8 or uint8, the first in the highest bit; the last number is padded with 0.

    Args:
        vectors: (..., d) float32.
        precision: One of `PRECISIONS`.

    Returns:
        (..., d) int8 or uint8; (..., d / 8), rounded up, for signs; the vectors themselves for
        `"float32"`.

    Raises:
        TmdeError: The precision is unknown.

    Example:
        ```python
        >>> quantized(np.array([0.5, -0.25, 0.1], np.float32), "int8")
        array([127, -64,  25], dtype=int8)
        ```
    """
    check_precision(precision)
    if precision == "float32":
        return vectors
    if precision == "ubinary":
        return _packed_signs(vectors)
    if precision == "binary":
        return (_packed_signs(vectors).astype(np.int16) - 128).astype(np.int8)
    levels = _levels(vectors)
    if precision == "uint8":
        return (levels + 128).astype(np.uint8)
    return levels.astype(np.int8)


def restored(vectors: torch.Tensor, precision: str) -> torch.Tensor:
    """Return the directions that quantized vectors stand for, as float32 of length 1.

    Args:
        vectors: What `quantized` returns, (..., d) or (..., d / 8) for signs.
        precision: The precision that they were stored in.

    Returns:
        (..., d) float32; for signs `±1 / sqrt(d)`, the padding of the last number included.

    Raises:
        TmdeError: The precision is unknown.
    """
    check_precision(precision)
    if precision != "float32":
        levels = signed_bytes(vectors.cpu().numpy(), precision)
        vectors = torch.from_numpy(levels).to(vectors.device)
    return torch.nn.functional.normalize(vectors.float(), dim=-1)


def signed_bytes(vectors: np.ndarray, precision: str) -> np.ndarray:
    """Return 8-bit vectors and signs as int8 numbers whose cosines are those of the vectors.

    Args:
        vectors: What `quantized` returns for any precision but `"float32"`, (..., width).
        precision: The precision that they were stored in.

    Returns:
        (..., d) int8; for signs 1 and -1, the padding of the last number included.

    Raises:
        TmdeError: The precision is unknown.

    Example:
        ```python
        >>> signed_bytes(np.array([0b10100000], np.uint8), "ubinary")
        array([ 1, -1,  1, -1, -1, -1, -1, -1], dtype=int8)
        ```
    """
    check_precision(precision)
    if precision == "int8":
        return vectors
    if precision == "uint8":
        return (vectors.astype(np.int16) - 128).astype(np.int8)
    if precision == "binary":
        vectors = (vectors.astype(np.int16) + 128).astype(np.uint8)
    bits = np.unpackbits(vectors, axis=-1).astype(np.int8)
    return 2 * bits - 1


def _packed_signs(vectors: np.ndarray) -> np.ndarray:
    return np.packbits(vectors > 0, axis=-1)


def _levels(vectors: np.ndarray) -> np.ndarray:
    """Return each number as a whole number from -127 to 127, (..., d) float32."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    largest = np.where(largest == 0, 1, largest)  # A vector of zeros stays one.
    levels: np.ndarray = np.rint(vectors / largest * LARGEST_LEVEL)
    return levels


# ---- Similarity


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
        TmdeError: The precision is unknown, does not match the vectors, or is required but missing;
            or the vectors differ in width.
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
    if first.shape[-1] != second.shape[-1]:
        raise TmdeError(
            f"embeddings2: found vectors of width {second.shape[-1]}, expected "
            f"{first.shape[-1]}, as in embeddings1"
        )
    return first, second


def _stored_precision(
    name: str, vectors: torch.Tensor, precision: str | None, dimension: int
) -> str | None:
    """Return the precision in which vectors are stored; None if they are not quantized.

    Raises:
        TmdeError: The precision is required but missing, or does not match the vectors.
    """
    if vectors.dtype not in _PRECISIONS_OF_DTYPE:
        return None
    whole, packed = _PRECISIONS_OF_DTYPE[vectors.dtype]
    width = vectors.shape[-1]
    if precision is None and width == dimension:
        return whole
    if precision is None:
        raise TmdeError(
            f"{name}: found {whole} vectors of width {width}, but the model's width is "
            f"{dimension}; give precision={packed!r} for packed bits, or precision={whole!r} "
            "for vectors cut by truncate_dim"
        )
    if precision not in (whole, packed):
        raise TmdeError(
            f"precision: found {precision!r}, expected {whole!r} or {packed!r}, because "
            f"{name} are {whole}"
        )
    return precision


def _without_padding(signs: torch.Tensor, dimension: int) -> torch.Tensor:
    """Return signs without those that only fill the last byte, scaled to length 1 again."""
    if not 0 < signs.shape[-1] - dimension < 8:
        return signs
    return torch.nn.functional.normalize(signs[..., :dimension], dim=-1)


def _as_tensor(embeddings: Embeddings) -> torch.Tensor:
    """Return vectors as one tensor."""
    if isinstance(embeddings, torch.Tensor):
        return embeddings
    if isinstance(embeddings, np.ndarray):
        return torch.tensor(embeddings)
    return torch.stack([torch.as_tensor(vector) for vector in embeddings])
