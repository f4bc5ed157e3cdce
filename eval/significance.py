"""Confidence intervals, and tests of differences over the same test items.

Test items that are translations of each other are one observation, not several: they carry one id in all cells of a
task and are resampled together (a cluster bootstrap), and so are the outcomes of one item under several classifiers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from modeling_tmde.eval.results import Cell, TaskResult, group_cells

_BLOCK_ELEMENTS = 4_000_000  # drawn at once: 32 MB


class ComparisonError(ValueError):
    """Two results that cannot be compared item by item."""


@dataclass(frozen=True)
class Difference:
    """System B against system A on one group of cells.

    Args:
        task: Its name.
        group: `Same`, `Cross`, `All`, or one cell as `en -> de`.
        metric: That of the cells.
        a, b: The values; difference: b - a.
        interval: Bootstrap confidence interval of the difference.
        p: Of the two-sided approximate randomisation test over items.
        fold_p: Of the two-sided paired t-test over the ten folds of thesis 4.6 (for `Cross`), None where not run.
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
    """Two-sided p of the paired t-test of thesis 4.6, that `a` and `b` have the same mean over the folds.

    The folds share documents two by two (train and test halves are exchanged), so their differences are not quite
    independent; that is how the protocol is published.

    Raises:
        ComparisonError: Different numbers of folds, or fewer than two.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ComparisonError(f"A paired t-test needs the same folds of both, at least 2; found {len(a)} and {len(b)}")
    differences = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)
    if np.ptp(differences) < 1e-12:  # no variance: t is 0 / 0 or infinite
        return 1.0 if abs(differences[0]) < 1e-12 else 0.0
    return float(stats.ttest_rel(b, a).pvalue)


def with_interval(cell: Cell, samples: int = 2000, confidence: float = 0.95, seed: int = 0) -> Cell:
    """The cell with the percentile bootstrap interval of its value over its items; as it is if it has but one."""
    if len(cell.ids) < 2:
        return cell
    draws = _bootstrap([cell], [cell.outcomes], samples, seed)
    return replace(cell, interval=_percentiles(draws, confidence))


def summary_intervals(
    cells: Sequence[Cell], samples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals of `Same`, `Cross` and `All`, translations resampled together."""
    intervals = {}
    for name, members in group_cells(cells).items():
        chosen = [cells[position] for position in members]
        draws = _bootstrap(chosen, [cell.outcomes for cell in chosen], samples, seed)
        intervals[name] = _percentiles(draws, confidence)
    return intervals


def compare(
    a: TaskResult,
    b: TaskResult,
    samples: int = 2000,
    permutations: int = 9999,
    confidence: float = 0.95,
    seed: int = 0,
    each_cell: bool = False,
) -> list[Difference]:
    """Differences of two systems on one task: in `Same`, `Cross` and `All`, and if `each_cell` cell by cell.

    The p-value is that of approximate randomisation (Noreen 1989; Riezler and Maxwell 2005 for system comparison):
    how often does exchanging the two systems' outcomes, item by item at random, give a difference at least as large?
    It is (1 + hits) / (1 + permutations). Nothing is corrected for the number of comparisons.

    Raises:
        ComparisonError: The results are of different tasks, data, protocols or settings.
    """
    pairs = _matching_cells(a, b)
    groups = group_cells([first for first, _ in pairs])
    if "Same" not in groups or "Cross" not in groups:  # All is the other one then
        groups.pop("All")
    if each_cell:
        groups |= {f"{first.source} -> {first.target}": [place] for place, (first, _) in enumerate(pairs)}
    fold_p = paired_t_test(a.folds, b.folds) if a.folds and b.folds else None
    differences = []
    for name, members in groups.items():
        firsts, seconds = zip(*(pairs[place] for place in members), strict=True)
        outcomes = [[cell.outcomes for cell in cells] for cells in (firsts, seconds)]
        draws = _bootstrap(firsts, outcomes[1], samples, seed) - _bootstrap(firsts, outcomes[0], samples, seed)
        value_a, value_b = (float(np.mean([cell.value for cell in cells])) for cells in (firsts, seconds))
        differences.append(
            Difference(
                task=a.task,
                group=name,
                metric=firsts[0].metric,
                a=value_a,
                b=value_b,
                difference=value_b - value_a,
                interval=_percentiles(draws, confidence),
                p=_randomisation_p(firsts, *outcomes, permutations, seed),
                fold_p=fold_p if name == "Cross" else None,
                items=len(_clusters(firsts)[0]),
            )
        )
    return differences


def _matching_cells(a: TaskResult, b: TaskResult) -> list[tuple[Cell, Cell]]:
    beside = {"folds", "system"}
    if (a.truncated is None) != (b.truncated is None):  # TF-IDF has another head where the task's is a network
        beside |= {"head", "seeds"}
    same = {
        "task": (a.task, b.task),
        "protocol": (a.protocol, b.protocol),
        "data": (a.data.get("fingerprint"), b.data.get("fingerprint")),
        "settings": tuple({name: value for name, value in x.settings.items() if name not in beside} for x in (a, b)),
    }
    for name, (first, second) in same.items():
        if first != second:
            if isinstance(first, dict):
                differing = [key for key in {**first, **second} if first.get(key) != second.get(key)]
                first, second = ({key: each.get(key) for key in differing} for each in (first, second))
            raise ComparisonError(
                f"{a.task}: {name} of {a.system} is {first!r}, of {b.system} {second!r}, expected the same. "
                "Evaluate both with the same options."
            )
    partners = {(cell.source, cell.target): cell for cell in b.cells}
    pairs = [(cell, partners.get((cell.source, cell.target))) for cell in a.cells]
    for first, second in pairs:
        if second is None or list(first.ids) != list(second.ids):
            raise ComparisonError(
                f"{a.task}, {first.source} -> {first.target}: {a.system} and {b.system} were not tested on the same "
                "items. Evaluate both with the same options."
            )
    if len(partners) != len(pairs):
        raise ComparisonError(f"{a.task}: {a.system} has {len(pairs)} cells, {b.system} {len(partners)}")
    return pairs


def _clusters(cells: Sequence[Cell]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The different ids of all cells, and the position among them of each item of each cell."""
    names = np.concatenate([np.asarray(cell.ids, dtype=str) for cell in cells])
    unique, positions = np.unique(names, return_inverse=True)
    return unique, np.split(positions, np.cumsum([len(cell.ids) for cell in cells])[:-1])


def _weights(clusters: int, samples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each cluster is drawn in each bootstrap sample: blocks of (some samples, clusters)."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK_ELEMENTS // clusters)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        drawn = rng.integers(clusters, size=(rows, clusters)) + clusters * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)


def _bootstrap(cells: Sequence[Cell], outcomes: Sequence[np.ndarray], samples: int, seed: int) -> np.ndarray:
    """(samples,) mean over the cells of their value on resampled items; equal ids and seed draw equal samples."""
    unique, positions = _clusters(cells)
    draws = []
    for weights in _weights(len(unique), samples, seed):
        values = [
            _weighted_spearman(weights[:, place], outcome)
            if cell.metric == "spearman"
            else _weighted_mean(weights[:, place], outcome)
            for cell, place, outcome in zip(cells, positions, outcomes, strict=True)
        ]
        known = np.isfinite(values)
        total = np.where(known, values, 0).sum(axis=0)
        draws.append(np.divide(total, known.sum(axis=0), out=np.full(len(total), np.nan), where=known.any(axis=0)))
    return np.concatenate(draws)


def _weighted_mean(weights: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """(samples,) means of (n,) outcomes under (samples, n) weights."""
    total = weights.sum(axis=1)
    return np.divide(weights @ outcomes, total, out=np.full(len(weights), np.nan), where=total > 0)


def _weighted_spearman(weights: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """(samples,) Spearman correlations of (n, 2) outcomes, each item repeated as often as its weight says."""
    repeats = (np.repeat(outcomes, row.astype(np.int64), axis=0) for row in weights)
    return np.array([_spearman(drawn) for drawn in repeats])


def _spearman(outcomes: np.ndarray) -> float:
    """Of (n, 2) gold and measured similarities; 0 where all measured ones are equal, NaN where all gold ones are."""
    gold, measured = np.ptp(outcomes, axis=0) > 0
    return float(stats.spearmanr(outcomes).statistic) if gold and measured else (0.0 if gold else np.nan)


def _percentiles(draws: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _randomisation_p(
    cells: Sequence[Cell], a: Sequence[np.ndarray], b: Sequence[np.ndarray], permutations: int, seed: int
) -> float:
    """Two-sided p over exchanges of the systems' outcomes, all those of a cluster at once."""
    unique, positions = _clusters(cells)

    def differences(signs: np.ndarray) -> np.ndarray:
        """(rows,) b - a summed over cells, where -1 in (rows, clusters) exchanges a cluster."""
        total = np.zeros(len(signs))
        for cell, place, first, second in zip(cells, positions, a, b, strict=True):
            if cell.metric == "spearman":
                total += _exchanged_spearman(signs[:, place], first, second)
            else:
                total += signs[:, place] @ (second - first) / len(place)
        return total

    observed = abs(differences(np.ones((1, len(unique))))[0])
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK_ELEMENTS // len(unique))
    hits = 0
    for start in range(0, permutations, block):
        signs = rng.choice(np.array([-1.0, 1.0]), size=(min(block, permutations - start), len(unique)))
        hits += int((np.abs(differences(signs)) >= observed - 1e-12).sum())
    return (1 + hits) / (1 + permutations)


def _exchanged_spearman(signs: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(permutations,) difference of the correlations with gold after exchanging the ranks where the sign is -1."""
    gold = stats.zscore(stats.rankdata(a[:, 0]))
    ranks_a, ranks_b = stats.rankdata(a[:, 1]), stats.rankdata(b[:, 1])
    kept = signs > 0
    correlations = []
    for ranks in (np.where(kept, ranks_a, ranks_b), np.where(kept, ranks_b, ranks_a)):
        deviations = ranks - ranks.mean(axis=1, keepdims=True)
        scale = np.sqrt((deviations**2).mean(axis=1))
        correlations.append(deviations @ gold / len(gold) / np.where(scale > 0, scale, 1))
    return correlations[1] - correlations[0]
