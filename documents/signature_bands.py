"""Which of many texts may resemble each other: locality-sensitive hashing of MinHash signatures.

A signature has 384 numbers. Two texts of resemblance s have the same number at a place with the
probability s (Broder 1997, "On the resemblance and containment of documents"). Each r numbers are a
band, and texts that may be similar share one: of pairs of resemblance s, the share

    (1 - s^r)^(384 / r)

has no band in common (Leskovec, Rajaraman & Ullman, "Mining of Massive Datasets", section 3.4).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from rensa import RMinHash

from tmde.documents.shingles import MULTIPLIER, shingle_hashes
from tmde.documents.unit_rows import slices, slices_with_bar

SIGNATURE_LENGTH = 384
MISSED_PAIRS = 1e-3  # share of the pairs of the least resemblance that may share no band
# A pair is not compared if its signatures agree in fewer numbers than those of a pair of the least
# resemblance do, by so many standard deviations.
_DEVIATIONS = 3
_BLOCK = 4096  # texts whose signatures are in memory at once
_SEED = 1  # of the hash functions
_NOT_SHARED = 0  # instead of the key of a band that no other text has
_KEY_SHIFT = np.uint64(32)


class SignatureBands:
    """The bands of n texts, in files that are mapped into memory.

    Args:
        texts: The texts, (n,). They are read once.
        count: n.
        least_resemblance: The resemblance from which on pairs are looked for, above 0, at most 1.
        folder: The folder of the files, which have 640 bytes a text for a resemblance of 0.7.
    """

    def __init__(
        self, texts: Iterable[str], count: int, least_resemblance: float, folder: Path
    ) -> None:
        band_length = longest_band(least_resemblance)
        band_count = SIGNATURE_LENGTH // band_length
        self._least_agreement = _least_agreement(least_resemblance)
        # Bands come first, because each is compared over all texts.
        self._keys = np.lib.format.open_memmap(
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
            self._keys[:, rows] = _keys(bands.reshape(-1, band_count, band_length)).T
        for band in slices_with_bar(band_count, 1, "Grouping"):
            keys = self._keys[band][0]
            _, places, counts = np.unique(keys, return_inverse=True, return_counts=True)
            keys[counts[places] == 1] = _NOT_SHARED

    def shared(self) -> Iterator[tuple[int, list[int]]]:
        """Yield each text that shares bands with another, and the keys of these bands."""
        for rows in slices_with_bar(self._keys.shape[1], _BLOCK, "Comparing"):
            block = self._keys[:, rows].T  # (texts, bands)
            for row in np.flatnonzero(block.any(axis=1)).tolist():
                keys = block[row]
                yield rows.start + row, keys[keys != _NOT_SHARED].tolist()

    def similar_rows(self, row: int, others: Collection[int]) -> list[int]:
        """Return those of some texts that may resemble a text, in their order in the collection."""
        rows = np.fromiter(others, np.int64, len(others))
        rows.sort()
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


def _signature(text: str) -> list[int]:
    """Return the signature of a text, numbers of 32 bits."""
    hashes = shingle_hashes(text)
    begins_and_ends = np.array([0, len(hashes)], np.uint64)
    (signature,) = RMinHash.digest_matrix_from_flat_token_hashes(
        hashes, begins_and_ends, SIGNATURE_LENGTH, _SEED
    ).to_rows()
    return signature


def _keys(bands: np.ndarray) -> np.ndarray:
    """Return a number of 32 bits for each band of numbers, (texts, bands).

    Args:
        bands: (texts, bands, numbers) uint32.
    """
    keys = np.arange(bands.shape[1], dtype=np.uint64) * np.ones((len(bands), 1), np.uint64)
    for place in range(bands.shape[2]):
        keys = keys * MULTIPLIER + bands[:, :, place]
    return np.maximum(keys >> _KEY_SHIFT, _NOT_SHARED + 1)
