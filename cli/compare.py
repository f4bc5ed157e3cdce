"""The command `tmde compare`; what it does is imported when it runs, so that its help need not wait for torch."""

from pathlib import Path
from typing import Annotated

import typer


def compare(
    comparison: Annotated[
        str, typer.Argument(metavar="COMPARISON", help="Name of one (papers, bilingual), or path of a YAML file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for everything that is made.")],
    train_data: Annotated[
        list[str] | None,
        typer.Option("--train", help="Parallel text for every system: file, folder, glob, Hub id or 'sample'."),
    ] = None,
    dev_data: Annotated[
        list[str] | None, typer.Option("--dev", help="Held-out rows, [NAME=]SOURCE. Repeatable.")
    ] = None,
    eval_data: Annotated[
        Path | None, typer.Option("--eval-data", help="Folder where the files of tasks are looked for.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time; they share the processor's cores.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Train and measure this system alone. Repeatable.")
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="In the folder of another comparison, make anew what has changed."),
    ] = False,
) -> None:
    """Train several systems on the same data under one budget, measure all, and write one table with tests.

    Run again, it goes on where it stopped: what is finished is kept. A system that fails does not cost the others.

        tmde compare papers --train PARALLEL --dev dev.parquet --eval-data DATA -o comparison --jobs 2

    A file of your own names systems by their recipes, and what limits them:

        systems:
          narrow: {recipe: bag, overrides: {model.d_model: 64}}
          wide: {recipe: bag}
        shared: {all: {max_cpu_minutes: 5}}
        tasks: \\[sample]
    """
    from modeling_tmde.cli.compare_run import run_comparison

    raise typer.Exit(run_comparison(comparison, output, train_data, dev_data, eval_data, jobs, only, overwrite))
