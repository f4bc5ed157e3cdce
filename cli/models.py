"""Which other model a command suggests."""

import sys

import typer

from tmde.embedding.packaged_models import DEFAULT_MODEL


def suggest_accurate(model: str | None, command: str) -> None:
    """Suggest another packaged model if the default one was used.

    Nothing is printed if stderr is not a terminal: scripts and logs need no advice.

    Args:
        model: The name of the model that was used.
        command: The command or option that uses the other one.
    """
    if model == DEFAULT_MODEL and is_terminal():
        typer.echo(
            f"This used the packaged default model. {command} uses the more accurate, slower one.",
            err=True,
        )


def is_terminal() -> bool:
    """Return whether a person may read stderr."""
    return sys.stderr.isatty()
