"""`tmde demo`: a local web page on which a collection is searched in any language and looked at as a map."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modeling_tmde.cli.demo_collection import SAMPLE, Source, draw_collection, index_documents, open_index
from modeling_tmde.cli.embedder_options import (
    DeviceOption,
    DtypeOption,
    MaxLengthOption,
    PoolingOption,
    RevisionOption,
    TrustRemoteCodeOption,
)
from modeling_tmde.cli.search import told_errors
from modeling_tmde.data.documents import EmbedError, InputFormat

# torch, gradio, plotly and sklearn are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import gradio as gr


class Projection(str, Enum):
    tsne = "tsne"
    pca = "pca"


ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of a saved model, a Hub id, or an index.")]
CollectionArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="COLLECTION",
        help="File of documents (text, JSONL or parquet; - for stdin), or an index. Default: a built-in sample.",
        show_default=False,
    ),
]
FormatOption = Annotated[InputFormat | None, typer.Option(help="Default: by COLLECTION's suffix; text for stdin.")]
FieldOption = Annotated[str | None, typer.Option(help="JSONL field or parquet column of the text. Default: text.")]
IdFieldOption = Annotated[str | None, typer.Option(help="That of the id. Default: id if there is one.")]
LanguageFieldOption = Annotated[
    str | None, typer.Option(help="That of the language of each document. Default: language if there is one.")
]
LabelFieldOption = Annotated[
    list[str] | None,
    typer.Option(help="One that colours the map; repeatable. Default: label; all that can, of an index."),
]
PointsOption = Annotated[int, typer.Option(min=1, help="Documents on the map at most; more are sampled.")]
ProjectionOption = Annotated[
    Projection | None, typer.Option(help="Of the map. Default: tsne for up to 5,000 points, else pca.")
]
SeedOption = Annotated[int, typer.Option(help="Of the map, of its sample and of the example queries.")]
HostOption = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: every computer in the network.")]
PortOption = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Default: the first free one from 7860.", show_default=False),
]
OpenBrowserOption = Annotated[
    bool | None,
    typer.Option("--open/--no-browser", help="Default: open a browser where there is a screen.", show_default=False),
]


def demo(
    model: ModelArgument,
    collection: CollectionArgument = None,
    format: FormatOption = None,
    field: FieldOption = None,
    id_field: IdFieldOption = None,
    language_field: LanguageFieldOption = None,
    label_field: LabelFieldOption = None,
    points: PointsOption = 5000,
    projection: ProjectionOption = None,
    seed: SeedOption = 0,
    host: HostOption = "127.0.0.1",
    port: PortOption = None,
    open_browser: OpenBrowserOption = None,
    pooling: PoolingOption = None,
    max_length: MaxLengthOption = None,
    dtype: DtypeOption = None,
    device: DeviceOption = None,
    trust_remote_code: TrustRemoteCodeOption = False,
    revision: RevisionOption = None,
) -> None:
    """Open a local web page: search a collection in any language, see hits in others, and a map of it.

    Works without network; needs the packages of the extra `demo`. Ctrl-C ends it.

        tmde demo path/to/model

        tmde demo path/to/model news.jsonl --label-field topic

        tmde demo news.index
    """
    loading = {"pooling": pooling and pooling.value, "max_length": max_length, "revision": revision}
    loading = {name: value for name, value in loading.items() if value is not None}
    loading |= {"dtype": dtype and dtype.value, "trust_remote_code": trust_remote_code}
    source = Source(collection, format, field, id_field, language_field, tuple(label_field or ()))
    with ExitStack() as stack:
        _end_on_sigterm(stack)
        try:
            with told_errors(collection or model):
                page = _page(stack, model, source, device, loading, points, projection, seed, host, port)
                address = _start(stack, page, host, port)
        except (EmbedError, ImportError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("Interrupted", err=True)
            raise typer.Exit(130) from None
        try:
            if _has_screen() if open_browser is None else open_browser:
                webbrowser.open(address)
            while page.is_running:
                time.sleep(0.2)
        except KeyboardInterrupt:  # the way to end it
            typer.echo("\nStopped", err=True)


def _page(
    stack: ExitStack,
    model: str,
    source: Source,
    device: str | None,
    loading: dict[str, Any],
    points: int,
    projection: Projection | None,
    seed: int,
    host: str,
    port: int | None,
) -> gr.Blocks:
    """The page, not yet served; what is made for it goes with `stack`."""
    from modeling_tmde.cli.demo_page import check_packages, demo_page
    from modeling_tmde.documents.index_files import MANIFEST

    check_packages()
    check_port(host, port)
    name = source.name
    if os.path.exists(os.path.join(model, MANIFEST)):
        if name is not None:
            raise EmbedError(f"found the index {model} and {name}, expected a model before a collection, or an index")
        source, name, model = replace(source, name=model), model, None
    if name is not None and os.path.exists(os.path.join(name, MANIFEST)):
        index = open_index(source, model, device, loading)
    else:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tmde-demo-", ignore_cleanup_errors=True))
        index = index_documents(source, model, Path(folder) / "index", device, loading)
    shown = SAMPLE if name is None else "stdin" if name == "-" else Path(name).name
    embedded_by = str(index.embedder.model.name_or_path)
    if os.path.isdir(embedded_by):
        embedded_by = Path(embedded_by).resolve().name
    method = projection and projection.value
    return demo_page(draw_collection(index, shown, embedded_by, source.shown_labels, points, method, seed))


def check_port(host: str, port: int | None) -> None:
    """
    Raises:
        EmbedError: An address that is not of this computer, or a port that is in use.
    """
    try:
        kind, *_, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise EmbedError(f"--host: found {host!r}, expected an address of this computer ({error.strerror})") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EmbedError(
                f"--port {port}: is in use; give another one, or none for the first that is free"
            ) from None
        raise EmbedError(f"--host {host}: cannot be listened on at port {port} ({error.strerror})") from None


def _start(stack: ExitStack, page: gr.Blocks, host: str, port: int | None) -> str:
    """Serves the page until `stack` ends; returns its address."""
    from modeling_tmde.cli.demo_page import launch_page

    address = launch_page(page, host, port)
    stack.callback(page.close, verbose=False)
    if host not in ("127.0.0.1", "localhost", "::1"):
        typer.echo(
            f"Warning: --host {host}: others in the network can open the page, without a password, and read the "
            "documents",
            err=True,
        )
    typer.echo(f"The page is at {address} (Ctrl-C ends it)")
    sys.stdout.flush()
    return address


def _has_screen() -> bool:
    if sys.platform.startswith(("win", "darwin")):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _end_on_sigterm(stack: ExitStack) -> None:
    """A container that is stopped ends the page as Ctrl-C does, and the temporary files go."""

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, interrupt))
