"""How functions on files open their model, and count truncated texts instead of warning."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tmde.embedding import document_embedder
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.loading import errors_about


def open_embedder(model: str, loading: Mapping[str, Any] | None = None) -> DocumentEmbedder:
    """Call `DocumentEmbedder.from_pretrained`; its errors begin with the model.

    Args:
        model: A folder, a Hub id, or the name of a packaged model.
        loading: Further arguments.

    Raises:
        TmdeError: The model or one of the arguments cannot be used.
    """
    with errors_about(model):
        return DocumentEmbedder.from_pretrained(model, **(loading or {}))


@contextmanager
def without_truncation_warnings() -> Iterator[None]:
    """Hide the embedder's warnings of truncated texts: the caller reports their number once.

    The embedder warns of nothing else. The blocks of several functions may be nested.
    """
    logger = document_embedder.logger
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
