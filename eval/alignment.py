"""Alignment of documents: which share of the known translations does one-to-one matching find?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tmde.documents.alignment import align_documents
from tmde.documents.lawdr import Lawdr
from tmde.documents.neighbours import Matrix
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import AlignmentData, TaskError


def evaluate_alignment(
    data: AlignmentData,
    system: System,
    scoring: str = "cosine",
    k: int = 4,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Recall of the known pairs of translations (Buck & Koehn 2016; paper 003, section 6).

    Within each collection, the pair of the best score is taken, then the best of those left, and so on (see
    [`~tmde.documents.alignment.align_documents`]). A margin looks for neighbors within the collection. Each
    text is represented once.

    Args:
        data: Collections of documents. With `by_url`, documents whose ids are URLs that differ in their marks of
            language alone are paired first; with `lawdr_rank`, an embedder represents documents by LAWDR.
        system: What represents texts; it may be fitted on all texts.
        scoring: `cosine`, `ratio` or `distance`.
        k: Neighbors of a margin.
        progress: Called with a line before each collection.

    Returns:
        One cell a pair of languages, over all its collections. `outcomes` says which known pairs were found; a
        document without text is never found. `extra` holds `size` (known pairs) and `documents`.

    Raises:
        TaskError: No known pair.
        ValueError: Unknown scoring; `k` below 1; vectors that are not finite; a rank that LAWDR cannot have.
    """
    texts: dict[str, list[str]] = {}
    for collection in data.collections.values():
        for language, documents in zip(collection.languages, collection.documents, strict=True):
            texts.setdefault(language, []).extend(documents.values())
    texts = {language: list(dict.fromkeys(found)) for language, found in texts.items()}
    vectors = _represent(texts, system, data.lawdr_rank)
    rows = {
        language: {text: row for row, text in enumerate(found)} for language, found in texts.items()
    }
    found: dict[
        tuple[str, str], list[tuple[str, bool]]
    ] = {}  # id and outcome of the known pairs, by languages
    sizes: dict[tuple[str, str], int] = {}
    for name, collection in data.collections.items():
        if progress is not None:
            progress(
                f"{name}: {' and '.join(str(len(side)) for side in collection.documents)} documents"
            )
        ids = [list(side) for side in collection.documents]
        pairs = set()
        if all(ids):
            sides = [
                vectors[code][[rows[code][text] for text in side.values()]]
                for code, side in zip(collection.languages, collection.documents, strict=True)
            ]
            urls = dict(zip(("first_urls", "second_urls"), ids, strict=True)) if data.by_url else {}
            aligned = align_documents(*sides, scoring, k, languages=collection.languages, **urls)
            pairs = {(ids[0][pair.first], ids[1][pair.second]) for pair in aligned}
        outcomes = [
            (f"{name}:{pair[0]}|{pair[1]}", pair in pairs)
            for pair in dict.fromkeys(collection.pairs)
        ]
        found.setdefault(collection.languages, []).extend(outcomes)
        sizes[collection.languages] = sizes.get(collection.languages, 0) + sum(map(len, ids))
    if not any(found.values()):
        raise TaskError("Found no pair of documents to find, expected at least one")
    cells = []
    for languages, outcomes in found.items():
        names, right = zip(*outcomes, strict=True)
        values = np.array(right, dtype=float)
        extra = {"size": len(names), "documents": sizes[languages]}
        cells.append(
            Cell(*languages, "recall", float(values.mean()), list(names), values, extra=extra)
        )
    return cells


def _represent(
    texts: dict[str, list[str]], system: System, lawdr_rank: int | None
) -> dict[str, Matrix]:
    """Vectors (n, d) of the texts of each language."""
    if lawdr_rank is not None and system.dense:
        lawdr = Lawdr(system.embedder, rank=lawdr_rank)
        return {
            language: lawdr.fit_transform(column, language) for language, column in texts.items()
        }
    fit_on = [text for column in texts.values() for text in column]
    return {
        language: system.represent(column, fit_on, language) for language, column in texts.items()
    }
