"""`tmde calibrate`: pairs of translations in, the probabilities of a model out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords


@dataclass(kw_only=True)
class CalibrateOptions(common.ModelOptions):
    """The options of `tmde calibrate`."""

    model: common.ModelArgument
    pairs: Annotated[
        list[str],
        Option(
            help="Parallel text that the model was not trained on: file, folder, glob or Hub id."
        ),
    ]
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write. Default: calibration.json in MODEL.",
        ),
    ] = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    seed: Annotated[int, Option(help="Seed for choosing texts that lose their translation.")] = 0
    overwrite: common.OverwriteOption = False


@command(CalibrateOptions)
def calibrate(options: CalibrateOptions) -> None:
    """Calibrate a model: learn to convert cosines into translation probabilities.

    `tmde mine`, `align` and `clean` then output the probability that two texts are translations,
    and omit improbable pairs. The packaged models are already calibrated.

        tmde calibrate runs/mine --pairs dev.parquet

        tmde mine de.txt en.txt -o pairs.tsv -m runs/mine

    Use a few thousand pairs that resemble your text and that the model was not trained on. The
    command reports how accurate the probabilities are on a held-out fifth.
    """
    target = options.output or Path(options.model) / "calibration.json"
    if target.parent.is_dir():
        common.check_output(target, options.overwrite, [".json"])
    columns = common.columns_of(options.columns)
    from tmde.documents.model_calibration import calibrate_model

    choices = keywords(options, CalibrateOptions, without=("overwrite", "columns"))
    loading = keywords(options, common.ModelOptions)
    report = calibrate_model(**choices, columns=columns, loading=loading)
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
