"""The work of `tmde eval correlate`: reads stored results, prints and writes correlations."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from modeling_tmde import TmdeError
from tmde.data.io import write_atomically
from tmde.eval.correlations import Correlation, Method, TaskCorrelations, correlate_tasks
from tmde.eval.markdown import markdown_escape, markdown_table
from tmde.eval.results import TaskResult, read_results
from tmde.eval.tasks import GROUPS

SIGNIFICANCE_LEVEL = 0.05
COLUMNS = ("probing_task", "task", "systems", "correlation", "p", "corrected_p")


def correlate_stored_results(
    folders: Sequence[str], tasks: Sequence[str] | None, method: Method, output: Path | None
) -> None:
    """Print the correlations of probing tasks with other tasks, and write them if asked to.

    Args:
        folders: Folders of evaluations.
        tasks: The tasks and groups to correlate; None for all.
        method: `spearman` or `pearson`.
        output: A TSV file to write; None for none.

    Raises:
        TmdeError: A folder holds no evaluation, a task is in none of them, or the results cannot be
            correlated.
    """
    results: list[TaskResult] = []
    for folder in folders:
        results += read_results(folder)
    if tasks is not None:
        results = _select_tasks(results, tasks)
    correlated = correlate_tasks(results, method)
    Console().print(Markdown(correlations_markdown(correlated)))
    if output is not None:
        write_atomically(output, _tsv(correlated))


def _select_tasks(results: Sequence[TaskResult], names: Sequence[str]) -> list[TaskResult]:
    """Return the results of the named tasks and groups.

    Raises:
        TmdeError: A name selects no result.
    """
    selected_tasks = set()
    for name in names:
        members = GROUPS.get(name, [name])
        matching = {result.task for result in results if _is_one_of(result.task, members)}
        if not matching:
            listed = ", ".join(dict.fromkeys(result.task for result in results))
            raise TmdeError(f"--tasks: found no result of {name!r}, expected one of {listed}")
        selected_tasks |= matching
    return [result for result in results if result.task in selected_tasks]


def _is_one_of(task: str, names: Sequence[str]) -> bool:
    """Return whether a task has one of the names; `probing_sentlen/FILE` is a `probing_sentlen`."""
    name, _, _ = task.partition("/")
    return task in names or name in names


def correlations_markdown(correlated: TaskCorrelations) -> str:
    """Return a table with a row for each probing task and a column for each other task."""
    rows: dict[str, list[str]] = {}
    titles: dict[str, None] = {}  # a set in the order of insertion
    for correlation in correlated.correlations:
        titles[correlation.task] = None
        row = rows.setdefault(correlation.probing_task, [markdown_escape(correlation.probing_task)])
        row.append(_cell_text(correlation))
    table = markdown_table(["", *map(markdown_escape, titles)], list(rows.values()))
    pairs = "1 pair" if correlated.tested_pairs == 1 else f"{correlated.tested_pairs} pairs"
    system_count = len(correlated.systems)
    note = (
        f"{correlated.method.capitalize()} correlation over {system_count} systems "
        f"({', '.join(correlated.systems)}). In brackets: p of a permutation test, corrected by "
        f"Holm's method for {pairs} of tasks."
    )
    blocks = ["\n".join(table), markdown_escape(note)]
    if correlated.tested_pairs:
        limit = (
            f"The smallest p that {system_count} systems can reach, after correction for {pairs}, "
            f"is {correlated.smallest_p:.2g}."
        )
        if correlated.smallest_p >= SIGNIFICANCE_LEVEL:
            limit += (
                f" No correlation can be significant at {SIGNIFICANCE_LEVEL}: measure more systems "
                "or name fewer tasks (--tasks)."
            )
        blocks.append(markdown_escape(limit))
    for system, missing in correlated.left_out.items():
        left_out = f"{system} is left out, because it lacks {', '.join(missing)}."
        blocks.append(f"**Note:** {markdown_escape(left_out)}")
    return "\n\n".join(blocks) + "\n"


def _cell_text(correlation: Correlation) -> str:
    """Return a text such as `+0.83 (0.004)`."""
    if math.isnan(correlation.value):
        return "–"
    return f"{correlation.value:+.2f} ({correlation.corrected_p:.2g})"


def _tsv(correlated: TaskCorrelations) -> str:
    """Return a line for each pair of tasks; numbers that do not exist are empty."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    for correlation in correlated.correlations:
        numbers = [correlation.value, correlation.p, correlation.corrected_p]
        shown = ["" if math.isnan(number) else f"{number:.6g}" for number in numbers]
        writer.writerow(
            [correlation.probing_task, correlation.task, len(correlated.systems), *shown]
        )
    return text.getvalue()
