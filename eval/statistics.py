"""Confidence intervals, and tests of the difference of two systems on the same test items.

Test items that are translations of each other are one observation: they carry the same id in all
cells of a task and are resampled together (a cluster bootstrap). The same holds for the outcomes of
one item under several classifiers, and for the questions about one paragraph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from scipy import stats

from modeling_tmde import TmdeError
from tmde.eval.results import (
    Cell,
    TaskResult,
    group_cells,
    mean_value,
    pairs_of,
    pick_cells,
)

# The largest number of resampled values (samples x items) at a time: 32 MB.
_MAX_BATCH_VALUES = 4_000_000

# Differences of folds that vary less than this are equal but for rounding.
_ROUNDING = 1e-12

# The ends of a 95% interval.
_QUANTILES = [0.025, 0.975]

# From weights of items (samples, items) to the values of cells (samples, cells).
ValuesOfCells = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Difference:
    """The difference of system B from system A on one group of cells.

    Args:
        task: The name of the task.
        group: `Same`, `Cross`, `All`, or one cell, such as `en -> de`.
        a: The value of A.
        b: The value of B.
        difference: b - a.
        interval: The bootstrap confidence interval of the difference.
        p: The p-value of the two-sided approximate randomization test over items.
        fold_p: The p-value of the two-sided paired t-test over the ten folds of Li (2021, section
            4.6), for `Cross` only; None if they were not run.
    """

    task: str
    group: str
    a: float
    b: float
    difference: float
    interval: tuple[float, float]
    p: float
    fold_p: float | None


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of the paired t-test of Li (2021, section 4.6).

    The null hypothesis is that the means over the folds are equal. Pairs of folds share documents
    (train and test halves are exchanged), so their differences are not fully independent. The
    protocol is published this way.

    Args:
        a: The values of A, one per fold.
        b: The values of B, one per fold.
    """
    differences = np.subtract(b, a)
    if np.ptp(differences) < _ROUNDING:
        # Without variance, t is 0 / 0 or infinite.
        are_equal = abs(differences[0]) < _ROUNDING
        return float(are_equal)
    return float(stats.ttest_rel(b, a).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the order in which they came."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[place])
        corrected[place] = min(1.0, largest)
    return corrected


def with_interval(cell: Cell, samples: int = 2000, seed: int = 0) -> Cell:
    """Return the cell with the 95% percentile bootstrap interval of its value.

    A cell of one item is returned unchanged.

    Args:
        cell: The cell.
        samples: The number of bootstrap samples.
        seed: The seed of the samples.
    """
    if len(cell.ids) < 2:
        return cell
    return replace(cell, interval=_interval_of_mean([cell], samples, seed))


def summary_intervals(
    cells: Sequence[Cell], samples: int = 2000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return the 95% percentile bootstrap intervals of `Same`, `Cross` and `All`.

    Args:
        cells: The cells of a task.
        samples: The number of bootstrap samples.
        seed: The seed of the samples.
    """
    intervals = {}
    for name, positions in group_cells(cells).items():
        intervals[name] = _interval_of_mean(pick_cells(cells, positions), samples, seed)
    return intervals


def compare(
    a: TaskResult,
    b: TaskResult,
    samples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
    each_cell: bool = False,
) -> list[Difference]:
    """Compare two systems on one task: the differences in `Same`, `Cross` and `All`.

    p-values come from approximate randomization (Noreen, 1989; Riezler and Maxwell, 2005): how
    often randomly exchanging the systems' outcomes (for correlations, ranks) yields at least the
    observed difference. They are not corrected for multiple comparisons.

    Args:
        a: The result of the first system.
        b: The result of the second system.
        samples: The number of bootstrap samples.
        permutations: The number of random exchanges.
        seed: The seed of samples and exchanges.
        each_cell: Also compare cell by cell.

    Raises:
        TmdeError: The results differ in task, data, protocol or settings.
    """
    _check_comparable(a, b)
    groups = group_cells(a.cells)
    if len(groups) < 3:
        # `All` equals the only other group.
        groups.pop("All")
    if each_cell:
        for position, cell in enumerate(a.cells):
            groups[f"{cell.source} -> {cell.target}"] = [position]

    fold_p = paired_t_test(a.folds, b.folds) if a.folds and b.folds else None
    differences = []
    for name, positions in groups.items():
        cells_a = pick_cells(a.cells, positions)
        cells_b = pick_cells(b.cells, positions)
        value_a = mean_value(cells_a)
        value_b = mean_value(cells_b)
        difference = Difference(
            task=a.task,
            group=name,
            a=value_a,
            b=value_b,
            difference=value_b - value_a,
            interval=_interval_of_difference(cells_a, cells_b, samples, seed),
            p=_randomization_p(cells_a, cells_b, permutations, seed),
            fold_p=fold_p if name == "Cross" else None,
        )
        differences.append(difference)
    return differences


def _check_comparable(a: TaskResult, b: TaskResult) -> None:
    ignored = {"folds", "system"}
    if a.dense != b.dense:
        # TF-IDF has another classifier where the task's is a network.
        ignored |= {"head", "seeds"}
    check_conditions(a, b, ignored)
    if _test_items(a) != _test_items(b):
        raise TmdeError(
            f"{a.task}: {a.system} and {b.system} were not tested on the same items. "
            "Evaluate both with the same options."
        )


def check_conditions(a: TaskResult, b: TaskResult, ignored: Collection[str]) -> None:
    """Check that two results agree in everything but the test items.

    Args:
        a: The result of the first system.
        b: The result of the second system.
        ignored: The settings that may differ.

    Raises:
        TmdeError: They don't.
    """
    conditions_a = _conditions(a)
    conditions_b = _conditions(b)
    for name in conditions_a | conditions_b:
        value_a = conditions_a.get(name)
        value_b = conditions_b.get(name)
        if name not in ignored and value_a != value_b:
            raise TmdeError(
                f"{a.task}: {name} of {a.system} is {value_a!r}, of {b.system} {value_b!r}, "
                "expected the same. Evaluate both with the same options."
            )


def _conditions(result: TaskResult) -> dict[str, Any]:
    """Return everything that two results must share to be compared, but for the test items."""
    conditions = {
        "task": result.task,
        "protocol": result.protocol,
        "metric": result.metric,
        "cells": sorted(f"{source} -> {target}" for source, target in pairs_of(result.cells)),
        "data": result.data.get("fingerprint"),
        **result.settings,
    }
    if "train_languages" in conditions:
        # Their order affects nothing.
        conditions["train_languages"] = sorted(conditions["train_languages"])
    return conditions


def _test_items(result: TaskResult) -> list[tuple[tuple[str, str], list[str]]]:
    return [(cell.pair, list(cell.ids)) for cell in result.cells]


# ---- Resampling


@dataclass(frozen=True)
class _Items:
    """The independent test items of some cells.

    Args:
        count: The number of items. Every id is one, however many cells it is in.
        of_cells: For each cell, the items of its outcomes as numbers below `count`.
    """

    count: int
    of_cells: list[np.ndarray]

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> _Items:
        """Number the items of cells."""
        ids = np.concatenate([np.asarray(cell.ids, dtype=str) for cell in cells])
        different_ids, items = np.unique(ids, return_inverse=True)
        ends = np.cumsum([len(cell.ids) for cell in cells])
        return cls(len(different_ids), np.split(items, ends[:-1]))


def _interval_of_mean(cells: Sequence[Cell], samples: int, seed: int) -> tuple[float, float]:
    """Return the percentile interval of the mean over cells."""
    items = _Items.of(cells)
    values_of_cells = _values_of_cells(cells, items)

    def mean(weights: np.ndarray) -> np.ndarray:
        return _mean_over_cells(values_of_cells(weights))

    return _bootstrap_interval(mean, items.count, samples, seed)


def _interval_of_difference(
    cells_a: Sequence[Cell], cells_b: Sequence[Cell], samples: int, seed: int
) -> tuple[float, float]:
    """Return the percentile interval of the mean over the cells of B minus that of A.

    Both systems are resampled together, because their items are the same.
    """
    items = _Items.of(cells_a)
    values_a = _values_of_cells(cells_a, items)
    values_b = _values_of_cells(cells_b, items)

    def difference(weights: np.ndarray) -> np.ndarray:
        return _mean_over_cells(values_b(weights)) - _mean_over_cells(values_a(weights))

    return _bootstrap_interval(difference, items.count, samples, seed)


def _mean_over_cells(values: np.ndarray) -> np.ndarray:
    """Return the means (samples,) of values (samples, cells), without cells that have none."""
    return np.nanmean(values, axis=-1)


def _bootstrap_interval(
    statistic: Callable[[np.ndarray], np.ndarray], count: int, samples: int, seed: int
) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of a statistic.

    Args:
        statistic: From weights of items (samples, count) to values (samples,). The weight of an
            item is the number of times that it was drawn.
        count: The number of items.
        samples: The number of samples.
        seed: The seed of the samples.
    """

    def statistic_of_drawn(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        weights = _count_drawn(np.atleast_2d(drawn), count)
        # A cell of which no item was drawn has the value 0 / 0.
        with np.errstate(invalid="ignore"):
            return statistic(weights)

    if count < 2:
        only_value = float(statistic_of_drawn(np.zeros((1, 1), dtype=int))[0])
        return only_value, only_value
    bootstrap = stats.bootstrap(
        (np.arange(count),),
        statistic_of_drawn,
        n_resamples=samples,
        batch=max(1, _MAX_BATCH_VALUES // count),
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = np.nanquantile(bootstrap.bootstrap_distribution, _QUANTILES)
    return float(low), float(high)


def _count_drawn(drawn: np.ndarray, count: int) -> np.ndarray:
    """Return how often each item was drawn.

    Args:
        drawn: The drawn items (samples, count), numbers below `count`.
        count: The number of items.

    Returns:
        Counts as floats, (samples, count).
    """
    samples = len(drawn)
    # Items of different samples get different numbers, so that one call counts all samples.
    numbers = drawn + count * np.arange(samples)[:, None]
    counts = np.bincount(numbers.ravel(), minlength=drawn.size)
    return counts.reshape(drawn.shape).astype(float)


def _values_of_cells(cells: Sequence[Cell], items: _Items) -> ValuesOfCells:
    if cells[0].metric == "spearman":
        return _correlations(cells, items)
    if cells[0].metric == "strict_f1":
        return _f1_scores(cells, items)
    return _shares(cells, items)


def _shares(cells: Sequence[Cell], items: _Items) -> ValuesOfCells:
    """Return a function that computes weighted shares by two products with sparse matrices."""
    rows = np.concatenate(items.of_cells)
    columns = np.repeat(range(len(cells)), [len(part) for part in items.of_cells])
    outcomes = np.concatenate([cell.outcomes for cell in cells])
    shape = (items.count, len(cells))
    outcome_matrix = scipy.sparse.csr_matrix((outcomes, (rows, columns)), shape=shape)
    member_matrix = scipy.sparse.csr_matrix((np.ones(len(outcomes)), (rows, columns)), shape=shape)

    def shares(weights: np.ndarray) -> np.ndarray:
        sums = weights @ outcome_matrix  # (samples, cells)
        sizes = weights @ member_matrix  # (samples, cells)
        return sums / sizes

    return shares


def _f1_scores(cells: Sequence[Cell], items: _Items) -> ValuesOfCells:
    """Return a function that computes the F1 of summed counts."""

    def f1_scores(weights: np.ndarray) -> np.ndarray:
        columns = []
        for cell, items_of_cell in zip(cells, items.of_cells, strict=True):
            columns.append(_f1_of(weights[:, items_of_cell] @ cell.outcomes))
        return np.stack(columns, axis=1)

    return f1_scores


def _f1_of(counts: np.ndarray) -> np.ndarray:
    """Return the F1 of counts of predicted, right, gold and found pairs, (..., 4).

    It is NaN where there are no pairs at all.
    """
    predicted, right, gold, found = np.moveaxis(counts, -1, 0)
    precision = right / np.maximum(predicted, 1)
    recall = found / np.maximum(gold, 1)
    total = precision + recall
    f1: np.ndarray = 2 * precision * recall / np.where(total > 0, total, 1)
    return np.where(predicted + gold > 0, f1, np.nan)


def _correlations(cells: Sequence[Cell], items: _Items) -> ValuesOfCells:
    """Return a function that computes the rank correlations of repeated items."""

    def correlations(weights: np.ndarray) -> np.ndarray:
        values = np.empty((len(weights), len(cells)))
        for sample, weights_of_items in enumerate(weights):
            for column, cell in enumerate(cells):
                times = weights_of_items[items.of_cells[column]].astype(int)
                drawn_outcomes = np.repeat(cell.outcomes, times, axis=0)
                values[sample, column] = _rank_correlations(*drawn_outcomes.T)
        return values

    return correlations


def _rank_correlations(gold: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Return Spearman's correlations of gold similarities (n,) with measured ones (..., n).

    A correlation is 0 if all measured similarities are equal.
    """
    return (_standardized_ranks(gold) * _standardized_ranks(measured)).mean(axis=-1)


def _standardized_ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks on the last axis with mean 0 and variance 1, or 0 if all are equal."""
    ranks = stats.rankdata(values, axis=-1)
    deviations = ranks.std(axis=-1, keepdims=True)
    scales = np.where(deviations > 0, deviations, 1)
    return (ranks - ranks.mean(axis=-1, keepdims=True)) / scales


def _randomization_p(
    cells_a: Sequence[Cell], cells_b: Sequence[Cell], permutations: int, seed: int
) -> float:
    """Return the two-sided p over exchanges of the two systems' outcomes.

    All outcomes of an item are exchanged at once.
    """
    items = _Items.of(cells_a)
    if cells_a[0].metric == "strict_f1":
        return _randomization_p_of_f1(cells_a, cells_b, items, permutations, seed)
    if cells_a[0].metric == "spearman":
        return _randomization_p_of_correlations(cells_a, cells_b, items, permutations, seed)
    gains_in_cells = []
    for cell_a, cell_b in zip(cells_a, cells_b, strict=True):
        gains_in_cells.append((cell_b.outcomes - cell_a.outcomes) / len(cell_a.outcomes))
    gains_of_items = np.bincount(
        np.concatenate(items.of_cells), np.concatenate(gains_in_cells), minlength=items.count
    )

    def absolute_difference(gains: np.ndarray, axis: int) -> np.ndarray:
        # Exchanging the outcomes of an item turns the sign of what it adds to the difference.
        # Sums in another order differ by rounding, and equal ones must count as equal.
        return np.round(np.abs(gains.sum(axis)), 12)

    return _share_of_exchanges(gains_of_items, absolute_difference, permutations, seed)


def _share_of_exchanges(
    values: np.ndarray,
    statistic: Callable[[np.ndarray, int], np.ndarray],
    permutations: int,
    seed: int,
) -> float:
    """Return how often a statistic is as large or larger when signs are turned at random.

    Args:
        values: A value for each item, (n,).
        statistic: From values with random signs (samples, n), and their axis, to (samples,).
        permutations: The number of samples.
        seed: The seed of the signs.
    """
    result = stats.permutation_test(
        (values,),
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _MAX_BATCH_VALUES // len(values)),
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _randomization_p_of_f1(
    cells_a: Sequence[Cell], cells_b: Sequence[Cell], items: _Items, permutations: int, seed: int
) -> float:
    """Return the two-sided p over exchanges of the two systems' counts.

    F1 is no sum over items, so that it is computed again for each exchange.
    """

    def absolute_difference(signs: np.ndarray, axis: int) -> np.ndarray:
        """Return the difference where the items of negative sign are exchanged, (samples,)."""
        differences = []
        for cell_a, cell_b, items_of_cell in zip(cells_a, cells_b, items.of_cells, strict=True):
            is_exchanged = np.atleast_2d(signs)[:, items_of_cell] < 0
            change = is_exchanged @ (cell_b.outcomes - cell_a.outcomes)
            first = _f1_of(cell_a.outcomes.sum(axis=0) + change)
            second = _f1_of(cell_b.outcomes.sum(axis=0) - change)
            differences.append(second - first)
        # Differences of other sums differ by rounding, and equal ones must count as equal.
        means = np.abs(np.stack(differences).mean(axis=0))
        return means.round(12).reshape(signs.shape[:-1])

    return _share_of_exchanges(np.ones(items.count), absolute_difference, permutations, seed)


def _randomization_p_of_correlations(
    cells_a: Sequence[Cell], cells_b: Sequence[Cell], items: _Items, permutations: int, seed: int
) -> float:
    """Return the two-sided p over exchanges of the ranks of the two systems' similarities.

    The exchanged ranks are ranked again, and the correlations are computed again. Turning the signs
    of the items' rank products instead would keep ranks that belong to no system.
    """

    def absolute_difference(signs: np.ndarray, axis: int) -> np.ndarray:
        """Return the difference where the items of negative sign are exchanged, (samples,)."""
        differences = []
        for cell_a, cell_b, items_of_cell in zip(cells_a, cells_b, items.of_cells, strict=True):
            is_exchanged = np.atleast_2d(signs)[:, items_of_cell] < 0
            gold = cell_a.outcomes[:, 0]
            ranks_a = stats.rankdata(cell_a.outcomes[:, 1])
            ranks_b = stats.rankdata(cell_b.outcomes[:, 1])
            first = _rank_correlations(gold, np.where(is_exchanged, ranks_b, ranks_a))
            second = _rank_correlations(gold, np.where(is_exchanged, ranks_a, ranks_b))
            differences.append(second - first)
        # Differences of other sums differ by rounding, and equal ones must count as equal.
        means = np.abs(np.stack(differences).mean(axis=0))
        return means.round(12).reshape(signs.shape[:-1])

    return _share_of_exchanges(np.ones(items.count), absolute_difference, permutations, seed)
