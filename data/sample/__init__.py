"""A built-in sample: parallel news sentences and labeled documents in five languages.

It needs no file and no network. A grammar makes the sentences: names, figures and events are
invented.
"""

from .generate import SPLITS, sample_documents, sample_parallel, sample_sentences
from .grammar import LANGUAGES, NEUTRAL, TOPICS

__all__ = [
    "LANGUAGES",
    "NEUTRAL",
    "SPLITS",
    "TOPICS",
    "sample_documents",
    "sample_parallel",
    "sample_sentences",
]
