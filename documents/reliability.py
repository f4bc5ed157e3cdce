"""How well probabilities are calibrated: reliability diagram and expected calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 10


@dataclass(frozen=True)
class ReliabilityBin:
    """Pairs whose probabilities lie in one interval: a point of the reliability diagram.

    Attributes:
        count: The number of pairs.
        mean_probability: Their mean probability.
        right_share: The share of them that is right.
    """

    count: int
    mean_probability: float
    right_share: float


def reliability_bins(
    probabilities: np.ndarray, is_right: np.ndarray, bins: int = BINS
) -> list[ReliabilityBin]:
    """Return the pairs in intervals of equal width from 0 to 1, without empty ones.

    Args:
        probabilities: (p,), from 0 to 1.
        is_right: Whether each pair is right, (p,) bool.
        bins: The number of intervals.

    Example:
        >>> reliability_bins(np.array([0.1, 0.9, 0.95]), np.array([False, True, True]), bins=2)[0]
        ReliabilityBin(count=1, mean_probability=0.1, right_share=0.0)
    """
    positions = np.minimum((probabilities * bins).astype(int), bins - 1)
    filled = []
    for position in range(bins):
        in_bin = positions == position
        if not in_bin.any():
            continue
        filled.append(
            ReliabilityBin(
                count=int(in_bin.sum()),
                mean_probability=float(probabilities[in_bin].mean()),
                right_share=float(is_right[in_bin].mean()),
            )
        )
    return filled


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the mean distance of probability and share of right pairs (Naeini et al. 2015).

    Args:
        bins: Those of [`reliability_bins`], weighted by their counts.

    Raises:
        ValueError: There are no pairs.
    """
    if not bins:
        raise ValueError("found no pairs")
    counts = [bin.count for bin in bins]
    distances = [abs(bin.mean_probability - bin.right_share) for bin in bins]
    return float(np.average(distances, weights=counts))
