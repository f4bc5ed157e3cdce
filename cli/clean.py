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
            help="File to write: .tmx, .jsonl, .parquet or .tsv, or a catalog in the format of "
            "SOURCE.",
        ),
    ] = None
    removed: Annotated[
        Path | None,
        Option(help="File for removed rows with reasons and scores, .jsonl."),
    ] = None
    model: common.ModelOption = DEFAULT_MODEL
    languages: Annotated[
        str | None, Option(help="Languages, such as de,en. Default: all in the sources.")
    ] = None
    columns: common.ColumnsOption = None
    quoting: common.QuotingOption = None
    skip: Annotated[
        list[str] | None,
        Option(metavar="REASON", help=f"Ignore this reason; repeatable: {', '.join(REASONS)}."),
    ] = None
    placeholders: Annotated[
        str | None,
        Option(
            metavar="STYLES",
            help="Placeholders that a translation must preserve: styles such as qt,python,icu, or "
            "a regular expression. Default: all styles.",
        ),
    ] = None
    report_only: Annotated[
        bool, Option("--report-only", help="Only count findings and write --removed.")
    ] = False
    min_probability: Annotated[
        float, Option(min=0, max=1, help="Remove rows with a lower translation probability.")
    ] = 0.03
    share: Annotated[float, Option(help="Share of rows that you expect to be correct.")] = 0.9
    calibration: Annotated[
        Path | None,
        Option(help="File from `tmde calibrate`. Default: the model's own calibration."),
    ] = None
    bad_rows: common.BadRowsOption = "report"
    judge_anyway: common.JudgeAnywayOption = False
    overwrite: common.OverwriteOption = False


@command(CleanOptions)
def clean(options: CleanOptions) -> None:
    """Clean a translation memory.

    It removes texts in the wrong language, texts damaged by a wrong encoding, and untranslated
    copies of the other text. It also removes rows whose texts are not translations of each other,
    differ in numbers, placeholders or length, or repeat an earlier row.

        tmde clean memory.tmx -o clean.tmx --removed removed.jsonl

    If SOURCE and OUT are TMX, the remaining content is byte-identical: header, attributes, inline
    tags. A catalog (.po, .xliff, .xlf, Qt's .ts) retains every entry, because programs need them;
    wrong entries are marked for review: fuzzy, needs-review-translation, unfinished.

        tmde clean de.po -o de.clean.po --removed marked.jsonl

    For other sources, or several, OUT is a new file that `tmde train` reads:

        tmde clean old.tmx more.tsv -o clean.jsonl

        tmde train bag --train clean.jsonl -o runs/mine

    In rows with more than two languages, only the wrong texts are removed; rows with fewer than two
    remaining texts are dropped. Check the removed rows, and skip reasons that are wrong for your
    text:

        tmde clean memory.tmx -o clean.tmx --removed removed.jsonl --skip numbers --skip duplicate

    Or only report what would be removed:

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
