# SPDX-License-Identifier: Apache-2.0

"""Texts in, vectors out: the embedder, long documents, the packaged models, and exports.

Names are imported at first use, because the commands check the name of a model
(`tmde.embedding.hub_names`) before they import torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport
    from tmde.embedding.packaged_models import ACCURATE_MODEL, DEFAULT_MODEL
    from tmde.embedding.sentence_density import SentenceDensity
    from tmde.embedding.sentences import split_sentences

__all__ = [
    "ACCURATE_MODEL",
    "DEFAULT_MODEL",
    "DocumentEmbedder",
    "EncodeOutput",
    "EncodeReport",
    "SentenceDensity",
    "split_sentences",
]

_MODULES = {
    "ACCURATE_MODEL": "packaged_models",
    "DEFAULT_MODEL": "packaged_models",
    "DocumentEmbedder": "document_embedder",
    "EncodeOutput": "document_embedder",
    "EncodeReport": "document_embedder",
    "SentenceDensity": "sentence_density",
    "split_sentences": "sentences",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"tmde.embedding.{_MODULES[name]}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, those that are not imported yet included."""
    return __all__
