"""The last net under every command: what no command foresaw ends in one sentence, unless it is a defect of ours."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from typer.core import TyperGroup

from modeling_tmde.data.documents import EmbedError

# Extras of setup.cfg by the modules that they bring; their commands import them when they run.
EXTRAS = {
    "faiss": "eval",
    "gradio": "demo",
    "plotly": "demo",
    "matplotlib": "figures",
    "mteb": "mteb",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "ray": "ray",
    "sentence_transformers": "sentence-transformers",
}
_OURS = "modeling_tmde"
_REPORT = "This is a defect of tmde, not a mistake of yours: please report it, with the lines above and the command."


class CommandGroup(TyperGroup):
    """A group of commands whose mistakes are told in one sentence."""

    def invoke(self, ctx: typer.Context) -> object:
        with told_mistakes():
            return super().invoke(ctx)


@contextmanager
def told_mistakes() -> Iterator[None]:
    """Turns what `sentence` knows into `Error: ...` and exit code 1, and an interruption into exit code 130.

    A pipe whose reader is gone (`| head -1`) is left to typer, which ends the command silently.
    """
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Interrupted", err=True)
        raise typer.Exit(130) from None
    except Exception as error:
        text = sentence(error)
        if text is None:
            raise
        typer.echo(f"Error: {text}", err=True)
        raise typer.Exit(1) from None


def sentence(error: Exception) -> str | None:
    """What to tell of an error that the user or the machine caused; None of a defect, and where a command ends."""
    if isinstance(error, EmbedError):
        return str(error)
    if isinstance(error, ImportError):
        return _missing_package(error)
    if isinstance(error, OSError):
        return None if error.errno == errno.EPIPE else _failed_file(error)
    if (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    ):  # that of torch, not imported here
        return f"out of memory: give smaller batches or fewer documents at once. {error}".strip()
    if type(error).__name__ == "SafetensorError":
        return f"found weights (.safetensors) that are damaged or cut off ({error}); copy or download them again"
    return None


def _missing_package(error: ImportError) -> str | None:
    name = (error.name or "").partition(".")[0]
    if name == _OURS:  # a module of ours that is not there is a defect
        return None
    if name in EXTRAS:
        return f"this needs {name}, which is not installed: pip install 'tmde[{EXTRAS[name]}]'"
    if name and isinstance(error, ModuleNotFoundError):
        return f"the package {name} is missing, which tmde needs: pip install tmde"
    return str(error) or None


def _failed_file(error: OSError) -> str:
    if error.strerror is None:  # of huggingface_hub and transformers: a sentence
        return str(error)
    place = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    hint = {
        errno.ENOSPC: "; free some space, or choose another place for what is written",
        errno.EDQUOT: "; free some space, or choose another place for what is written",
        errno.EACCES: "; choose another place, or ask for the right to it",
        errno.EPERM: "; choose another place, or ask for the right to it",
        errno.EROFS: "; choose another place for what is written",
    }.get(error.errno, "")
    return f"{place}{error.strerror}{hint}"


def run_told(app: typer.Typer) -> int:
    """Runs the command line, and returns its exit code.

    A defect keeps its traceback, with a line that asks to report it. The code is 0 only if all that was printed has
    arrived: the last of it reaches a full disk at the very end.
    """
    code = 0
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # of the help itself, or a defect
        text, code = sentence(error), 1
        if text is None:
            traceback.print_exc()
        typer.echo(_REPORT if text is None else f"Error: {text}", err=True)
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        if error.errno != errno.EPIPE:
            typer.echo(f"Error: what was printed could not be written: {_failed_file(error)}", err=True)
        return code or 1
    return code


def _discard_output() -> None:
    """Else the interpreter tries to write it once more, and fails with a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
