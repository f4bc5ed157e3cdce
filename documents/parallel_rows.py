"""From pairs of documents to the rows of a new parallel corpus, which `tmde train` reads.

```python
rows = parallel_rows([("page 1", german_text, english_text)], embedder, ("de", "en"))
```
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.bead_costs import unit_rows
from tmde.documents.sentence_alignment import Bead, align_sentences, embedded_spans
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.sentences import split_sentences

_SEGMENTS = 4096  # of both sides, whose vectors are there at once

_SCORE_DECIMALS = 6


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
    max_size: int = 3,
    skip: float = 0.55,
    report: Counter[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield what is aligned in pairs of documents.

    Both documents of each pair are split into sentences, which are aligned in order. Left out are
    beads of one side, those below `min_score`, those with the same text on both sides (names,
    code), and those without a letter on one side (numbers, rules); all are counted. Rows that
    repeat stay: `tmde train` samples them as often as they occur.

    Args:
        documents: The id, the text in the first language and the text in the second of each pair;
            read as rows are asked for.
        embedder: Embeds sentences, and neighboring ones as one text.
        languages: The codes of both, for the splitting, for a model that needs them, and as keys of
            the rows.
        paragraphs: Align lines instead of sentences.
        min_score: The least score of a row; None for all. What is low depends on the model: look at
            the rows.
        max_size: See [`~tmde.documents.sentence_alignment.align_sentences`].
        skip: See there.
        report: Filled in place: `documents` (pairs), `first` and `second` (sentences or paragraphs
            of both sides), each kind of bead, such as "1-2" for one to two and "0-1" for one left
            alone, `rows` that are kept, and of those left out `low`, `identical` and `wordless`;
            `texts` that were embedded (one that occurs in distant documents counts again), and
            `truncated` ones of them.

    Yields:
        `{"translation": {language: text, language: text}, "doc_id": id, "segment": number of the
        bead in its document, from 0, "score": score of the bead}`; sentences of one side are joined
        by a space. A score is that of the vectors alone (lengths help to align): 1 where both sides
        have one vector, about 0 where two sentences have no more to do with each other than any two
        of the documents, and lower where more sentences make the row. (The cosine says less: it is
        high for all long texts.) For documents of fewer than 20 sentences, those of the documents
        so far and of the next few count, too; a score says little where all these together are few.

    Raises:
        TmdeError: One language twice, options of the alignment out of range.
    """
    if languages[0] == languages[1]:
        raise TmdeError(f"languages: found {languages[0]!r} twice, expected two")
    report = Counter() if report is None else report
    first_mean = _RunningMean()
    second_mean = _RunningMean()
    for pairs in _batches(documents, paragraphs, languages):
        encode_first = partial(_encode, embedder, languages[0], report)
        encode_second = partial(_encode, embedder, languages[1], report)
        first_spans = embedded_spans([pair.first for pair in pairs], encode_first, max_size - 1)
        second_spans = embedded_spans([pair.second for pair in pairs], encode_second, max_size - 1)
        first_mean.add(first_spans)
        second_mean.add(second_spans)
        means = None
        if first_mean.count and second_mean.count:
            means = first_mean.value, second_mean.value
        for pair, first, second in zip(pairs, first_spans, second_spans, strict=True):
            report.update(documents=1, first=len(pair.first), second=len(pair.second))
            beads = align_sentences(
                first, second, max_size, skip, lengths=pair.lengths, means=means
            )
            yield from _rows_of(pair, beads, languages, min_score, report)


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


def _encode(
    embedder: DocumentEmbedder, language: str, report: Counter[str], texts: list[str]
) -> np.ndarray:
    """Return the vectors of texts, and count them."""
    vectors, encode_report = embedder.encode_with_report(
        texts, language=language, show_progress_bar=False
    )
    report.update(texts=encode_report.texts, truncated=encode_report.truncated)
    return np.asarray(vectors)


@dataclass
class _RunningMean:
    """The mean unit vector of the sentences of all documents so far.

    Args:
        total: The sum of the vectors, (d,) float64.
        count: Their number.
    """

    total: np.ndarray = field(default_factory=lambda: np.zeros(()))
    count: int = 0

    @property
    def value(self) -> np.ndarray:
        return self.total / self.count

    def add(self, spans_of_documents: list[list[np.ndarray]]) -> None:
        """Include the sentences of documents, whose spans are given by length."""
        for spans in spans_of_documents:
            if spans:
                self.total = self.total + unit_rows(spans[0]).sum(axis=0, dtype=np.float64)
                self.count += len(spans[0])


def _rows_of(
    pair: _DocumentPair,
    beads: list[Bead],
    languages: tuple[str, str],
    min_score: float | None,
    report: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the beads that are kept, and count all beads."""
    for segment, bead in enumerate(beads):
        first_text = " ".join(pair.first[i] for i in bead.first)
        second_text = " ".join(pair.second[j] for j in bead.second)
        outcome = _outcome(bead, first_text, second_text, min_score)
        kind = f"{len(bead.first)}-{len(bead.second)}"
        report.update([kind, outcome])
        if outcome == "rows" and bead.score is not None:
            yield {
                "translation": {languages[0]: first_text, languages[1]: second_text},
                "doc_id": pair.id,
                "segment": segment,
                "score": round(bead.score, _SCORE_DECIMALS) + 0.0,  # The sum turns -0.0 into 0.0.
            }


def _outcome(bead: Bead, first_text: str, second_text: str, min_score: float | None) -> str:
    """Return "rows" if a bead becomes a row, and else why it is left out."""
    if bead.score is None:
        return "alone"
    if min_score is not None and bead.score < min_score:
        return "low"
    if first_text == second_text:
        return "identical"
    if not (_has_letter(first_text) and _has_letter(second_text)):
        return "wordless"
    return "rows"


def _has_letter(text: str) -> bool:
    return any(character.isalpha() for character in text)
