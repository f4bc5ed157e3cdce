"""`tmde clean`: a translation memory in, the same without wrong rows out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.embedding.packaged_models import DEFAULT_MODEL

# The values of `tmde.documents.pair_checker.Reason`, which a test compares.
REASONS = (
    "no-letters",
    "encoding",
    "wrong-language",
    "untranslated",
    "partly-untranslated",
    "placeholders",
    "numbers",
    "no-translation",
    "length",
    "duplicate",
)

# Those of `tmde.documents.file_cleaning`, which a test compares.
_OUTPUT_SUFFIXES = (".jsonl", ".parquet", ".tsv", ".tmx", ".po", ".xliff", ".xlf", ".ts")


@dataclass(kw_only=True)
class CleanOptions(common.ModelOptions):
    """The options of `tmde clean`."""

    sources: Annotated[
        list[str],
        Argument(
            metavar="SOURCE...",
            help="Parallel text: TMX, PO, XLIFF, Qt, JSONL, TSV, parquet, Moses, Hub.",
        ),
    ]
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            metavar="OUT",
            help="File to write: .tmx, .jsonl, .parquet or .tsv; a catalog as the source is.",
        ),
    ] = None
    removed: Annotated[
        Path | None,
        Option(help="File of what is removed, with reasons and scores: .jsonl."),
    ] = None
    model: common.ModelOption = DEFAULT_MODEL
    languages: Annotated[
        str | None, Option(help="Codes such as de,en. Default: all that the sources have.")
    ] = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    skip: Annotated[
        list[str] | None,
        Option(metavar="REASON", help=f"Do not remove for this reason: {', '.join(REASONS)}."),
    ] = None
    placeholders: Annotated[
        str | None,
        Option(
            metavar="STYLES",
            help="What a translation keeps: styles such as qt,python,icu, or a regular "
            "expression. Default: all styles.",
        ),
    ] = None
    report_only: Annotated[
        bool, Option("--report-only", help="Remove nothing: count findings, write --removed.")
    ] = False
    min_probability: Annotated[
        float, Option(min=0, max=1, help="Remove rows below this probability.")
    ] = 0.03
    share: Annotated[float, Option(help="Share of rows that you expect to be right.")] = 0.9
    calibration: Annotated[
        Path | None, Option(help="File of `tmde calibrate`. Default: that of the model.")
    ] = None
    bad_rows: common.BadRowsOption = "report"
    judge_anyway: common.JudgeAnywayOption = False
    overwrite: common.OverwriteOption = False


@command(CleanOptions)
def clean(options: CleanOptions) -> None:
    """Clean a translation memory.

    Removed are texts in the wrong language or damaged by a wrong encoding, untranslated copies of
    the other text, and rows whose texts are no translations of each other, differ in numbers,
    placeholders or length, or repeat an earlier row.

        tmde clean memory.tmx -o clean.tmx --removed removed.jsonl

    From TMX to TMX, all that stays is the same bytes as before: header, attributes, inline tags. A
    catalog (.po, .xliff, .xlf, Qt's .ts) keeps every entry, because a program needs them; wrong
    ones are marked for review: fuzzy, needs-review-translation, unfinished.

        tmde clean de.po -o de.clean.po --removed marked.jsonl

    Of other sources, or several, OUT is a new file; `tmde train` reads it:

        tmde clean old.tmx more.tsv -o clean.jsonl

        tmde train bag --train clean.jsonl -o runs/mine

    A row in several languages loses the text that does not fit, and is removed if fewer than two
    are left. Look into the removed rows, and leave out a reason that is wrong for your text:

        tmde clean memory.tmx -o clean.tmx --removed removed.jsonl --skip numbers --skip duplicate

    Or only see what would be removed:

        tmde clean memory.tmx --report-only --removed findings.jsonl
    """
    if options.output is not None:
        common.check_output(options.output, options.overwrite, _OUTPUT_SUFFIXES)
    if options.removed is not None:
        common.check_output(options.removed, options.overwrite, [".jsonl"], "--removed")
    from tmde.documents.file_cleaning import clean_files

    choices = keywords(options, CleanOptions, without=("overwrite", "columns", "languages"))
    report = clean_files(
        **choices,
        columns=common.columns_of(options.columns),
        languages=None if options.languages is None else options.languages.split(","),
        loading=keywords(options, common.ModelOptions),
    )
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
