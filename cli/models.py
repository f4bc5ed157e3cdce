"""How a command opens its model, which other one it suggests, and how it counts truncation."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from tmde.embedding import DocumentEmbedder, document_embedder
from tmde.embedding.loading import errors_about
from tmde.embedding.packaged_models import DEFAULT_MODEL


def load_embedder(model: str, **loading: Any) -> DocumentEmbedder:
    """Call `DocumentEmbedder.from_pretrained`; its errors begin with the model.

    Raises:
        TmdeError: The model or one of the options cannot be used.
    """
    with errors_about(model):
        return DocumentEmbedder.from_pretrained(model, **loading)


def suggest_accurate(model: str | None, command: str) -> None:
    """Print that another model comes with the package, if the default one was used.

    Nothing is printed where stderr is not a terminal: scripts and logs need no advice.

    Args:
        model: The name of the model that was used.
        command: The command or option that uses the other one.
    """
    if model == DEFAULT_MODEL and is_terminal():
        typer.echo(
            f"This used the packaged model default. {command} uses the more accurate one, which "
            "is slower.",
            err=True,
        )


def is_terminal() -> bool:
    """Return whether a person may read stderr."""
    return sys.stderr.isatty()


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
