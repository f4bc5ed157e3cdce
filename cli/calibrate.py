"""`tmde calibrate`: pairs of translations in, the probabilities of a model out."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError
from tmde.embedding.packaged_models import packaged_folder


@common.with_options(loading=common.MODEL_OPTIONS)
def calibrate(
    model: common.ModelArgument,
    pairs: Annotated[
        list[str],
        Option(help="Parallel text that the model was not trained on: file, folder, glob, Hub id."),
    ],
    out: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="Default: calibration.json in MODEL."),
    ] = None,
    columns: common.ColumnsOption = None,
    quoting: common.QuotingOption = None,
    seed: Annotated[int, Option(help="Decides which texts lose their translation.")] = 0,
    overwrite: common.OverwriteOption = False,
    *,
    loading: dict[str, Any],
) -> None:
    """Calibrate a model: turn the cosines of its vectors into probabilities.

    `tmde mine`, `align` and `clean` then write the probability that two texts are translations, and
    --min-probability leaves out pairs below it. `default` and `accurate` are calibrated already.

        tmde calibrate runs/mine --pairs dev.parquet

        tmde mine de.txt en.txt -o pairs.tsv -m runs/mine --min-probability 0.9

    Take text like the one that you will mine, some thousand pairs, and not what the model was
    trained on. The output says how well the probabilities hold on a fifth of it that was kept back.
    """
    target = common.check_output(_output_of(model, out), overwrite, [".json"])
    from tmde.cli.calibrate_model import CalibrationJob, calibrate_model

    job = CalibrationJob(
        model=model,
        loading=loading,
        sources=pairs,
        columns=common.columns_of(columns),
        quoting=quoting,
        target=target,
        seed=seed,
    )
    calibrate_model(job)


def _output_of(model: str, out: Path | None) -> Path:
    """Return the file that is written.

    Raises:
        OptionError: No file is given, and the model is not in a folder of the user.
    """
    if out is not None:
        return out
    folder = Path(model)
    if packaged_folder(model) is not None or not folder.is_dir():
        raise OptionError(
            f"{model} is not a folder of yours, so its calibration is written to a file: give "
            "--output calibration.json, and later --calibration calibration.json"
        )
    return folder / "calibration.json"
