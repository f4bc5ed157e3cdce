"""The probability that a bead of a sentence alignment is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tmde.documents.beads import unit_sentences, unit_sum, weights_of
from tmde.documents.calibration import Calibration
from tmde.documents.sentence_alignment import Bead
from tmde.documents.unit_rows import UnitRows

# About nine of ten beads of the development documents are right, because their order says much.
ALIGNED_SHARE = 0.9
# What rows need without any threshold. Where many sentences are missing on one side, F1 is highest
# near here. Where none is missing, the higher probability of mined pairs would lose right rows.
ALIGNED_PROBABILITY = 0.1


class BeadProbabilities:
    """Gives beads a probability, by the cosine of both sides and their nearest other sentences.

    The vector of several sentences is the sum of theirs, as in the alignment. The neighbors are
    sentences of all documents that are aligned together, because those of one short document are
    too few.

    Args:
        calibration: That of the model.
        share: The share of beads that is expected to be right.
        first: The vectors of the sentences of each first document, (n, d).
        second: Those of the second documents.
    """

    def __init__(
        self,
        calibration: Calibration,
        share: float,
        first: Sequence[np.ndarray],
        second: Sequence[np.ndarray],
    ) -> None:
        self.calibration = calibration
        self.share = share
        self.first_sentences = _joined(first)
        self.second_sentences = _joined(second)

    def probabilities_of(
        self,
        beads: Sequence[Bead],
        texts: tuple[Sequence[str], Sequence[str]],
        vectors: tuple[np.ndarray, np.ndarray],
    ) -> list[float]:
        """Return the probability that both sides of each bead are translations.

        Args:
            beads: Beads of one pair of documents, with sentences on both sides.
            texts: The sentences of both documents.
            vectors: Their vectors, (n, d) and (m, d).
        """
        if not beads or self.first_sentences is None or self.second_sentences is None:
            return []
        first_spans = [bead.first for bead in beads]
        second_spans = [bead.second for bead in beads]
        first = _span_vectors(first_spans, texts[0], vectors[0])
        second = _span_vectors(second_spans, texts[1], vectors[1])
        return self.calibration.probabilities_among(
            (_span_texts(first_spans, texts[0]), _span_texts(second_spans, texts[1])),
            (first, second),
            (self.first_sentences, self.second_sentences),
            self.share,
        )


def _joined(documents: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return the unit vectors of all sentences, (n, d) float32; None if no document has one."""
    filled = [vectors for vectors in documents if len(vectors)]
    if not filled:
        return None
    unit: np.ndarray = UnitRows("sentences", np.concatenate(filled))[:]
    return unit


def _span_vectors(
    spans: Sequence[range], sentences: Sequence[str], vectors: np.ndarray
) -> np.ndarray:
    """Return the unit vector of each span of sentences, (spans, d)."""
    lengths = [len(sentence) for sentence in sentences]
    weighted = unit_sentences("sentences", vectors) * weights_of(len(sentences), lengths)
    return np.stack([unit_sum(weighted[span.start : span.stop]) for span in spans])


def _span_texts(spans: Sequence[range], sentences: Sequence[str]) -> list[str]:
    """Return each span of sentences as one text."""
    return [" ".join(sentences[span.start : span.stop]) for span in spans]
