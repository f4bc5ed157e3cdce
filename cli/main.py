"""The `tmde` command.

Its modules import torch, transformers and the rest when a command runs: no help waits for them.
"""

from typing import Annotated

import typer

from modeling_tmde import __version__
from modeling_tmde.cli import evaluate
from modeling_tmde.cli.align import align
from modeling_tmde.cli.compare import compare
from modeling_tmde.cli.embed import embed
from modeling_tmde.cli.index import index
from modeling_tmde.cli.mine import mine
from modeling_tmde.cli.processes import end_process
from modeling_tmde.cli.quickstart import quickstart
from modeling_tmde.cli.search import search
from modeling_tmde.training.command import train

app = typer.Typer(name="tmde", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(quickstart)
app.command()(train)
app.command()(embed)
app.command()(align)
app.command()(mine)
app.command()(index)
app.command()(search)
app.command()(compare)
app.add_typer(evaluate.app, name="eval")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tmde {__version__}")
        raise typer.Exit()


@app.callback()
def tmde(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train multilingual document embedders on parallel text, embed documents with them, and measure them."""


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except SystemExit as end:
        end_process(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise


if __name__ == "__main__":
    main()
