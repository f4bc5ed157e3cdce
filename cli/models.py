"""Which other model a command suggests."""

import sys

import typer

from tmde.embedding.packaged_models import DEFAULT_MODEL


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
