"""The resemblance of texts by their shingles: all sequences of five characters.

The resemblance of two texts is the number of shingles that both have, divided by that of all in
either (Broder 1997, "On the resemblance and containment of documents").
"""

from __future__ import annotations

import numpy as np

from tmde.documents.mining import plain_text

_LENGTH = 5  # characters
# An odd number without pattern. Products with it modulo 2^64 scatter what differs little.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


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


def shingle_hashes(text: str) -> np.ndarray:
    """Return a number for each place where a shingle begins, uint64.

    Two shingles of one text have the same number with a probability of some 1 in 10^14.
    """
    plain = comparable_text(text)
    codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    length = min(len(codes), _LENGTH)
    count = len(codes) - length + 1
    hashes = np.zeros(count, np.uint64)
    for offset in range(length):
        hashes = hashes * MULTIPLIER + codes[offset : offset + count]
    return hashes


def resemblance(first: set[str], second: set[str]) -> float:
    """Return the number of common shingles divided by that of all shingles (Jaccard)."""
    common = len(first & second)
    return common / (len(first) + len(second) - common)
