"""`tmde search`: the documents of an index that are nearest to a query, whatever their languages."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modeling_tmde.cli.documents import EmbedError
from modeling_tmde.cli.embedder_options import DeviceOption, DtypeOption, TrustRemoteCodeOption
from modeling_tmde.cli.embedding_job import load_model, stderr_is_terminal

# torch, pyarrow and faiss are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    from modeling_tmde.embedding import DocumentEmbedder
    from modeling_tmde.eval.documents.index import DocumentIndex
    from modeling_tmde.eval.documents.index_documents import Hit


def search(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY... INDEX", help="Queries (-: one a line of stdin), and the folder of the index."
        ),
    ],
    queries: Annotated[Path | None, typer.Option(metavar="FILE", help="More queries, one a line.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Documents for each query.")] = 10,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="NAME=VALUE",
            help="Only documents with this in their metadata; one NAME twice: either.",
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

    The score is the cosine of query and document; the snippet is the sentence that is nearest to the query.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de
    """
    try:
        texts = _queries(arguments[:-1], queries, Path(arguments[-1]))
        with told_errors(arguments[-1]):
            index = opened_index(Path(arguments[-1]))
            loading = {"dtype": dtype and dtype.value, "trust_remote_code": trust_remote_code}
            index.embedder = embedder_of_index(index, model, device, loading)
            if not index.exact and not exact and stderr_is_terminal():
                typer.echo("Approximate search of a large index; --exact looks at all documents.", err=True)
            found = index.search(texts, k, _filter(filter), exact, snippet_width, language)
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
    from modeling_tmde.eval.documents.index import DocumentIndex

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
    from modeling_tmde.eval.documents.index_embedding import loading_options

    if index.settings is None:
        raise EmbedError(f"{index.folder} was made of given vectors, and has no model to embed texts with")
    options = loading_options(index.settings, index.folder) | loading
    try:
        return load_model(model or index.settings["model"], device, stderr_is_terminal(), options)
    except EmbedError as error:
        if model is not None:
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
        raise EmbedError(str(error)) from None
    finally:
        logger.setLevel(level)


def _queries(given: Sequence[str], file: Path | None, index: Path) -> list[str]:
    if not given and file is None:
        raise EmbedError(f'found one argument, {index}, expected a query and an index: tmde search "QUERY" INDEX')
    texts = []
    for text in given:
        texts += _lines("stdin", sys.stdin.buffer.read()) if text == "-" else [text]
    if file is not None:
        try:
            texts += _lines(str(file), file.read_bytes())
        except OSError as error:
            raise EmbedError(f"--queries {file}: {error.strerror}") from None
    if not texts:
        raise EmbedError("found no query, only empty lines")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise EmbedError(f"query {number}: found {text!r}, expected a text")
    return texts


def _lines(name: str, content: bytes) -> list[str]:
    try:
        return [line.strip() for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise EmbedError(f"{name}, line {line}: found 0x{content[error.start]:02x}, expected UTF-8") from None


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
            typer.echo(json.dumps(row | {"metadata": hit.metadata}, ensure_ascii=False, default=str))


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
