"""Alignment of documents: which share of the known translations does one-to-one matching find?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tmde.documents.alignment import align_documents
from tmde.documents.quality import alignment_quality
from tmde.documents.unit_rows import Matrix
from tmde.eval.lawdr_system import lawdr_measures, with_lawdr
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import AlignmentData, DocumentCollection, TaskError

LanguagePair = tuple[str, str]
IdPair = tuple[str, str]  # ids of two documents


def evaluate_alignment(
    data: AlignmentData,
    system: System,
    scoring: str = "cosine",
    k: int = 4,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Measure the recall of known translations (Buck and Koehn, 2016; Gong et al., 2021).

    Within each collection, the pair of the best score is taken, then the best of those left, and so
    on (see [`~tmde.documents.alignment.align_documents`]). A margin looks for neighbors within the
    collection. Each text is represented once.

    Args:
        data: Collections of documents. With `by_url`, documents whose ids are URLs that differ in
            their marks of language alone are paired first; with `lawdr`, an embedder represents
            documents by LAWDR.
        system: What represents texts; it may be fitted on all texts.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a margin.
        progress: Called with a line before each collection.

    Returns:
        One cell a pair of languages, over all its collections. `outcomes` says which known pairs
        were found; a document without text is never found. `extra` holds `size` (known pairs),
        `documents` and, with LAWDR, `debiased_rank` (directions removed).

    Raises:
        TaskError: There is no known pair.
        TmdeError: Unknown scoring; `k` below 1; vectors that are not finite; a rank that LAWDR
            cannot have.
    """
    columns = _unique_texts(data)
    system = with_lawdr(system, data.lawdr, columns)
    vectors = _represent(columns, system)
    scores: dict[LanguagePair, _Score] = defaultdict(_Score)
    for name, collection in data.collections.items():
        if progress is not None:
            first_size, second_size = map(len, collection.documents)
            progress(f"{name}: {first_size} and {second_size} documents")
        aligned_pairs = _align(collection, vectors, scoring, k, data.by_url)
        scores[collection.languages].add(name, collection, aligned_pairs)
    cells = [score.cell(languages) for languages, score in scores.items() if score.ids]
    for cell in cells:
        cell.extra.update(lawdr_measures(system))
    if not cells:
        raise TaskError("Found no document pairs in the data, expected at least one")
    return cells


@dataclass
class _Score:
    """Which known pairs of documents in two languages were found.

    Args:
        ids: An id for each known pair.
        outcomes: Whether each known pair was found.
        correct: The number of known pairs that were found.
        documents: The number of documents of all collections.
    """

    ids: list[str] = field(default_factory=list)
    outcomes: list[bool] = field(default_factory=list)
    correct: int = 0
    documents: int = 0

    def add(self, name: str, collection: DocumentCollection, aligned_pairs: set[IdPair]) -> None:
        """Add the known pairs of a collection."""
        for pair in dict.fromkeys(collection.pairs):
            self.ids.append(f"{name}:{pair[0]}|{pair[1]}")
            self.outcomes.append(pair in aligned_pairs)
        self.correct += alignment_quality(aligned_pairs, collection.pairs).correct
        self.documents += sum(map(len, collection.documents))

    def cell(self, languages: LanguagePair) -> Cell:
        """Return the recall."""
        source, target = languages
        return Cell(
            source=source,
            target=target,
            metric="recall",
            value=self.correct / len(self.ids),
            ids=self.ids,
            outcomes=np.array(self.outcomes, dtype=float),
            extra={"size": len(self.ids), "documents": self.documents},
        )


@dataclass(frozen=True)
class _TextVectors:
    """The vectors of all texts of one language.

    Args:
        row_of: The row of each text.
        matrix: (n, d), one row for each text.
    """

    row_of: Mapping[str, int]
    matrix: Matrix

    def of(self, documents: Mapping[str, str]) -> Matrix:
        """Return the vectors (m, d) of documents."""
        return self.matrix[[self.row_of[text] for text in documents.values()]]


def _unique_texts(data: AlignmentData) -> dict[str, list[str]]:
    """Return the different texts of each language."""
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for collection in data.collections.values():
        for language, documents in zip(collection.languages, collection.documents, strict=True):
            texts[language].update(dict.fromkeys(documents.values()))
    return {language: list(unique_texts) for language, unique_texts in texts.items()}


def _represent(columns: Mapping[str, Sequence[str]], system: System) -> dict[str, _TextVectors]:
    """Represent the texts of each language; the system may be fitted on all of them."""
    fit_on: list[str] = []
    for column in columns.values():
        fit_on += column
    vectors = {}
    for language, column in columns.items():
        row_of = {text: row for row, text in enumerate(column)}
        vectors[language] = _TextVectors(row_of, system.represent(column, fit_on, language))
    return vectors


def _align(
    collection: DocumentCollection,
    vectors: Mapping[str, _TextVectors],
    scoring: str,
    k: int,
    by_url: bool,
) -> set[IdPair]:
    """Return the ids of the documents of a collection that are paired."""
    first_documents, second_documents = collection.documents
    if not first_documents or not second_documents:
        return set()
    first_language, second_language = collection.languages
    first_ids = list(first_documents)
    second_ids = list(second_documents)
    aligned = align_documents(
        vectors[first_language].of(first_documents),
        vectors[second_language].of(second_documents),
        scoring,
        k,
        first_urls=first_ids if by_url else None,
        second_urls=second_ids if by_url else None,
        languages=collection.languages,
    )
    return {(first_ids[pair.first], second_ids[pair.second]) for pair in aligned}
