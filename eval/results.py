"""What an evaluation measures, its means, its names on the Hub, and how it is stored."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from huggingface_hub import EvalResult

from modeling_tmde import TmdeError
from tmde.data.io import replacing, write_atomically
from tmde.embedding.loading import reading
from tmde.eval.metrics.same_cross_accuracy.same_cross_accuracy import group_pairs, same_cross
from tmde.eval.environment import environment

EVAL_NAME = "eval.json"
OUTCOMES_NAME = "outcomes.npz"
MAX_CELL_COLUMNS = 6

# Prefixes of the names in `Cell.extra` that hold the value on a group of the items, or on a control group.
ACCURACY_OF, CONTROL = "accuracy_of_", "control_"


class Metric(NamedTuple):
    """How tables and the Hub name a metric; `rows` and `columns` are the axes of its matrix."""

    title: str
    rows: str
    columns: str
    task_type: str
    task_name: str
    hub_type: str
    hub_name: str


SIMILARITY = "sentence-similarity"
METRICS = {
    "accuracy": Metric(
        "Accuracy (%)", "trained on", "tested on",
        "text-classification", "Text classification", "accuracy", "Accuracy",
    ),
    "contrast_accuracy": Metric(
        "Accuracy (%)", "sentence", "chooses in", SIMILARITY, "Contrastive minimal pairs", "accuracy", "Accuracy"
    ),
    "precision_at_1": Metric(
        "Precision at 1 (%)", "query", "found in",
        "translation-retrieval", "Translation retrieval", "precision_at_1", "Precision at 1",
    ),
    "recall": Metric(
        "Recall (%)", "documents", "aligned with",
        "translation-retrieval", "Document alignment", "recall", "Recall",
    ),
    "spearman": Metric(
        "Spearman correlation × 100", "first text", "second text",
        SIMILARITY, "Sentence similarity", "spearmanr", "Spearman correlation",
    ),
}  # fmt: skip
# Further measures in `Cell.extra`: the title in tables, and the metric type and name on the Hub.
EXTRAS = {
    "macro_f1": ("Macro F1 (%)", "f1", "Macro F1"),
    "precision_at_1_margin": (
        "P@1 by margin (%)",
        "precision_at_1_margin",
        "Precision at 1 by margin",
    ),
    "error_rate": (
        "Error rate by margin (%, lower is better)",
        "error_rate",
        "Error rate by margin",
    ),
    "mrr": ("MRR (%)", "mrr", "Mean reciprocal rank"),
    "recall_at_10": ("R@10 (%)", "recall_at_10", "Recall at 10"),
    "pearson": ("Pearson correlation × 100", "pearsonr", "Pearson correlation"),
}


@dataclass(frozen=True)
class Cell:
    """One measured number, with the outcome of each test item, so that systems can be compared item by item.

    Args:
        source: Training language of a classifier, or query language; `"all-but-<target>"` for leave-one-out.
        target: Test language, or language of the candidates.
        metric: A key of `METRICS`.
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

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target


@dataclass
class TaskResult:
    """One system on one task.

    Args:
        task: Name of the task, as in the report.
        system: Name of the system.
        protocol: `zero-shot`, `targeted`, `leave-one-out`, `retrieval`, `alignment`, `contrast` or
            `similarity`.
        cells: The numbers, all of one metric.
        intervals: Bootstrap confidence intervals of the means `Same`, `Cross` and `All`.
        folds: `Cross` in each of the ten folds of thesis 4.6, or of the six of 3.3; empty if they were not run.
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

    @property
    def metric(self) -> str:
        return self.cells[0].metric


def group_cells(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Positions of the cells of `Same`, `Cross` and `All` (thesis 4.4.2), without empty groups."""
    return group_pairs([cell.pair for cell in cells])


def summarize(cells: Sequence[Cell]) -> dict[str, float]:
    """Means over cells (thesis 4.4.2): `Same` (source = target), `Cross` (source != target) and `All`."""
    return same_cross([cell.pair for cell in cells], [cell.value for cell in cells])


def summary_columns(result: TaskResult) -> list[dict[str, Any]]:
    """Columns of a result in a summary table, as JSON values.

    `Same`, `Cross` and `All` unless they repeat another column, then the single cells if there are at most
    `MAX_CELL_COLUMNS`. Each has `title`, `value`, `std`, `interval`, `chance`, `majority` (the accuracy of always
    guessing the most frequent class) and `extra`, the means of the further measures that all its cells have.
    """
    groups = {
        name: [result.cells[place] for place in places]
        for name, places in group_cells(result.cells).items()
    }
    if len(groups) < 3:
        groups.pop("All")  # it equals the other one
    if len(result.cells) <= MAX_CELL_COLUMNS:
        groups = {name: cells for name, cells in groups.items() if len(cells) > 1}
        groups |= {f"{cell.source} → {cell.target}": [cell] for cell in result.cells}
    return [
        {
            "title": title,
            "value": float(np.mean([cell.value for cell in cells])),
            "std": _deviation(cells),
            "interval": cells[0].interval if len(cells) == 1 else result.intervals.get(title),
            "chance": _mean([cell.chance for cell in cells]),
            "majority": _mean([cell.extra.get("majority") for cell in cells]),
            "extra": {
                name: float(np.mean([cell.extra[name] for cell in cells]))
                for name in cells[0].extra
                if all(name in cell.extra for cell in cells)
            },
        }
        for title, cells in groups.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    return None if None in values else float(np.mean(values))


def _deviation(cells: Sequence[Cell]) -> float | None:
    """Standard deviation (n - 1) over seeds of the mean of the cells; None unless all were run with the same seeds.

    Cells of one seed are correlated, so this is computed from `seed_values` and not from the cells' deviations.
    """
    if len({len(cell.seed_values) for cell in cells}) == 1 and len(cells[0].seed_values) > 1:
        return float(np.mean([cell.seed_values for cell in cells], axis=0).std(ddof=1))
    return cells[0].std if len(cells) == 1 else None


def model_index(result: TaskResult) -> list[EvalResult]:
    """Entries of a result for the `model-index` of a model card: its summary columns without `All`.

    Values are shares (0 to 1) or correlations. The dataset config of a cell is `<source>-<target>`. Data from outside
    the Hub are named after the task. Values that are not finite are skipped, because the Hub rejects them.
    """
    metric = METRICS[result.metric]
    chosen = {
        "head": result.settings.get("head", {}).get("head"),
        "scoring": result.settings.get("scoring"),
    }
    arguments = {"protocol": result.protocol} | {
        key: value for key, value in chosen.items() if value
    }
    entries = []
    for column in summary_columns(result):
        names = [(metric.hub_type, metric.hub_name, column["value"])]
        names += [
            (*EXTRAS[key][1:], column["extra"][key]) for key in EXTRAS if key in column["extra"]
        ]
        entries += [
            EvalResult(
                task_type=metric.task_type,
                task_name=metric.task_name,
                dataset_type=result.data.get("hub_id") or re.sub(r"\W+", "-", result.task),
                dataset_name=result.task,
                dataset_config=column["title"].replace(" → ", "-"),
                dataset_split=result.data.get("split"),
                metric_type=metric_type,
                metric_name=metric_name,
                metric_value=round(value, 6),
                metric_args=arguments,
            )
            for metric_type, metric_name, value in names
            if column["title"] != "All" and math.isfinite(value)
        ]
    return entries


def write_results(folder: str | Path, results: Iterable[TaskResult], info: dict[str, Any]) -> None:
    """Writes `eval.json` and `outcomes.npz`, replacing those of an earlier evaluation.

    Beside the fields of every result, `eval.json` holds the columns of the report's summary table and the entries of
    a model card's `model-index`, so that a card can be filled without the outcomes.

    Args:
        folder: Created if it is missing.
        info: More keys for the top of `eval.json`: command, options ...

    Raises:
        TypeError: `info`, `settings` or `data` hold something that JSON cannot.
    """
    arrays: dict[str, np.ndarray] = {}
    names_of_ids: dict[tuple[str, ...], str] = {}
    records = [_result_record(result, arrays, names_of_ids) for result in results]
    content = _finite({**environment(), **info, "results": records})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for name, array in arrays.items():
        digest.update(
            f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        )
    content = {"fingerprint": digest.hexdigest()[:16], **content}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / OUTCOMES_NAME) as temporary:
        np.savez_compressed(temporary, fingerprint=np.array(content["fingerprint"]), **arrays)
    write_atomically(
        folder / EVAL_NAME,
        json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    )


def read_results(folder: str | Path) -> list[TaskResult]:
    """The results that [`write_results`] wrote.

    Raises:
        ValueError: No evaluation there, or its outcomes are missing, damaged or of another run.
    """
    folder = Path(folder)
    for name in (EVAL_NAME, OUTCOMES_NAME):
        if not (folder / name).is_file():
            raise TmdeError(f"{folder}: found no {name}, expected the folder of an evaluation")
    with reading(f"{folder}: the evaluation is damaged"):
        content = json.loads((folder / EVAL_NAME).read_text(encoding="utf-8"))
        with np.load(folder / OUTCOMES_NAME, allow_pickle=False) as stored:
            arrays = dict(stored)
        if str(arrays["fingerprint"]) != content["fingerprint"]:
            raise TmdeError(
                f"{OUTCOMES_NAME} is of another evaluation than {EVAL_NAME}; copy both files"
            )
        return [_result(record, arrays) for record in content["results"]]


def _result_record(
    result: TaskResult, arrays: dict[str, np.ndarray], names_of_ids: dict[tuple[str, ...], str]
) -> dict[str, Any]:
    """One result as JSON values. Its ids and outcomes go to `arrays`, equal ids only once."""
    cells = []
    for cell in result.cells:
        ids = tuple(cell.ids)
        if ids not in names_of_ids:
            names_of_ids[ids] = f"ids_{len(names_of_ids)}"
            arrays[names_of_ids[ids]] = np.array(ids, dtype=np.str_)
        name = f"outcomes_{len(arrays)}"
        arrays[name] = np.asarray(cell.outcomes)
        cells.append({**vars(cell), "items": len(ids), "ids": names_of_ids[ids], "outcomes": name})
    return {
        **vars(result),
        "cells": cells,
        "summary": summarize(result.cells),
        "metric": result.metric,
        "metric_name": METRICS[result.metric].title,
        "baseline": result.truncated is None,
        "columns": summary_columns(result),
        "model_index": [vars(entry) for entry in model_index(result)],
    }


def _result(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> TaskResult:
    values = {field.name: record[field.name] for field in fields(TaskResult)}
    values["intervals"] = {
        name: tuple(map(float, bounds)) for name, bounds in record["intervals"].items()
    }
    values["truncated"] = record["truncated"] and tuple(record["truncated"])
    values["cells"] = [_cell(cell, arrays) for cell in record["cells"]]
    return TaskResult(**values)


def _cell(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Cell:
    def number(value: float | str | None) -> float | None:
        return float(value) if isinstance(value, str) else value

    values = {field.name: record[field.name] for field in fields(Cell)}
    values |= {name: number(record[name]) for name in ("value", "std", "chance")}
    values["seed_values"] = tuple(map(number, record["seed_values"]))
    values["interval"] = record["interval"] and tuple(map(number, record["interval"]))
    values["extra"] = {name: number(value) for name, value in record["extra"].items()}
    return Cell(
        **values | {"ids": arrays[record["ids"]].tolist(), "outcomes": arrays[record["outcomes"]]}
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
