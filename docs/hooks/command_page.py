"""The reference of the commands, made from the command `tmde` itself."""

import inspect
import re
import textwrap
import typing
from pathlib import Path
from typing import Any

import typer

from tmde.cli.main import app

TYPE_NAMES = {str: "text", int: "integer", float: "number", bool: "", Path: "path"}


def commands_markdown() -> str:
    """Return a section for every command, under the headings of `tmde --help`."""
    main = typer.main.get_command(app)
    parts = []
    panel = None
    for name, command in main.commands.items():
        if command.rich_help_panel != panel:
            panel = command.rich_help_panel
            parts.append(f"## {panel}")
        parts.append(_command(f"tmde {name}", command, level=3))
        for child_name, child in getattr(command, "commands", {}).items():
            parts.append(_command(f"tmde {name} {child_name}", child, level=4))
    return "\n\n".join(parts) + "\n"


def _command(title: str, command: Any, level: int) -> str:  # noqa: ANN401 - typer exports no class
    """Return the section of a command: usage, help, arguments and options."""
    anchor = title.replace(" ", "-")
    parts = [f"{'#' * level} {title} {{ #{anchor} }}"]
    arguments = []
    options = []
    for parameter in command.params:
        if parameter.hidden or "completion" in parameter.name:
            continue
        if parameter.param_type_name == "argument":
            arguments.append(parameter)
        else:
            options.append(parameter)
    is_group = hasattr(command, "commands")
    if not is_group:
        words = [title, "[OPTIONS]" if options else ""]
        words += [_usage(argument) for argument in arguments]
        parts.append(f"```text\n{' '.join(word for word in words if word)}\n```")
    parts.append(help_markdown(command.help or ""))
    if arguments:
        parts.append(_table("argument", arguments))
    if options:
        parts.append(_table("option", options))
    return "\n\n".join(parts)


def _usage(argument: Any) -> str:  # noqa: ANN401
    name = argument.metavar or argument.name.upper()
    if not argument.required and not name.startswith("["):
        name = f"[{name}]"
    if argument.nargs == -1 and "..." not in name and " " not in name:
        name = f"{name}..."
    return name


def _argument_name(argument: Any) -> str:  # noqa: ANN401
    """Return the usage of an argument without the brackets and dots around a single name."""
    usage = _usage(argument)
    single_name = re.fullmatch(r"\[?([^\[\]. ]+)\]?(\.\.\.)?", usage)
    return single_name.group(1) if single_name else usage


def help_markdown(text: str) -> str:
    """Return a help text, with its indented examples as blocks of code."""
    text = inspect.cleandoc(text.replace("\b", ""))
    parts = []
    for paragraph in re.split(r"\n{2,}", text):
        if not paragraph.startswith("    "):
            parts.append(paragraph)
            continue
        # A long command goes on in a line that begins with an option.
        code = textwrap.dedent(paragraph).replace("\n--", " \\\n    --")
        language = "yaml" if code.partition("\n")[0].endswith(":") else "bash"
        if parts and parts[-1].startswith("```"):
            parts[-1] = parts[-1].removesuffix("\n```") + f"\n{code}\n```"
        else:
            parts.append(f"```{language}\n{code}\n```")
    return "\n\n".join(parts)


def _table(heading: str, parameters: list[Any]) -> str:
    lines = [f"| {heading} | value | default | description |", "|---|---|---|---|"]
    for parameter in parameters:
        if heading == "argument":
            names = f"`{_argument_name(parameter)}`"
        else:
            names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
        cells = [names, _kind(parameter), _default(parameter), parameter.help or ""]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _kind(parameter: Any) -> str:  # noqa: ANN401
    """Return what kind of value a parameter takes: a metavar, choices or a type."""
    if parameter.param_type_name == "option" and parameter.metavar:
        return f"`{parameter.metavar}`"
    annotation = parameter.type_descriptor.annotation
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if arguments:
        annotation = arguments[0]
    return TYPE_NAMES.get(annotation, "")


def _default(parameter: Any) -> str:  # noqa: ANN401
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or callable(value) or value == [] or value == ():
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"`{value}`"
