"""`tmde search`: the documents of an index that are nearest to a query, in all languages."""

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from tmde.cli.errors import OptionError
from tmde.cli.options import INDEX_SETTINGS, check_model_name, model_options, with_options


@with_options(loading=model_options("dtype", "device", "trust_remote_code"))
def search(
    arguments: Annotated[
        list[str], Argument(metavar="[QUERY] INDEX", help="Query in quotes; folder of the index.")
    ],
    queries: Annotated[
        str | None, Option(metavar="FILE", help="Queries, one a line; - for stdin.")
    ] = None,
    k: Annotated[int, Option("--top-k", "-k", min=1, help="Documents for each query.")] = 10,
    filter: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="Only documents with this value of a field. Repeatable: either of the values of "
            "one name, and all of the names.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        Option(metavar="SQL", help='Only documents that fulfill this: "year >= 2024".'),
    ] = None,
    mode: Annotated[
        Literal["meaning", "words", "both"],
        Option(help="Go by the meaning of texts, by the words that they share, or by both."),
    ] = "meaning",
    as_json: Annotated[bool, Option("--json", help="One JSON object a line for each hit.")] = False,
    exact: Annotated[bool, Option("--exact", help="Scan all documents of a large index.")] = False,
    snippet_width: Annotated[int, Option(min=0, help="Characters of a snippet; 0: none.")] = 200,
    language: Annotated[
        str | None, Option(help="Code of the queries' language, if the model needs it.")
    ] = None,
    model: Annotated[
        str | None,
        Option(
            "--model",
            "-m",
            help="Where the index's model is, if it was moved.",
            callback=check_model_name,
        ),
    ] = None,
    *,
    loading: dict[str, Any],
) -> None:
    """Search the documents that `tmde index` has indexed; a query finds documents of all languages.

    The score is the cosine of query and document; with --mode words it is BM25. With --mode both
    it is the cosine in standard deviations above the mean, plus 0.15 BM25. The snippet is the
    sentence, among a document's first 256, that is nearest to the query; with --mode words, that
    with most words of it. A hit of `default` is marked as weak if its cosine is below 0.2.

        tmde search "a bridge is closed" news.index -k 5 --filter language=de

        tmde search "a bridge is closed" news.index --filter language=de --filter language=fr
        --filter topic=markets

        tmde search "a bridge is closed" news.index --where "year >= 2024 AND language = 'de'"

        tmde search "Sarah Tyler" news.index --mode words

        tmde search news.index --queries queries.txt --json
    """
    expected_count = 1 if queries else 2
    if len(arguments) != expected_count:
        raise OptionError(
            f"found {len(arguments)} argument(s), expected QUERY in quotes, and INDEX: "
            'tmde search "a bridge is closed" news.index, or tmde search news.index --queries FILE'
        )
    query = None if queries else arguments[0]
    _check_index(arguments[-1], query)
    wanted = parse_filter(filter or [])
    from tmde.cli.search_index import SearchJob, search_index

    job = SearchJob(
        folder=arguments[-1],
        query=query,
        query_file=queries,
        k=k,
        filter=wanted,
        where=where,
        as_json=as_json,
        exact=exact,
        mode=mode,
        snippet_width=snippet_width,
        language=language,
        model=model,
        loading=loading,
    )
    search_index(job)


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
            f"{query} is an index and {folder!r} is none: give the query first, "
            f"tmde search {folder!r} {query}"
        )
    if not Path(folder).exists():
        neighbors = sorted(str(path.parent) for path in Path().glob(f"*/{INDEX_SETTINGS}"))
        listed = f" (here are {', '.join(neighbors[:5])})" if neighbors else ""
        raise OptionError(f"{folder}: no such index{listed}; `tmde index` makes one")


def _is_index(name: str) -> bool:
    try:
        return (Path(name) / INDEX_SETTINGS).is_file()
    except OSError:  # A query may be longer than any path.
        return False
