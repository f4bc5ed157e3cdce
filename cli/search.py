"""`tmde search`: the documents of an index that are nearest to a query, whatever their languages."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modeling_tmde.cli.embedder_options import DeviceOption, DtypeOption, TrustRemoteCodeOption
from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal, told_out_of_memory
from modeling_tmde.data.documents import EmbedError

# torch, pyarrow and faiss are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    from modeling_tmde.documents.index import DocumentIndex
    from modeling_tmde.documents.index_documents import Hit
    from modeling_tmde.embedding import DocumentEmbedder


def search(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[QUERY] INDEX", help="Query, in quotes where it has spaces; folder of the index."),
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
    exact: Annotated[bool, typer.Option("--exact", help="Look at all documents of a large index.")] = False,
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

    The score is the cosine of query and document; the snippet is the sentence, among a document's
    first 256, that is nearest to the query.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de

        tmde search news.index --queries queries.txt --json
    """
    try:
        texts = _queries(arguments, queries)
        with told_errors(arguments[-1]):
            index = opened_index(Path(arguments[-1]))
            loading = {"dtype": dtype and dtype.value, "trust_remote_code": trust_remote_code}
            index.embedder = embedder_of_index(index, model, device, loading)
            if not index.exact and not exact and stderr_is_terminal():
                typer.echo("Approximate search of a large index; --exact looks at all documents.", err=True)
            with told_out_of_memory(index.embedder, "give --device cpu, or fewer queries at once"):
                found = index.search(texts, k, _filter(filter), exact, snippet_width, language)
        if cut := index.query_report.truncated:
            typer.echo(
                f"{cut:,} of {len(texts):,} queries truncated: longer than {index.embedder.max_length:,} tokens",
                err=True,
            )
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        _print_json(texts, found)
    else:
        _print_tables(texts, found)


def opened_index(folder: Path) -> DocumentIndex:
    """
    Raises:
        EmbedError: faiss is missing.
        DocumentIndexError: No index there, or a damaged one.
    """
    from modeling_tmde.documents.index import DocumentIndex

    try:
        return DocumentIndex.open(folder)
    except ImportError as error:
        raise EmbedError(str(error)) from None


def embedder_of_index(
    index: DocumentIndex, model: str | None, device: str | None, loading: dict[str, Any]
) -> DocumentEmbedder:
    """The model of an index, with its settings and what is given as well.

    Args:
        index: Open.
        model: Where its model is now; None: where it was.
        device: None for the best there is.
        loading: More arguments of `DocumentEmbedder.from_pretrained`, in place of the settings of the index.

    Raises:
        EmbedError: It cannot be loaded, or the index was made without one.
    """
    from modeling_tmde.documents.index_embedding import loading_options

    if index.settings is None:
        raise EmbedError(f"{index.folder} was made of given vectors, and has no model to embed texts with")
    options = loading_options(index.settings, index.folder) | loading
    try:
        return load_model(model or index.settings["model"], device, stderr_is_terminal(), options)
    except EmbedError as error:
        if model is not None or not str(error).startswith("--model "):
            raise
        raise EmbedError(
            f"{index.folder}: its model cannot be opened ({str(error).removeprefix('--model ')}); if it was moved, "
            "give --model"
        ) from None


@contextmanager
def told_errors(name: object) -> Iterator[None]:
    """Errors of an index and of its embedder as those of the command.

    Texts that are too long are counted in the summary, once: the embedder's own warnings are silent.
    """
    logger = logging.getLogger("modeling_tmde.embedding")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    except OSError as error:
        raise EmbedError(f"{name}: {error.strerror or error}") from None
    except (ValueError, RuntimeError) as error:  # DocumentIndexError, a language that is missing, out of memory
        option = "--" if str(error).startswith("filter:") else ""
        raise EmbedError(f"{option}{error}") from None
    finally:
        logger.setLevel(level)


def _queries(arguments: Sequence[str], file: str | None) -> list[str]:
    from modeling_tmde.documents.index_files import MANIFEST

    first, last = arguments[0], arguments[-1]
    usage = 'tmde search "a bridge is closed" news.index, or tmde search news.index --queries FILE'
    # os.path: a query may be too long for a path, of which Path.exists() raises.
    there = [os.path.exists(os.path.join(folder, MANIFEST)) for folder in (first, last)]
    if len(arguments) > 1 and there == [True, False]:
        raise EmbedError(f"{first}: found the index before the query; QUERY comes first, as in {usage}")
    if file is not None:
        if len(arguments) > 1:
            raise EmbedError(f"found {arguments[0]!r} and --queries, expected one of them: {usage}")
        texts = [line.strip() for line in file_lines(file, "--queries")]
        if not texts:
            raise EmbedError(f"--queries {file}: found no query, only empty lines")
        return texts
    if len(arguments) == 1:
        raise EmbedError(f"found one argument, {last}, expected a query and an index: {usage}")
    if len(arguments) > 2:
        raise EmbedError(f"found {len(arguments)} arguments, expected QUERY in quotes, and INDEX: {usage}")
    if not arguments[0].strip():
        raise EmbedError(f"query: found {arguments[0]!r}, expected a text")
    if arguments[0] == "-":
        raise EmbedError("query: found '-', expected a text; for the lines of stdin: tmde search INDEX --queries -")
    return [arguments[0]]


def file_lines(file: str, option: str) -> list[str]:
    """Lines of a file, or of stdin as `-`, that are not blank; only a line feed, or CR LF, ends one.

    Raises:
        EmbedError: It cannot be read, or is not UTF-8.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        lines = content.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise EmbedError(f"{option} {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:  # its places are those after the byte order mark
        line, found = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise EmbedError(f"{option} {file}, line {line}: found 0x{found:02x}, expected UTF-8") from None
    return [line.removesuffix("\r") for line in lines if line.strip()]


def _filter(pairs: Sequence[str] | None) -> dict[str, list[str]] | None:
    wanted: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise EmbedError(f"--filter: found {pair!r}, expected NAME=VALUE, such as language=de")
        wanted.setdefault(name, []).append(value)
    return wanted or None


def _print_json(queries: Sequence[str], found: Sequence[Sequence[Hit]]) -> None:
    for query, hits in zip(queries, found, strict=True):
        for rank, hit in enumerate(hits, 1):
            row = {"query": query, "rank": rank, "score": round(hit.score, 6), "id": hit.id, "snippet": hit.snippet}
            row = _plain(row | {"metadata": hit.metadata})
            typer.echo(json.dumps(row, ensure_ascii=False, allow_nan=False, default=str))


def _plain(value: Any) -> Any:
    """With null where a number is not finite, for which JSON has no name."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_tables(queries: Sequence[str], found: Sequence[Sequence[Hit]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    for query, hits in zip(queries, found, strict=True):
        if len(queries) > 1:
            console.print(f"[bold]{escape(query)}[/bold]")
        if not hits:
            console.print("No documents.")
            continue
        table = Table()
        table.add_column("", justify="right")
        table.add_column("score", justify="right", no_wrap=True)
        if with_language := any(hit.metadata.get("language") for hit in hits):
            table.add_column("language")
        table.add_column("document", overflow="fold", ratio=1)
        for rank, hit in enumerate(hits, 1):
            title = hit.metadata.get("title") or ""
            lines = [f"[bold]{escape(str(title))}[/bold]" if title else "", escape(hit.snippet)]
            document = "\n".join([line for line in lines if line] + [f"[dim]{escape(hit.id)}[/dim]"])
            language = [escape(str(hit.metadata.get("language") or ""))] if with_language else []
            table.add_row(str(rank), f"{hit.score:.3f}", *language, document)
        console.print(table)
