"""The command `tmde quickstart`; what it does is imported when it runs, so that its help need not wait for torch."""

from pathlib import Path
from typing import Annotated

import typer


def quickstart(
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder for everything that is made; an earlier quickstart in it is replaced."
        ),
    ] = Path("tmde-quickstart"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample, the model and its training.")] = 42,
) -> None:
    """Train a tiny embedder on the built-in sample and classify documents across languages with it.

    Needs no network and no files. A classifier that has seen English labels only is tested in every language, beside
    chance and beside the same classifier on TF-IDF.
    """
    from modeling_tmde.cli.quickstart_steps import run_quickstart

    run_quickstart(output, seed)
