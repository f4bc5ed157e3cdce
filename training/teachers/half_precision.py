"""The limits of float16, in which the vectors of teachers are stored."""

from __future__ import annotations

import numpy as np

LARGEST = float(np.finfo(np.float16).max)


def first_invalid_row(vectors: np.ndarray) -> int | None:
    """Return the first row with NaN or a number that float16 can't hold; None without any.

    Args:
        vectors: (rows, d).
    """
    is_valid = (np.abs(vectors) <= LARGEST).all(axis=1)  # NaN is not
    if is_valid.all():
        return None
    return int(is_valid.argmin())
