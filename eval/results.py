"""What an evaluation measures, and how it is kept: one `Cell` a number, one `TaskResult` a task and system."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from modeling_tmde.data.io import environment, replacing, write_atomically
from modeling_tmde.eval.metrics.same_cross_accuracy.same_cross_accuracy import group_pairs, same_cross

EVAL_NAME = "eval.json"
OUTCOMES_NAME = "outcomes.npz"

# Prefixes of the names in `Cell.extra` that hold the value on a group of the items, or on a control group.
ACCURACY_OF, CONTROL = "accuracy_of_", "control_"


@dataclass(frozen=True)
class Cell:
    """One measured number, with the outcome of each test item, so that systems can be compared item by item.

    Args:
        source: Training language of a classifier, or query language; `"all-but-<target>"` for leave-one-out.
        target: Test language, or language of the candidates.
        metric: `accuracy`, `contrast_accuracy`, `precision_at_1` or `spearman`.
        value: A share (0 to 1) or a correlation (-1 to 1), averaged over seeds.
        ids: n item ids. Items of different cells with the same id are translations and are resampled together.
        outcomes: (n,) outcome of each item, averaged over seeds; their mean is `value`. For `spearman` (n, 2): gold
            and measured similarity.
        chance: Value of guessing uniformly.
        std: Standard deviation of the value over seeds (n - 1 in the denominator), None for a single seed.
        seed_values: The value of each seed, if there are several.
        interval: Bootstrap confidence interval of the value, None if it was not computed.
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
        protocol: `zero-shot`, `targeted`, `leave-one-out`, `retrieval`, `contrast` or `similarity`.
        cells: The numbers.
        intervals: Bootstrap confidence intervals of the means `Same`, `Cross` and `All`.
        folds: (10,) `Cross` in each fold of the paired t-test of thesis 4.6; empty if it was not run.
        settings: Head, scoring, seeds: everything beside data and system that decides the numbers.
        data: Fingerprint, provenance and rows.
        system_fingerprint: Of the model that made the vectors.
        seconds: Wall-clock time by part.
        truncated: Texts longer than the system's limit, as (count, out of); None if nothing is ever truncated.
    """

    task: str
    system: str
    protocol: str
    cells: list[Cell]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    folds: list[float] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    system_fingerprint: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    truncated: tuple[int, int] | None = None


def group_cells(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Positions of the cells of `Same`, `Cross` and `All` (thesis 4.4.2), without empty groups."""
    return group_pairs([(cell.source, cell.target) for cell in cells])


def summarize(cells: Sequence[Cell]) -> dict[str, float]:
    """Means over cells (thesis 4.4.2): `Same` (source = target), `Cross` (source != target) and `All`."""
    return same_cross([(cell.source, cell.target) for cell in cells], [cell.value for cell in cells])


def write_results(folder: str | Path, results: Sequence[TaskResult], info: dict[str, Any]) -> None:
    """Writes `eval.json` and `outcomes.npz`, replacing those of an earlier evaluation.

    Beside the fields of every result, `eval.json` holds the columns of the report's summary table and the entries of
    a model card's `model-index`, so that a card can be filled without the outcomes.

    Args:
        folder: Created if it is missing.
        info: More keys for the top of `eval.json`: command, options ...

    Raises:
        TypeError: `info`, `settings` or `data` hold something that JSON cannot.
    """
    from modeling_tmde.eval.report import summary_records  # the report reads results, too

    arrays: dict[str, np.ndarray] = {}
    names_of_ids: dict[tuple[str, ...], str] = {}
    records = [
        _result_record(result, arrays, names_of_ids) | record
        for result, record in zip(results, summary_records(results), strict=True)
    ]
    content = _finite({**environment(), **info, "results": records})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    content = {"fingerprint": digest.hexdigest()[:16], **content}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / OUTCOMES_NAME) as temporary:
        np.savez_compressed(temporary, fingerprint=np.array(content["fingerprint"]), **arrays)
    write_atomically(folder / EVAL_NAME, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_results(folder: str | Path) -> list[TaskResult]:
    """The results that [`write_results`] wrote.

    Raises:
        ValueError: No evaluation there, or its outcomes are missing, damaged or of another run.
    """
    folder = Path(folder)
    path, outcomes_path = folder / EVAL_NAME, folder / OUTCOMES_NAME
    if not path.is_file():
        raise ValueError(f"{folder}: found no {EVAL_NAME}, expected the folder of an evaluation")
    if not outcomes_path.is_file():
        raise ValueError(f"{folder}: found no {OUTCOMES_NAME} beside {EVAL_NAME}; copy both, or evaluate again")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        with np.load(outcomes_path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        fingerprints = content["fingerprint"], str(arrays["fingerprint"])
        results = [_result(record, arrays) for record in content["results"]]
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{folder}: the evaluation is damaged ({error!r}); evaluate again") from None
    if fingerprints[0] != fingerprints[1]:
        raise ValueError(
            f"{folder}: {OUTCOMES_NAME} is of evaluation {fingerprints[1]}, {EVAL_NAME} of {fingerprints[0]}, "
            "expected the same; copy both files of one evaluation, or evaluate again"
        )
    return results


def _result_record(
    result: TaskResult, arrays: dict[str, np.ndarray], names_of_ids: dict[tuple[str, ...], str]
) -> dict[str, Any]:
    """One result as JSON values. Its ids and outcomes go to `arrays`, equal ids only once."""
    record = {name: value for name, value in vars(result).items() if name != "cells"}
    record |= {"summary": summarize(result.cells), "cells": []}
    for cell in result.cells:
        ids = tuple(cell.ids)
        if ids not in names_of_ids:
            names_of_ids[ids] = f"ids_{len(names_of_ids)}"
            arrays[names_of_ids[ids]] = np.array(ids, dtype=np.str_)
        name = f"outcomes_{len(arrays)}"
        arrays[name] = np.asarray(cell.outcomes)
        values = {key: value for key, value in vars(cell).items() if key not in ("ids", "outcomes")}
        record["cells"].append(values | {"items": len(ids), "ids": names_of_ids[ids], "outcomes": name})
    return record


def _result(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> TaskResult:
    values = {field.name: record[field.name] for field in fields(TaskResult)}
    values["folds"] = [float(value) for value in record["folds"]]
    values["intervals"] = {name: tuple(map(float, bounds)) for name, bounds in record["intervals"].items()}
    values["truncated"] = None if record["truncated"] is None else tuple(record["truncated"])
    values["cells"] = [_cell(cell, arrays) for cell in record["cells"]]
    return TaskResult(**values)


def _cell(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Cell:
    def number(value: float | str | None) -> float | None:
        return float(value) if isinstance(value, str) else value

    return Cell(
        **{key: record[key] for key in ("source", "target", "metric")},
        **{key: number(record[key]) for key in ("value", "std", "chance")},
        ids=arrays[record["ids"]].tolist(),
        outcomes=arrays[record["outcomes"]],
        seed_values=tuple(map(number, record["seed_values"])),
        interval=None if record["interval"] is None else tuple(map(number, record["interval"])),
        extra={key: number(value) for key, value in record["extra"].items()},
    )


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become the strings that `float` reads."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
