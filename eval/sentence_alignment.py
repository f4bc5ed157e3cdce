"""Alignment of sentences: how many pairs of sentences are exactly, or nearly, those of the gold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import scipy.sparse

from tmde.documents.bead_quality import BeadCounts, SentencePair, count_beads
from tmde.documents.sentence_alignment import align_sentences
from tmde.documents.unit_rows import Matrix
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import SentenceAlignmentData, TaskError, TranslatedText


def evaluate_sentence_alignment(
    data: SentenceAlignmentData,
    system: System,
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Measure the strict F1 of aligned sentences (Thompson & Koehn 2019).

    The vectors are aligned by [`~tmde.documents.sentence_alignment.align_sentences`] with its
    defaults and with the lengths of the sentences, as `tmde align` does it.

    Args:
        data: Texts with their translations and the right alignment.
        system: What represents sentences; it may be fitted on both sides of a text.
        progress: Called with a line before each text.

    Returns:
        One cell a pair of languages, over all its texts. `outcomes` are the counts of
        [`~tmde.documents.bead_quality.BeadCounts`] by the place where a pair begins in the first
        text, (n, 4). `extra` holds `lax_f1`, `precision`, `recall` (both strict) and `size`
        (right pairs).

    Raises:
        TaskError: No text has a pair of sentences.
        TmdeError: Vectors that are not finite.
    """
    strict: dict[tuple[str, str], list[BeadCounts]] = defaultdict(list)
    lax: dict[tuple[str, str], list[BeadCounts]] = defaultdict(list)
    ids: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, text in data.texts.items():
        if progress is not None:
            progress(f"{name}: {len(text.first)} and {len(text.second)} sentences")
        beads = _align(text, system)
        sizes = len(text.first), len(text.second)
        strict[text.languages].append(count_beads(beads, text.beads, *sizes))
        lax[text.languages].append(count_beads(beads, text.beads, *sizes, lax=True))
        ids[text.languages] += [f"{name}:{place}" for place in range(len(text.first) + 1)]
    cells = []
    for languages, parts in strict.items():
        counts = BeadCounts.joined(parts)
        if counts.gold.sum():
            lax_f1 = BeadCounts.joined(lax[languages]).f1
            cells.append(_cell(languages, ids[languages], counts, lax_f1))
    if not cells:
        raise TaskError("Found no sentence pairs in the data, expected at least one")
    return cells


def _align(text: TranslatedText, system: System) -> list[SentencePair]:
    """Return the beads of an alignment by the vectors of a system; none if a side is empty."""
    if not text.first or not text.second:
        return []
    first_language, second_language = text.languages
    fit_on = [*text.first, *text.second]
    first = _dense(system.represent(text.first, fit_on, first_language))
    second = _dense(system.represent(text.second, fit_on, second_language))
    first_lengths = [len(sentence) for sentence in text.first]
    second_lengths = [len(sentence) for sentence in text.second]
    beads = align_sentences(first, second, lengths=(first_lengths, second_lengths))
    return [(tuple(bead.first), tuple(bead.second)) for bead in beads]


def _dense(matrix: Matrix) -> np.ndarray:
    """Return vectors as an array."""
    if isinstance(matrix, scipy.sparse.csr_matrix):
        dense: np.ndarray = matrix.toarray()
        return dense
    return matrix


def _cell(languages: tuple[str, str], ids: list[str], counts: BeadCounts, lax_f1: float) -> Cell:
    """Return the scores of one pair of languages."""
    source, target = languages
    return Cell(
        source=source,
        target=target,
        metric="strict_f1",
        value=counts.f1,
        ids=ids,
        outcomes=counts.columns(),
        extra={
            "lax_f1": lax_f1,
            "precision": counts.precision,
            "recall": counts.recall,
            "size": int(counts.gold.sum()),
        },
    )
