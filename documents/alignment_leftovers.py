"""What an alignment leaves over: texts without a partner, and texts that were copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tmde.documents.corpus_writer import write_rows
from tmde.documents.document_sets import Sides
from tmde.documents.mining import GoldPairs
from tmde.documents.pair_checks import has_letters
from tmde.documents.parallel_rows import LeftOutBead, Outcome

UNPAIRED_COLUMNS = ("side", "id", "sentence", "reason", "text")
IDENTICAL_COLUMNS = ("id_a", "id_b", "sentence_a", "sentence_b", "text")
_REASONS = {
    Outcome.ALONE: "no partner",
    Outcome.LOW_SCORE: "low score",
    Outcome.IMPROBABLE: "improbable",
}
_SIDE_NAMES = ("a", "b")


@dataclass
class AlignmentLeftovers:
    """Collects what has no partner, and what is the same text on both sides.

    A document has no number of a sentence. Sentences are counted from 1. Texts without a letter,
    such as numbers, are not listed as copied: they need no translation.

    Attributes:
        sides: Both sides.
        unpaired: Rows of `UNPAIRED_COLUMNS`.
        identical: Rows of `IDENTICAL_COLUMNS`.
    """

    sides: Sides
    unpaired: list[tuple] = field(default_factory=list)
    identical: list[tuple] = field(default_factory=list)

    def add_documents(self, row_pairs: GoldPairs) -> None:
        """Add the documents that are in no pair, and the pairs whose texts are equal.

        Args:
            row_pairs: The rows of each pair.
        """
        for number, side in enumerate(self.sides):
            paired = {pair[number] for pair in row_pairs}
            for row, text in enumerate(side.texts):
                if row not in paired and text.strip():
                    self._add_unpaired(number, row, "", "no partner", text)
        for first_row, second_row in row_pairs:
            first_text = self.sides[0].texts[first_row]
            if first_text == self.sides[1].texts[second_row]:
                self._add_identical(first_row, second_row, "", "", first_text)

    def add_bead(self, row_pairs: Sequence[tuple[int, int]], bead: LeftOutBead) -> None:
        """Add the sentences of a bead that became no row.

        Args:
            row_pairs: The rows of each pair of documents, in the order of their alignment.
            bead: The bead.
        """
        rows = row_pairs[bead.document]
        sides = ((bead.first, bead.first_texts), (bead.second, bead.second_texts))
        if bead.outcome is Outcome.IDENTICAL:
            first_number, second_number = bead.first.start + 1, bead.second.start + 1
            text = " ".join(bead.first_texts)
            self._add_identical(*rows, first_number, second_number, text)
        elif bead.outcome in _REASONS:
            reason = _REASONS[bead.outcome]
            for side, (numbers, texts) in enumerate(sides):
                for number, text in zip(numbers, texts, strict=True):
                    self._add_unpaired(side, rows[side], number + 1, reason, text)

    def write(self, unpaired: Path | None, identical: Path | None) -> list[str]:
        """Write the lists, and return a sentence about each; None writes none."""
        notes = []
        if unpaired is not None:
            write_rows(unpaired, UNPAIRED_COLUMNS, self.unpaired)
            notes.append(f"{len(self.unpaired):,} texts without a partner -> {unpaired.name}")
        if identical is not None:
            write_rows(identical, IDENTICAL_COLUMNS, self.identical)
            notes.append(f"{len(self.identical):,} identical texts -> {identical.name}")
        return notes

    def _add_unpaired(
        self, side: int, row: int, sentence: int | str, reason: str, text: str
    ) -> None:
        id = self.sides[side].ids[row]
        self.unpaired.append((_SIDE_NAMES[side], id, sentence, reason, text))

    def _add_identical(
        self, first: int, second: int, first_number: int | str, second_number: int | str, text: str
    ) -> None:
        if has_letters(text):
            first_id = self.sides[0].ids[first]
            second_id = self.sides[1].ids[second]
            self.identical.append((first_id, second_id, first_number, second_number, text))
