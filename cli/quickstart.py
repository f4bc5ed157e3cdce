"""`tmde quickstart`: a search with the default model, and the whole pipeline on a sample."""

from pathlib import Path
from typing import Annotated

import typer


def quickstart(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to create.")] = Path(
        "tmde-quickstart"
    ),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the sample, the model and its training.")
    ] = 42,
) -> None:
    """Search documents, then train a tiny embedder and classify with it across languages.

    It requires no network or files: the documents are the built-in sample. A classifier trained on
    English labels is tested in every language, and compared with chance and TF-IDF.
    """
    from tmde.cli.run_quickstart import run_quickstart

    run_quickstart(output, seed)
