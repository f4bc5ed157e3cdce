"""`tmde search`: the documents of an index that are nearest to a query, in all languages."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.errors import OptionError
from tmde.cli.models import suggest_accurate
from tmde.embedding.packaged_models import DEFAULT_MODEL

if TYPE_CHECKING:
    from tmde.documents.index import DocumentIndex, Hit

# Hits of the default model below this cosine seldom answer the query (docs/decisions/documents.md).
WEAK_COSINE = 0.2
# A table takes the width that it needs, up to this one, where no terminal limits it.
_PIPED_WIDTH = 10_000
_FIELDS_OF_DOCUMENTS = ("language", "title")  # They are shown with the document.
_MOST_FIELDS = 3  # that have a column in a table of hits
_LISTED_VALUES = 20  # of a field, in the message of a filter that matches nothing


@dataclass(kw_only=True)
class LoadingOptions:
    """How the model of an index is loaded."""

    dtype: common.DtypeOption = None
    device: common.DeviceOption = None
    trust_remote_code: common.TrustRemoteCodeOption = False


@dataclass(kw_only=True)
class SearchOptions(LoadingOptions):
    """The options of `tmde search`."""

    arguments: Annotated[
        list[str],
        Argument(metavar="[QUERY] INDEX", help="Query in quotes, then the folder of the index."),
    ]
    queries: Annotated[
        str | None, Option(metavar="FILE", help="File with one query per line; - for stdin.")
    ] = None
    k: Annotated[int, Option("--top-k", "-k", min=1, help="Number of documents per query.")] = 10
    filter: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="Keep only documents with this field value. Repeatable: a document must have "
            "one of the values set for each name.",
        ),
    ] = None
    where: Annotated[
        str | None,
        Option(metavar="SQL", help='Keep only documents that meet this condition: "year >= 2024".'),
    ] = None
    mode: Annotated[
        Literal["meaning", "words", "both"],
        Option(help="Compare meaning (vectors), words (BM25), or both."),
    ] = "meaning"
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per hit.")] = False
    exact: Annotated[bool, Option("--exact", help="Scan all documents, even in a large index.")] = (
        False
    )
    snippet_width: Annotated[
        int, Option(min=0, help="Maximum characters per snippet; 0 for none.")
    ] = 200
    language: Annotated[
        str | None, Option(help="Language code of the queries, if the model requires it.")
    ] = None
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="New location of the index's model if it was moved.",
            callback=common.check_model_name,
        ),
    ] = None


@command(SearchOptions)
def search(options: SearchOptions) -> None:
    """Search an index made by `tmde index`, across languages.

    The score is the cosine of query and document. With --mode words, it is BM25; with --mode both,
    it is the cosine in standard deviations above the mean, plus 0.15 BM25. The snippet is the
    sentence nearest to the query in the document's nearest passage; with --mode words, it is the
    one with the most query words. Up to three other fields of a document are shown, such as the
    target in a translation memory; --json shows all. With `default`, hits with a cosine below 0.2
    are marked as weak.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de

        tmde search "a bridge is closed" news.index --filter language=de --filter language=fr
        --filter topic=markets

        tmde search "a bridge is closed" news.index --where "year >= 2024 AND language = 'de'"

        tmde search "Sarah Tyler" news.index --mode words

        tmde search news.index --queries queries.txt --json
    """
    folder, query = _folder_and_query(options)
    _check_index(folder, query)
    wanted = parse_filter(options.filter or [])
    queries = _queries_of(options, query)
    from tmde.data.languages import check_code
    from tmde.data.model_languages import LanguageWatch
    from tmde.documents.file_indexing import open_index
    from tmde.documents.index import DocumentIndex
    from tmde.embedding.loading import errors_about
    from tmde.embedding.opening import without_truncation_warnings

    check_code(options.language, "--language")
    with without_truncation_warnings(), errors_about(folder, prefix=False):
        if options.mode == "words":  # No query gets a vector.
            index = DocumentIndex.open(folder)
        else:
            index = open_index(folder, options.model, keywords(options, LoadingOptions))
            LanguageWatch(index.embedder).check(queries, options.language)
        result = index.search_queries(
            queries,
            k=options.k,
            filter=_resolve_filters(index, wanted),
            exact=options.exact,
            snippet_width=options.snippet_width,
            language=options.language,
            mode=options.mode,
            where=options.where,
        )
    if result.report is not None and result.report.truncated:
        typer.echo(
            f"{result.report.truncated:,} of {len(queries):,} queries truncated: longer than "
            f"{index.embedder.max_length:,} tokens",
            err=True,
        )
    weak_below = _weak_below(index, options.mode)
    for text, hits in zip(queries, result.hits, strict=True):
        if options.as_json:
            _print_json(text, hits)
            continue
        title = text if len(queries) > 1 else None
        _print_table(title, hits, options.mode, weak_below, options.snippet_width)
    if not options.as_json and options.mode != "words" and index.settings is not None:
        suggest_accurate(index.model_name, "An index made by `tmde index ... -m accurate`")


# ---- The query and the index


def _folder_and_query(options: SearchOptions) -> tuple[str, str | None]:
    """Return the arguments; the query is None if a file holds the queries."""
    expected_count = 1 if options.queries else 2
    if len(options.arguments) != expected_count:
        raise OptionError(
            f"found {len(options.arguments)} argument(s), expected QUERY in quotes, and INDEX: "
            'tmde search "a bridge is closed" news.index, or tmde search news.index --queries FILE'
        )
    query = None if options.queries else options.arguments[0]
    return options.arguments[-1], query


def _queries_of(options: SearchOptions, query: str | None) -> list[str]:
    """Return the texts to search for, at least one of them not empty."""
    if query is not None:
        queries = [query]
        source = "QUERY"
    else:
        assert options.queries is not None  # Without a query, they are given.
        queries = common.read_texts(options.queries)
        source = f"--queries {options.queries}"
    if not "".join(queries).strip():
        raise OptionError(f"{source}: found no text, expected a query")
    return queries


def parse_filter(conditions: list[str]) -> dict[str, list[str]]:
    """Return the values that are wanted of each field.

    Args:
        conditions: `NAME=VALUE` each.

    Raises:
        OptionError: A condition is not of that form.
    """
    wanted: dict[str, list[str]] = {}
    for condition in conditions:
        name, separator, value = condition.partition("=")
        if not name or not separator:
            raise OptionError(
                f"--filter: found {condition!r}, expected NAME=VALUE, such as language=de"
            )
        wanted.setdefault(name, []).append(value)
    return wanted


def _check_index(folder: str, query: str | None) -> None:
    """Check that an argument is the folder of an index, before anything heavy is imported.

    Raises:
        OptionError: There is no such index, or QUERY and INDEX are swapped.
    """
    if _is_index(folder):
        return
    if query is not None and _is_index(query):
        raise OptionError(
            f"{query} is an index and {folder!r} is not: put the query first, "
            f"tmde search {folder!r} {query}"
        )
    if not Path(folder).exists():
        neighbors = sorted(str(path.parent) for path in Path().glob(f"*/{common.INDEX_SETTINGS}"))
        listed = f" (found {', '.join(neighbors[:5])})" if neighbors else ""
        raise OptionError(f"{folder}: no such index{listed}; create one with `tmde index`")


def _is_index(name: str) -> bool:
    try:
        return (Path(name) / common.INDEX_SETTINGS).is_file()
    except OSError:  # A query may be longer than any path.
        return False


def _resolve_filters(index: "DocumentIndex", wanted: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return a filter in which locales are languages, and tell of values that no document has."""
    from tmde.data.languages import language_of_locale

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


def _tell_unknown_value(index: "DocumentIndex", name: str, value: str) -> None:
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


def _weak_below(index: "DocumentIndex", mode: str) -> float | None:
    """Return the score below which a hit is weak; None if it is not known of the model."""
    if mode != "meaning" or index.settings is None or index.model_name != DEFAULT_MODEL:
        return None
    return WEAK_COSINE


# ---- Hits


def _print_json(query: str, hits: Sequence["Hit"]) -> None:
    """Print one JSON object a line for each hit, without its whole text.

    The metadata are all other columns of the document. A document of several passages has its
    nearest passage and the headings above that.
    """
    for rank, hit in enumerate(hits, 1):
        row: dict[str, Any] = {"query": query, "rank": rank}
        left_out = ["text"]
        if hit.passage == hit.text:
            left_out += ["passage", "heading"]
        for name, value in vars(hit).items():
            if name not in left_out:
                row[name] = value
        typer.echo(json.dumps(row, ensure_ascii=False))


def _print_table(
    query: str | None,
    hits: Sequence["Hit"],
    mode: str,
    weak_below: float | None,
    width: int,
) -> None:
    """Print the hits of a query as a table, under the query if there are several.

    Args:
        query: The query; None if it is the only one.
        hits: The hits, best first.
        mode: The search mode.
        weak_below: The score below which a hit is marked as weak; None if none is.
        width: The characters of a value of another column, as of a snippet.
    """
    console = _table_console()
    if query is not None:
        console.print(f"[bold]{escape(query)}[/bold]")
    if not hits:
        reason = "No document contains a query word." if mode == "words" else "No documents."
        console.print(reason)
        return
    table = Table()
    for title in ("", "score", "language"):
        table.add_column(title, no_wrap=True)
    table.add_column("document", overflow="fold", ratio=1)
    field_names = _other_fields(hits) if width else []
    for name in field_names:
        table.add_column(escape(name), overflow="fold")
    for rank, hit in enumerate(hits, 1):
        language = escape(str(hit.metadata.get("language") or ""))
        score = f"{hit.score:.3f}"
        if weak_below is not None and hit.score < weak_below:
            score += " weak"
        values = [_shown_value(hit.metadata.get(name), width) for name in field_names]
        table.add_row(str(rank), score, language, _describe_document(hit), *values)
    console.print(table)
    if weak_below is not None and hits[0].score < weak_below:
        console.print(f"No document matches well: all scores are below {weak_below}.")


def _other_fields(hits: Sequence["Hit"]) -> list[str]:
    """Return the fields of hits that have columns of their own, at most three.

    Of a translation memory, this is the other language.
    """
    names: dict[str, None] = {}
    for hit in hits:
        for name, value in hit.metadata.items():
            if name not in _FIELDS_OF_DOCUMENTS and value is not None:
                names[name] = None
    return list(names)[:_MOST_FIELDS]


def _shown_value(value: object, width: int) -> str:
    """Return a value of a field as one line of at most `width` characters."""
    if value is None:
        return ""
    line = " ".join(str(value).split())
    if len(line) > width:
        line = line[: width - 1].rstrip() + "…"
    return escape(line)


def _describe_document(hit: "Hit") -> str:
    """Return title, headings, snippet and id of a document, one a line."""
    lines = []
    title = hit.metadata.get("title")
    if title:
        lines.append(f"[bold]{escape(str(title))}[/bold]")
    if hit.heading:
        lines.append(f"[italic]{escape(hit.heading)}[/italic]")
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
