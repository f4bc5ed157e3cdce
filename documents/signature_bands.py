"""Which of many texts may resemble each other: locality-sensitive hashing of MinHash signatures.

The resemblance of two texts is the number of shingles, sequences of five characters, that both
have, divided by that of all in either (Broder 1997, "On the resemblance and containment of
documents"). A signature has 384 numbers. Two texts of resemblance s have the same number at a place
with the probability s. Each r numbers are a band, and texts that may be similar share one: of pairs
of resemblance s, the share

    (1 - s^r)^(384 / r)

has no band in common (Leskovec, Rajaraman & Ullman, "Mining of Massive Datasets", section 3.4).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from rensa import RMinHash

from tmde.documents.mining import plain_text
from tmde.documents.unit_rows import slices, slices_with_bar

SIGNATURE_LENGTH = 384
MISSED_PAIRS = 1e-3  # share of the pairs of the least resemblance that may share no band
# A pair is not compared if its signatures agree in fewer numbers than those of a pair of the least
# resemblance do, by so many standard deviations.
_DEVIATIONS = 3
_BLOCK = 4096  # texts whose signatures are in memory at once
_SEED = 1  # of the hash functions
_SHINGLE_LENGTH = 5  # characters
_PART_END = "\n"  # between the texts of a row, which have no line ends when they are compared
# An odd number without pattern. Products with it modulo 2^64 scatter what differs little.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_NO_BUCKET = 0  # the number in place of a bucket for a band that no other text has
_KEY_SHIFT = np.uint64(32)


_PUNCTUATION = {ord(mark): " " for mark in ".,;:!?…¡¿。、，！？\"'`«»‹›“”„‘’‚()[]{}"}
# A document, or the texts of a row of a translation memory, always in the order of its languages.
Text: TypeAlias = str | tuple[str, ...]


class SignatureBands:
    """The bands of n texts, in files that are mapped into memory.

    Texts that have the same band are in one bucket. Of each bucket, the texts that are kept are
    noted: only these are compared with later ones.

    Args:
        texts: The texts, (n,). They are read once.
        count: n.
        least_resemblance: The resemblance from which on pairs are looked for, above 0, at most 1.
        folder: The folder of the files, which have 640 bytes a text for a resemblance of 0.7.
    """

    def __init__(
        self, texts: Iterable[Text], count: int, least_resemblance: float, folder: Path
    ) -> None:
        band_length = longest_band(least_resemblance)
        band_count = SIGNATURE_LENGTH // band_length
        self._least_agreement = _least_agreement(least_resemblance)
        # Bands come first, because each is compared over all texts.
        self._buckets = np.lib.format.open_memmap(
            folder / "bands.npy", "w+", np.uint32, (band_count, count)
        )
        # The last 8 bits of the numbers say nearly as well as all 32 how many of them are equal.
        self._low_bytes = np.lib.format.open_memmap(
            folder / "signatures.npy", "w+", np.uint8, (count, SIGNATURE_LENGTH)
        )
        unread_texts = iter(texts)
        for rows in slices(count, _BLOCK):
            block = itertools.islice(unread_texts, rows.stop - rows.start)
            signatures = np.array([_signature(text) for text in block], np.uint32)
            self._low_bytes[rows] = signatures.astype(np.uint8)
            bands = signatures[:, : band_count * band_length]
            self._buckets[:, rows] = _keys(bands.reshape(-1, band_count, band_length)).T
        sizes = [np.zeros(_NO_BUCKET + 1, np.int64)]
        for band in slices_with_bar(band_count, 1, "Grouping"):
            sizes.append(_number_buckets(self._buckets[band][0], sum(map(len, sizes))))
        # The kept texts of a bucket stand from its beginning on, where all its texts have room.
        ends = np.cumsum(np.concatenate(sizes))
        self._begins = np.concatenate([[0], ends[:-1]])
        self._kept_counts = np.zeros(len(ends), np.int32)
        self._kept_rows = np.empty(ends[-1], np.int32)

    def shared(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each text that shares bands with another, and its buckets, (buckets,)."""
        for rows in slices_with_bar(self._buckets.shape[1], _BLOCK, "Comparing"):
            block = self._buckets[:, rows].T  # (texts, bands)
            for row in np.flatnonzero(block.any(axis=1)).tolist():
                buckets = block[row]
                yield rows.start + row, buckets[buckets != _NO_BUCKET]

    def keep(self, row: int, buckets: np.ndarray) -> None:
        """Note that a text is kept, so that later ones are compared with it.

        Args:
            row: The text.
            buckets: All its buckets.
        """
        self._kept_rows[self._begins[buckets] + self._kept_counts[buckets]] = row
        self._kept_counts[buckets] += 1

    def similar_kept_rows(self, row: int, buckets: np.ndarray) -> list[int]:
        """Return the kept texts that may resemble a text, in their order in the collection.

        Args:
            row: The text.
            buckets: All its buckets.
        """
        begins = self._begins[buckets]
        ends = begins + self._kept_counts[buckets]
        candidates: set[int] = set()
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if begin < end:
                candidates.update(self._kept_rows[begin:end].tolist())
        rows = np.array(sorted(candidates), np.int64)
        agreement = np.count_nonzero(self._low_bytes[rows] == self._low_bytes[row], axis=1)
        similar: list[int] = rows[agreement >= self._least_agreement].tolist()
        return similar


def longest_band(least_resemblance: float) -> int:
    """Return how many numbers a band may have at most, so that few pairs share none."""
    length = 1
    while length < SIGNATURE_LENGTH:
        band_count = SIGNATURE_LENGTH // (length + 1)
        missed = (1 - least_resemblance ** (length + 1)) ** band_count
        if missed > MISSED_PAIRS:
            break
        length += 1
    return length


def _least_agreement(least_resemblance: float) -> float:
    """Return in how many numbers the signatures of a pair of the least resemblance agree."""
    mean = SIGNATURE_LENGTH * least_resemblance
    return mean - _DEVIATIONS * math.sqrt(mean * (1 - least_resemblance))


def _signature(text: Text) -> list[int]:
    """Return the signature of a text, numbers of 32 bits."""
    hashes = shingle_hashes(text)
    begins_and_ends = np.array([0, len(hashes)], np.uint64)
    (signature,) = RMinHash.digest_matrix_from_flat_token_hashes(
        hashes, begins_and_ends, SIGNATURE_LENGTH, _SEED
    ).to_rows()
    return signature


def _number_buckets(keys: np.ndarray, first_number: int) -> np.ndarray:
    """Put the number of a bucket in place of each key, or `_NO_BUCKET` if only one text has it.

    Args:
        keys: One band of all texts, (n,), which are overwritten.
        first_number: The number of the first bucket.

    Returns:
        The number of texts in each new bucket.
    """
    _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
    is_bucket = counts > 1
    numbers = np.full(len(counts), _NO_BUCKET, np.int64)
    numbers[is_bucket] = np.arange(np.count_nonzero(is_bucket)) + first_number
    keys[:] = numbers[places]
    return counts[is_bucket]


def _keys(bands: np.ndarray) -> np.ndarray:
    """Return a number of 32 bits for each band of numbers, (texts, bands).

    Args:
        bands: (texts, bands, numbers) uint32.
    """
    keys = np.zeros(bands.shape[:2], np.uint64)
    for place in range(bands.shape[2]):
        keys = keys * _MULTIPLIER + bands[:, :, place]
    return keys >> _KEY_SHIFT


# ---- Shingles


def parts_of(text: Text) -> tuple[str, ...]:
    """Return the texts of a row; of a document, its only one."""
    if isinstance(text, str):
        return (text,)
    return text


def comparable_text(text: Text) -> str:
    """Return a text in lower case with single spaces; copies are equal in this.

    Of a row, this is all its texts; "" if all are empty.
    """
    parts = [plain_text(part).casefold() for part in parts_of(text)]
    if not any(parts):
        return ""
    return _PART_END.join(parts)


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without the punctuation around and between them.

    Signs that make another word of one, as in `C++` and `C#`, `-5` and `5`, are kept.
    """
    return comparable_text(text).translate(_PUNCTUATION).split()


def shingles(text: str) -> set[str]:
    """Return all sequences of five characters of a text, in lower case.

    A text of fewer characters is its only one.
    """
    plain = comparable_text(text)
    if len(plain) <= _SHINGLE_LENGTH:
        return {plain}
    return {
        plain[begin : begin + _SHINGLE_LENGTH] for begin in range(len(plain) - _SHINGLE_LENGTH + 1)
    }


def shingle_hashes(text: Text) -> np.ndarray:
    """Return a number for each place where a shingle begins, uint64.

    Two shingles of one text have the same number with a probability of some 1 in 10^14. The same
    shingle has other numbers in the first and in the second text of a row. The resemblance of two
    rows is then at least the smallest of those of their texts, so that no pair of rows is missed.
    """
    hashes = []
    for number, part in enumerate(parts_of(text)):
        hashes.append(_hashes_of_part(part) ^ np.uint64(number))
    return np.concatenate(hashes)


def _hashes_of_part(text: str) -> np.ndarray:
    plain = comparable_text(text)
    codes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    length = min(len(codes), _SHINGLE_LENGTH)
    count = len(codes) - length + 1
    hashes = np.zeros(count, np.uint64)
    for offset in range(length):
        hashes = hashes * _MULTIPLIER + codes[offset : offset + count]
    return hashes


def resemblance(first: set[str], second: set[str]) -> float:
    """Return the number of common shingles divided by that of all shingles (Jaccard)."""
    common = len(first & second)
    return common / (len(first) + len(second) - common)
