"""Correlations of probing tasks with other tasks, over encoders (Conneau, 2019, figure 3.11)."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from modeling_tmde import TmdeError
from tmde.eval.markdown import markdown_escape, markdown_table
from tmde.eval.results import TaskResult, mean_value
from tmde.eval.statistics import check_conditions, holm
from tmde.eval.tasks import GROUPS

Method = Literal["spearman", "pearson"]

SIGNIFICANCE_LEVEL = 0.05
FEWEST_SYSTEMS = 4  # Three systems have six orders, so that no p-value is below 1/6.
PERMUTATIONS = 99_999
_MAX_ENUMERATED = 8  # All orders of so many systems, 40,320, are counted and not sampled.
_ROUNDING = 1e-9  # Correlations that differ less are equal but for rounding.

# Settings that may differ between the results of a task: how a system makes vectors, what was
# measured on the folds, and random draws. A draw of other test items shows in their ids.
_NOT_COMPARED = {"system", "folds", "seed", "seeds", "bootstrap_samples"}


@dataclass(frozen=True)
class Correlation:
    """The correlation of the results of two tasks over systems.

    Attributes:
        probing_task: The probing task.
        task: The other task.
        value: The correlation; NaN if all systems are equal on one of the tasks.
        p: The two-sided p-value of a permutation test, not corrected; NaN as `value`.
        corrected_p: The p-value corrected by Holm's method for the number of pairs of tasks.
    """

    probing_task: str
    task: str
    value: float
    p: float
    corrected_p: float


@dataclass(frozen=True)
class TaskCorrelations:
    """The correlations of all probing tasks with all other tasks.

    Attributes:
        method: `spearman` or `pearson`.
        systems: The systems that have all tasks, in the order of their first results.
        left_out: The tasks that each other system lacks.
        correlations: By probing task, then by other task.
    """

    method: Method
    systems: list[str]
    left_out: dict[str, list[str]]
    correlations: list[Correlation]

    @property
    def tested_pairs(self) -> int:
        """The number of pairs of tasks that have a p-value."""
        return sum(not math.isnan(correlation.p) for correlation in self.correlations)

    @property
    def smallest_p(self) -> float:
        """The smallest corrected p-value that so many systems can reach on so many pairs."""
        return min(1.0, self.tested_pairs * smallest_p_value(len(self.systems), self.method))


def correlate_tasks(
    results: Sequence[TaskResult],
    method: Method = "spearman",
    seed: int = 0,
    tasks: Sequence[str] | None = None,
) -> TaskCorrelations:
    """Correlate probing results with the results of other tasks across systems.

    The result of a task is the mean over its cells. Baselines without fixed-length vectors, such as
    TF-IDF, are excluded. Repeated results count once.

    Args:
        results: The results of several systems on the same tasks.
        method: `spearman` for rank correlations, as in Conneau (2019), or `pearson`.
        seed: The seed of the permutations. With up to eight systems, all permutations are used.
        tasks: The tasks and groups of tasks to correlate; None for all.

    Returns:
        The correlations across the systems evaluated on all tasks.

    Raises:
        TmdeError: A task has no results, there is no probing task or no other one, fewer than four
            systems have all tasks, or results of a task or system are inconsistent.
    """
    if tasks is not None:
        results = _select_tasks(results, tasks)
    embedders = [result for result in results if result.dense]
    _check_conditions(embedders)
    values = _values_by_system(embedders)
    probing_tasks, other_tasks = _split_tasks(embedders)
    systems, left_out = _complete_systems(values, [*probing_tasks, *other_tasks])
    probing_scores = _scores(values, systems, probing_tasks, method)
    other_scores = _scores(values, systems, other_tasks, method)
    coefficients = probing_scores @ other_scores.T  # (probing tasks, other tasks)
    p_values = permutation_p_values(probing_scores, other_scores, seed)
    correlations = []
    for row, probing_task in enumerate(probing_tasks):
        for column, task in enumerate(other_tasks):
            value = float(coefficients[row, column])
            p = float(p_values[row, column])
            correlations.append(Correlation(probing_task, task, value, p, math.nan))
    return TaskCorrelations(method, systems, left_out, _with_corrected_p(correlations))


def _with_corrected_p(correlations: Sequence[Correlation]) -> list[Correlation]:
    """Correct the p-values for the number of correlations that exist."""
    defined = [correlation for correlation in correlations if not math.isnan(correlation.p)]
    corrected = iter(holm([correlation.p for correlation in defined]))
    completed = []
    for correlation in correlations:
        if not math.isnan(correlation.p):
            correlation = replace(correlation, corrected_p=next(corrected))
        completed.append(correlation)
    return completed


# ---- Results of systems


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


def _is_probing(task: str) -> bool:
    """Return whether a task probes; a task of several files is called `probing_sentlen/FILE`."""
    name, _, _ = task.partition("/")
    return name in GROUPS["probing"]


def _split_tasks(results: Sequence[TaskResult]) -> tuple[list[str], list[str]]:
    """Return the probing tasks and the other ones, in the order of their first results."""
    tasks = list(dict.fromkeys(result.task for result in results))
    probing_tasks = [task for task in tasks if _is_probing(task)]
    other_tasks = [task for task in tasks if not _is_probing(task)]
    listed = ", ".join(tasks) or "none"
    if not probing_tasks:
        raise TmdeError(
            f"Found no probing task among the tasks {listed}; expected at least one, such as "
            f"{GROUPS['probing'][0]} (tmde eval --tasks probing=FOLDER)"
        )
    if not other_tasks:
        raise TmdeError(
            f"Found only probing tasks ({listed}); expected another task to correlate them with, "
            "such as those of senteval"
        )
    return probing_tasks, other_tasks


def _check_conditions(results: Sequence[TaskResult]) -> None:
    """Check that the results of each task were measured on the same items with the same settings.

    Raises:
        TmdeError: Two results differ.
    """
    first_results: dict[str, TaskResult] = {}
    for result in results:
        first = first_results.setdefault(result.task, result)
        check_conditions(first, result, _NOT_COMPARED)
        if _test_items(first) != _test_items(result):
            raise TmdeError(
                f"{result.task}: {first.system} and {result.system} were not tested on the "
                "same items. Evaluate all systems with the same options."
            )


def _test_items(result: TaskResult) -> dict[tuple[str, str], list[str]]:
    """Return the sorted ids of the test items, by pair of languages."""
    return {cell.pair: sorted(cell.ids) for cell in result.cells}


def _values_by_system(results: Sequence[TaskResult]) -> dict[str, dict[str, float]]:
    """Return the mean of the cells of each task, by system and task.

    Raises:
        TmdeError: Two models have one name, or a system has two values on a task.
    """
    values: dict[str, dict[str, float]] = {}
    fingerprints: dict[str, str] = {}
    for result in results:
        fingerprint = fingerprints.setdefault(result.system, result.system_fingerprint)
        if result.system_fingerprint != fingerprint:
            raise TmdeError(
                f"Found two models called {result.system!r}; evaluate each under its own "
                "name: tmde eval NAME=PATH"
            )
        value = mean_value(result.cells)
        tasks = values.setdefault(result.system, {})
        first_value = tasks.setdefault(result.task, value)
        if not math.isclose(value, first_value, abs_tol=_ROUNDING):
            raise TmdeError(
                f"{result.task}: found {first_value:.4f} and {value:.4f} for {result.system}, "
                "expected one result; remove one of the evaluations"
            )
    return values


def _complete_systems(
    values: dict[str, dict[str, float]], tasks: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the systems that have all tasks, and what the others lack.

    Raises:
        TmdeError: There are too few.
    """
    systems = []
    left_out = {}
    for system, measured in values.items():
        missing = [task for task in tasks if task not in measured]
        if missing:
            left_out[system] = missing
        else:
            systems.append(system)
    if len(systems) < FEWEST_SYSTEMS:
        lacks = [f"{system} lacks {', '.join(missing)}" for system, missing in left_out.items()]
        raise TmdeError(
            f"Found {len(systems)} systems evaluated on all of {', '.join(tasks)}; expected "
            f"at least {FEWEST_SYSTEMS}. Evaluate more systems, or select fewer tasks "
            f"({'; '.join(lacks) or 'no system was left out'})"
        )
    return systems, left_out


# ---- Correlations


def _scores(
    values: dict[str, dict[str, float]],
    systems: Sequence[str],
    tasks: Sequence[str],
    method: Method,
) -> np.ndarray:
    """Return the results, or their ranks, with mean 0 and length 1: (tasks, systems).

    A task on which all systems are equal is a row of NaN.
    """
    rows = np.array([[values[system][task] for system in systems] for task in tasks])
    # Equal results may differ by rounding.
    rows = rows.round(12)
    if method == "spearman":
        rows = stats.rankdata(rows, axis=1)
    centered = rows - rows.mean(axis=1, keepdims=True)
    is_constant = np.ptp(rows, axis=1) == 0
    lengths = np.linalg.norm(centered, axis=1)
    lengths[is_constant] = math.nan
    return centered / lengths[:, None]


def smallest_p_value(systems: int, method: Method) -> float:
    """Return the smallest p-value of one correlation that the permutation test can give.

    Only the order of equal results can be as extreme as a correlation of 1, and, of ranks, the
    reversed order too. So four systems cannot be significant by rank: 2 of 24 orders are 0.083.

    Args:
        systems: The number of systems.
        method: `spearman` or `pearson`.
    """
    if systems > _MAX_ENUMERATED:
        return 1 / (PERMUTATIONS + 1)
    extreme_orders = 2 if method == "spearman" else 1
    return extreme_orders / math.factorial(systems)


def permutation_p_values(first: np.ndarray, second: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return two-sided p-values of correlations: how often chance alone gives as large a one.

    The systems of the second rows are put into all orders, if there are at most eight, or else into
    99,999 random ones, to which the one that was found is added.

    Args:
        first: Rows with mean 0 and length 1, (n, systems).
        second: Rows with mean 0 and length 1, (m, systems).
        seed: Seed of the random orders.

    Returns:
        (n, m) p-values, NaN for rows of NaN.
    """
    count = first.shape[1]
    if count <= _MAX_ENUMERATED:
        orders = np.array(list(itertools.permutations(range(count))))
    else:
        generator = np.random.default_rng(seed)
        orders = generator.permuted(np.tile(np.arange(count), (PERMUTATIONS, 1)), axis=1)
        orders = np.concatenate([orders, np.arange(count)[None]])
    p_values = np.empty((len(first), len(second)))
    for column, row in enumerate(second):
        observed = np.abs(first @ row)  # (n,)
        by_chance = np.abs(row[orders] @ first.T)  # (orders, n)
        p_values[:, column] = (by_chance >= observed - _ROUNDING).mean(axis=0)
        p_values[np.isnan(observed), column] = math.nan
    return p_values


# ---- Texts


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


def correlations_tsv(correlated: TaskCorrelations) -> str:
    """Return a line for each pair of tasks; numbers that do not exist are empty."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["probing_task", "task", "systems", "correlation", "p", "corrected_p"])
    for correlation in correlated.correlations:
        numbers = [correlation.value, correlation.p, correlation.corrected_p]
        shown = ["" if math.isnan(number) else f"{number:.6g}" for number in numbers]
        writer.writerow(
            [correlation.probing_task, correlation.task, len(correlated.systems), *shown]
        )
    return text.getvalue()
