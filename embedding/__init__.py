# SPDX-License-Identifier: Apache-2.0

"""Texts in, vectors out: the embedder, long documents, the packaged model, and exports."""

from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport
from tmde.embedding.loading import DEFAULT_MODEL
from tmde.embedding.sentence_density import SentenceDensity
from tmde.embedding.sentences import split_sentences

__all__ = [
    "DEFAULT_MODEL",
    "DocumentEmbedder",
    "EncodeOutput",
    "EncodeReport",
    "SentenceDensity",
    "split_sentences",
]
