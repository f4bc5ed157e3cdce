"""From pairs of documents to the rows of a new parallel corpus, which `tmde train` reads.

rows = parallel_rows([("page 1", german_text, english_text)], embedder, ("de", "en"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modeling_tmde.documents.sentence_alignment import Bead, align_sentences, embedded_spans, unit_rows
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.long_documents import split_sentences

UNITS = ("sentences", "paragraphs")
_SEGMENTS = 4096  # of both sides, whose vectors are there at once


@dataclass
class RowsReport:
    """What became of the documents.

    documents: pairs; first_segments, second_segments: sentences or paragraphs of both sides; beads: how many of each
    kind, such as "1-2" for one to two and "0-1" for one left alone; rows: kept; low: beads below the least score;
    identical: with the same text on both sides; wordless: without a letter on one side; texts: embedded ones (one that
    occurs in distant documents counts again); truncated, split: those of them that are longer than the model takes,
    and were cut off, or embedded in pieces.
    """

    documents: int = 0
    first_segments: int = 0
    second_segments: int = 0
    beads: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    low: int = 0
    identical: int = 0
    wordless: int = 0
    texts: int = 0
    truncated: int = 0
    split: int = 0


class _RunningMean:
    """Of the unit vectors of the sentences so far: of documents that are few or short, the first alone say little."""

    def __init__(self) -> None:
        self.total: np.ndarray | float = 0.0
        self.count = 0

    def add(self, documents: list[np.ndarray]) -> None:
        """(n, d) each."""
        for vectors in documents:
            if len(vectors):
                self.total = self.total + unit_rows(vectors).sum(axis=0, dtype=np.float64)
                self.count += len(vectors)

    def value(self) -> np.ndarray:
        return self.total / self.count


def split_paragraphs(text: str) -> list[str]:
    """The lines of a document that are not empty, without white space around."""
    return [line for part in text.splitlines() if (line := part.strip())]


def parallel_rows(
    documents: Iterable[tuple[str, str, str]],
    embedder: DocumentEmbedder,
    languages: tuple[str, str],
    unit: str = "sentences",
    min_score: float | None = None,
    max_size: int = 3,
    skip: float = 0.55,
    report: RowsReport | None = None,
) -> Iterator[dict[str, Any]]:
    """Splits both documents of each pair, aligns what they consist of in order, and gives what is aligned.

    Left out are beads of one side, those below `min_score`, those with the same text on both sides (names, code), and
    those without a letter on one side (numbers, rules); all are counted. Rows that repeat stay: `tmde train` samples
    them as often as they occur.

    Args:
        documents: Id, text in the first language, text in the second, of each pair; read as rows are asked for.
        embedder: Of sentences, and of what neighbouring ones make as one text.
        languages: Codes of both, for the splitting, for a model that needs them, and as keys of the rows.
        unit: `sentences` or `paragraphs` (lines).
        min_score: Least score of a row; None for all. What is low depends on the model: look at the rows.
        max_size, skip: See [`~modeling_tmde.documents.sentence_alignment.align_sentences`].
        report: Filled in place.

    Yields:
        `{"translation": {language: text, language: text}, "doc_id": id, "segment": number of the bead in its document,
        from 0, "score": score of the bead}`; sentences of one side are joined by a space. A score is that of the
        vectors alone (lengths help to align): 1 where both sides have one vector, about 0 where two sentences have no
        more to do with each other than any two of the documents, and lower where more sentences make the row. (The
        cosine says less: it is high for all long texts.) For documents of fewer than 20 sentences, those of the
        documents so far and of the next few count, too; a score says little where all these together are few.

    Raises:
        ValueError: Unknown unit, one language twice, options of the alignment out of range.
    """
    if unit not in UNITS:
        raise ValueError(f"unit: found {unit!r}, expected one of {', '.join(UNITS)}")
    if languages[0] == languages[1]:
        raise ValueError(f"languages: found {languages[0]!r} twice, expected two")
    report = RowsReport() if report is None else report
    means = _RunningMean(), _RunningMean()
    for ids, sides in _batches(documents, unit, languages):
        vectors = [
            _embedded(side, embedder, language, max_size - 1, report)
            for side, language in zip(sides, languages, strict=True)
        ]
        for mean, of_side in zip(means, vectors, strict=True):
            mean.add([spans[0] for spans in of_side if spans])
        options = {"means": tuple(mean.value() for mean in means)} if all(mean.count for mean in means) else {}
        for number, doc_id in enumerate(ids):
            first, second = (side[number] for side in sides)
            report.documents += 1
            report.first_segments += len(first)
            report.second_segments += len(second)
            lengths = [len(text) for text in first], [len(text) for text in second]
            beads = align_sentences(vectors[0][number], vectors[1][number], max_size, skip, lengths=lengths, **options)
            for segment, bead in enumerate(beads):
                row = _row(bead, first, second, min_score, report)
                if row is not None:
                    report.rows += 1
                    translation = dict(zip(languages, row, strict=True))
                    score = round(bead.score, 6) + 0.0  # no -0.0
                    yield {"translation": translation, "doc_id": doc_id, "segment": segment, "score": score}


def _batches(
    documents: Iterable[tuple[str, str, str]], unit: str, languages: tuple[str, str]
) -> Iterator[tuple[list[str], tuple[list[list[str]], list[list[str]]]]]:
    """Ids and segments of consecutive documents: enough at a time for full batches of the model."""
    ids: list[str] = []
    sides: tuple[list[list[str]], list[list[str]]] = ([], [])
    waiting = 0
    for doc_id, *texts in documents:
        ids.append(doc_id)
        for side, text, language in zip(sides, texts, languages, strict=True):
            side.append(split_paragraphs(text) if unit == "paragraphs" else split_sentences(text, language))
            waiting += len(side[-1])
        if waiting >= _SEGMENTS:
            yield ids, sides
            ids, sides, waiting = [], ([], []), 0
    if ids:
        yield ids, sides


def _embedded(
    documents: Sequence[Sequence[str]], embedder: DocumentEmbedder, language: str, largest: int, report: RowsReport
) -> list[list[np.ndarray]]:
    def encode(texts: list[str]) -> np.ndarray:
        vectors = embedder.encode(texts, language=language, show_progress_bar=False)
        report.texts += embedder.last_report.texts
        report.truncated += embedder.last_report.truncated
        report.split += embedder.last_report.split
        return vectors

    return embedded_spans(documents, encode, largest)


def _row(
    bead: Bead, first: list[str], second: list[str], min_score: float | None, report: RowsReport
) -> tuple[str, str] | None:
    """Both texts of a bead that is kept."""
    report.beads[f"{len(bead.first)}-{len(bead.second)}"] += 1
    if bead.score is None:
        return None
    texts = tuple(" ".join(side[i] for i in chosen) for side, chosen in ((first, bead.first), (second, bead.second)))
    if min_score is not None and bead.score < min_score:
        report.low += 1
    elif texts[0] == texts[1]:
        report.identical += 1
    elif not all(any(map(str.isalpha, text)) for text in texts):
        report.wordless += 1
    else:
        return texts
    return None
