"""`tmde index`: an index of documents for `tmde search`, made and kept up to date."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError


@dataclass(kw_only=True)
class IndexOptions(common.LongOptions, common.ModelOptions, common.InputOptions):
    """The options of `tmde index`."""

    source: Annotated[str | None, Argument(metavar="DOCS", help=common.DOCUMENTS_HELP)] = None
    folder: Annotated[
        Path,
        Option("--output", "-o", metavar="INDEX", help="Folder of the index, created or updated."),
    ]
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Folder, Hub id or packaged model. Default: the index's, or `default`.",
            callback=common.check_model_name,
        ),
    ] = None
    id_field: common.IdFieldOption = None
    delete: Annotated[
        list[str] | None, Option(metavar="ID", help="Delete this document. Repeatable.")
    ] = None
    delete_file: Annotated[
        str | None,
        Option(metavar="FILE", help="Delete the documents with the ids in FILE, one per line."),
    ] = None
    prune: Annotated[bool, Option("--prune", help="Delete documents that are not in DOCS.")] = False
    precision: Annotated[
        Literal["float32", "float16"] | None,
        Option(
            help="Type of the vectors in a new index: float32 (4 bytes) or float16 (2 bytes). "
            "Default: float32."
        ),
    ] = None
    passages: Annotated[
        bool | None,
        Option(
            "--passages/--no-passages",
            help="In a new index, store one vector per passage, or one per document. Default: "
            "passages.",
        ),
    ] = None
    truncate_dim: Annotated[
        int | None,
        Option(
            min=1,
            help="In a new index, store only the first N dimensions. Default: all.",
        ),
    ] = None
    bad_rows: common.BadRowsOption = "report"


@command(IndexOptions)
def index(options: IndexOptions) -> None:
    """Index documents for `tmde search`, or update an index.

    Unchanged documents are skipped, new ones added, changed ones replaced. Other columns of DOCS
    are stored as metadata. Progress is saved every 1,024 documents: after an interruption, run the
    same command again.

    DOCS is text (one document per line), or CSV, TSV, JSONL or parquet with a "text" column; all
    except parquet may be gzipped. It may also be a folder of such tables, or of .txt, .md and .html
    files (one document each, without markup; folders de/, en/ ... name the language). A column
    named language, lang, locale or similar is used as the language if it contains codes.

    Each passage of a document has a vector. A passage is a Markdown section, or a part of one with
    up to 500 characters. A search ranks documents by their nearest passage.

        tmde index news.jsonl -o news.index

        tmde index articles.csv -o articles.index --field title --field body --id-field key

        tmde index -o news.index --delete 17 --delete 18

    Halve the size of the vectors in a large index:

        tmde index news.jsonl -o small.index --precision float16
    """
    if options.source is None and options.prune:
        raise OptionError("DOCS is missing; --prune deletes documents that are not in it")
    if options.source is None and not options.delete and not options.delete_file:
        raise OptionError("Nothing to do; give DOCS, --delete or --delete-file")
    common.check_languages_exclude(options.language, options.language_field)
    common.check_sources(options.source, options.delete_file)
    from tmde.documents.file_indexing import index_files

    unwanted_ids = options.delete or []
    if options.delete_file is not None:
        unwanted_ids = [*unwanted_ids, *common.read_texts(options.delete_file)]
    report = index_files(
        options.source,
        delete=unwanted_ids,
        loading=keywords(options, common.ModelOptions) | keywords(options, common.LongOptions),
        **keywords(options, common.InputOptions),
        **keywords(options, IndexOptions, without=("source", "delete", "delete_file")),
    )
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
