"""How many beads of a sentence alignment are right, as the papers on sentence alignment count."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Sentences = tuple[int, ...]
# The sentences of both documents in a bead; one side is empty where a sentence is left alone.
SentencePair = tuple[Sentences, Sentences]


@dataclass(frozen=True)
class BeadCounts:
    """Counts of beads by the place where they begin in the first document.

    The places of a document can be resampled, which gives an interval of its F1.

    Attributes:
        predicted: How many beads an alignment has at each place, (places,).
        right: How many of them are right.
        gold: How many right beads with sentences on both sides begin at each place.
        found: How many of them the alignment has.
    """

    predicted: np.ndarray
    right: np.ndarray
    gold: np.ndarray
    found: np.ndarray

    @classmethod
    def zeros(cls, places: int) -> BeadCounts:
        """Return counts of no beads."""
        return cls(
            predicted=np.zeros(places, np.int64),
            right=np.zeros(places, np.int64),
            gold=np.zeros(places, np.int64),
            found=np.zeros(places, np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[BeadCounts]) -> BeadCounts:
        """Return the counts of several documents, one after the other."""
        return cls(
            predicted=np.concatenate([part.predicted for part in parts]),
            right=np.concatenate([part.right for part in parts]),
            gold=np.concatenate([part.gold for part in parts]),
            found=np.concatenate([part.found for part in parts]),
        )

    def columns(self) -> np.ndarray:
        """Return the counts predicted, right, gold and found at each place, (places, 4)."""
        columns = [self.predicted, self.right, self.gold, self.found]
        return np.stack(columns, axis=1).astype(float)

    @property
    def precision(self) -> float:
        """The share of the predicted beads that are right; 0 if there are none."""
        return _ratio(self.right.sum(), self.predicted.sum())

    @property
    def recall(self) -> float:
        """The share of the right beads that were found; 0 if there are none."""
        return _ratio(self.found.sum(), self.gold.sum())

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.precision * self.recall, self.precision + self.recall)


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def count_beads(
    predicted: Iterable[SentencePair],
    gold: Iterable[SentencePair],
    first_size: int,
    second_size: int,
    lax: bool = False,
) -> BeadCounts:
    """Count the beads of an alignment of two documents that are right.

    This is the evaluation of vecalign (Thompson & Koehn 2019). Sentences that are left alone count
    in precision: they are right if the gold alignment leaves them alone, too. In recall they do
    not. Each of them counts by itself, whether or not an alignment lists it, and however it groups
    them; vecalign counts what the files list.

    Args:
        predicted: The beads of the alignment.
        gold: The right beads. A sentence that is in none of them is alone.
        first_size: The number of sentences of the first document.
        second_size: That of the second.
        lax: Whether a bead is also right if one of its pairs of sentences is one of a right bead.
    """
    predicted_beads = _with_single_sentences(predicted, first_size, second_size)
    gold_beads = _with_single_sentences(gold, first_size, second_size)
    predicted_pairs = _pairs_of_sentences(predicted_beads)
    gold_pairs = _pairs_of_sentences(gold_beads)
    counts = BeadCounts.zeros(first_size + 1)
    for place, bead in _with_places(predicted_beads, second_size):
        counts.predicted[place] += 1
        if bead in gold_beads or (lax and _shares_pair(bead, gold_pairs)):
            counts.right[place] += 1
    for place, bead in _with_places(gold_beads, second_size):
        first, second = bead
        if not first or not second:
            continue
        counts.gold[place] += 1
        if bead in predicted_beads or (lax and _shares_pair(bead, predicted_pairs)):
            counts.found[place] += 1
    return counts


def _with_single_sentences(
    beads: Iterable[SentencePair], first_size: int, second_size: int
) -> dict[SentencePair, None]:
    """Return beads in order; each sentence that is not aligned is one of its own."""
    completed: dict[SentencePair, None] = {}
    aligned_first: set[int] = set()
    aligned_second: set[int] = set()
    for first, second in beads:
        if first and second:
            completed[first, second] = None
            aligned_first.update(first)
            aligned_second.update(second)
    for sentence in range(first_size):
        if sentence not in aligned_first:
            completed[(sentence,), ()] = None
    for sentence in range(second_size):
        if sentence not in aligned_second:
            completed[(), (sentence,)] = None
    return completed


def _pairs_of_sentences(beads: Iterable[SentencePair]) -> set[tuple[int, int]]:
    """Return all pairs of a first and a second sentence that are in one bead."""
    pairs: set[tuple[int, int]] = set()
    for first, second in beads:
        pairs.update(itertools.product(first, second))
    return pairs


def _shares_pair(bead: SentencePair, pairs: set[tuple[int, int]]) -> bool:
    """Return whether one of the pairs of sentences of a bead is among these."""
    return not pairs.isdisjoint(itertools.product(*bead))


def _with_places(
    beads: dict[SentencePair, None], second_size: int
) -> list[tuple[int, SentencePair]]:
    """Return the beads, each with the place where it begins in the first document.

    A sentence of the second document that is alone has the place of the aligned one before it, or
    0.

    Args:
        beads: The beads.
        second_size: The number of sentences of the second document.
    """
    aligned_places = {}
    for first, second in beads:
        if first:
            aligned_places.update(dict.fromkeys(second, first[0]))
    places_of_second = []
    place = 0
    for sentence in range(second_size):
        place = aligned_places.get(sentence, place)
        places_of_second.append(place)
    places = []
    for first, second in beads:
        place = first[0] if first else places_of_second[second[0]]
        places.append((place, (first, second)))
    return places
