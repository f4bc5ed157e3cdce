"""`tmde compare`: several systems trained on the same data, measured, and put into one table."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tmde.cli.options import (
    ColumnsOption,
    DevOption,
    QuotingOption,
    TrainOption,
    columns_of,
    one_or_all,
)


def compare(
    comparison: Annotated[
        str, Argument(metavar="COMPARISON", help="thesis, papers, claims ... or a file.")
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for everything that is made.")],
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    columns: ColumnsOption = None,
    quoting: QuotingOption = None,
    eval_data: Annotated[
        Path | None, Option(help="Folder where the files of tasks are looked for.")
    ] = None,
    jobs: Annotated[
        int, Option(min=1, help="Processes at a time; they share the processor's cores.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        Option(metavar="CLAIM", help="Run the systems of this claim alone; repeatable."),
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Redo what a change of the file affects.")
    ] = False,
) -> None:
    r"""Train several systems on the same data under one budget, and measure all in one table.

    The table has tests of significance. Run again, the command goes on where it stopped: what is
    finished is kept. If one system fails, the others go on.

        tmde compare papers --train PARALLEL --dev dev.parquet --eval-data DATA -o comparison
        --jobs 2

    A file of your own names systems by their recipes, and what limits them:

        systems:
          narrow: {recipe: bag, overrides: {model.d_model: 64}}
          wide: {recipe: bag}
        shared: {all: {max_cpu_minutes: 5}}
        tasks: [sample]

    `claims` tests the claims of the papers, and writes verdicts into claims.json. Results add up:
    pick one claim today and another one tomorrow, with the same folder.

        tmde compare claims --only tmde-above-laser-6 --train PARALLEL --dev dev.parquet
        --eval-data DATA -o claims
    """
    from tmde.papers.runs import run_comparison
    from tmde.training.run_data import named_sources

    data: dict[str, Any] = {}
    if train_data:
        data["data.train"] = one_or_all(train_data)
    if dev_data:
        data["data.dev"] = named_sources(dev_data)
    if columns:
        data["data.columns"] = columns_of(columns)
    if quoting:
        data["data.quoting"] = quoting
    run_comparison(comparison, output, data, eval_data, jobs, only, overwrite)
