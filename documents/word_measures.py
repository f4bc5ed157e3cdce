"""How well word vectors of two languages translate words and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from modeling_tmde.modeling_bag import BagModel
from tmde.documents.mining import first_occurrences
from tmde.documents.neighbors import find_neighbors
from tmde.documents.ranks import target_ranks
from tmde.documents.unit_rows import TIE, slices, unit_vectors
from tmde.documents.word_files import WordVectors
from tmde.documents.word_mapping import NEIGHBORS
from tmde.embedding.document_embedder import DocumentEmbedder

QUERIES = 2000  # queries of sentence retrieval
BLOCK = 256  # words whose scores to all words are held at a time


def measure(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None,
    bag: tuple[BagModel, PreTrainedTokenizerFast],
    rows: Sequence[Mapping[str, str | None]],
) -> dict[str, dict[str, float]]:
    """Return precision at 1, 5 and 10 of the translations of words and of sentences.

    Translations are ranked by cosine and by CSLS (004, section 4.1.4).

    Args:
        source: The mapped words.
        target: The words of the other language.
        dictionary: As for [`translation_precision`]. None: words are not measured.
        bag: The [`~tmde.documents.word_bag.word_bag`] of both languages.
        rows: Parallel rows of the bag's two languages; none: sentences are not measured. The first
            2,000 of its first language are the queries, all of the other the candidates (table
            4.3). Rows with a text of an earlier row are left out.
    """
    model, _ = bag
    first_texts, second_texts = _unique_pairs(rows, model.config.languages)
    measures = {}
    if first_texts:
        embedder = DocumentEmbedder(*bag)
        queries = embedder.encode(first_texts)[:QUERIES]
        candidates = embedder.encode(second_texts)
    for name, scoring in (("cosine", "cosine"), ("CSLS", "distance")):
        if dictionary is not None:
            measures[f"words, {name}"] = translation_precision(source, target, dictionary, scoring)
        if first_texts:
            targets = np.arange(len(queries))
            ranks = target_ranks(queries, candidates, targets, scoring, NEIGHBORS)
            measures[f"sentences, {name}"] = precision_at(ranks)
    return measures


def _unique_pairs(
    rows: Sequence[Mapping[str, str | None]], languages: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the texts in both languages of the rows that have two, neither in an earlier row."""
    first, second = languages
    first_texts = [row.get(first) or "" for row in rows]
    second_texts = [row.get(second) or "" for row in rows]
    _, first_unique = first_occurrences(first_texts)
    _, second_unique = first_occurrences(second_texts)
    chosen = np.intersect1d(first_unique, second_unique)
    return [first_texts[row] for row in chosen], [second_texts[row] for row in chosen]


def translation_precision(
    source: WordVectors, target: WordVectors, dictionary: np.ndarray, scoring: str = "distance"
) -> dict[str, float]:
    """Return precision at 1, 5 and 10 of dictionary induction.

    That is the share of the words that have a translation among so many nearest words.

    Args:
        source: Words of one language.
        target: Words of another, with vectors in the same space.
        dictionary: Row numbers (p, 2), see [`~tmde.documents.word_files.read_dictionary`]; each
            source word counts once.
        scoring: `cosine`, or `distance` for CSLS (004, equation 4.6), `2 cos(x, y) - r(x) - r(y)`,
            with the mean cosines r to the ten nearest words of the other language. For r, all words
            of the source count and not only the queries, so this is not
            [`~tmde.documents.ranks.target_ranks`].
    """
    words, word_numbers = np.unique(dictionary[:, 0], return_inverse=True)  # (words,), (p,)
    translations = dictionary[:, 1:]  # (p, 1)
    queries = unit_vectors(source.vectors[words])
    candidates = unit_vectors(target.vectors)
    density = np.zeros(len(target))
    if scoring == "distance":
        # r(x) is left out because it is the same for all candidates.
        cosines, _ = find_neighbors(candidates, source.vectors, NEIGHBORS)
        density = cosines.mean(axis=1) / 2
    best_ranks = np.full(len(words), len(target))
    for rows in slices(len(words), BLOCK):
        scores = queries[rows] @ candidates.T - density  # (rows, m)
        is_here = (word_numbers >= rows.start) & (word_numbers < rows.stop)
        pairs = np.flatnonzero(is_here)
        pair_scores = scores[word_numbers[pairs] - rows.start]  # (pairs, m)
        right_scores = np.take_along_axis(pair_scores, translations[pairs], axis=1)
        ranks = np.count_nonzero(pair_scores >= right_scores - TIE, axis=1)
        np.minimum.at(best_ranks, word_numbers[pairs], ranks)
    return precision_at(best_ranks)


def precision_at(ranks: np.ndarray) -> dict[str, float]:
    """Return the shares of ranks (n,), counted from 1, that are at most 1, 5 and 10."""
    return {f"precision_at_{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}
