"""Confidence intervals, and tests of the difference of two systems on the same test items.

Test items that are translations of each other are one observation: they carry the same id in all cells of a task and
are resampled together (a cluster bootstrap). The same holds for the outcomes of one item under several classifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
from scipy import stats

from modeling_tmde.eval.results import Cell, TaskResult, group_cells

_BATCH_ELEMENTS = 4_000_000  # of the resampled (samples, items) at a time: 32 MB


class ComparisonError(ValueError):
    """Two results that cannot be compared item by item."""


@dataclass(frozen=True)
class Difference:
    """System B against system A on one group of cells.

    Args:
        task: Name of the task.
        group: `Same`, `Cross`, `All`, or one cell such as `en -> de`.
        metric: That of the cells.
        a, b: The values.
        difference: b - a.
        interval: Bootstrap confidence interval of the difference.
        p: Of the two-sided approximate randomization test over items.
        fold_p: Of the two-sided paired t-test over the ten folds of thesis 4.6 (`Cross` only), None where not run.
        items: Number of independent items.
    """

    task: str
    group: str
    metric: str
    a: float
    b: float
    difference: float
    interval: tuple[float, float]
    p: float
    fold_p: float | None
    items: int


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of the paired t-test of thesis 4.6, with the null hypothesis of equal means over the folds.

    Pairs of folds share documents (train and test halves are exchanged), so their differences are not fully
    independent. The protocol is published this way.

    Raises:
        ComparisonError: Different numbers of folds, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ComparisonError(f"A paired t-test needs the same folds of both, at least 2; found {len(a)} and {len(b)}")
    differences = np.subtract(b, a)
    if np.ptp(differences) < 1e-12:  # without variance, t is 0 / 0 or infinite
        return 1.0 if abs(differences[0]) < 1e-12 else 0.0
    return float(stats.ttest_rel(b, a).pvalue)


def with_interval(cell: Cell, samples: int = 2000, seed: int = 0) -> Cell:
    """The cell with the 95% percentile bootstrap interval of its value; a cell of one item is returned unchanged."""
    if len(cell.ids) < 2:
        return cell
    return replace(cell, interval=_Items([cell]).interval([cell.outcomes], samples, seed))


def summary_intervals(cells: Sequence[Cell], samples: int = 2000, seed: int = 0) -> dict[str, tuple[float, float]]:
    """95% percentile bootstrap intervals of `Same`, `Cross` and `All`; translations are resampled together."""
    intervals = {}
    for name, places in group_cells(cells).items():
        chosen = [cells[place] for place in places]
        outcomes = [cell.outcomes for cell in chosen]
        intervals[name] = _Items(chosen).interval(outcomes, samples, seed)
    return intervals


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
    often randomly exchanging the two systems' outcomes item by item gives a difference at least as large. It is not
    corrected for multiple comparisons.

    Raises:
        ComparisonError: The results are of different tasks, data, protocols or settings.
    """
    pairs = _matching_cells(a, b)
    groups = group_cells([first for first, _ in pairs])
    if len(groups) < 3:  # All equals the other one
        groups.pop("All")
    if each_cell:
        groups |= {f"{first.source} -> {first.target}": [place] for place, (first, _) in enumerate(pairs)}
    fold_p = paired_t_test(a.folds, b.folds) if a.folds and b.folds else None
    differences = []
    for name, places in groups.items():
        firsts, seconds = zip(*(pairs[place] for place in places), strict=True)
        outcomes = [[cell.outcomes for cell in cells] for cells in (firsts, seconds)]
        items = _Items(firsts)
        value_a, value_b = (float(np.mean([cell.value for cell in cells])) for cells in (firsts, seconds))
        differences.append(
            Difference(
                task=a.task,
                group=name,
                metric=firsts[0].metric,
                a=value_a,
                b=value_b,
                difference=value_b - value_a,
                interval=items.interval(outcomes[1], samples, seed, minus=outcomes[0]),
                p=items.randomization_p(*outcomes, permutations, seed),
                fold_p=fold_p if name == "Cross" else None,
                items=items.count,
            )
        )
    return differences


def _matching_cells(a: TaskResult, b: TaskResult) -> list[tuple[Cell, Cell]]:
    ignored = {"folds", "system"}
    if (a.truncated is None) != (b.truncated is None):  # TF-IDF has another head where the task's is a network
        ignored |= {"head", "seeds"}
    sides = [
        {"task": x.task, "protocol": x.protocol, "data": x.data.get("fingerprint")}
        | {key: value for key, value in x.settings.items() if key not in ignored}
        for x in (a, b)
    ]
    for name in {**sides[0], **sides[1]}:
        first, second = (side.get(name) for side in sides)
        if first != second:
            raise ComparisonError(
                f"{a.task}: {name} of {a.system} is {first!r}, of {b.system} {second!r}, expected the same. "
                "Evaluate both with the same options."
            )
    partners = {(cell.source, cell.target): cell for cell in b.cells}
    pairs = [(cell, partners.pop((cell.source, cell.target), None)) for cell in a.cells]
    if partners or any(second is None or list(first.ids) != list(second.ids) for first, second in pairs):
        raise ComparisonError(
            f"{a.task}: {a.system} and {b.system} were not tested on the same items. "
            "Evaluate both with the same options."
        )
    return pairs


class _Items:
    """The independent items of some cells: every id is one, however many cells it is in.

    Resampling draws items. The value of a cell is a ratio of sums over items, so that C cells over n items reduce to
    two sparse (n, C) matrices; correlations are computed anew for every sample.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.correlation = cells[0].metric == "spearman"
        ids = np.concatenate([np.asarray(cell.ids, dtype=str) for cell in cells])
        names, items = np.unique(ids, return_inverse=True)
        self.count = len(names)
        self.places = np.split(items, np.cumsum([len(cell.ids) for cell in cells])[:-1])  # items of each cell
        self.counts = self._sums([np.ones(len(place)) for place in self.places])
        self.batch = max(1, _BATCH_ELEMENTS // self.count)

    def _sums(self, outcomes: Sequence[np.ndarray]) -> scipy.sparse.csr_matrix:
        """(items, cells) sums of the outcomes of each item."""
        rows, columns = np.concatenate(self.places), np.repeat(range(len(outcomes)), list(map(len, outcomes)))
        shape = (self.count, len(outcomes))
        return scipy.sparse.csr_matrix((np.concatenate(outcomes), (rows, columns)), shape=shape)

    def interval(
        self,
        outcomes: Sequence[np.ndarray],
        samples: int,
        seed: int,
        minus: Sequence[np.ndarray] | None = None,
    ) -> tuple[float, float]:
        """Percentile interval of the mean over cells, or of its difference from the mean of `minus`."""
        sides = [outcomes] if minus is None else [outcomes, minus]
        sums = None if self.correlation else [self._sums(side) for side in sides]

        def statistic(drawn: np.ndarray, axis: int = -1) -> np.ndarray:
            """(samples,) values on the (samples, n) drawn items."""
            drawn = np.atleast_2d(drawn)
            offsets = self.count * np.arange(len(drawn))[:, None]
            weights = np.bincount((drawn + offsets).ravel(), minlength=drawn.size).reshape(drawn.shape).astype(float)
            with np.errstate(invalid="ignore"):  # 0 / 0: a cell of which no item was drawn
                if sums is None:
                    cells = [[_weighted_spearman(weights[:, p], x) for p, x in zip(self.places, side, strict=True)]
                             for side in sides]  # fmt: skip
                    values = [np.stack(side, axis=-1) for side in cells]
                else:
                    values = [(weights @ side) / (weights @ self.counts) for side in sums]
            means = [np.nanmean(side, axis=-1) for side in values]
            return means[0] if minus is None else means[0] - means[1]

        if self.count < 2:
            value = float(statistic(np.zeros((1, 1), dtype=int))[0])
            return value, value
        drawn = stats.bootstrap(
            (np.arange(self.count),),
            statistic,
            n_resamples=samples,
            batch=self.batch,
            vectorized=True,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
        low, high = np.nanquantile(drawn.bootstrap_distribution, [0.025, 0.975])
        return float(low), float(high)

    def randomization_p(self, a: Sequence[np.ndarray], b: Sequence[np.ndarray], permutations: int, seed: int) -> float:
        """Two-sided p over exchanges of the two systems' outcomes, all those of an item at once."""
        if not self.correlation:
            gains = [(second - first) / len(first) for first, second in zip(a, b, strict=True)]
            gain = np.asarray(self._sums(gains).sum(axis=1)).ravel()  # (items,)

        def statistic(signs: np.ndarray, axis: int = -1) -> np.ndarray:
            """(samples,) |b - a| where -1 in the (samples, n) signs exchanges an item. Rounded, so that ties are."""
            signs = np.atleast_2d(signs)
            if self.correlation:
                cells = zip(self.places, a, b, strict=True)
                total = sum(_exchanged_spearman(signs[:, place], first, second) for place, first, second in cells)
            else:
                total = signs @ gain
            return np.round(np.abs(total), 12)

        result = stats.permutation_test(
            (np.ones(self.count),),
            lambda signs, axis=-1: np.squeeze(statistic(signs.reshape(-1, self.count))).reshape(signs.shape[:-1]),
            permutation_type="samples",
            vectorized=True,
            n_resamples=permutations,
            batch=self.batch,
            alternative="greater",
            rng=np.random.default_rng(seed),
        )
        return float(result.pvalue)


def _weighted_spearman(weights: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """(samples,) correlations of (n, 2) outcomes, each item repeated as often as its weight says."""
    return np.array([_spearman(np.repeat(outcomes, row.astype(int), axis=0)) for row in weights])


def _spearman(outcomes: np.ndarray) -> float:
    """Of (n, 2) gold and measured similarities: 0 where all measured ones are equal, NaN where all gold ones are."""
    gold, measured = np.ptp(outcomes, axis=0) > 0
    return float(stats.spearmanr(outcomes).statistic) if gold and measured else (0.0 if gold else np.nan)


def _exchanged_spearman(signs: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(samples,) difference of the correlations with gold after exchanging the ranks where the sign is -1."""
    gold = stats.zscore(stats.rankdata(a[:, 0]))
    ranks_a, ranks_b = stats.rankdata(a[:, 1]), stats.rankdata(b[:, 1])
    kept = signs > 0
    correlations = []
    for ranks in (np.where(kept, ranks_a, ranks_b), np.where(kept, ranks_b, ranks_a)):
        deviations = ranks - ranks.mean(axis=1, keepdims=True)
        scale = np.sqrt((deviations**2).mean(axis=1))
        correlations.append(deviations @ gold / len(gold) / np.where(scale > 0, scale, 1))
    return correlations[1] - correlations[0]
