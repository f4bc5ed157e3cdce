"""Top-level error handler of the `tmde` command.

What the user can fix ends with one sentence on stderr and exit code 1: a `TmdeError`, which
names the file, row, field or option, the value found and the value expected; an `OSError`; a
missing package; too little memory. Anything else is a defect of tmde and keeps its traceback. Wrong
usage of the command line itself (an unknown option, a number out of range) is typer's, with exit
code 2. Set `TMDE_TRACEBACK=1` to see every traceback.
"""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

import tmde

# Errors are recognized by their class names: importing the packages that define them takes
# seconds, and the code of a checkpoint (`trust_remote_code`) has a `TmdeError` of its own.
_USER_ERRORS = {"TmdeError", "OptionError"}
_MEMORY_ERRORS = {"MemoryError", "OutOfMemoryError"}
_DISTRIBUTED_ERRORS = {"DistError"}
_FILE_ERRORS = {"SafetensorError"}
# The extra that is proposed for a package of several extras.
_USUAL_EXTRAS = {"lancedb": "search", "matplotlib": "figures"}
# How torch and the Rust libraries (tokenizers, safetensors) word a file that they cannot read or
# write. 5 is an error of the device, 28 a full disk, 30 a file system that is read-only.
_FILE_MESSAGES = re.compile(r"inline_container|iostream|os error (5|28|30)")


class OptionError(ValueError):
    """Options that contradict each other, found before anything heavy is imported.

    Importing `TmdeError` means importing torch.
    """


class CommandGroup(TyperGroup):
    """A group of commands that end with one sentence if the user or the machine caused an error."""

    def invoke(self, ctx: Any) -> object:  # noqa: ANN401 - typer does not export click's class
        """Run the requested command, and report its errors."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            # An interrupted run of training says what is saved, and which signal it was.
            typer.echo(str(interruption) or "Interrupted", err=True)
            raise typer.Exit(getattr(interruption, "exit_code", 130)) from None
        except Exception as error:
            # Python's own locks raise a RuntimeError if Ctrl-C interrupts the start of a thread.
            follows_ctrl_c = isinstance(error.__context__, KeyboardInterrupt)
            if follows_ctrl_c and isinstance(error, RuntimeError):
                typer.echo("Interrupted", err=True)
                raise typer.Exit(130) from None
            message = describe_error(error, ctx.invoked_subcommand)
            if message is None or os.environ.get("TMDE_TRACEBACK"):
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand)
            typer.echo(f"Error: {with_option_names(message, command)}", err=True)
            raise typer.Exit(1) from None


def with_option_names(message: str, command: Any) -> str:
    """Return a message of the library with options in place of the arguments of a function.

    These have the same names: `min_probability` is `--min-probability`. A plain word such as
    `share` is replaced only in `share: found 2` and `share=2`. Arguments with Python values, as in
    `columns={"de": "Source"}`, are unchanged, except for `overwrite=True`: `--overwrite`.

    Args:
        message: The message.
        command: The command that was called.
    """
    for parameter in getattr(command, "params", ()):
        option = "--" + parameter.name.replace("_", "-")
        if option not in parameter.opts:
            continue
        message = re.sub(rf"(?<![\w./-]){parameter.name}=True\b", option, message)
        if "_" in parameter.name:
            pattern = rf"(?<![\w./-]){parameter.name}\b(?!=[\[{{\"'])"
        else:
            pattern = rf"(?<![\w./-]){parameter.name}(?=: found|=\w)"
        message = re.sub(pattern, option, message)
    return message


def describe_error(error: Exception, command: str | None = None) -> str | None:
    """Return a sentence for what the user or the machine caused; None for a defect of tmde.

    Args:
        error: What a command has raised.
        command: The name of the command.
    """
    if isinstance(error, BrokenPipeError):
        return None  # The reader of the output has enough (`| head -1`): typer ends silently.
    if isinstance(error, ImportError):
        return _describe_missing_package(error, command)
    class_names = {base.__name__ for base in type(error).__mro__}
    if class_names & _USER_ERRORS:
        return str(error)
    if isinstance(error, OSError):
        return _describe_os_error(error)
    return _describe_library_error(class_names, str(error))


def _describe_missing_package(error: ImportError, command: str | None) -> str | None:
    """Return how to install the extra of tmde that a package belongs to; None if there is none.

    Of several extras with the package, the one of the command's name is proposed: `tmde demo` needs
    the extra `demo`, `tmde index` needs `search`.
    """
    from importlib.metadata import requires

    if not error.name:
        return None
    package = error.name.partition(".")[0]
    requirement_of_extra = re.compile(
        rf"(?P<name>{package.replace('_', '-')}\b[\w.-]*).*extra == ['\"](?P<extra>[\w-]+)['\"]"
    )
    extras = []
    for requirement in requires("tmde") or ():
        match = requirement_of_extra.match(requirement)
        if match and match["extra"] != "dev":
            extras.append(match["extra"])
            package = match["name"]
    if not extras:
        return None
    extra = _USUAL_EXTRAS.get(package, extras[0])
    if command is not None and command in extras:
        extra = command
    return f"this needs {package}, which is not installed: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of tmde.

    In a clone it pins the tested versions: without them pip may load gigabytes of CUDA libraries.
    """
    root = Path(tmde.__file__).resolve().parents[1]
    if not (root / "constraints.txt").is_file() or not (root / "setup.cfg").is_file():
        return f"pip install 'tmde[{extra}]'"
    if root == Path.cwd().resolve():
        return f"pip install -c constraints.txt -e '.[{extra}]'"
    requirement = f"{root}[{extra}]"
    return (
        f"pip install -c {shlex.quote(str(root / 'constraints.txt'))} -e {shlex.quote(requirement)}"
    )


def _describe_os_error(error: OSError) -> str:
    """Return the file and the reason of the system, or the sentence of the library."""
    if error.strerror is None:
        return str(error)
    reason = error.strerror
    if isinstance(error, FileExistsError | NotADirectoryError):
        reason = "found a file at this path, expected a folder"
    if error.filename is None:
        return reason
    return f"{os.fsdecode(error.filename)}: {reason}"


def _describe_library_error(class_names: set[str], message: str) -> str | None:
    """Return a sentence for errors of memory, damaged files, full disks and other processes."""
    if class_names & _MEMORY_ERRORS:
        advice = "reduce --batch-tokens or --max-length, or use --device cpu"
        return f"out of memory: {advice}. {message}".strip()
    if class_names & _FILE_ERRORS or _FILE_MESSAGES.search(message):
        return f"a file is damaged or truncated, or the disk is full ({message})"
    if class_names & _DISTRIBUTED_ERRORS or "/gloo/" in message:
        advice = "see its message, then restart all processes"
        return f"another process of this run ended: {advice} ({message})"
    return None
