"""`tmde clean`: a translation memory in, the same without bad rows out."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError
from tmde.embedding.packaged_models import DEFAULT_MODEL

# The values of `tmde.documents.findings.Reason`, which a test compares.
REASONS = (
    "no-letters",
    "wrong-language",
    "untranslated",
    "partly-untranslated",
    "placeholders",
    "numbers",
    "no-translation",
    "length",
    "duplicate",
)


@common.with_options(loading=common.MODEL_OPTIONS)
def clean(
    sources: Annotated[
        list[str],
        Argument(metavar="SOURCE...", help="Parallel text: TMX, JSONL, TSV, parquet, Moses, Hub."),
    ],
    out: Annotated[
        Path,
        Option("--output", "-o", metavar="OUT", help="File to write: .jsonl, .parquet or .tsv."),
    ],
    removed: Annotated[
        Path | None,
        Option(help="File of what is removed, with reasons and scores: .jsonl."),
    ] = None,
    model: common.ModelOption = DEFAULT_MODEL,
    languages: Annotated[
        str | None, Option(help="Codes such as de,en. Default: all that the sources have.")
    ] = None,
    columns: common.ColumnsOption = None,
    quoting: common.QuotingOption = None,
    skip: Annotated[
        list[str] | None,
        Option(metavar="REASON", help=f"Do not remove for this reason: {', '.join(REASONS)}."),
    ] = None,
    min_probability: Annotated[
        float, Option(min=0, max=1, help="Remove rows below this probability.")
    ] = 0.1,
    share: Annotated[float, Option(help="Share of rows that you expect to be right.")] = 0.9,
    calibration: Annotated[
        Path | None, Option(help="File of `tmde calibrate`. Default: that of the model.")
    ] = None,
    overwrite: common.OverwriteOption = False,
    *,
    loading: dict[str, Any],
) -> None:
    """Clean a translation memory.

    Removed are texts in the wrong language, copies of the other text, and rows whose texts are no
    translations of each other, differ in numbers, placeholders or length, or repeat an earlier row.
    OUT is a corpus that `tmde train` reads.

        tmde clean memory.tmx -o clean.jsonl --removed removed.jsonl

        tmde train bag --train clean.jsonl -o runs/mine

    A row in several languages loses the text that does not fit, and is removed if fewer than two
    are left. Look into the removed rows, and leave out a reason that is wrong for your text:

        tmde clean memory.tmx -o clean.jsonl --removed removed.jsonl --skip numbers --skip duplicate
    """
    unknown = [reason for reason in skip or () if reason not in REASONS]
    if unknown:
        raise OptionError(f"--skip: found {unknown[0]!r}, expected one of {', '.join(REASONS)}")
    target = common.check_output(out, overwrite, [".jsonl", ".parquet", ".tsv"])
    removed_target = None
    if removed is not None:
        removed_target = common.check_output(removed, overwrite, [".jsonl"], "--removed")
        common.check_different(target, removed_target, "--output and --removed")
    from tmde.cli.clean_files import CleaningJob, clean_files

    job = CleaningJob(
        sources=sources,
        languages=None if languages is None else languages.split(","),
        columns=common.columns_of(columns),
        quoting=quoting,
        output=out,
        target=target,
        removed_output=removed,
        removed_target=removed_target,
        model=model,
        loading=loading,
        skipped=skip or [],
        min_probability=min_probability,
        share=share,
        calibration=calibration,
    )
    clean_files(job)
