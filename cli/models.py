"""How a command opens its model, and how it reports truncated texts."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tmde.embedding import DEFAULT_MODEL, DocumentEmbedder
from tmde.embedding.loading import reading


def load_embedder(model: str, **loading: Any) -> DocumentEmbedder:
    """Call `DocumentEmbedder.from_pretrained`; its errors begin with the model.

    Raises:
        TmdeError: The model or one of the options cannot be used.
    """
    name = model
    if model != DEFAULT_MODEL and not Path(model).expanduser().exists():
        name = f"{model}: no such folder, and as a Hub id"
    with reading(name):
        return DocumentEmbedder.from_pretrained(model, **loading)


@contextmanager
def truncation_counted() -> Iterator[None]:
    """Silence the embedder's warnings of truncated texts: the command reports their number once."""
    logger = logging.getLogger("tmde.embedding")
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
