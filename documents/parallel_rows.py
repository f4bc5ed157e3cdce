"""From pairs of documents to the rows of a new parallel corpus, which `tmde train` reads.

rows = parallel_rows([("page 1", german_text, english_text)], embedder, ("de", "en"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from modeling_tmde import TmdeError
from tmde.documents.sentence_alignment import align_sentences, embedded_spans, unit_rows
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import split_sentences

_SEGMENTS = 4096  # of both sides, whose vectors are there at once


def split_paragraphs(text: str) -> list[str]:
    """The lines of a document that are not empty, without white space around."""
    return [line for part in text.splitlines() if (line := part.strip())]


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
    """Splits both documents of each pair, aligns what they consist of in order, and gives what is aligned.

    Left out are beads of one side, those below `min_score`, those with the same text on both sides (names, code), and
    those without a letter on one side (numbers, rules); all are counted. Rows that repeat stay: `tmde train` samples
    them as often as they occur.

    Args:
        documents: Id, text in the first language, text in the second, of each pair; read as rows are asked for.
        embedder: Of sentences, and of what neighboring ones make as one text.
        languages: Codes of both, for the splitting, for a model that needs them, and as keys of the rows.
        paragraphs: Align lines instead of sentences.
        min_score: Least score of a row; None for all. What is low depends on the model: look at the rows.
        max_size, skip: See [`~tmde.documents.sentence_alignment.align_sentences`].
        report: Filled in place: `documents` (pairs), `first` and `second` (sentences or paragraphs of both sides),
            each kind of bead, such as "1-2" for one to two and "0-1" for one left alone, `rows` that are kept, and of
            those left out `low`, `identical` and `wordless`; `texts` that were embedded (one that occurs in distant
            documents counts again), and `truncated` ones of them.

    Yields:
        `{"translation": {language: text, language: text}, "doc_id": id, "segment": number of the bead in its document,
        from 0, "score": score of the bead}`; sentences of one side are joined by a space. A score is that of the
        vectors alone (lengths help to align): 1 where both sides have one vector, about 0 where two sentences have no
        more to do with each other than any two of the documents, and lower where more sentences make the row. (The
        cosine says less: it is high for all long texts.) For documents of fewer than 20 sentences, those of the
        documents so far and of the next few count, too; a score says little where all these together are few.

    Raises:
        ValueError: One language twice, options of the alignment out of range.
    """
    if languages[0] == languages[1]:
        raise TmdeError(f"languages: found {languages[0]!r} twice, expected two")
    report = Counter() if report is None else report
    totals, counts = [0.0, 0.0], [0, 0]  # of the unit vectors of the sentences of each side so far
    for ids, sides in _batches(documents, paragraphs, languages):
        vectors = []
        for number, (side, language) in enumerate(zip(sides, languages, strict=True)):

            def encode(texts: list[str], language: str = language) -> np.ndarray:
                vectors, encode_report = embedder.encode_with_report(
                    texts, language=language, show_progress_bar=False
                )
                report.update(texts=encode_report.texts, truncated=encode_report.truncated)
                return vectors

            vectors.append(embedded_spans(side, encode, max_size - 1))
            for spans in filter(None, vectors[-1]):
                totals[number] = totals[number] + unit_rows(spans[0]).sum(axis=0, dtype=np.float64)
                counts[number] += len(spans[0])
        means = (
            tuple(total / count for total, count in zip(totals, counts, strict=True))
            if all(counts)
            else None
        )
        for doc_id, *both, first, second in zip(ids, *vectors, *sides, strict=True):
            lengths = tuple([len(text) for text in side] for side in (first, second))
            report.update(documents=1, first=len(first), second=len(second))
            for segment, bead in enumerate(
                align_sentences(*both, max_size, skip, lengths=lengths, means=means)
            ):
                texts = [
                    " ".join(first[i] for i in bead.first),
                    " ".join(second[j] for j in bead.second),
                ]
                fate = "rows"
                if bead.score is None:
                    fate = "alone"
                elif min_score is not None and bead.score < min_score:
                    fate = "low"
                elif texts[0] == texts[1]:
                    fate = "identical"
                elif not all(any(map(str.isalpha, text)) for text in texts):
                    fate = "wordless"
                report.update([f"{len(bead.first)}-{len(bead.second)}", fate])
                if fate == "rows":
                    translation = dict(zip(languages, texts, strict=True))
                    score = round(bead.score, 6) + 0.0  # no -0.0
                    yield {
                        "translation": translation,
                        "doc_id": doc_id,
                        "segment": segment,
                        "score": score,
                    }


def _batches(
    documents: Iterable[tuple[str, str, str]], paragraphs: bool, languages: tuple[str, str]
) -> Iterator[tuple[list[str], tuple[list[list[str]], list[list[str]]]]]:
    """Ids and segments of consecutive documents: enough at a time for full batches of the model."""
    ids: list[str] = []
    sides: tuple[list[list[str]], list[list[str]]] = ([], [])
    for doc_id, *texts in documents:
        ids.append(doc_id)
        for side, text, language in zip(sides, texts, languages, strict=True):
            side.append(split_paragraphs(text) if paragraphs else split_sentences(text, language))
        if sum(len(segments) for side in sides for segments in side) >= _SEGMENTS:
            yield ids, sides
            ids, sides = [], ([], [])
    if ids:
        yield ids, sides
