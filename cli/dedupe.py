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
        Option("--output", "-o", metavar="OUT", help="Documents that are kept: .jsonl or .tmx."),
    ]
    groups: Annotated[
        Path | None,
        Option(help="File of the groups of documents that say the same: .jsonl."),
    ] = None
    format: common.FormatOption = None
    quoting: common.QuotingOption = None
    field: common.FieldOption = None
    columns: common.ColumnsOption = None
    id_field: common.IdFieldOption = None
    min_similarity: Annotated[
        float, Option(min=0, max=1, help="Similarity of near-duplicates, from 0 to 1.")
    ] = 0.7
    min_words: Annotated[
        int,
        Option(min=0, help="Shorter texts are near-duplicates only if they have the same words."),
    ] = 50
    across_languages: Annotated[
        bool, Option("--across-languages", help="Remove translations, too.")
    ] = False
    min_distinctness: Annotated[
        float | None,
        Option(
            min=0,
            max=1,
            help="Of translations: how much nearer they are than the next best. Default: 0.4.",
        ),
    ] = None
    language_field: common.LanguageFieldOption = None
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Model that finds translations: folder or Hub id. Default: the model of tmde.",
            callback=common.check_model_name,
        ),
    ] = None
    bad_rows: common.BadRowsOption = "report"
    overwrite: common.OverwriteOption = False


@command(DedupeOptions)
def dedupe(options: DedupeOptions) -> None:
    """Remove documents that repeat an earlier one.

    Copies are equal but for case and white space. Near-duplicates share most of their characters;
    texts of fewer than 50 words must have the same words, too: "shown in green" and "shown in red"
    say different things.
    With --across-languages, translations of an earlier document are removed, too: documents that
    are nearest to each other, and clearly nearer than the next best. Only these need a model.

        tmde dedupe news.jsonl -o unique.jsonl --groups groups.jsonl

        tmde dedupe news.jsonl -o unique.jsonl --across-languages --language-field lang

    Of a translation memory, rows are removed whose texts all repeat those of an earlier row:

        tmde dedupe memory.tmx -o unique.tmx

        tmde dedupe memory.tsv -o unique.jsonl --columns en=source,de=target

    By its texts in one language alone: --field en.

    Without a column of languages, --across-languages identifies the language of each document
    (extra clean).

    DOCS is text (one document a line), CSV, TSV, JSONL or parquet with a column "text", all but
    parquet also gzipped; or a folder of .txt, .md and .html files (one document each, without
    markup; folders de/, en/ ... name the language) or of such tables. OUT has all their columns.
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
