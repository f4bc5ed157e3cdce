"""How many of the right pairs were found: the one implementation of precision, recall and F1.

Mining of sentences and alignment of documents use it, the commands as well as the evaluation.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PairQuality:
    """Counts of pairs. The sum of two is the quality over two collections together.

    Attributes:
        correct: The number of found pairs that are in the gold list.
        found: The number of found pairs.
        gold: The number of pairs in the gold list.
    """

    correct: int
    found: int
    gold: int

    def __add__(self, other: PairQuality) -> PairQuality:
        return PairQuality(
            self.correct + other.correct, self.found + other.found, self.gold + other.gold
        )

    @property
    def precision(self) -> float:
        """The share of the found pairs that are right; 0 if none was found."""
        return self.correct / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the gold pairs that were found; 0 if there is none."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if both are."""
        total = self.found + self.gold
        return 2 * self.correct / total if total else 0.0

    def __str__(self) -> str:
        """Return the counts and measures for people."""
        return (
            f"{self.correct:,} of {self.gold:,} correct pairs among {self.found:,}: precision "
            f"{self.precision:.4f}, recall {self.recall:.4f}, F1 {self.f1:.4f}"
        )


def pair_quality(
    pairs: Collection[tuple[Hashable, Hashable]], gold: Collection[tuple[Hashable, Hashable]]
) -> PairQuality:
    """Count right pairs by the protocol of BUCC.

    See Zweigenbaum et al. 2017, aclanthology.org/W17-2512.

    Args:
        pairs: The found pairs of row numbers or ids, each once.
        gold: The right pairs, each once. The list is taken to be complete: a translation that it
            lacks counts as an error.
    """
    return PairQuality(len(set(pairs) & set(gold)), len(pairs), len(gold))


def alignment_quality(pairs: Iterable[Sequence], reference: Iterable[Sequence]) -> PairQuality:
    """Count right pairs by the protocol of WMT16 (Buck & Koehn 2016), whose measure is recall.

    Args:
        pairs: The found pairs; of each, the first two items count: row numbers, or ids. Pairs
            without a document that the reference knows are left out.
        reference: The right pairs, in the same terms; one that occurs twice counts once.
    """
    right_pairs = {tuple(pair[:2]) for pair in reference}
    known_first = {first for first, _ in right_pairs}
    known_second = {second for _, second in right_pairs}
    judged_pairs = set()
    for pair in pairs:
        first, second = pair[:2]
        if first in known_first or second in known_second:
            judged_pairs.add((first, second))
    return pair_quality(judged_pairs, right_pairs)
