"""Translation retrieval on dev rows, sentences and documents, as a training run measures it."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import datasets
import numpy as np
from transformers.utils import logging

from modeling_tmde.data.dev_rows import MIN_DOCUMENTS, documents_of, join_documents
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.retrieval import RetrievalPool, precision_at_1, retrieval_pool
from modeling_tmde.eval.systems import EmbeddingSystem

logger = logging.get_logger("modeling_tmde.training")


def language_pairs(languages: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Every pair, in both orders, by the name `<a>-<b>`: codes have hyphens too."""
    return {f"{source}-{target}": (source, target) for source, target in itertools.permutations(languages, 2)}


def retrieval_pools(rows: datasets.Dataset, languages: Sequence[str], args: Any) -> dict[str, RetrievalPool]:
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


def encode_dev_texts(embedder: DocumentEmbedder, texts: Iterable[tuple[str, list[str]]]) -> EmbeddingSystem:
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
