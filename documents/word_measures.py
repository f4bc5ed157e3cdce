"""How well word vectors of two languages translate words and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats
from transformers import PreTrainedTokenizerFast

from modeling_tmde.modeling_bag import BagModel
from tmde.documents.mining import first_occurrences
from tmde.documents.neighbors import find_neighbors
from tmde.documents.ranks import target_ranks
from tmde.documents.unit_rows import TIE, row_cosines, slices, unit_vectors
from tmde.documents.word_files import ScoredWordPairs, WordVectors
from tmde.documents.word_mapping import NEIGHBORS
from tmde.embedding.document_embedder import DocumentEmbedder

QUERIES = 2000  # queries of sentence retrieval
BLOCK = 256  # words whose scores to all words are held at a time
# What tables 4.1 and 4.3 of Conneau (2019) compare, and the arguments that stand for it.
WORD_SCORINGS = {"cosine": "cosine", "CSLS": "distance", "ISF": "softmax"}
SENTENCE_SCORINGS = {"cosine": "cosine", "CSLS": "distance"}
INVERSE_TEMPERATURE = 30.0  # of the inverted softmax, as in MUSE


def measure(
    source: WordVectors,
    target: WordVectors,
    dictionary: np.ndarray | None,
    bag: tuple[BagModel, PreTrainedTokenizerFast],
    rows: Sequence[Mapping[str, str | None]],
) -> dict[str, dict[str, float]]:
    """Return precision at 1, 5 and 10 of the translations of words and of sentences.

    Translations are ranked by cosine and by CSLS, those of words by the inverted softmax, too (004,
    section 4.1.4).

    Args:
        source: The mapped words.
        target: The words of the other language.
        dictionary: As for [`translation_precision`]. None: words are not measured.
        bag: The [`~tmde.documents.word_bag.word_bag`] of both languages, and perhaps of others.
        rows: Parallel rows of the bag's first two languages; none: sentences are not measured. The
            first 2,000 of its first language are the queries, all of the second the candidates
            (table 4.3). Rows with a text of an earlier row are left out.
    """
    measures = {}
    if dictionary is not None:
        for name, scoring in WORD_SCORINGS.items():
            measures[f"words, {name}"] = translation_precision(source, target, dictionary, scoring)
    model, _ = bag
    first_texts, second_texts = _unique_pairs(rows, *model.config.languages[:2])
    if first_texts:
        embedder = DocumentEmbedder(*bag)
        queries = embedder.encode(first_texts)[:QUERIES]
        candidates = embedder.encode(second_texts)
        targets = np.arange(len(queries))
        for name, scoring in SENTENCE_SCORINGS.items():
            ranks = target_ranks(queries, candidates, targets, scoring, NEIGHBORS)
            measures[f"sentences, {name}"] = precision_at(ranks)
    return measures


def _unique_pairs(
    rows: Sequence[Mapping[str, str | None]], first: str, second: str
) -> tuple[list[str], list[str]]:
    """Return the texts in both languages of the rows that have two, neither in an earlier row."""
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
        scoring: `cosine`; `distance` for CSLS (Conneau, 2019, equation 4.6),
            `2 cos(x, y) - r(x) - r(y)`, with the mean cosines r to the ten nearest words of the
            other language; or `softmax` for the inverted softmax (ISF) of Smith et al., 2017
            (arXiv 1702.03859),
            `exp(30 cos(x, y)) / sum_n exp(30 cos(x_n, y))`, the probability that y translates back
            into x. In both, all words of the source count and not only the queries, so this is not
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
    elif scoring == "softmax":
        density = _log_sums(candidates, unit_vectors(source.vectors)) / INVERSE_TEMPERATURE
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


def _log_sums(candidates: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Return `log sum_n exp(30 cos(x_n, y))` of each candidate y over all source words x_n, (m,).

    Args:
        candidates: Unit vectors, (m, d).
        source: Unit vectors, (n, d).
    """
    sums = np.zeros(len(candidates))
    for rows in slices(len(source), BLOCK):
        cosines = source[rows] @ candidates.T  # (rows, m)
        sums += np.exp(INVERSE_TEMPERATURE * cosines).sum(axis=0, dtype=np.float64)
    return np.log(sums)


def similarity_correlation(
    source: WordVectors, target: WordVectors, judged: ScoredWordPairs
) -> float:
    """Return the Pearson correlation of cosines with rated similarities (Conneau, 2019, 4.1.4).

    Args:
        source: The mapped words.
        target: The words of the other language.
        judged: Pairs of their words, see [`~tmde.documents.word_files.read_similarities`].
    """
    source_vectors = source.vectors[judged.rows[:, 0]].astype(np.float64)
    target_vectors = target.vectors[judged.rows[:, 1]].astype(np.float64)
    cosines = row_cosines(source_vectors, target_vectors)
    return float(scipy.stats.pearsonr(cosines, judged.scores).statistic)


def precision_at(ranks: np.ndarray) -> dict[str, float]:
    """Return the shares of ranks (n,), counted from 1, that are at most 1, 5 and 10."""
    return {f"precision_at_{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}
