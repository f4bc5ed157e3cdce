"""`tmde index` and `tmde search`: an index of documents, kept up to date and searched across languages."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.cli import options as common
from tmde.cli.document_sets import checked_ids
from tmde.data.documents import VECTOR_COLUMN, Documents
from tmde.data.files import read_lines
from tmde.documents.index import SETTINGS, Changes, DocumentIndex, Hit
from tmde.embedding.loading import DEFAULT_MODEL, reading
from tmde.embedding.progress import progress_bar

BATCH = 1024  # documents embedded and committed at a time: at most one batch is embedded again after an interruption


@common.with_options(**common.MODEL_OPTIONS, **common.LONG_OPTIONS)
def index(
    documents: Annotated[
        str | None, Argument(metavar="DOCS", help="File of documents, or - for stdin.")
    ] = None,
    out: Annotated[
        Path, Option("--output", "-o", metavar="INDEX", help="Folder, created or updated.")
    ] = ...,
    model: Annotated[
        str | None, Option("--model", "-m", help="Default: the index's, or the model of tmde.")
    ] = None,
    format: common.FormatOption = None,
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
    loading: dict[str, Any] = ...,
) -> None:
    """Index documents for `tmde search`, or update an index.

    A document whose id, text and other fields are in the index already is left alone; new ones are added, changed ones
    replaced. The other fields of DOCS are kept as metadata. Every 1,024 documents, the work is on disk: after an
    interruption, the same command goes on.

        tmde index news.jsonl -o news.index

        tmde index -o news.index --delete 17 --delete 18
    """
    start, opened = time.perf_counter(), None
    if documents is None and (prune or not (delete or delete_file)):
        raise TmdeError(
            "DOCS is missing"
            + ("; --prune removes what is not in it" if prune else " (or --delete)")
        )
    if language is not None and language_field is not None:
        raise TmdeError("--language and --language-field exclude each other; give one of them")
    unwanted = [*(delete or ()), *(_texts_of(delete_file) if delete_file else ())]
    done, present, empty = Changes(), set(), 0
    with ExitStack() as stack, truncation_counted(), reading(out, prefix=False):
        if documents is None:
            found = DocumentIndex.open(out)
        else:
            opened = Documents(
                stack, documents, format, field, True, BATCH, language_field=language_field
            )
            if id_field is not None and id_field not in opened.fields:
                raise TmdeError(
                    f"{opened.name}: no column {id_field!r}, found {opened.fields}; see --id-field"
                )
            id_field = id_field or ("id" if "id" in opened.fields else None)
            if (out / SETTINGS).exists():
                found = open_index(out, model, loading)
            else:
                embedder = common.load_embedder(
                    model or DEFAULT_MODEL, **{"long_documents": "sentences"} | loading
                )
                found = DocumentIndex.create(out, embedder, revision=loading.get("revision"))
            if id_field is None and opened.name == "stdin" and len(found):
                raise TmdeError(
                    f"stdin: its documents have no ids, and would replace those of another stdin in {out}; give a "
                    "file, or --format jsonl with --id-field"
                )
        stack.enter_context(found.writing())
        deleted = found.delete(unwanted, missing_ok=opened is not None)
        chunks, seen, used = (
            opened.chunks if opened else (),
            {},
            {field or "text", id_field, VECTOR_COLUMN},
        )
        for chunk in progress_bar(chunks, desc="Indexing", unit=f" x {BATCH:,} texts"):
            rows, codes = (
                chunk.columns.to_pylist(),
                chunk.languages or [language] * len(chunk.texts),
            )
            if (
                id_field is None
            ):  # the whole path: files of one name in two folders keep their documents apart
                ids = [f"{opened.name}:{number}" for number in chunk.numbers]
            else:
                ids = checked_ids(
                    opened, id_field, [row[id_field] for row in rows], chunk.numbers, seen
                )
            rows = [
                {name: value for name, value in row.items() if name not in used} for row in rows
            ]
            metadata = [{"language": code} | row for code, row in zip(codes, rows, strict=True)]
            documents = zip(ids, chunk.texts, metadata, codes, strict=True)
            kept = [document for document in documents if document[1].strip()]
            empty += len(ids) - len(kept)
            if kept:
                *columns, codes = map(list, zip(*kept, strict=True))
                done += found.upsert(*columns, language=codes)
                present.update(columns[0])
        if prune:
            deleted += found.delete([id for id in found if id not in present])
    kind = (
        "exact"
        if found.exact
        else f"approximate, recall@10 {found.recall:.3f}, unless --exact is given"
    )
    typer.echo(
        f"{done.added:,} added, {done.updated:,} updated, {done.unchanged:,} unchanged, {deleted:,} deleted, "
        f"{empty:,} empty ones left out, {done.report.tokens:,} tokens, {done.report.truncated:,} texts truncated, in "
        f"{time.perf_counter() - start:.1f} s -> {out} ({len(found):,} documents, search: {kind})",
        err=True,
    )


@common.with_options(
    **{name: common.MODEL_OPTIONS[name] for name in ("dtype", "device", "trust_remote_code")}
)
def search(
    arguments: Annotated[
        list[str], Argument(metavar="[QUERY] INDEX", help="Query in quotes; folder of the index.")
    ],
    queries: Annotated[
        str | None, Option(metavar="FILE", help="Queries, one a line; - for stdin.")
    ] = None,
    k: Annotated[int, Option("-k", min=1, help="Documents for each query.")] = 10,
    filter: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="By metadata; repeated: either.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object a line for each hit.")] = False,
    exact: Annotated[bool, Option("--exact", help="Scan all documents of a large index.")] = False,
    snippet_width: Annotated[int, Option(min=0, help="Characters of a snippet; 0: none.")] = 200,
    language: Annotated[
        str | None, Option(help="Code of the queries' language, if the model needs it.")
    ] = None,
    model: Annotated[
        str | None, Option("--model", "-m", help="Where the index's model is, if it was moved.")
    ] = None,
    loading: dict[str, Any] = ...,
) -> None:
    """Search the documents that `tmde index` has indexed; a query finds documents of all languages.

    The score is the cosine of query and document; the snippet is the sentence, among a document's first 256, that is
    nearest to the query.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de

        tmde search news.index --queries queries.txt --json
    """
    if len(arguments) != (1 if queries else 2):
        usage = (
            'tmde search "a bridge is closed" news.index, or tmde search news.index --queries FILE'
        )
        raise TmdeError(
            f"found {len(arguments)} argument(s), expected QUERY in quotes, and INDEX: {usage}"
        )
    texts, wanted = _texts_of(queries) if queries else arguments[:1], {}
    if not "".join(texts).strip():
        raise TmdeError(
            f"{f'--queries {queries}' if queries else 'QUERY'}: found no text, expected a query"
        )
    for pair in filter or ():
        name, _, value = pair.partition("=")
        if not name or "=" not in pair:
            raise TmdeError(f"--filter: found {pair!r}, expected NAME=VALUE, such as language=de")
        wanted.setdefault(name, []).append(value)
    with truncation_counted(), reading(arguments[-1], prefix=False):
        found = open_index(arguments[-1], model, loading)
        result = found.search_queries(texts, k, wanted, exact, snippet_width, language)
    if cut := result.report.truncated:
        limit = found.embedder.max_length
        typer.echo(
            f"{cut:,} of {len(texts):,} queries truncated: longer than {limit:,} tokens", err=True
        )
    for query, of_query in zip(texts, result.hits, strict=True):
        if as_json:
            for rank, hit in enumerate(of_query, 1):
                row = {name: value for name, value in vars(hit).items() if name != "text"}
                typer.echo(json.dumps({"query": query, "rank": rank} | row, ensure_ascii=False))
        else:
            _print_table(query if len(texts) > 1 else None, of_query)


def open_index(folder: str | Path, model: str | None, loading: dict[str, Any]) -> DocumentIndex:
    """An index with its embedder, from `model` or from where it was; ValueError if it cannot be loaded."""
    found = DocumentIndex.open(folder)
    options = found.loading_options | loading  # raises if the index was made of given vectors
    try:
        found.embedder = common.load_embedder(model or found.settings["model"], **options)
    except ValueError as error:
        raise TmdeError(
            f"{str(error)[:500]} (the model of {folder} is {found.settings['model']}; see --model)"
        ) from None
    return found


@contextmanager
def truncation_counted() -> Iterator[None]:
    """Silences the embedder's warnings of truncated texts: the command reports their number once."""
    logger = logging.getLogger("tmde.embedding")
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)


def _texts_of(file: str) -> list[str]:
    """Lines of a UTF-8 file, or of stdin as `-`, that are not blank."""
    lines = sys.stdin if file == "-" else (line for _, line in read_lines(file))
    return [text for line in lines if (text := line.lstrip("\ufeff").strip())]


def _print_table(query: str | None, hits: Sequence[Hit]) -> None:
    console = Console()
    if query is not None:
        console.print(f"[bold]{escape(query)}[/bold]")
    if not hits:
        console.print("No documents.")
        return
    table = Table("", "score", "language")
    table.add_column("document", overflow="fold", ratio=1)
    for rank, hit in enumerate(hits, 1):
        title, language = (
            escape(str(hit.metadata.get(name) or "")) for name in ("title", "language")
        )
        lines = [
            title and f"[bold]{title}[/bold]",
            escape(hit.snippet),
            f"[dim]{escape(hit.id)}[/dim]",
        ]
        table.add_row(str(rank), f"{hit.score:.3f}", language, "\n".join(filter(None, lines)))
    console.print(table)
