"""Confidence intervals, and tests of the difference of two systems on the same test items.

Test items that are translations of each other are one observation: they carry the same id in all cells of a task and
are resampled together (a cluster bootstrap). The same holds for the outcomes of one item under several classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
from scipy import stats

from modeling_tmde import TmdeError
from tmde.eval.results import Cell, TaskResult, group_cells

_BATCH_ELEMENTS = 4_000_000  # of the resampled (samples, items) at a time: 32 MB


@dataclass(frozen=True)
class Difference:
    """System B against system A on one group of cells.

    Args:
        task: Name of the task.
        group: `Same`, `Cross`, `All`, or one cell such as `en -> de`.
        a, b: The values.
        difference: b - a.
        interval: Bootstrap confidence interval of the difference.
        p: Of the two-sided approximate randomization test over items.
        fold_p: Of the two-sided paired t-test over the ten folds of thesis 4.6 (`Cross` only), None where not run.
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
    """Two-sided p of the paired t-test of thesis 4.6, with the null hypothesis of equal means over the folds.

    Pairs of folds share documents (train and test halves are exchanged), so their differences are not fully
    independent. The protocol is published this way.
    """
    differences = np.subtract(b, a)
    if np.ptp(differences) < 1e-12:  # without variance, t is 0 / 0 or infinite
        return float(abs(differences[0]) < 1e-12)
    return float(stats.ttest_rel(b, a).pvalue)


def single_sample_t_test(accuracies: Sequence[float], published: float) -> float:
    """Two-sided p of the single-sample t-test of thesis 3.3: the null hypothesis is that the mean of a system's folds
    is the published accuracy."""
    return paired_t_test(np.full(len(accuracies), published), accuracies)


def with_interval(cell: Cell, samples: int = 2000, seed: int = 0) -> Cell:
    """The cell with the 95% percentile bootstrap interval of its value; a cell of one item is returned unchanged."""
    return cell if len(cell.ids) < 2 else replace(cell, interval=_interval([[cell]], samples, seed))


def summary_intervals(
    cells: Sequence[Cell], samples: int = 2000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """95% percentile bootstrap intervals of `Same`, `Cross` and `All`; translations are resampled together."""
    groups = group_cells(cells).items()
    return {
        name: _interval([[cells[place] for place in places]], samples, seed)
        for name, places in groups
    }


def compare(
    a: TaskResult,
    b: TaskResult,
    samples: int = 2000,
    permutations: int = 9999,
    seed: int = 0,
    each_cell: bool = False,
) -> list[Difference]:
    """Differences of two systems on one task: in `Same`, `Cross` and `All`, and with `each_cell` cell by cell.

    The p-value comes from approximate randomization (Noreen 1989; Riezler and Maxwell 2005 for system comparison): how
    often randomly exchanging the two systems' outcomes item by item gives a difference at least as large. For
    correlations, the standardized ranks are exchanged. It is not corrected for multiple comparisons.

    Raises:
        ValueError: The results are of different tasks, data, protocols or settings.
    """
    _check_comparable(a, b)
    groups = group_cells(a.cells)
    if len(groups) < 3:  # All equals the other one
        groups.pop("All")
    if each_cell:
        groups |= {f"{cell.source} -> {cell.target}": [place] for place, cell in enumerate(a.cells)}
    fold_p = paired_t_test(a.folds, b.folds) if a.folds and b.folds else None
    differences = []
    for name, places in groups.items():
        sides = [[result.cells[place] for place in places] for result in (a, b)]
        values = [float(np.mean([cell.value for cell in cells])) for cells in sides]
        p = _randomization_p(*sides, permutations, seed)
        interval = _interval(sides[::-1], samples, seed)
        t_test = fold_p if name == "Cross" else None
        differences.append(
            Difference(a.task, name, *values, values[1] - values[0], interval, p, t_test)
        )
    return differences


def _check_comparable(a: TaskResult, b: TaskResult) -> None:
    ignored = {"folds", "system"}
    if (a.truncated is None) != (
        b.truncated is None
    ):  # TF-IDF has another head where the task's is a network
        ignored |= {"head", "seeds"}
    first, second = (
        {"task": x.task, "protocol": x.protocol, "data": x.data.get("fingerprint"), **x.settings}
        for x in (a, b)
    )
    for name in {**first, **second}:
        if name not in ignored and first.get(name) != second.get(name):
            found = (
                f"{name} of {a.system} is {first.get(name)!r}, of {b.system} {second.get(name)!r}"
            )
            raise TmdeError(
                f"{a.task}: {found}, expected the same. Evaluate both with the same options."
            )
    items = [[(cell.pair, list(cell.ids)) for cell in x.cells] for x in (a, b)]
    if items[0] != items[1]:
        advice = "were not tested on the same items. Evaluate both with the same options."
        raise TmdeError(f"{a.task}: {a.system} and {b.system} {advice}")


def _items(cells: Sequence[Cell]) -> tuple[int, list[np.ndarray]]:
    """Number of independent items (every id is one, however many cells it is in), and the items of each cell."""
    names, items = np.unique(
        np.concatenate([np.asarray(cell.ids, dtype=str) for cell in cells]), return_inverse=True
    )
    return len(names), np.split(items, np.cumsum([len(cell.ids) for cell in cells])[:-1])


def _interval(sides: Sequence[Sequence[Cell]], samples: int, seed: int) -> tuple[float, float]:
    """Percentile interval of the mean over cells, or of the difference of two such means, first minus second."""
    count, places = _items(sides[0])
    values = [
        (_correlations if cells[0].metric == "spearman" else _shares)(cells, places, count)
        for cells in sides
    ]

    def statistic(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
        """(samples,) values on the (samples, n) drawn items."""
        drawn = np.atleast_2d(drawn) + count * np.arange(len(np.atleast_2d(drawn)))[:, None]
        weights = (
            np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(float)
        )
        with np.errstate(invalid="ignore"):  # 0 / 0: a cell of which no item was drawn
            means = [np.nanmean(value(weights), axis=-1) for value in values]
        return means[0] - means[1] if len(means) > 1 else means[0]

    if count < 2:
        return (float(statistic(np.zeros((1, 1), dtype=int))[0]),) * 2
    found = stats.bootstrap(
        (np.arange(count),),
        statistic,
        n_resamples=samples,
        batch=max(1, _BATCH_ELEMENTS // count),
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = np.nanquantile(found.bootstrap_distribution, [0.025, 0.975])
    return float(low), float(high)


def _shares(
    cells: Sequence[Cell], places: Sequence[np.ndarray], count: int
) -> Callable[[np.ndarray], np.ndarray]:
    """A function from (samples, items) weights to (samples, cells) shares: two products with sparse matrices."""
    index = np.concatenate(places), np.repeat(range(len(cells)), [len(place) for place in places])
    outcomes = np.concatenate([cell.outcomes for cell in cells])
    sums, sizes = (
        scipy.sparse.csr_matrix((values, index), shape=(count, len(cells)))
        for values in (outcomes, np.ones(len(outcomes)))
    )
    return lambda weights: (weights @ sums) / (weights @ sizes)


def _correlations(
    cells: Sequence[Cell], places: Sequence[np.ndarray], _: int
) -> Callable[[np.ndarray], np.ndarray]:
    """A function from (samples, items) weights to (samples, cells) rank correlations of the repeated items."""

    def values(weights: np.ndarray) -> np.ndarray:
        found = [
            _rank_products(np.repeat(cell.outcomes, row[place].astype(int), axis=0)).mean()
            for row in weights
            for cell, place in zip(cells, places, strict=True)
        ]
        return np.reshape(found, (len(weights), len(cells)))

    return values


def _rank_products(outcomes: np.ndarray) -> np.ndarray:
    """(n,) products of the standardized ranks of (n, 2) gold and measured similarities; their mean is Spearman's
    correlation, 0 where all measured ones are equal."""
    ranks = stats.rankdata(outcomes, axis=0)
    scale = ranks.std(axis=0)
    return ((ranks - ranks.mean(axis=0)) / np.where(scale > 0, scale, 1)).prod(axis=1)


def _randomization_p(a: Sequence[Cell], b: Sequence[Cell], permutations: int, seed: int) -> float:
    """Two-sided p over exchanges of the two systems' outcomes, all those of an item at once.

    Exchanging an item turns the sign of what it adds to the difference.
    """
    count, places = _items(a)
    parts = [
        [_rank_products(x.outcomes) if x.metric == "spearman" else x.outcomes for x in side]
        for side in (a, b)
    ]
    gains = [(second - first) / len(first) for first, second in zip(*parts, strict=True)]
    result = stats.permutation_test(
        (np.bincount(np.concatenate(places), np.concatenate(gains), minlength=count),),
        lambda gains, axis: np.round(
            np.abs(gains.sum(axis)), 12
        ),  # rounded, so that equal sums are equal
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=max(1, _BATCH_ELEMENTS // count),
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)
