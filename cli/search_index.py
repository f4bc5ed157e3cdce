"""The work of `tmde search`: queries are searched in an index, and their hits printed."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from modeling_tmde import TmdeError
from tmde.cli.models import suggest_accurate
from tmde.cli.update_index import open_index, read_texts
from tmde.data.languages import language_of_locale
from tmde.documents.index import DocumentIndex, Hit, Mode
from tmde.embedding import EncodeReport
from tmde.embedding.loading import errors_about
from tmde.embedding.opening import without_truncation_warnings
from tmde.embedding.packaged_models import DEFAULT_MODEL

# Hits of the default model below this cosine seldom answer the query: see docs/decisions.md.
WEAK_COSINE = 0.2
# A table takes the width that it needs, up to this one, where no terminal limits it.
_PIPED_WIDTH = 10_000
_LISTED_VALUES = 20  # of a field, in the message of a filter that matches nothing


@dataclass(frozen=True)
class SearchJob:
    """What `tmde search` was asked for; the fields are its arguments and options.

    Attributes:
        query: The one query; None if `query_file` holds the queries.
        filter: The values that are wanted of each field of the metadata.
        where: What documents must fulfill, in SQL; None if all are searched.
        mode: What the search goes by.
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
    """

    folder: str
    query: str | None
    query_file: str | None
    k: int
    filter: dict[str, list[str]]
    where: str | None
    as_json: bool
    exact: bool
    mode: Mode
    snippet_width: int
    language: str | None
    model: str | None
    loading: dict[str, Any]


def search_index(job: SearchJob) -> None:
    """Search the queries, and print the hits of each.

    Raises:
        TmdeError: There is no query, or the index cannot be used.
    """
    queries = _read_queries(job)
    with without_truncation_warnings(), errors_about(job.folder, prefix=False):
        index = _open(job)
        filters = _resolve_filters(index, job.filter)
        result = index.search_queries(
            queries,
            job.k,
            filters,
            job.exact,
            job.snippet_width,
            job.language,
            job.mode,
            job.where,
        )
    if result.report is not None:
        _print_truncation(result.report, len(queries), index.embedder.max_length)
    weak_below = _weak_below(index, job.mode)
    for query, hits in zip(queries, result.hits, strict=True):
        if job.as_json:
            _print_json(query, hits)
            continue
        title = query if len(queries) > 1 else None
        _print_table(title, hits, job.mode, weak_below)
    if not job.as_json and job.mode != "words" and index.settings is not None:
        suggest_accurate(index.model_name, "An index made by `tmde index ... -m accurate`")


def _open(job: SearchJob) -> DocumentIndex:
    """Open the index, with its model only if the search needs vectors."""
    if job.mode == "words":
        return DocumentIndex.open(job.folder)
    return open_index(job.folder, job.model, job.loading)


def _resolve_filters(index: DocumentIndex, wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return a filter in which locales are languages, and tell of values that no document has."""
    filters: dict[str, list[str]] = {}
    for name, values in wanted.items():
        filters[name] = []
        for value in values:
            if name == "language" and not index.has_value(name, value):
                value = language_of_locale(value)
            if not index.has_value(name, value):
                _tell_unknown_value(index, name, value)
            filters[name].append(value)
    return filters


def _tell_unknown_value(index: DocumentIndex, name: str, value: str) -> None:
    """Print that no document has a value, and the values that there are.

    If no document has the field itself, the search says so.
    """
    known_values = sorted(str(known) for known in index.values(name) if known is not None)
    if not known_values:
        return
    listed = ", ".join(known_values[:_LISTED_VALUES])
    if len(known_values) > _LISTED_VALUES:
        listed += ", ..."
    typer.echo(
        f"--filter {name}={value}: no document has this value; the values are: {listed}", err=True
    )


def _weak_below(index: DocumentIndex, mode: Mode) -> float | None:
    """Return the score below which a hit is weak; None if it is not known of the model."""
    if mode != "meaning" or index.settings is None or index.model_name != DEFAULT_MODEL:
        return None
    return WEAK_COSINE


def _read_queries(job: SearchJob) -> list[str]:
    queries: list[str] = []
    source = "QUERY"
    if job.query_file is not None:
        queries = read_texts(job.query_file)
        source = f"--queries {job.query_file}"
    elif job.query is not None:
        queries = [job.query]
    if not "".join(queries).strip():
        raise TmdeError(f"{source}: found no text, expected a query")
    return queries


def _print_truncation(report: EncodeReport, query_count: int, limit: int) -> None:
    if report.truncated:
        typer.echo(
            f"{report.truncated:,} of {query_count:,} queries truncated: longer than {limit:,} "
            "tokens",
            err=True,
        )


def _print_json(query: str, hits: Sequence[Hit]) -> None:
    """Print one JSON object a line for each hit, without its whole text."""
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"query": query, "rank": rank}
        for name, value in vars(hit).items():
            if name != "text":
                row[name] = value
        typer.echo(json.dumps(row, ensure_ascii=False))


def _print_table(
    query: str | None, hits: Sequence[Hit], mode: Mode, weak_below: float | None
) -> None:
    """Print the hits of a query as a table, under the query if there are several.

    Args:
        query: The query; None if it is the only one.
        hits: The hits, best first.
        mode: What the search went by.
        weak_below: The score below which a hit is marked as weak; None if none is.
    """
    console = _table_console()
    if query is not None:
        console.print(f"[bold]{escape(query)}[/bold]")
    if not hits:
        reason = "No document has a word of the query." if mode == "words" else "No documents."
        console.print(reason)
        return
    table = Table()
    for title in ("", "score", "language"):
        table.add_column(title, no_wrap=True)
    table.add_column("document", overflow="fold", ratio=1)
    for rank, hit in enumerate(hits, 1):
        language = escape(str(hit.metadata.get("language") or ""))
        score = f"{hit.score:.3f}"
        if weak_below is not None and hit.score < weak_below:
            score += " weak"
        table.add_row(str(rank), score, language, _describe_document(hit))
    console.print(table)
    if weak_below is not None and hits[0].score < weak_below:
        console.print(f"No document fits well: all scores are below {weak_below}.")


def _describe_document(hit: Hit) -> str:
    """Return title, snippet and id of a document, one a line."""
    lines = []
    title = hit.metadata.get("title")
    if title:
        lines.append(f"[bold]{escape(str(title))}[/bold]")
    if hit.snippet:
        lines.append(escape(hit.snippet))
    lines.append(f"[dim]{escape(hit.id)}[/dim]")
    return "\n".join(lines)


def _table_console() -> Console:
    """Return a console for tables.

    rich takes a file or a pipe for a terminal of 80 columns, and would cut what is wider. The
    variable COLUMNS still says another width.
    """
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return Console()
    return Console(width=_PIPED_WIDTH)
