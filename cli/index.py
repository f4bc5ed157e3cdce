"""`tmde index` and `tmde search`: an index of documents, kept up to date and searched across languages."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tqdm import tqdm

from modeling_tmde.cli.document_sets import SentencesOption, checked_ids
from modeling_tmde.cli.options import (
    AggregationOption,
    DeviceOption,
    DtypeOption,
    MaxLengthOption,
    PoolingOption,
    RevisionOption,
    StrideOption,
    TrustRemoteCodeOption,
    WindowOption,
    load_embedder,
)
from modeling_tmde.data.documents import VECTOR_COLUMN, Chunk, Documents, InputFormat, open_documents
from modeling_tmde.documents.index import SETTINGS, Changes, DocumentIndex, Hit, is_unused, loading_options
from modeling_tmde.embedding import DocumentEmbedder

BATCH = 1024  # documents embedded and written at a time: at most so many are done again after an interruption
_USAGE = 'tmde search "a bridge is closed" news.index, or tmde search news.index --queries FILE'


def index(
    documents: Annotated[
        str | None, typer.Argument(metavar="DOCS", help="File of documents: text, JSONL or parquet; - for stdin.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="INDEX", help="Folder of the index, created or updated.")
    ] = ...,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id. Default: that of the index."),
    ] = None,
    format: Annotated[InputFormat | None, typer.Option(help="Default: by DOCS's suffix; text for stdin.")] = None,
    field: Annotated[
        str | None, typer.Option(help="JSONL field or parquet column of the text. Default: text.")
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(help="That of the id. Default: id if there is one, else the name of DOCS and the line."),
    ] = None,
    language: Annotated[str | None, typer.Option(help="Code of the documents' language, such as de.")] = None,
    language_field: Annotated[
        str | None, typer.Option(help="JSONL field or parquet column with the language of each document.")
    ] = None,
    delete: Annotated[list[str] | None, typer.Option(metavar="ID", help="Remove this document; repeatable.")] = None,
    delete_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Remove the documents whose ids are the lines of FILE.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents that are not in DOCS.")] = False,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    long_documents: SentencesOption = None,
    window: WindowOption = None,
    stride: StrideOption = None,
    aggregation: AggregationOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
) -> None:
    """Index documents for `tmde search`, or update an index.

    A document whose id, text and other fields are in the index already is left alone; new ones are added, changed ones
    replaced. The other fields of DOCS are kept as metadata. Every 1,024 documents, the work is on disk: after an
    interruption, the same command goes on.

        tmde index news.jsonl -o news.index -m path/to/model

        tmde index -o news.index --delete 17 --delete 18
    """
    start, changes, deleted, reader = time.perf_counter(), None, 0, None
    loading = {"pooling": pooling, "max_length": max_length, "long_documents": long_documents, "window": window}
    loading |= {"stride": stride, "aggregation": aggregation, "revision": revision, "dtype": dtype}
    loading |= {"device": device, "trust_remote_code": trust_remote_code}
    removed = [*(delete or ()), *(file_lines(str(delete_file), "--delete-file") if delete_file else ())]
    if documents is None and (prune or delete is None and delete_file is None):
        raise ValueError("DOCS is missing" + ("; --prune removes what is not in it" if prune else " (or --delete)"))
    if language is not None and language_field is not None:
        raise ValueError("--language and --language-field exclude each other; give one of them")
    with ExitStack() as stack, truncation_counted():
        if documents is not None:
            opened = open_documents(stack, documents, format, field, True, BATCH, language_field=language_field)
            reader = _Reader(opened, field or "text", id_field, language)
        found = _open_or_create(out, model, loading, reader)
        stack.enter_context(found.writing())
        there = [id for id in dict.fromkeys(removed) if reader is None or id in found]
        found.delete(there)
        deleted = len(there)
        if reader is not None:
            changes = _put(found, reader)
        if prune:
            gone = [id for id in found if id not in reader.seen]
            found.delete(gone)
            deleted += len(gone)
    parts = [f"{getattr(changes, name):,} {name}" for name in ("added", "updated", "unchanged")] if changes else []
    parts.append(f"{deleted:,} deleted")
    if len(there) < len(set(removed)):
        parts.append(f"{len(set(removed)) - len(there):,} to delete not there")
    if reader is not None and reader.empty:
        parts.append(f"{len(reader.empty):,} empty ones left out (first: {reader.empty[0]})")
    if changes and changes.report:
        parts.append(f"{changes.report.tokens:,} tokens, {changes.report.truncated:,} texts truncated")
    kind = "exact" if found.exact else f"approximate, recall@10 {found.recall:.3f}, unless --exact is given"
    typer.echo(
        f"{', '.join(parts)}, in {time.perf_counter() - start:.1f} s -> {out} ({len(found):,} documents, search: "
        f"{kind})",
        err=True,
    )


@dataclass
class _Reader:
    """Documents of one input. seen: the row of each id; empty: places of the documents that are left out."""

    documents: Documents
    field: str
    id_field: str | None
    language: str | None
    seen: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = self.documents.schema.names
        if self.id_field is not None and self.id_field not in names:
            raise ValueError(f"{self.documents.name}: no column {self.id_field!r}, found {names}; see --id-field")
        self.id_field = self.id_field or ("id" if "id" in names else None)

    def batches(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Place of every batch, for messages, and the arguments of `DocumentIndex.upsert`."""
        for chunk in self.documents.chunks:
            numbers = list(chunk.numbers)
            yield f"{self.documents.name}, rows {numbers[0]} to {numbers[-1]}", self._arguments(chunk, numbers)

    def _arguments(self, chunk: Chunk, numbers: list[int]) -> dict[str, Any]:
        rows = chunk.columns.to_pylist()
        if self.id_field is None:  # the whole path: files of one name in two folders keep their documents apart
            ids = [f"{self.documents.name}:{number}" for number in numbers]
            self.seen |= dict(zip(ids, numbers, strict=True))
        else:
            values = [row[self.id_field] for row in rows]
            ids = checked_ids(self.documents, self.id_field, values, numbers, self.seen)
        codes = chunk.languages or [self.language] * chunk.rows
        kept = {"ids": [], "texts": [], "metadata": [], "language": []}
        for id, text, row, code, number in zip(ids, chunk.texts, rows, codes, numbers, strict=True):
            if not text.strip():
                self.empty.append(f"row {number}")
                del self.seen[id]
                continue
            own = (self.field, self.id_field, VECTOR_COLUMN)
            row = {name: value for name, value in row.items() if name not in own}
            for values, value in zip(kept.values(), (id, text, {"language": code} | row, code), strict=True):
                values.append(value)
        return kept | {"language": kept["language"] if chunk.languages else self.language}


def _open_or_create(out: Path, model: str | None, loading: dict[str, Any], reader: _Reader | None) -> DocumentIndex:
    if (out / SETTINGS).exists() or reader is None:
        found = DocumentIndex.open(out)
        if reader is not None:
            if reader.id_field is None and reader.documents.name == "stdin" and len(found):
                raise ValueError(
                    f"stdin: its documents have no ids, and would replace those of another stdin in {out}; give a "
                    "file, or --format jsonl with --id-field"
                )
            found.embedder = embedder_of_index(found, model, loading)
        return found
    if model is None:
        raise ValueError(f"{out}: there is no index yet; give --model to make one")
    if not is_unused(out):
        raise ValueError(f"--output {out}: is not an index; expected a new name, or an empty folder")
    embedder = load_embedder(model, **{**loading, "long_documents": loading["long_documents"] or "sentences"})
    return DocumentIndex.create(
        out, embedder, loading={"revision": loading["revision"]} if loading["revision"] else {}
    )


def _put(found: DocumentIndex, reader: _Reader) -> Changes:
    changes = Changes()
    with tqdm(total=reader.documents.rows, desc="Indexing", unit=" texts", disable=None) as bar:
        for place, batch in reader.batches():
            try:
                changes += found.upsert(**batch)
            except ValueError as error:
                raise ValueError(f"{place}: {error}") from error
            bar.update(len(batch["ids"]))
    return changes


def search(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[QUERY] INDEX", help="Query, in quotes if it has spaces; folder of the index."),
    ],
    queries: Annotated[
        str | None, typer.Option(metavar="FILE", help="In place of QUERY: queries, one a line; - for stdin.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Documents for each query.")] = 10,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="NAME=VALUE",
            help="Only documents with this in their metadata, or in a list of them; one NAME twice: either.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line for each hit.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all documents of a large index.")] = False,
    snippet_width: Annotated[int, typer.Option(min=0, help="Characters of a snippet; 0: none.")] = 200,
    language: Annotated[
        str | None, typer.Option(help="Code of the queries' language: for a model with an encoder for each one.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Where the index's model is now. Default: where it was.")
    ] = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
) -> None:
    """Search the documents that `tmde index` has indexed; a query finds documents of all languages.

    The score is the cosine of query and document; the snippet is the sentence, among a document's first 256, that is
    nearest to the query.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de

        tmde search news.index --queries queries.txt --json
    """
    texts, wanted = _queries(arguments, queries), {}
    for pair in filter or ():
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ValueError(f"--filter: found {pair!r}, expected NAME=VALUE, such as language=de")
        wanted.setdefault(name, []).append(value)
    with truncation_counted():
        found = DocumentIndex.open(arguments[-1])
        loading = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
        found.embedder = embedder_of_index(found, model, loading)
        hits = found.search(texts, k, wanted, exact, snippet_width, language)
    if cut := found.query_report.truncated:
        limit = found.embedder.max_length
        typer.echo(f"{cut:,} of {len(texts):,} queries truncated: longer than {limit:,} tokens", err=True)
    if not found.exact and not exact and sys.stderr.isatty():
        typer.echo(f"Approximate search (recall@10 {found.recall:.3f}); --exact scans all documents.", err=True)
    for query, of_query in zip(texts, hits, strict=True):
        if as_json:
            _print_json(query, of_query)
        else:
            _print_table(query if len(texts) > 1 else None, of_query)


def embedder_of_index(found: DocumentIndex, model: str | None, loading: dict[str, Any]) -> DocumentEmbedder:
    """The model of an index, from `model` or from where it was, with its settings and those of `loading`.

    Raises:
        ValueError: It cannot be loaded, or the index has no model.
    """
    if found.settings is None:
        raise ValueError(f"{found.folder} was made of given vectors, and has no model to embed texts with")
    given = {name: value for name, value in loading.items() if value is not None}
    options = loading_options(found.settings, found.folder) | given
    try:
        return load_embedder(model or found.settings["model"], **options)
    except ValueError as error:
        if model is not None or str(error).startswith("--"):
            raise
        raise ValueError(
            f"{found.folder}: its model cannot be opened ({error}); if it was moved, give --model"
        ) from None


@contextmanager
def truncation_counted() -> Iterator[None]:
    """Silences the embedder's warnings of truncated texts: the command reports their number once."""
    logger = logging.getLogger("modeling_tmde.embedding")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _queries(arguments: Sequence[str], file: str | None) -> list[str]:
    if file is not None:
        if len(arguments) > 1:
            raise ValueError(f"found {arguments[0]!r} and --queries, expected one of them: {_USAGE}")
        texts = [line.strip() for line in file_lines(file, "--queries")]
        if not texts:
            raise ValueError(f"--queries {file}: found no query, only empty lines")
        return texts
    if len(arguments) != 2:
        raise ValueError(f"found {len(arguments)} argument(s), expected QUERY in quotes, and INDEX: {_USAGE}")
    if not arguments[0].strip() or arguments[0] == "-":
        raise ValueError(f"query: found {arguments[0]!r}, expected a text; --queries - reads the lines of stdin")
    return [arguments[0]]


def file_lines(file: str, option: str) -> list[str]:
    """Lines of a UTF-8 file, or of stdin as `-`, that are not blank."""
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:  # its places are those after the byte order mark
        line, found = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise ValueError(f"{option} {file}, line {line}: found 0x{found:02x}, expected UTF-8") from None
    return [line.removesuffix("\r") for line in lines if line.strip()]


def _print_json(query: str, hits: Sequence[Hit]) -> None:
    for rank, hit in enumerate(hits, 1):
        row = {"query": query, "rank": rank, "score": round(hit.score, 6), "id": hit.id, "snippet": hit.snippet}
        typer.echo(json.dumps(row | {"metadata": _finite(hit.metadata)}, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    """With null for a number that is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_table(query: str | None, hits: Sequence[Hit]) -> None:
    console = Console()
    if query is not None:
        console.print(f"[bold]{escape(query)}[/bold]")
    if not hits:
        console.print("No documents.")
        return
    table = Table()
    for name, options in {"": {"justify": "right"}, "score": {"no_wrap": True}, "language": {}}.items():
        table.add_column(name, **options)
    table.add_column("document", overflow="fold", ratio=1)
    for rank, hit in enumerate(hits, 1):
        title = hit.metadata.get("title")
        lines = [f"[bold]{escape(str(title))}[/bold]"] if title else []
        lines += [escape(hit.snippet), f"[dim]{escape(hit.id)}[/dim]"]
        language = escape(str(hit.metadata.get("language") or ""))
        table.add_row(str(rank), f"{hit.score:.3f}", language, "\n".join(filter(None, lines)))
    console.print(table)
