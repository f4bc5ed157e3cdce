"""The `tmde` command."""

import sys
from typing import Annotated

import datasets
import typer
from transformers.utils import logging

from tmde import __version__
from tmde.cli import evaluate, export
from tmde.cli.add_language import add_language
from tmde.cli.align import align
from tmde.cli.align_words import align_words
from tmde.cli.compare import compare
from tmde.cli.demo import demo
from tmde.cli.embed import embed
from tmde.cli.errors import CommandGroup
from tmde.cli.index import index, search
from tmde.cli.mine import mine
from tmde.cli.push import push
from tmde.cli.quickstart import quickstart
from tmde.cli.train import train

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)  # fmt: skip
for heading, commands in (
    ("Train", (quickstart, train, add_language)),
    ("Embed and search", (embed, index, search, demo, align, align_words, mine)),
    ("Measure", (compare,)),
    ("Share", (push,)),
):
    for command in commands:
        app.command(rich_help_panel=heading)(command)
app.add_typer(evaluate.app, name="eval", rich_help_panel="Measure")
app.add_typer(export.app, name="export", rich_help_panel="Share")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tmde {__version__}")
        raise typer.Exit()


@app.callback()
def tmde(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train multilingual document embedders on parallel text, embed documents with them, and measure them."""
    if not sys.stderr.isatty():  # bars of other libraries would write hundreds of lines into a log
        datasets.disable_progress_bars()
        logging.disable_progress_bar()


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
