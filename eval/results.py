"""What an evaluation measures: one `Cell` a number of a table, one `TaskResult` a task and system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# What the names of a cell's `extra` begin with that hold the value on a group of its items, or on a control group.
ACCURACY_OF, CONTROL = "accuracy_of_", "control_"


@dataclass(frozen=True)
class Cell:
    """One measured number, with the outcome of each test item behind it, so that systems are compared item by item.

    Args:
        source: Training language of a classifier, or query language; of leave-one-out `"all-but-<target>"`.
        target: Test language, or language of the candidates.
        metric: `accuracy`, `contrast_accuracy`, `precision_at_1` or `spearman`.
        value: As a share (0 to 1), or as a correlation (-1 to 1). Mean over seeds.
        ids: n item ids; items of different cells with one id (translations) are resampled together.
        outcomes: (n,) outcome of each item (its mean over seeds), whose mean is `value`; for `spearman` (n, 2), gold
            and measured similarity.
        chance: Value of guessing uniformly.
        std: Standard deviation of the value over seeds (n - 1 in the denominator), None for a single seed.
        seed_values: The value of each seed, if there are several; they give the deviation of a mean over cells.
        interval: Bootstrap confidence interval of the value, or None if it was not computed.
        extra: Further numbers: `macro_f1`, `error_rate`, `mrr`, `recall_at_10`, `majority`, `size` ...
    """

    source: str
    target: str
    metric: str
    value: float
    ids: Sequence[str]
    outcomes: np.ndarray
    chance: float | None = None
    std: float | None = None
    seed_values: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    extra: dict[str, float] = field(default_factory=dict)


@dataclass
class TaskResult:
    """One system on one task.

    Args:
        task: Name of the task, as in the report.
        system: Name of the system.
        protocol: `zero-shot`, `targeted`, `leave-one-out`, `retrieval`, `contrast`, `similarity`.
        cells: The numbers.
        folds: (10,) `Cross` in each fold of the paired t-test of thesis 4.6; empty if it was not run.
        settings: Head, scoring, seeds: everything that decides the numbers beside data and system.
        data: Fingerprint, provenance, rows.
        system_fingerprint: Of the model that made the vectors.
        seconds: Wall clock by part.
        truncated: texts longer than the system's limit, as (count, of how many); None if nothing is ever truncated.
    """

    task: str
    system: str
    protocol: str
    cells: list[Cell]
    folds: list[float] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    system_fingerprint: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    truncated: tuple[int, int] | None = None


def group_cells(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Positions of the cells of `Same`, `Cross` and `All` (thesis 4.4.2), without empty groups."""
    same = [position for position, cell in enumerate(cells) if cell.source == cell.target]
    cross = [position for position, cell in enumerate(cells) if cell.source != cell.target]
    groups = {"Same": same, "Cross": cross, "All": list(range(len(cells)))}
    return {name: members for name, members in groups.items() if members}


def summarize(cells: Sequence[Cell]) -> dict[str, float]:
    """Means over cells as in thesis 4.4.2: `Same` (source = target), `Cross` (source != target) and `All`.

    A mean over no cells is left out.
    """
    groups = group_cells(cells)
    return {name: float(np.mean([cells[place].value for place in places])) for name, places in groups.items()}
