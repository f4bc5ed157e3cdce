"""The `tmde` command."""

import typer

from modeling_tmde.cli import evaluate
from modeling_tmde.cli.embed import embed
from modeling_tmde.cli.quickstart import quickstart
from modeling_tmde.training.train import train

app = typer.Typer(
    name="tmde",
    help="Train multilingual document embedders on parallel text, embed documents with them, and measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(quickstart)
app.command()(train)
app.command()(embed)
app.add_typer(evaluate.app, name="eval")


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
