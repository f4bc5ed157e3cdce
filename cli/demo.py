"""`tmde demo`: a local web page to search a collection in any language and to see it as a map."""

import os
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from tmde.cli import options as common
from tmde.cli.declaration import command, keywords
from tmde.cli.models import suggest_accurate
from tmde.embedding.packaged_models import ACCURATE_MODEL


@dataclass(kw_only=True)
class DemoOptions(common.ModelOptions, common.InputOptions):
    """The options of `tmde demo`."""

    model: Annotated[
        str | None,
        Argument(help="Folder, Hub id or packaged model. Default: the index's, or `default`."),
    ] = None
    collection: Annotated[
        str | None,
        Argument(help="File or folder of documents, - for stdin, or an index. Default: a sample."),
    ] = None
    id_field: common.IdFieldOption = None
    label_field: Annotated[
        list[str] | None, Option(help="Field by which to color the map. Repeatable.")
    ] = None
    points: Annotated[
        int, Option(min=1, help="Maximum number of documents on the map, sampled if necessary.")
    ] = 5000
    projection: Annotated[
        Literal["tsne", "pca"] | None,
        Option(help="Projection of the map. Default: tsne, or pca beyond 5,000 points."),
    ] = None
    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 exposes the documents to the network.")
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        Option(min=1, max=65535, help="Port to listen on. Default: the first free one from 7860."),
    ] = None
    browser: Annotated[bool, Option(help="Open a browser if a display is available.")] = True


@command(DemoOptions)
def demo(options: DemoOptions) -> None:
    """Open a local web page to search a collection in any language and view it as a map.

    It works offline and requires the `demo` extra. Press Ctrl-C to stop it. A file is indexed in a
    temporary folder with all its fields, as with `tmde index`.

        tmde demo

        tmde demo news.jsonl --label-field topic

        tmde demo path/to/model news.jsonl

        tmde demo news.index
    """
    if options.collection is None and options.model is not None and is_collection(options.model):
        options.collection = options.model
        options.model = None
    common.check_model_name(options.model)
    common.check_languages_exclude(options.language, options.language_field)
    common.check_sources(options.collection)
    # The page needs gradio and plotly, packages of an extra.
    from tmde.cli.demo_collection import NAME, draw_collection
    from tmde.cli.demo_page import demo_page, launch_page
    from tmde.documents.file_indexing import open_index
    from tmde.embedding.opening import without_truncation_warnings

    is_sample = options.collection is None
    name = NAME if options.collection is None else Path(options.collection).name
    temporary = tempfile.TemporaryDirectory(prefix="tmde-demo-", ignore_cleanup_errors=True)
    with temporary as folder, _sigterm_as_interrupt(), without_truncation_warnings():
        index_folder = _find_or_make_index(options, Path(folder))
        index = open_index(index_folder, options.model, keywords(options, common.ModelOptions))
        collection = draw_collection(
            index,
            name,
            options.label_field or [],
            options.points,
            options.projection,
            is_sample,
        )
        page = demo_page(collection)
        address = launch_page(page, options.host, options.port)
        typer.echo(f"The page is at {address} (press Ctrl-C to stop)")
        suggest_accurate(index.model_name, _accurate_command(options, index_folder))
        if options.browser and _has_screen():
            webbrowser.open(address)
        page.block_thread()


def is_collection(source: str) -> bool:
    """Return whether an argument is a collection and no model: a file, an index or documents."""
    path = Path(source)
    if path.is_dir():
        return is_index(path) or not (path / "config.json").exists()
    return source == "-" or path.is_file()


def is_index(path: Path) -> bool:
    """Return whether a path is the folder of an index."""
    return (path / common.INDEX_SETTINGS).exists()


def _find_or_make_index(options: DemoOptions, folder: Path) -> Path:
    """Return the requested index, or build one from the documents in `folder`."""
    from tmde.cli.demo_collection import PASSAGES
    from tmde.documents.file_indexing import index_files

    documents = options.collection
    if documents is None:
        documents = str(PASSAGES)
    elif is_index(Path(documents)):
        return Path(documents)
    index_folder = folder / "index"
    report = index_files(
        documents,
        index_folder,
        model=options.model,
        id_field=options.id_field,
        loading=keywords(options, common.ModelOptions),
        **keywords(options, common.InputOptions),
    )
    for sentence in report.sentences():
        typer.echo(sentence, err=True)
    return index_folder


def _accurate_command(options: DemoOptions, index_folder: Path) -> str:
    """Return what shows the same collection with the `accurate` model."""
    if options.collection is None:
        return f"`tmde demo {ACCURATE_MODEL}`"
    if index_folder == Path(options.collection):
        return f"An index made by `tmde index ... -m {ACCURATE_MODEL}`"
    return f"`tmde demo {ACCURATE_MODEL} {options.collection}`"


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that temporary files are removed."""

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    earlier_handler = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)


def _has_screen() -> bool:
    return sys.platform in ("win32", "darwin") or "DISPLAY" in os.environ
