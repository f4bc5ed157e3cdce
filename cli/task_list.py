"""The list that `tmde eval tasks` prints."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from tmde.eval.tasks import GROUPS, TASKS, Task

HEADER = ("task", "what it measures", "languages", "data")

Line = tuple[str, str, str, str]  # the texts on a task, in the order of the header


def print_tasks() -> None:
    """Print all tasks and groups of tasks; no text is cut, however narrow the terminal is."""
    lines = [_describe(task) for _, task in sorted(TASKS.items())]
    lines += [_describe_group(name) for name in GROUPS]
    if is_terminal():
        console = Console()
        for line in lines:
            _print_block(console, line)
        return
    for line in (HEADER, *lines):
        typer.echo("\t".join(line))


def is_terminal() -> bool:
    """Return whether the list is read on a screen, and not by a program or in a file."""
    return sys.stdout.isatty()


def _describe(task: type[Task]) -> Line:
    languages = " ".join(task.languages) or "those of the data"
    return task.name, task.description, languages, _data_of(task)


def _data_of(task: type[Task]) -> str:
    """Return where the data of a task come from, or what must be provided."""
    if task.default_source is None:
        return f"yours: {task.needs}"
    if "/" in task.default_source:
        return f"Hub: {task.default_source}"
    return "built in"


def _describe_group(name: str) -> Line:
    members = GROUPS[name]
    _, _, languages, data = _describe(TASKS[members[0]])
    return name, f"{len(members)} tasks: {' '.join(members)}", languages, data


def _print_block(console: Console, line: Line) -> None:
    """Print a task as a paragraph."""
    console.print(f"[bold]{escape(line[0])}[/bold]", overflow="fold")
    for title, text in zip(HEADER[1:], line[1:], strict=True):
        console.print(f"  {title}: {escape(text)}", overflow="fold", highlight=False)
