"""Differences between systems, and `tmde eval compare`, which finds their results in folders."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from modeling_tmde import TmdeError
from tmde.eval.report import differences_table
from tmde.eval.results import EVAL_NAME, TaskResult, read_results
from tmde.eval.statistics import compare


def compare_stored_results(a: str, b: str, each_cell: bool) -> None:
    """Print the differences of B from A.

    Args:
        a: A folder of an evaluation, or `FOLDER#SYSTEM`.
        b: Another one.
        each_cell: Also compare every cell.

    Raises:
        TmdeError: A folder or system is missing, or both have no task in common.
    """
    table = differences_markdown(_read_system(a), _read_system(b), each_cell=each_cell)
    if table is None:
        raise TmdeError(f"{a} and {b} have no task in common")
    Console().print(Markdown(table))


def differences_markdown(
    a: Sequence[TaskResult], b: Sequence[TaskResult], **options: Any
) -> str | None:
    """Return a table of the differences of system B from A on the tasks that they share.

    Args:
        a: The results of one system.
        b: The results of another one.
        options: Options of `tmde.eval.statistics.compare`.

    Returns:
        Markdown; None if they share no task.
    """
    first_results = {result.task: result for result in a}
    differences = []
    for result in b:
        if result.task in first_results:
            differences += compare(first_results[result.task], result, **options)
    if not differences:
        return None
    return differences_table(f"{b[0].system} - {a[0].system}", differences)


def _read_system(side: str) -> list[TaskResult]:
    """Read the results of one system, given as FOLDER or FOLDER#SYSTEM."""
    folder = side
    system = ""
    # The name of a folder may hold a # itself.
    if "#" in side and not Path(side, EVAL_NAME).exists():
        folder, _, system = side.rpartition("#")
    results = read_results(folder)
    names = list(dict.fromkeys(result.system for result in results))
    if system and system not in names:
        raise TmdeError(f"{folder}: found no system {system!r}, expected one of {', '.join(names)}")
    if not system and len(names) > 1:
        raise TmdeError(
            f"{folder} holds several systems ({', '.join(names)}); name one, such as "
            f"{folder}#{names[0]}"
        )
    return [result for result in results if not system or result.system == system]
