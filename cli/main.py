"""The `tmde` command.

Its modules import torch, transformers and the rest when a command runs: no help waits for them.
"""

import inspect
import sys
from typing import Annotated

import typer

from modeling_tmde import __version__
from modeling_tmde.cli import evaluate, export
from modeling_tmde.cli.add_language import add_language
from modeling_tmde.cli.align import align
from modeling_tmde.cli.compare import compare
from modeling_tmde.cli.demo import demo
from modeling_tmde.cli.embed import embed
from modeling_tmde.cli.index import index
from modeling_tmde.cli.mine import mine
from modeling_tmde.cli.mistakes import CommandGroup, run_told
from modeling_tmde.cli.processes import end_process
from modeling_tmde.cli.push import push
from modeling_tmde.cli.quickstart import quickstart
from modeling_tmde.cli.search import search
from modeling_tmde.training.command import train

_TRAIN, _SEARCH, _MEASURE, _SHARE = "Train", "Embed and search", "Measure", "Share"  # headings of the help
app = typer.Typer(
    name="tmde", cls=CommandGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.command(rich_help_panel=_TRAIN)(quickstart)
app.command(rich_help_panel=_TRAIN)(train)
app.command("add-language", rich_help_panel=_TRAIN)(add_language)
app.command(rich_help_panel=_SEARCH)(embed)
app.command(rich_help_panel=_SEARCH)(index)
app.command(rich_help_panel=_SEARCH)(search)
app.command(rich_help_panel=_SEARCH)(demo)
app.command(rich_help_panel=_SEARCH)(align)
app.command(rich_help_panel=_SEARCH)(mine)
app.command(rich_help_panel=_MEASURE)(compare)
app.add_typer(
    evaluate.app, name="eval", short_help="Measure embedders by the literature's protocols.", rich_help_panel=_MEASURE
)
app.command(rich_help_panel=_SHARE)(push)
app.add_typer(export.app, name="export", rich_help_panel=_SHARE)


def _flowing(text: str) -> str:
    """Paragraphs without the line ends of the source, which no terminal has.

    Examples, which are indented, stay as they are. Where nothing but examples follows, typer would take away what they
    are indented by; an empty tag before it hinders that.
    """
    paragraphs = []
    for each in inspect.cleandoc(text).split("\n\n"):
        examples = [f"[dim][/dim]{line}" for line in each.split("\n")]
        paragraphs.append("\n".join(examples) if each.startswith(" ") else each.replace("\n", " "))
    return "\n\n".join(paragraphs)


for _command in (*app.registered_commands, *evaluate.app.registered_commands, *export.app.registered_commands):
    _command.help = _flowing(_command.callback.__doc__)


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
    code = run_told(app)
    end_process(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
