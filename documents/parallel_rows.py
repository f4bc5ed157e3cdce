"""From pairs of documents to the rows of a new parallel corpus, which `tmde train` reads.

```python
rows = parallel_rows([("page 1", german_text, english_text)], embedder, ("de", "en"))
```
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.bead_probabilities import ALIGNED_SHARE, BeadProbabilities
from tmde.documents.calibration import Calibration, check_share
from tmde.documents.pair_checks import has_letters
from tmde.documents.sentence_alignment import Bead, align_sentences
from tmde.documents.unit_rows import unit_vectors
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentences import split_sentences

_SEGMENTS = 4096  # sentences or paragraphs of both sides that are embedded at once

_DECIMALS = 6

Encode = Callable[[list[str]], np.ndarray]


class Outcome(enum.Enum):
    """What becomes of a bead."""

    ROW = enum.auto()  # It becomes a row.
    ALONE = enum.auto()  # One side is empty.
    LOW_SCORE = enum.auto()  # Its score is below the least one.
    IDENTICAL = enum.auto()  # Both sides have the same text, such as a name or code.
    WORDLESS = enum.auto()  # One side has no letter, such as a number or a rule.
    IMPROBABLE = enum.auto()  # Its probability is below the least one.


@dataclass
class ParallelRowsReport:
    """Counts of what [`parallel_rows`] has read and embedded, and what became of it.

    A segment is a sentence, or a paragraph if paragraphs are aligned.

    Attributes:
        documents: The number of pairs of documents.
        first_segments: The number of segments of the first sides.
        second_segments: The number of segments of the second sides.
        embedded_texts: The number of texts that were embedded. One that occurs in distant documents
            counts again.
        truncated_texts: The number of these that are longer than the embedder takes.
        beads: How many beads have so many segments of the first and of the second side: (1, 2) is
            one aligned to two, (0, 1) one of the second side that is left alone.
        outcomes: How many beads had each outcome.
    """

    documents: int = 0
    first_segments: int = 0
    second_segments: int = 0
    embedded_texts: int = 0
    truncated_texts: int = 0
    beads: Counter[tuple[int, int]] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)


@dataclass(frozen=True)
class LeftOutBead:
    """A bead that became no row.

    Attributes:
        document: The number of the pair of documents, from 0.
        outcome: Why it became none.
        first: The numbers of its sentences of the first document, from 0.
        second: Those of the second.
        first_texts: Its sentences of the first document.
        second_texts: Those of the second.
    """

    document: int
    outcome: Outcome
    first: range
    second: range
    first_texts: list[str]
    second_texts: list[str]


def split_paragraphs(text: str) -> list[str]:
    """Return the lines of a document that are not empty, without white space around."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line]


def parallel_rows(
    documents: Iterable[tuple[str, str, str]],
    embedder: DocumentEmbedder,
    languages: tuple[str, str],
    paragraphs: bool = False,
    min_score: float | None = None,
    max_size: int = 6,
    skip: float = 0.7,
    calibration: Calibration | None = None,
    min_probability: float | None = None,
    share: float = ALIGNED_SHARE,
    report: ParallelRowsReport | None = None,
    on_left_out: Callable[[LeftOutBead], None] = lambda bead: None,
) -> Iterator[dict[str, Any]]:
    """Yield what is aligned in pairs of documents.

    Both documents of each pair are split into sentences, which are aligned in order. A bead becomes
    a row unless there is a reason to leave it out; see [`Outcome`]. All beads are counted. Rows
    that repeat stay: `tmde train` samples them as often as they occur.

    Args:
        documents: The id, the text in the first language and the text in the second of each pair;
            read as rows are asked for.
        embedder: Embeds the sentences.
        languages: The codes of both, for the splitting, for a model that needs them, and as keys of
            the rows.
        paragraphs: Align lines instead of sentences.
        min_score: The least score of a row; None for all. What is low depends on the model: look at
            the rows.
        max_size: The most sentences of a bead, both sides together; see
            [`~tmde.documents.sentence_alignment.align_sentences`].
        skip: Above 0. The lower it is, the more sentences are left alone.
        calibration: Gives every row its probability to be a translation; None leaves it out.
        min_probability: The least probability of a row; None for all.
        share: The share of beads that you expect to be right.
        report: The counts, which are filled in place as rows are asked for.
        on_left_out: Called with every bead that becomes no row.

    Yields:
        `{"translation": {language: text, language: text}, "doc_id": id, "segment": number of the
        bead in its document, from 0, "score": score of the bead}`; sentences of one side are joined
        by a space. With a calibration, `"probability"` is there, too.
        A score is that of the vectors alone (lengths help to align): 1 where both sides have one
        vector, about 0 where two sentences have no more to do with each other than any two of the
        documents, and lower where more sentences make the row. (The cosine says less: it is high
        for all long texts.) For documents of fewer than 20 sentences, those of the documents
        so far and of the next few count, too; a score says little where all these together are few.

    Raises:
        TmdeError: One language twice, options of the alignment out of range, a least probability
            without a calibration.
    """
    if languages[0] == languages[1]:
        raise TmdeError(f"languages: found {languages[0]!r} twice, expected two")
    if min_probability is not None and calibration is None:
        raise TmdeError("min_probability: found no calibration, expected the model's")
    check_share(share)
    if report is None:
        report = ParallelRowsReport()
    first_mean = _RunningMean()
    second_mean = _RunningMean()
    for pairs in _batches(documents, paragraphs, languages):
        encode_first = partial(_encode, embedder, languages[0], report)
        encode_second = partial(_encode, embedder, languages[1], report)
        first_vectors = _embedded_segments([pair.first for pair in pairs], encode_first)
        second_vectors = _embedded_segments([pair.second for pair in pairs], encode_second)
        first_mean.add(first_vectors)
        second_mean.add(second_vectors)
        means = None
        if first_mean.count and second_mean.count:
            means = first_mean.value, second_mean.value
        align = partial(align_sentences, max_size=max_size, skip=skip, means=means)
        probabilities = None
        if calibration is not None:
            probabilities = BeadProbabilities(calibration, share, first_vectors, second_vectors)
        for pair, *vectors in zip(pairs, first_vectors, second_vectors, strict=True):
            for row in _aligned_rows(pair, vectors, align, probabilities, report):
                outcome = _outcome(row, min_score, min_probability)
                report.outcomes[outcome] += 1
                if outcome is Outcome.ROW:
                    yield row.as_dict(pair.id, languages)
                else:
                    on_left_out(row.left_out(pair, report.documents - 1, outcome))


@dataclass(frozen=True)
class _DocumentPair:
    """Two documents, as lists of sentences or paragraphs."""

    id: str
    first: list[str]
    second: list[str]

    @property
    def lengths(self) -> tuple[list[int], list[int]]:
        """The characters of each sentence of both documents."""
        return [len(text) for text in self.first], [len(text) for text in self.second]


def _batches(
    documents: Iterable[tuple[str, str, str]], paragraphs: bool, languages: tuple[str, str]
) -> Iterator[list[_DocumentPair]]:
    """Yield consecutive documents, enough at a time for full batches of the model."""
    pairs: list[_DocumentPair] = []
    segment_count = 0
    for doc_id, first_text, second_text in documents:
        if paragraphs:
            first = split_paragraphs(first_text)
            second = split_paragraphs(second_text)
        else:
            first = split_sentences(first_text, languages[0])
            second = split_sentences(second_text, languages[1])
        pairs.append(_DocumentPair(doc_id, first, second))
        segment_count += len(first) + len(second)
        if segment_count >= _SEGMENTS:
            yield pairs
            pairs = []
            segment_count = 0
    if pairs:
        yield pairs


def _embedded_segments(documents: Sequence[Sequence[str]], encode: Encode) -> list[np.ndarray]:
    """Return the vectors of the segments of each document, (n, d).

    Args:
        documents: The segments of each document.
        encode: Turns n texts into (n, d). Every different text is encoded once.
    """
    positions: dict[str, int] = {}  # the row of each different text
    rows_of_documents = []
    for segments in documents:
        rows_of_documents.append([positions.setdefault(text, len(positions)) for text in segments])
    vectors = encode(list(positions)) if positions else np.empty((0, 1), np.float32)
    return [vectors[rows] for rows in rows_of_documents]


def _encode(
    embedder: DocumentEmbedder, language: str, report: ParallelRowsReport, texts: list[str]
) -> np.ndarray:
    """Return the vectors of texts, and count them."""
    vectors, encode_report = embedder.encode_with_report(
        texts, language=language, show_progress_bar=False
    )
    report.embedded_texts += encode_report.texts
    report.truncated_texts += encode_report.truncated
    return np.asarray(vectors)


@dataclass
class _RunningMean:
    """The mean unit vector of the sentences of all documents so far.

    Attributes:
        total: The sum of the vectors, (d,) float64.
        count: Their number.
    """

    total: np.ndarray = field(default_factory=lambda: np.zeros(()))
    count: int = 0

    @property
    def value(self) -> np.ndarray:
        return self.total / self.count

    def add(self, vectors_of_documents: list[np.ndarray]) -> None:
        """Include the sentences of documents, (n, d) each."""
        for vectors in vectors_of_documents:
            if len(vectors):
                self.total = self.total + unit_vectors(vectors).sum(axis=0, dtype=np.float64)
                self.count += len(vectors)


@dataclass
class _AlignedRow:
    """A bead, and the texts of its sides.

    Attributes:
        segment: The number of the bead in its document, from 0.
        bead: The bead.
        score: Its score; None if one side is empty.
        first: The text of its first side.
        second: That of its second side.
        probability: The probability that they are translations; None if it is not known.
    """

    segment: int
    bead: Bead
    score: float | None
    first: str
    second: str
    probability: float | None = None

    def left_out(self, pair: _DocumentPair, document: int, outcome: Outcome) -> LeftOutBead:
        """Return the bead, which becomes no row.

        Args:
            pair: The documents.
            document: The number of the pair.
            outcome: Why it becomes none.
        """
        first = self.bead.first
        second = self.bead.second
        return LeftOutBead(
            document,
            outcome,
            first,
            second,
            pair.first[first.start : first.stop],
            pair.second[second.start : second.stop],
        )

    def as_dict(self, doc_id: str, languages: tuple[str, str]) -> dict[str, Any]:
        """Return the row of the corpus, of a bead with sentences on both sides."""
        assert self.score is not None
        row = {
            "translation": {languages[0]: self.first, languages[1]: self.second},
            "doc_id": doc_id,
            "segment": self.segment,
            # The sum turns -0.0 into 0.0.
            "score": round(self.score, _DECIMALS) + 0.0,
        }
        if self.probability is not None:
            row["probability"] = round(self.probability, _DECIMALS)
        return row


def _aligned_rows(
    pair: _DocumentPair,
    vectors: Sequence[np.ndarray],
    align: Callable[..., list[Bead]],
    probabilities: BeadProbabilities | None,
    report: ParallelRowsReport,
) -> list[_AlignedRow]:
    """Align two documents, count their segments and beads, and return the beads.

    Args:
        pair: The documents.
        vectors: The vectors of the segments of both, (n, d) and (m, d).
        align: `align_sentences`.
        probabilities: Gives the beads their probabilities; None leaves them out.
        report: The counts, which are filled in place.
    """
    first_vectors, second_vectors = vectors
    report.documents += 1
    report.first_segments += len(pair.first)
    report.second_segments += len(pair.second)
    rows = []
    for segment, bead in enumerate(align(first_vectors, second_vectors, lengths=pair.lengths)):
        report.beads[len(bead.first), len(bead.second)] += 1
        first = _joined(pair.first, bead.first)
        second = _joined(pair.second, bead.second)
        rows.append(_AlignedRow(segment, bead, bead.score, first, second))
    if probabilities is not None:
        paired_rows = [row for row in rows if row.score is not None]
        beads = [row.bead for row in paired_rows]
        values = probabilities.probabilities_of(
            beads, (pair.first, pair.second), (first_vectors, second_vectors)
        )
        for row, probability in zip(paired_rows, values, strict=True):
            row.probability = probability
    return rows


def _joined(segments: list[str], numbers: range) -> str:
    """Return consecutive segments as one text."""
    return " ".join(segments[numbers.start : numbers.stop])


def _outcome(row: _AlignedRow, min_score: float | None, min_probability: float | None) -> Outcome:
    """Return whether a bead becomes a row, or why it is left out."""
    if row.score is None:
        return Outcome.ALONE
    if min_score is not None and row.score < min_score:
        return Outcome.LOW_SCORE
    if row.first == row.second:
        return Outcome.IDENTICAL
    if not (has_letters(row.first) and has_letters(row.second)):
        return Outcome.WORDLESS
    if min_probability is None or row.probability is None:
        return Outcome.ROW
    return Outcome.ROW if row.probability >= min_probability else Outcome.IMPROBABLE
