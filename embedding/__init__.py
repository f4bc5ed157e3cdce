"""Texts in, vectors out: the embedder, long documents, the packaged models, and exports.

Names are imported at first use, because the commands check the name of a model
(`tmde.embedding.hub_names`) before they import torch.
"""

from typing import TYPE_CHECKING

from tmde.lazy_names import attach

if TYPE_CHECKING:
    from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport
    from tmde.embedding.packaged_models import ACCURATE_MODEL, DEFAULT_MODEL, TMDE_MODEL
    from tmde.embedding.sentence_density import SentenceDensity
    from tmde.embedding.sentences import split_sentences

__all__ = [
    "ACCURATE_MODEL",
    "DEFAULT_MODEL",
    "TMDE_MODEL",
    "DocumentEmbedder",
    "EncodeOutput",
    "EncodeReport",
    "SentenceDensity",
    "split_sentences",
]

_MODULES = {
    "ACCURATE_MODEL": "tmde.embedding.packaged_models",
    "DEFAULT_MODEL": "tmde.embedding.packaged_models",
    "TMDE_MODEL": "tmde.embedding.packaged_models",
    "DocumentEmbedder": "tmde.embedding.document_embedder",
    "EncodeOutput": "tmde.embedding.document_embedder",
    "EncodeReport": "tmde.embedding.document_embedder",
    "SentenceDensity": "tmde.embedding.sentence_density",
    "split_sentences": "tmde.embedding.sentences",
}


__getattr__, __dir__ = attach(__name__, _MODULES)
