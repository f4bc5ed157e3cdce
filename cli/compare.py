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
        str,
        Argument(metavar="COMPARISON", help="thesis, papers, claims, ... or a file of your own."),
    ],
    output: Annotated[Path, Option("--output", "-o", help="Folder for all output.")],
    train_data: TrainOption = None,
    dev_data: DevOption = None,
    columns: ColumnsOption = None,
    quoting: QuotingOption = None,
    eval_data: Annotated[Path | None, Option(help="Folder with the task files.")] = None,
    jobs: Annotated[
        int, Option(min=1, help="Number of parallel processes, which share the cores.")
    ] = 1,
    only: Annotated[
        list[str] | None,
        Option(metavar="CLAIM", help="Run only the systems of this claim. Repeatable."),
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Redo everything that a changed comparison affects.")
    ] = False,
) -> None:
    r"""Train several systems with the same data and budget, and compare them in one table.

    The table includes significance tests. To resume, run the same command again. If one system
    fails, the others continue.

        tmde compare papers --train PARALLEL --dev dev.parquet --eval-data DATA -o comparison
        --jobs 2

    A file of your own lists systems with their recipes and limits:

        systems:
          narrow: {recipe: bag, overrides: {model.d_model: 64}}
          wide: {recipe: bag}
        shared: {all: {max_cpu_minutes: 5}}
        tasks: [sample]

    `claims` tests the papers' claims and writes verdicts to claims.json. Results accumulate in the
    folder, so claims can be run one by one.

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
