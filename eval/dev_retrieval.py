"""Translation retrieval on dev rows, sentences and documents, as a training run measures it."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
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

MIN_ROWS = 4  # of a document; fewer are hardly more than a sentence
MIN_DOCUMENTS = 20  # of a pool; among fewer, precision at 1 moves in steps that say little

Row = dict[str, str | None]  # text by language


def language_pairs(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Every pair, in both orders, by the name `<a>-<b>`: codes have hyphens too."""
    return {
        f"{source}-{target}": (source, target)
        for source, target in itertools.permutations(languages, 2)
    }


def retrieval_pools(
    rows: datasets.Dataset, languages: Sequence[str], args: Any
) -> dict[str, RetrievalPool]:
    """The retrieval pools of dev rows by the name of their metric.

    For each of `args.eval_pairs` these are the sentences, `p1_<a>-<b>`, and the documents, `doc_p1_<a>-<b>`, where
    there are at least `MIN_DOCUMENTS`.

    Args:
        args: Training arguments: `eval_pairs`, `eval_pool` and `eval_document_rows`.
    """
    translations = rows["translation"][:]
    documents = documents_of(rows, args.eval_document_rows)
    pairs = itertools.combinations(languages, 2)
    if args.eval_pairs is not None:
        pairs = map(language_pairs(languages).get, args.eval_pairs)
    pools = {}
    for pair in pairs:
        joined = join_documents(documents, *pair, args.eval_document_rows)
        for prefix, texts, least in (("p1", translations, 2), ("doc_p1", joined, MIN_DOCUMENTS)):
            pool = retrieval_pool(texts, *pair, args.eval_pool)
            if len(pool.sources) >= least:
                pools[f"{prefix}_{'-'.join(pair)}"] = pool
    return pools


def documents_of(rows: datasets.Dataset, max_rows: int) -> list[list[Row]]:
    """Return the documents of `rows`: consecutive rows of one `doc_id`; of rows without one, every `max_rows`."""
    names = (
        rows[DOCUMENT_ID][:]
        if DOCUMENT_ID in rows.column_names
        else itertools.repeat(None, len(rows))
    )
    documents = []
    for name, group in itertools.groupby(
        zip(names, rows["translation"][:], strict=True), itemgetter(0)
    ):
        texts = [row for _, row in group]
        length = max_rows if name is None else len(texts)
        documents += [texts[start : start + length] for start in range(0, len(texts), length)]
    return documents


def join_documents(
    documents: Sequence[Sequence[Row]], source: str, target: str, max_rows: int
) -> list[Row]:
    """Return each document in two languages: the first `max_rows` of its rows that have both, joined by a blank, so
    that both sides say the same. Documents with fewer than `MIN_ROWS` such rows are left out."""
    joined = []
    for document in documents:
        complete = [row for row in document if row.get(source) and row.get(target)][:max_rows]
        if len(complete) >= MIN_ROWS:
            joined.append(
                {
                    language: " ".join(row[language] for row in complete)
                    for language in (source, target)
                }
            )
    return joined


def dev_retrieval(
    embedder: DocumentEmbedder, rows: datasets.Dataset, languages: Sequence[str], args: Any
) -> dict[str, float]:
    """Precision at 1 in each of the `retrieval_pools`. Every text is encoded once in each of its languages."""
    pools = retrieval_pools(rows, languages, args)
    unique: dict[str, dict[str, None]] = defaultdict(dict)  # by language
    for pool in pools.values():
        unique[pool.source_language] |= dict.fromkeys(pool.sources)
        unique[pool.target_language] |= dict.fromkeys(pool.targets)
    texts = {language: list(found) for language, found in unique.items()}
    system = encode_dev_texts(embedder, texts.items())
    vectors = {
        language: dict(zip(found, system.represent(found, language=language), strict=True))
        for language, found in texts.items()
    }
    return {
        name: precision_at_1(
            np.stack([vectors[pool.source_language][text] for text in pool.sources]),
            np.stack([vectors[pool.target_language][text] for text in pool.targets]),
        )
        for name, pool in pools.items()
    }


def encode_dev_texts(
    embedder: DocumentEmbedder, texts: Iterable[tuple[str, list[str]]]
) -> EmbeddingSystem:
    """A system that keeps the vectors of these texts, given with their language. Warns if texts are truncated."""
    system = EmbeddingSystem("the model in training", embedder, show_progress_bar=False)
    for language, of_language in texts:
        system.represent(of_language, language=language)
    if system.truncated:
        logger.warning_once(
            f"{system.truncated:,} of {system.texts:,} dev texts are longer than embed_max_length="
            f"{embedder.max_length} and are truncated at every evaluation; raise it if the model can take more"
        )
    return system
