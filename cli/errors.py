"""Top-level error handler of the `tmde` command.

Commands raise `TmdeError` (or `OSError`) for what the user can set right, with one sentence that names the file, row,
field or option, the value found and the value expected. The handler prints it; the exit code is 1. Wrong usage of
the command line itself (an unknown option, a number out of range) is typer's, with exit code 2. Set
`TMDE_TRACEBACK=1` for the whole traceback.
"""

import os
import re
from importlib.metadata import requires

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """A group of commands that end with one sentence on stderr when the user or the machine caused the error."""

    def invoke(self, ctx: typer.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Interrupted", err=True)
            raise typer.Exit(130) from None
        except Exception as error:
            message = describe_error(error)
            if message is None or os.environ.get("TMDE_TRACEBACK"):
                raise
            typer.echo(f"Error: {message}", err=True)
            raise typer.Exit(1) from None


def describe_error(error: Exception) -> str | None:
    """One sentence for an error that the user or the machine caused; None for a defect of tmde."""
    kinds = {
        base.__name__ for base in type(error).__mro__
    }  # without importing the packages that define them
    if isinstance(error, BrokenPipeError):  # `| head -1`: typer ends silently
        return None
    if isinstance(error, ImportError):
        name = (error.name or "").partition(".")[0]
        extra = re.compile(rf"{name.replace('_', '-')}\b.*extra == .(?!dev)([\w-]+)")
        extras = (
            [found[1] for line in requires("tmde") if (found := extra.match(line))] if name else []
        )
        return (
            f"this needs {name}, which is not installed: pip install 'tmde[{extras[-1]}]'"
            if extras
            else None
        )
    if isinstance(error, OSError) and error.strerror is not None:
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "there is a file on this path, expected a folder" if no_folder else error.strerror
        return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"
    if not kinds.isdisjoint(("MemoryError", "OutOfMemoryError")):
        return f"out of memory: give less at once (--batch-tokens, --max-length), or --device cpu. {error}".strip()
    if not kinds.isdisjoint(("TmdeError", "HFValidationError")):
        return str(error)
    if "SafetensorError" in kinds or re.search(
        "inline_container|iostream|os error (5|28|30)", str(error)
    ):
        return f"a file is damaged or cut off, or cannot be written to a full disk ({error})"  # of torch, Rust
    if "DistError" in kinds or "/gloo/" in str(error):
        return f"another process of this run has ended: see its message, and start all of them again ({error})"
    return (
        None if kinds.isdisjoint(("OSError", "StrictDataclassError", "YAMLError")) else str(error)
    )
