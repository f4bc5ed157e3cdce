"""`tmde quickstart`: a search with the default model, and the whole pipeline on a sample."""

from pathlib import Path
from typing import Annotated

import typer


def quickstart(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to make.")] = Path(
        "tmde-quickstart"
    ),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the sample, the model and its training.")
    ] = 42,
) -> None:
    """Search documents, then train a tiny embedder and classify with it across languages.

    Needs no network and no files: the documents are the built-in sample. A classifier that has seen
    only English labels is tested in every language, beside chance and beside the same classifier on
    TF-IDF.
    """
    from tmde.cli.run_quickstart import run_quickstart

    run_quickstart(output, seed)
