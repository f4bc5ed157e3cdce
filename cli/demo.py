"""`tmde demo`: a local web page to search a collection in any language and to look at it as a map."""

import os
import random
import sys
import tempfile
import webbrowser
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from modeling_tmde import TmdeError
from tmde.cli import index as index_commands
from tmde.cli import options as common
from tmde.data.sample import sample_documents
from tmde.documents.collection_map import CollectionMap, drawn_rows, map_collection
from tmde.documents.index import SETTINGS, DocumentIndex, Hit
from tmde.embedding.long_documents import split_sentences

NOTHING, OTHERS = "(none)", "(others)"  # values of documents without one, and of rare ones
MOST_GROUPS = 24  # colors and markers of these and of both above can still be told apart
SAMPLE_DOCUMENTS = 60  # in each of five languages


@dataclass(frozen=True)
class Collection:
    """Documents to search, and those of them that are drawn.

    name: as the page calls it; drawn: the documents on the map, rows of `map`; groups: by name of a field, the value
    of each drawn document; languages: of all documents, "" for those without one, empty if none has one; examples:
    language and text of queries.
    """

    name: str
    index: DocumentIndex
    drawn: list[Hit]
    map: CollectionMap
    groups: dict[str, list[str]]
    languages: list[str]
    examples: list[tuple[str, str]]


@common.with_options(**common.MODEL_OPTIONS)
def demo(
    model: Annotated[
        str | None, Argument(help="Folder or Hub id. Default: an index's own, or that of tmde.")
    ] = None,
    collection: Annotated[
        str | None, Argument(help="File (- for stdin) or index. Default: a sample.")
    ] = None,
    format: common.FormatOption = None,
    field: common.FieldOption = None,
    id_field: common.IdFieldOption = None,
    language_field: common.LanguageFieldOption = None,
    label_field: Annotated[
        list[str] | None, Option(help="Field that colors the map; repeatable.")
    ] = None,
    points: Annotated[
        int, Option(min=1, help="Documents on the map at most; more are sampled.")
    ] = 5000,
    projection: Annotated[
        Literal["tsne", "pca"] | None, Option(help="Default: pca beyond 5,000 points.")
    ] = None,
    host: Annotated[
        str, Option(help="Where to listen; 0.0.0.0 shows the documents to the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, Option(min=1, max=65535, help="Default: the first free one from 7860.")
    ] = None,
    browser: Annotated[bool, Option(help="Open a browser, if there is a screen.")] = True,
    loading: dict[str, Any] = ...,
) -> None:
    """Open a local web page: search a collection in any language, see hits in others, and a map of it.

    Works offline; needs the packages of the extra `demo`. Ctrl-C ends it. A file is indexed in a temporary folder with
    all its fields, as by `tmde index`.

        tmde demo

        tmde demo news.jsonl --label-field topic

        tmde demo path/to/model news.jsonl

        tmde demo news.index
    """
    from tmde.cli.demo_page import demo_page, launch_page  # needs gradio and plotly

    if collection is None and model and (model == "-" or os.path.isfile(model) or _is_index(model)):
        model, collection = None, model
    name = Path(collection).name if collection else "the built-in sample"
    temporary = tempfile.TemporaryDirectory(prefix="tmde-demo-", ignore_cleanup_errors=True)
    with temporary as folder, index_commands.truncation_counted():
        if collection is None:
            collection = f"{folder}/sample.jsonl"
            rows = sample_documents(SAMPLE_DOCUMENTS)
            ids = [f"{row['doc_id']} ({row['language']})" for row in rows]
            rows.remove_columns("doc_id").add_column("id", ids).to_json(
                collection, force_ascii=False
            )
        if not _is_index(collection):
            reading = {
                "format": format,
                "field": field,
                "id_field": id_field,
                "language_field": language_field,
            }
            options = dict.fromkeys([*common.MODEL_OPTIONS, *common.LONG_OPTIONS]) | loading
            index_commands.index(
                documents=collection, out=Path(folder, "index"), model=model, **reading, **options
            )
            collection = f"{folder}/index"
        index = index_commands.open_index(collection, model, loading)
        page = demo_page(draw_collection(index, name, label_field or (), points, projection))
        address = launch_page(page, host, port)
        typer.echo(f"The page is at {address} (Ctrl-C ends it)")
        if browser and (sys.platform in ("win32", "darwin") or "DISPLAY" in os.environ):
            webbrowser.open(address)
        page.block_thread()


def _is_index(path: str) -> bool:
    return os.path.exists(os.path.join(path, SETTINGS))


def draw_collection(
    index: DocumentIndex,
    name: str,
    label_fields: Sequence[str] = (),
    points: int = 5000,
    method: str | None = None,
) -> Collection:
    """What the page shows of an index.

    Args:
        index: With its embedder.
        name: What the page calls it.
        label_fields: Metadata that color the map besides `language`; none: all with 2 to 24 different values.
        points: Documents drawn at most; others are chosen at random, always the same.
        method: See `map_collection`.

    Raises:
        ValueError: An empty index, or a label field that no document has.
    """
    ids = sorted(index)
    if not ids:
        raise TmdeError(f"{name}: found an index without documents")
    ids = [ids[row] for row in drawn_rows(len(ids), points)]
    typer.echo(f"Drawing a map of {len(ids):,} documents ...", err=True)
    drawn = index.documents(ids)
    names = list(dict.fromkeys(key for hit in drawn for key in hit.metadata))
    if unknown := set(label_fields).difference(names):
        raise TmdeError(f"{name}: no field {unknown.pop()!r}, found {names}; see --label-field")
    codes = {as_text(code) or "" for code in index.values("language")}
    languages = sorted(codes) if any(codes) else []
    asked = [*(["language"] if languages else []), *label_fields]
    groups = {}
    for key in dict.fromkeys([*asked, *(() if label_fields else names)]):
        values = [as_text(hit.metadata.get(key)) for hit in drawn]
        counts = Counter(value for value in values if value is not None)
        if key in asked or (key not in ("language", "title") and 2 <= len(counts) <= MOST_GROUPS):
            kept = {None: NOTHING} | {value: value for value, _ in counts.most_common(MOST_GROUPS)}
            groups[key] = [kept.get(value, OTHERS) for value in values]
    return Collection(
        name,
        index,
        drawn,
        map_collection(index.vectors(ids), method),
        groups,
        languages,
        _examples(drawn),
    )


def as_text(value: Any) -> str | None:
    """A value of the metadata as the page shows it."""
    value = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return None if value is None or value == "" else str(value)


def _examples(drawn: Sequence[Hit]) -> list[tuple[str, str]]:
    """A sentence of a document in each of several languages, (language, sentence)."""
    examples: dict[str, str] = {}
    for hit in random.Random(0).sample(drawn, len(drawn)):
        code = as_text(hit.metadata.get("language"))
        fitting = [
            text for text in split_sentences(hit.text[:2000], code) if 25 <= len(text) <= 140
        ]
        if code and fitting:
            examples.setdefault(code, " ".join(fitting[0].split()))
    return sorted(examples.items())[:5]
