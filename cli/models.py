"""How a command opens its model, and how it reports truncated texts."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tmde.embedding import DocumentEmbedder, document_embedder
from tmde.embedding.loading import reading


def load_embedder(model: str, **loading: Any) -> DocumentEmbedder:
    """Call `DocumentEmbedder.from_pretrained`; its errors begin with the model.

    Raises:
        TmdeError: The model or one of the options cannot be used.
    """
    with reading(model):
        return DocumentEmbedder.from_pretrained(model, **loading)


@contextmanager
def without_truncation_warnings() -> Iterator[None]:
    """Hide the embedder's warnings of truncated texts: the command reports their number once.

    The embedder warns of nothing else. The blocks of several commands may be nested.
    """
    logger = document_embedder.logger
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
