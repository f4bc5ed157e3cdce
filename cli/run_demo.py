"""The work of `tmde demo`: a collection is indexed, drawn and served as a page."""

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
from typing import Any

import typer

from tmde.cli.demo_collection import NAME, PASSAGES, draw_collection
from tmde.cli.models import suggest_accurate
from tmde.cli.update_index import IndexJob, open_index, update_index
from tmde.data.documents import InputFormat
from tmde.documents.index_settings import SETTINGS
from tmde.embedding.opening import without_truncation_warnings
from tmde.embedding.packaged_models import ACCURATE_MODEL


@dataclass(frozen=True)
class DemoJob:
    """What `tmde demo` was asked for; the fields are its arguments and options.

    Attributes:
        collection: A file of documents, `-` for stdin, or an index; None for the passages that come
            with the package.
        loading: The arguments of `DocumentEmbedder.from_pretrained`.
    """

    model: str | None
    collection: str | None
    loading: dict[str, Any]
    format: InputFormat | None
    field: list[str] | None
    id_field: str | None
    language_field: str | None
    label_fields: list[str]
    points: int
    projection: str | None
    host: str
    port: int | None
    opens_browser: bool


def run_demo(job: DemoJob) -> None:
    """Serve the page of a collection until Ctrl-C.

    Raises:
        TmdeError: The collection, the model or an option cannot be used.
        ImportError: A package of the extra `demo` is missing.
    """
    # The page needs gradio and plotly, packages of an extra.
    from tmde.cli.demo_page import demo_page, launch_page

    is_sample = job.collection is None
    name = NAME if job.collection is None else Path(job.collection).name
    temporary = tempfile.TemporaryDirectory(prefix="tmde-demo-", ignore_cleanup_errors=True)
    with temporary as folder, _sigterm_as_interrupt(), without_truncation_warnings():
        index_folder = _find_or_make_index(job, Path(folder))
        index = open_index(index_folder, job.model, job.loading)
        collection = draw_collection(
            index, name, job.label_fields, job.points, job.projection, is_sample
        )
        page = demo_page(collection)
        address = launch_page(page, job.host, job.port)
        typer.echo(f"The page is at {address} (Ctrl-C ends it)")
        suggest_accurate(index.model_name, _accurate_command(job, index_folder))
        if job.opens_browser and _has_screen():
            webbrowser.open(address)
        page.block_thread()


def _accurate_command(job: DemoJob, index_folder: Path) -> str:
    """Return what shows the same collection by the model `accurate`."""
    if job.collection is None:
        return f"`tmde demo {ACCURATE_MODEL}`"
    if index_folder == Path(job.collection):
        return f"An index made by `tmde index ... -m {ACCURATE_MODEL}`"
    return f"`tmde demo {ACCURATE_MODEL} {job.collection}`"


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


def is_collection(source: str) -> bool:
    """Return whether an argument is a collection and no model: a file, an index or documents."""
    path = Path(source)
    if path.is_dir():
        return is_index(path) or not (path / "config.json").exists()
    return source == "-" or path.is_file()


def is_index(path: Path) -> bool:
    """Return whether a path is the folder of an index."""
    return (path / SETTINGS).exists()


def _find_or_make_index(job: DemoJob, folder: Path) -> Path:
    """Return the index that was asked for, or one of the documents that is made in `folder`."""
    if job.collection is None:
        documents = str(PASSAGES)
    elif is_index(Path(job.collection)):
        return Path(job.collection)
    else:
        documents = job.collection
    index_folder = folder / "index"
    index_job = IndexJob(
        folder=index_folder,
        documents=documents,
        model=job.model,
        loading=job.loading,
        quoting=None,
        format=job.format,
        field=job.field,
        id_field=job.id_field,
        language=None,
        language_field=job.language_field,
        delete=[],
        delete_file=None,
        prune=False,
    )
    update_index(index_job)
    return index_folder


def _has_screen() -> bool:
    return sys.platform in ("win32", "darwin") or "DISPLAY" in os.environ
