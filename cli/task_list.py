"""The list that `tmde eval tasks` prints."""

import sys
from dataclasses import astuple, dataclass

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tmde.eval.tasks import GROUPS, TASKS, Task

# A table of four columns is hard to read in a narrower terminal.
NARROWEST_TABLE = 90
HEADER = ("task", "what it measures", "languages", "data")


@dataclass(frozen=True)
class TaskLine:
    """The texts on one task.

    Attributes:
        name: The name for `--tasks`.
        description: What the task measures.
        languages: Its languages.
        data: Where its data come from, or what must be provided.
    """

    name: str
    description: str
    languages: str
    data: str


def print_tasks() -> None:
    """Print all tasks and groups of tasks; no text is cut, however narrow the terminal is."""
    lines = [_describe(task) for _, task in sorted(TASKS.items())]
    lines += [_describe_group(name) for name in GROUPS]
    console = Console()
    if not is_terminal():
        for texts in (HEADER, *map(astuple, lines)):
            typer.echo("\t".join(texts))
    elif console.width < NARROWEST_TABLE:
        for line in lines:
            _print_block(console, line)
    else:
        console.print(_table(lines))


def is_terminal() -> bool:
    """Return whether the list is read on a screen, and not by a program or in a file."""
    return sys.stdout.isatty()


def _describe(task: type[Task]) -> TaskLine:
    return TaskLine(
        name=task.name,
        description=task.description,
        languages=" ".join(task.languages) or "those of the data",
        data=_data_of(task),
    )


def _data_of(task: type[Task]) -> str:
    """Return where the data of a task come from."""
    if task.default_source is None:
        return f"yours: {task.needs}"
    if "/" in task.default_source:
        return f"Hub: {task.default_source}"
    return "built in"


def _describe_group(name: str) -> TaskLine:
    members = GROUPS[name]
    first_task = TASKS[members[0]]
    return TaskLine(
        name=name,
        description=f"{len(members)} tasks: {' '.join(members)}",
        languages=" ".join(first_task.languages) or "those of the data",
        data=_data_of(first_task),
    )


def _print_block(console: Console, line: TaskLine) -> None:
    """Print a task as a paragraph."""
    console.print(f"[bold]{escape(line.name)}[/bold]", overflow="fold")
    for title, text in zip(HEADER[1:], astuple(line)[1:], strict=True):
        console.print(f"  {title}: {escape(text)}", overflow="fold", highlight=False)


def _table(lines: list[TaskLine]) -> Table:
    table = Table()
    longest_name = max(len(line.name) for line in lines)
    table.add_column(HEADER[0], min_width=longest_name, no_wrap=True)
    for title in HEADER[1:]:
        table.add_column(title, overflow="fold")
    for line in lines:
        table.add_row(*map(escape, astuple(line)))
    return table
