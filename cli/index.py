"""`tmde index`: an index of documents for `tmde search`, made and kept up to date."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.errors import OptionError


@common.with_options(loading=common.MODEL_OPTIONS | common.LONG_OPTIONS)
def index(
    out: Annotated[
        Path, Option("--output", "-o", metavar="INDEX", help="Folder, created or updated.")
    ],
    documents: Annotated[str | None, Argument(metavar="DOCS", help=common.DOCUMENTS_HELP)] = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Folder or Hub id. Default: the index's, or the model of tmde.",
            callback=common.check_model_name,
        ),
    ] = None,
    format: common.FormatOption = None,
    quoting: common.QuotingOption = None,
    field: common.FieldOption = None,
    id_field: common.IdFieldOption = None,
    language: common.LanguageOption = None,
    language_field: common.LanguageFieldOption = None,
    delete: Annotated[
        list[str] | None, Option(metavar="ID", help="Remove this document; repeatable.")
    ] = None,
    delete_file: Annotated[
        str | None, Option(metavar="FILE", help="Remove the ids that are lines of FILE.")
    ] = None,
    prune: Annotated[
        bool, Option("--prune", help="Remove documents that are not in DOCS.")
    ] = False,
    precision: Annotated[
        common.IndexPrecision | None,
        Option(
            help="Of the vectors of a new index: 4 or 2 bytes (float16) a number. Default: float32."
        ),
    ] = None,
    truncate_dim: Annotated[
        int | None,
        Option(
            min=1, help="Store the first N numbers of each vector of a new index. Default: all."
        ),
    ] = None,
    *,
    loading: dict[str, Any],
) -> None:
    """Index documents for `tmde search`, or update an index.

    A document whose id, text and other fields are in the index already is left alone; new ones are
    added, changed ones replaced. The other fields of DOCS are kept as metadata. Every 1,024
    documents, the work is on disk: after an interruption, the same command goes on.

    DOCS is text (one document a line), CSV, TSV, JSONL or parquet with a column "text", any of them
    gzipped; or a folder of .txt and .md files (one document each; folders de/, en/ ... name the
    language) or of such tables. A column language, lang or locale is taken as the language if it
    holds codes.

        tmde index news.jsonl -o news.index

        tmde index articles.csv -o articles.index --field title --field body --id-field key

        tmde index -o news.index --delete 17 --delete 18

    A new index of many documents, whose vectors take a thirty-second of the space:

        tmde index news.jsonl -o small.index --precision float16
    """
    if documents is None and prune:
        raise OptionError("DOCS is missing; --prune removes the documents that are not in it")
    if documents is None and not delete and not delete_file:
        raise OptionError("Nothing to do; give DOCS, --delete or --delete-file")
    common.check_languages_exclude(language, language_field)
    common.check_sources(documents, delete_file)
    from tmde.cli.update_index import IndexJob, update_index

    job = IndexJob(
        folder=out,
        documents=documents,
        model=model,
        loading=loading,
        format=format,
        quoting=quoting,
        field=field,
        id_field=id_field,
        language=language,
        language_field=language_field,
        delete=delete or [],
        delete_file=delete_file,
        prune=prune,
        precision=precision,
        truncate_dim=truncate_dim,
    )
    update_index(job)
