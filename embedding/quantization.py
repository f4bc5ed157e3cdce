# SPDX-License-Identifier: Apache-2.0

"""Vectors in 8 bits or 1 bit a number, with the values of sentence-transformers.

Its `quantize_embeddings` is not called, because sentence-transformers is an optional package; a
test compares the two.
"""

from __future__ import annotations

import logging

import numpy as np

from modeling_tmde import TmdeError

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")

_FEW_VECTORS = 100  # fewer make ranges that other vectors exceed


def quantized(vectors: np.ndarray, precision: str) -> np.ndarray:
    """Return vectors in less memory.

    `"int8"` and `"uint8"` divide the range of each column, from its least to its greatest number,
    into 256 steps; so these numbers are comparable within one call only. `"binary"` and `"ubinary"`
    keep the signs, 8 of them in an int8 or uint8.

    Args:
        vectors: (n, d) float32.
        precision: One of `PRECISIONS`.

    Returns:
        (n, d) int8 or uint8; (n, d / 8), rounded up, for signs; the vectors themselves for
        `"float32"`.

    Raises:
        TmdeError: The precision is unknown, or one vector alone has no range to divide.
    """
    check_precision(precision)
    if precision == "float32":
        return vectors
    if precision == "ubinary":
        return _packed_signs(vectors)
    if precision == "binary":
        return (_packed_signs(vectors).astype(np.int16) - 128).astype(np.int8)
    steps = _steps(vectors, precision)
    if precision == "uint8":
        return steps.astype(np.uint8)
    return (steps - 128).astype(np.int8)


def check_precision(precision: str) -> None:
    """Raise TmdeError if there is no such precision."""
    if precision not in PRECISIONS:
        raise TmdeError(f"precision: found {precision!r}, expected one of {PRECISIONS}")


def _packed_signs(vectors: np.ndarray) -> np.ndarray:
    return np.packbits(vectors > 0, axis=-1)


def _steps(vectors: np.ndarray, precision: str) -> np.ndarray:
    """Return the step, 0 to 255, that each number lies in, (n, d) float32."""
    if len(vectors) == 0:
        return vectors
    if len(vectors) == 1:
        raise TmdeError(
            f"precision={precision!r}: found one text, expected several, because the range of each "
            "number is taken from the texts of the call; 'binary' and 'ubinary' need no range"
        )
    if len(vectors) < _FEW_VECTORS:
        logger.warning(
            f"precision={precision!r} takes the range of each number from {len(vectors)} texts; "
            f"embed {_FEW_VECTORS} or more at once for ranges that hold for other texts"
        )
    lowest = vectors.min(axis=0)  # (d,)
    widths = (vectors.max(axis=0) - lowest) / 255
    widths = np.where(widths == 0, 1, widths)
    steps: np.ndarray = np.floor((vectors - lowest) / widths)
    return steps.clip(0, 255)
