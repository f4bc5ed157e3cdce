"""Translation retrieval on dev rows, sentences and documents, as a training run measures it."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import datasets
import numpy as np
from transformers.utils import logging

from tmde.data import DOCUMENT_ID
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.retrieval import RetrievalPool, precision_at_1, retrieval_pool
from tmde.eval.systems import EmbeddingSystem

logger = logging.get_logger("tmde.training")

MIN_ROWS = 4  # Documents of fewer rows are hardly more than a sentence.
MIN_DOCUMENTS = 20  # In a smaller pool, precision at 1 moves in steps that say little.

Row = dict[str, str | None]  # text by language


def language_pairs(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return every pair, in both orders, by the name `<a>-<b>`.

    A name cannot be split into its languages, because codes have hyphens, too.
    """
    pairs = itertools.permutations(languages, 2)
    return {"-".join(pair): pair for pair in pairs}


def retrieval_pools(
    rows: datasets.Dataset, languages: Sequence[str], args: Any
) -> dict[str, RetrievalPool]:
    """Return the retrieval pools of dev rows by the name of their metric.

    For each of `args.eval_pairs` these are the sentences, `p1_<a>-<b>`, and the documents,
    `doc_p1_<a>-<b>`, where there are at least `MIN_DOCUMENTS`.

    Args:
        rows: Dev rows with the column `translation`.
        languages: The languages of the model.
        args: Training arguments: `eval_pairs`, `eval_pool` and `eval_document_rows`.
    """
    sentences = rows["translation"][:]
    documents = documents_of(rows, args.eval_document_rows)
    pools = {}
    for source, target in _evaluated_pairs(languages, args.eval_pairs):
        sentence_pool = retrieval_pool(sentences, source, target, args.eval_pool)
        if len(sentence_pool.sources) >= 2:
            pools[f"p1_{source}-{target}"] = sentence_pool
        joined = join_documents(documents, source, target, args.eval_document_rows)
        document_pool = retrieval_pool(joined, source, target, args.eval_pool)
        if len(document_pool.sources) >= MIN_DOCUMENTS:
            pools[f"doc_p1_{source}-{target}"] = document_pool
    return pools


def _evaluated_pairs(
    languages: Sequence[str], names: Sequence[str] | None
) -> list[tuple[str, str]]:
    """Return the pairs of these names; None for every pair in one order."""
    if names is None:
        return list(itertools.combinations(languages, 2))
    pairs = language_pairs(languages)
    return [pairs[name] for name in names]


def documents_of(rows: datasets.Dataset, max_rows: int) -> list[list[Row]]:
    """Return the documents of dev rows.

    A document is the consecutive rows of one `doc_id`; of rows without one, every `max_rows`.

    Args:
        rows: Dev rows with the column `translation`, and perhaps ids of documents.
        max_rows: The length of a document without an id.
    """
    names: Iterable[str | None] = itertools.repeat(None, len(rows))
    if DOCUMENT_ID in rows.column_names:
        names = rows[DOCUMENT_ID][:]
    named_rows = zip(names, rows["translation"][:], strict=True)
    documents = []
    for name, group in itertools.groupby(named_rows, key=itemgetter(0)):
        document = [row for _, row in group]
        if name is not None:
            documents.append(document)
            continue
        for start in range(0, len(document), max_rows):
            documents.append(document[start : start + max_rows])
    return documents


def join_documents(
    documents: Sequence[Sequence[Row]], source: str, target: str, max_rows: int
) -> list[Row]:
    """Return each document in two languages, its rows joined by a blank.

    Only rows that have both languages are joined, so that both sides say the same. Documents with
    fewer than `MIN_ROWS` such rows are left out.

    Args:
        documents: The rows of each document.
        source: The first language.
        target: The second language.
        max_rows: How many such rows of a document are joined at most.
    """
    joined: list[Row] = []
    for document in documents:
        text_pairs = _complete_pairs(document, source, target)[:max_rows]
        if len(text_pairs) < MIN_ROWS:
            continue
        source_texts, target_texts = zip(*text_pairs, strict=True)
        joined.append({source: " ".join(source_texts), target: " ".join(target_texts)})
    return joined


def _complete_pairs(document: Sequence[Row], source: str, target: str) -> list[tuple[str, str]]:
    """Return both texts of the rows that have both."""
    pairs = []
    for row in document:
        source_text = row.get(source)
        target_text = row.get(target)
        if source_text and target_text:
            pairs.append((source_text, target_text))
    return pairs


def dev_retrieval(
    embedder: DocumentEmbedder, rows: datasets.Dataset, languages: Sequence[str], args: Any
) -> dict[str, float]:
    """Return precision at 1 in each of the `retrieval_pools`.

    Every text is encoded once in each of its languages.

    Args:
        embedder: The model in training.
        rows: Dev rows with the column `translation`.
        languages: The languages of the model.
        args: See `retrieval_pools`.
    """
    pools = retrieval_pools(rows, languages, args)
    texts = _unique_texts(pools.values())
    system = encode_dev_texts(embedder, texts.items())
    vector_of = {}
    for language, language_texts in texts.items():
        vectors = system.represent(language_texts, language=language)
        vector_of[language] = dict(zip(language_texts, vectors, strict=True))
    precisions = {}
    for name, pool in pools.items():
        source_vectors = _stack(vector_of[pool.source_language], pool.sources)
        target_vectors = _stack(vector_of[pool.target_language], pool.targets)
        precisions[name] = precision_at_1(source_vectors, target_vectors)
    return precisions


def _stack(vector_of: Mapping[str, np.ndarray], texts: Sequence[str]) -> np.ndarray:
    """Return the vectors of texts, (n, d)."""
    return np.stack([vector_of[text] for text in texts])


def _unique_texts(pools: Iterable[RetrievalPool]) -> dict[str, list[str]]:
    """Return the texts of all pools by language, each once."""
    unique_texts: dict[str, dict[str, None]] = defaultdict(dict)
    for pool in pools:
        unique_texts[pool.source_language].update(dict.fromkeys(pool.sources))
        unique_texts[pool.target_language].update(dict.fromkeys(pool.targets))
    return {language: list(texts) for language, texts in unique_texts.items()}


def encode_dev_texts(
    embedder: DocumentEmbedder, texts: Iterable[tuple[str, Sequence[str]]]
) -> EmbeddingSystem:
    """Return a system that keeps the vectors of these texts, and warn if texts are truncated.

    Args:
        embedder: The model in training.
        texts: Lists of texts with their language.
    """
    system = EmbeddingSystem("the model in training", embedder, show_progress_bar=False)
    for language, language_texts in texts:
        system.represent(language_texts, language=language)
    if system.truncated:
        logger.warning_once(
            f"{system.truncated:,} of {system.texts:,} dev texts are longer than "
            f"embed_max_length={embedder.max_length} and are truncated; raise it if the model "
            "can take more"
        )
    return system
