"""The similarity of texts by their shingles: all sequences of five characters.

The resemblance of two texts is the number of shingles that both have, divided by that of all in
either (Broder 1997, "On the resemblance and containment of documents").
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable

import numpy as np

from tmde.documents.mining import plain_text
from tmde.documents.unit_rows import slices

_LENGTH = 5  # characters
_BUCKETS = 256
_BLOCK = 4096  # texts
_MOST_COUNTED = 255  # of a bucket, in 8 bits
# An odd number without pattern. Products with it modulo 2^64 scatter what differs little.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BUCKET_SHIFT = np.uint64(64 - 8)  # leaves the number of one of 256 buckets


def comparable_text(text: str) -> str:
    """Return a text in lower case with single spaces; copies are equal in this."""
    return plain_text(text).casefold()


def shingles(text: str) -> set[str]:
    """Return all sequences of five characters of a text, in lower case.

    A text of fewer characters is its only one.
    """
    plain = comparable_text(text)
    if len(plain) <= _LENGTH:
        return {plain}
    return {plain[begin : begin + _LENGTH] for begin in range(len(plain) - _LENGTH + 1)}


def resemblance(first: set[str], second: set[str]) -> float:
    """Return the number of common shingles divided by that of all shingles (Jaccard)."""
    common = len(first & second)
    return common / (len(first) + len(second) - common)


class ShingleSketches:
    """Says how similar two of n texts are at most, without reading them.

    The shingles of a text are scattered over 256 buckets. Where one text has more shingles in a
    bucket than the other, these are not in the other. So the difference of the counts, summed over
    all buckets, is at most the number of shingles that one of both texts has and the other has not.

    Args:
        texts: The texts, (n,).
        count: n.
        path: The file of the counts, n times 256 bytes, which is mapped into memory.
    """

    def __init__(self, texts: Iterable[str], count: int, path: str | os.PathLike[str]) -> None:
        self.sizes = np.empty(count, np.int32)  # the number of different shingles
        shape = (count, _BUCKETS)
        self.counts = np.asarray(np.lib.format.open_memmap(path, "w+", np.uint8, shape))
        numbered_texts = enumerate(texts)
        for rows in slices(count, _BLOCK):
            # A block is made in memory, because small writes to a file are slow.
            block = np.empty((rows.stop - rows.start, _BUCKETS), np.uint8)
            for row, text in itertools.islice(numbered_texts, len(block)):
                numbers = _shingle_numbers(text)
                buckets = (numbers * _MULTIPLIER) >> _BUCKET_SHIFT
                counts = np.bincount(buckets.astype(np.int64), minlength=_BUCKETS)
                block[row - rows.start] = np.minimum(counts, _MOST_COUNTED)
                self.sizes[row] = len(numbers)
            self.counts[rows] = block

    def may_resemble(self, first: np.ndarray, second: np.ndarray, least: float) -> np.ndarray:
        """Return whether the resemblance of each pair of texts may be so high, (p,) bool.

        Args:
            first: The numbers of the first texts, (p,).
            second: Those of the second texts, (p,).
            least: The least resemblance, above 0.
        """
        smaller = np.minimum(self.sizes[first], self.sizes[second])
        larger = np.maximum(self.sizes[first], self.sizes[second])
        # All shingles of the smaller text may be in the larger one.
        may_resemble = smaller / larger >= least
        pairs = np.flatnonzero(may_resemble)
        first_counts = self.counts[first[pairs]]  # (pairs, 256)
        second_counts = self.counts[second[pairs]]
        # In 8 bits without sign, the smaller number is subtracted from the larger one.
        differences = np.maximum(first_counts, second_counts)
        differences -= np.minimum(first_counts, second_counts)
        totals = smaller[pairs].astype(np.int64) + larger[pairs]
        most_common = (totals - differences.sum(axis=1, dtype=np.int64)) // 2
        may_resemble[pairs] = most_common / (totals - most_common) >= least
        return may_resemble


def _shingle_numbers(text: str) -> np.ndarray:
    """Return a number for each different shingle of a text, uint64.

    Two shingles of one text have the same number with a probability of some 1 in 10^14.
    """
    plain = comparable_text(text)
    codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    length = min(len(codes), _LENGTH)
    count = len(codes) - length + 1
    numbers = np.zeros(count, np.uint64)
    for offset in range(length):
        numbers = numbers * _MULTIPLIER + codes[offset : offset + count]
    return np.unique(numbers)
