"""`tmde dedupe`: documents in, the same without those that repeat others out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords


@dataclass(kw_only=True)
class DedupeOptions(common.LongOptions, common.ModelOptions):
    """The options of `tmde dedupe`."""

    documents: Annotated[str, Argument(metavar="DOCS", help=common.DOCUMENTS_HELP)]
    output: Annotated[
        Path,
        Option("--output", "-o", metavar="OUT", help="File for unique documents: .jsonl or .tmx."),
    ]
    groups: Annotated[
        Path | None,
        Option(help="File for the groups of duplicates: .jsonl."),
    ] = None
    format: common.FormatOption = None
    quoting: common.QuotingOption = None
    field: common.FieldOption = None
    columns: common.ColumnsOption = None
    id_field: common.IdFieldOption = None
    min_similarity: Annotated[
        float, Option(min=0, max=1, help="Minimum similarity of near-duplicates, from 0 to 1.")
    ] = 0.7
    min_words: Annotated[
        int,
        Option(
            min=0,
            help="Texts with fewer words are near-duplicates only if they have the same words.",
        ),
    ] = 50
    across_languages: Annotated[
        bool, Option("--across-languages", help="Also remove translations.")
    ] = False
    min_distinctness: Annotated[
        float | None,
        Option(
            min=0,
            max=1,
            help="Minimum distinctness of translations: how much better they are than the "
            "next-best match. Default: 0.4.",
        ),
    ] = None
    language_field: common.LanguageFieldOption = None
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Model that finds translations: folder, Hub id or packaged model. Default: "
            "`default`.",
            callback=common.check_model_name,
        ),
    ] = None
    bad_rows: common.BadRowsOption = "report"
    overwrite: common.OverwriteOption = False


@command(DedupeOptions)
def dedupe(options: DedupeOptions) -> None:
    """Remove documents that repeat an earlier one.

    Copies are identical except for case and whitespace. Near-duplicates share most of their
    characters; texts with fewer than 50 words must also contain the same words, because "shown in
    green" and "shown in red" differ in meaning. --across-languages also removes translations of
    an earlier document: the two must be nearest neighbors, and clearly nearer than the next-best
    match. Only this option requires a model.

        tmde dedupe news.jsonl -o unique.jsonl --groups groups.jsonl

        tmde dedupe news.jsonl -o unique.jsonl --across-languages --language-field lang

    In a translation memory, a row is removed if all its texts repeat those of an earlier row:

        tmde dedupe memory.tmx -o unique.tmx

        tmde dedupe memory.tsv -o unique.jsonl --columns en=source,de=target

    To compare texts in only one language, use --field en.

    Without a language column, --across-languages detects the language of each document, which
    requires the `clean` extra.

    DOCS is text (one document per line), or CSV, TSV, JSONL or parquet with a "text" column; all
    except parquet may be gzipped. It may also be a folder of such tables, or of .txt, .md and .html
    files (one document each, without markup; folders de/, en/ ... name the language). OUT keeps all
    columns.
    """
    common.check_output(options.output, options.overwrite, [".jsonl", ".tmx"])
    if options.groups is not None:
        common.check_output(options.groups, options.overwrite, [".jsonl"], "--groups")
    common.check_sources(options.documents)
    from tmde.documents.file_deduplication import dedupe_files

    choices = keywords(options, DedupeOptions, without=("overwrite", "columns"))
    choices["columns"] = common.columns_of(options.columns)
    loading = keywords(options, common.ModelOptions) | keywords(options, common.LongOptions)
    report = dedupe_files(**choices, loading=loading)
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
