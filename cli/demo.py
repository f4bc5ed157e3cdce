"""`tmde demo`: a local web page to search a collection in any language and to look at it as a map."""

import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from modeling_tmde.cli.document_sets import read_document_set
from modeling_tmde.cli.index import embedder_of_index, truncation_counted
from modeling_tmde.cli.options import MODEL_OPTIONS, load_embedder, with_options
from modeling_tmde.data.documents import InputFormat
from modeling_tmde.data.sample import sample_documents
from modeling_tmde.documents.collection_map import CollectionMap, drawn_rows, map_collection
from modeling_tmde.documents.index import SETTINGS, DocumentIndex, Hit
from modeling_tmde.long_documents import split_sentences

SAMPLE = "the built-in sample"
NOTHING, OTHERS = "(none)", "(others)"  # values of documents without one, and of rare ones
_SAMPLE_DOCUMENTS = 60  # in each of five languages
_MOST_GROUPS = 24  # colors and markers that can still be told apart


@dataclass(frozen=True)
class Collection:
    """Documents to search, and those of them that are drawn.

    name, model: as the page calls them; drawn: the documents on the map, rows of `map`; groups: by name of a field,
    the value of each drawn document; languages: of all documents, None for those without one, empty if none has one;
    examples: language and text of queries.
    """

    name: str
    model: str
    index: DocumentIndex
    drawn: list[Hit]
    map: CollectionMap
    groups: dict[str, list[str]]
    languages: list[str | None]
    examples: list[tuple[str, str]]


@with_options(**MODEL_OPTIONS)
def demo(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Folder of a saved model, a Hub id, or an index with its model.")
    ],
    collection: Annotated[
        str | None,
        typer.Argument(
            metavar="COLLECTION",
            help="File of documents (text, JSONL or parquet; - for stdin), or an index. Default: a built-in sample.",
        ),
    ] = None,
    format: Annotated[InputFormat | None, typer.Option(help="Default: by COLLECTION's suffix.")] = None,
    field: Annotated[str | None, typer.Option(help="JSONL field or parquet column of the text.")] = None,
    id_field: Annotated[str | None, typer.Option(help="That of the id. Default: id if there is one.")] = None,
    language_field: Annotated[str | None, typer.Option(help="That of the language. Default: language.")] = None,
    label_field: Annotated[
        list[str] | None, typer.Option(help="One that colors the map; repeatable. Default: label; of an index, all.")
    ] = None,
    points: Annotated[int, typer.Option(min=1, help="Documents on the map at most; more are sampled.")] = 5000,
    projection: Annotated[
        Literal["tsne", "pca"] | None, typer.Option(help="Default: tsne for up to 5,000 points, else pca.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the map, of its sample and of the example queries.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: every computer in the network.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Default: the first free one from 7860.")] = None,
    open_browser: Annotated[
        bool | None, typer.Option("--open/--no-browser", help="Default: open a browser if there is a screen.")
    ] = None,
    loading: dict[str, Any] = ...,
) -> None:
    """Open a local web page: search a collection in any language, see hits in others, and a map of it.

    Works offline; needs the packages of the extra `demo`. Ctrl-C ends it.

        tmde demo path/to/model

        tmde demo path/to/model news.jsonl --label-field topic

        tmde demo news.index
    """
    from modeling_tmde.cli.demo_page import demo_page, launch_page  # needs gradio and plotly

    try:
        socket.create_server((host, port or 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:  # before minutes of embedding
        raise ValueError(f"--host {host}, --port {port}: cannot listen there ({error.strerror})") from None
    model_name: str | None = model
    if os.path.exists(os.path.join(model, SETTINGS)):
        if collection is not None:
            raise ValueError(f"found the index {model} and {collection}, expected a model before a collection")
        model_name, collection = None, model
    with ExitStack() as stack, truncation_counted():
        if threading.current_thread() is threading.main_thread():  # a stopped container ends the page as Ctrl-C does
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        labels = label_field or []
        if collection is not None and os.path.exists(os.path.join(collection, SETTINGS)):
            index = DocumentIndex.open(collection)
            index.embedder = embedder_of_index(index, model_name, loading)
        else:
            if collection is None:
                documents = _sample()
            else:
                documents = read_file(collection, format, field, id_field, language_field, labels)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmde-demo-", ignore_cleanup_errors=True))
            embedder = load_embedder(model, **loading, long_documents="sentences")
            index = DocumentIndex.create(Path(folder) / "index", embedder)
            typer.echo(f"Embedding {len(documents[0]):,} documents ...", err=True)
            codes = [values.get("language") for values in documents[2]]
            index.upsert(*documents, language=None if None in codes else codes)
        name = SAMPLE if collection is None else "stdin" if collection == "-" else Path(collection).name
        labels = ["language" if each == language_field else each for each in labels]
        page = demo_page(draw_collection(index, name, labels, points, projection, seed))
        address = launch_page(page, host, port)
        stack.callback(page.close, verbose=False)
        if host not in ("127.0.0.1", "localhost", "::1"):
            typer.echo(f"Warning: --host {host}: others in the network can read the documents", err=True)
        typer.echo(f"The page is at {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        screen = sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if screen if open_browser is None else open_browser:
            webbrowser.open(address)
        try:
            while page.is_running:
                time.sleep(0.2)
        except KeyboardInterrupt:
            typer.echo("\nStopped", err=True)


def draw_collection(
    index: DocumentIndex,
    name: str,
    label_fields: Sequence[str] = (),
    points: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Collection:
    """What the page shows of an index.

    Args:
        index: With its embedder.
        name: What the page calls it.
        label_fields: Metadata that color the map besides `language`; none: all with 2 to 24 different values.
        points: Documents drawn at most; others are chosen by `seed`.
        method: See `map_collection`.
        seed: Of the choice, of the map and of the examples.

    Raises:
        ValueError: An empty index, or a label field that no document has.
    """
    ids = sorted(index)
    if not ids:
        raise ValueError(f"{name}: found an index without documents")
    ids = [ids[row] for row in drawn_rows(len(ids), points, seed)]
    typer.echo(f"Drawing a map of {len(ids):,} documents ...", err=True)
    drawn = index.documents(ids)
    names = list(dict.fromkeys(key for hit in drawn for key in hit.metadata))
    for wanted in label_fields:
        if wanted not in names:
            raise ValueError(f"{name}: no field {wanted!r}, found {names}; see --label-field")
    groups = {}
    for key in dict.fromkeys(["language", *(label_fields or names)]):
        values = [as_text(hit.metadata.get(key)) for hit in drawn]
        counts = Counter(value for value in values if value is not None)
        chosen = key in ("language", *label_fields) or (key != "title" and 2 <= len(counts) <= _MOST_GROUPS)
        if counts and chosen:
            few = len(counts) <= _MOST_GROUPS
            kept = {value for value, _ in counts.most_common(None if few else _MOST_GROUPS - 1)}
            groups[key] = [NOTHING if value is None else value if value in kept else OTHERS for value in values]
    codes = {as_text(code) for code in index.values("language")}
    languages = sorted(codes, key=lambda code: (code is None, code or "")) if codes != {None} else []
    model = str(index.embedder.model.name_or_path)
    model = Path(model).resolve().name if os.path.isdir(model) else model
    map = map_collection(index.vectors(ids), method, seed)
    return Collection(name, model, index, drawn, map, groups, languages, _examples(drawn, seed))


def as_text(value: Any) -> str | None:
    """A value of the metadata as the page shows it."""
    value = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
    return None if value is None or value == "" else str(value)


def _sample() -> tuple[list[str], list[str], list[Mapping[str, Any]]]:
    rows = list(sample_documents(_SAMPLE_DOCUMENTS))
    metadata = [{"language": row["language"], "label": as_text(row["label"])} for row in rows]
    return [f"{row['doc_id']} ({row['language']})" for row in rows], [row["text"] for row in rows], metadata


def read_file(
    source: str,
    format: InputFormat | None,
    field: str | None,
    id_field: str | None,
    language_field: str | None,
    label_fields: Sequence[str],
) -> tuple[list[str], list[str], list[Mapping[str, Any]]]:
    """Ids, texts and metadata of the documents that are not empty."""
    columns = {language_field or "language": "language", "title": "title"}
    columns |= {name: columns.get(name, name) for name in label_fields or ["label"]}
    documents = read_document_set(source, format, field, id_field, list(columns))
    for option, names in (("--language-field", [language_field]), ("--label-field", label_fields)):
        for name in filter(None, names):
            documents.values(name, option)  # raises if it is not there
    there = documents.columns.column_names
    found = {shown: documents.columns[name].to_pylist() for name, shown in columns.items() if name in there}
    rows = documents.filled()
    if len(rows) < len(documents):
        typer.echo(f"{len(documents) - len(rows):,} empty documents left out", err=True)
    metadata = [{shown: as_text(values[row]) for shown, values in found.items()} for row in rows]
    return [documents.ids[row] for row in rows], [documents.texts[row] for row in rows], metadata


def _examples(drawn: Sequence[Hit], seed: int) -> list[tuple[str, str]]:
    """A sentence of a document in each of several languages, (language, sentence)."""
    by_language: dict[str, list[Hit]] = {}
    for hit in drawn:
        if code := as_text(hit.metadata.get("language")):
            by_language.setdefault(code, []).append(hit)
    rng, examples = random.Random(seed), []
    for code in sorted(by_language)[:5]:
        for hit in rng.sample(by_language[code], min(20, len(by_language[code]))):
            if fitting := [text for text in split_sentences(hit.text[:2000], code) if 25 <= len(text) <= 140]:
                examples.append((code, " ".join(max(fitting, key=len).split())))
                break
    return examples
