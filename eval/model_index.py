"""Results as the Hub's model-card metadata (`model-index`), with huggingface_hub's own classes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from huggingface_hub import EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index

from modeling_tmde.data.io import write_atomically
from modeling_tmde.eval.results import Cell, TaskResult, group_cells
from modeling_tmde.eval.sections import MAX_CELL_COLUMNS, flatten

# By metric of the cells: task type and name, metric type and name.
NAMES = {
    "accuracy": ("text-classification", "Text classification", "accuracy", "Accuracy"),
    "contrast_accuracy": ("sentence-similarity", "Contrastive minimal pairs", "accuracy", "Accuracy"),
    "precision_at_1": ("translation-retrieval", "Translation retrieval", "precision_at_1", "Precision at 1"),
    "spearman": ("sentence-similarity", "Sentence similarity", "spearmanr", "Spearman correlation"),
}
EXTRA_NAMES = {
    "macro_f1": ("f1", "Macro F1"),
    "mrr": ("mrr", "Mean reciprocal rank"),
    "recall_at_10": ("recall_at_10", "Recall at 10"),
    "precision_at_1_margin": ("precision_at_1_margin", "Precision at 1 by margin"),
    "error_rate": ("error_rate", "Error rate by margin"),
    "pearson": ("pearsonr", "Pearson correlation"),
}


def eval_results(results: Sequence[TaskResult]) -> list[EvalResult]:
    """The numbers of one system: of each task the means Same and Cross (thesis 4.4.2), then the cells if they are few.

    Values are shares (0 to 1) and correlations, as in `Cell`. A cell's languages are its dataset config,
    `<source>-<target>`; a mean's is `Same` or `Cross`. Protocol and head are the metric's arguments.
    Data that are no Hub dataset are called by the task's name, without a slash, and the split is None if unknown.
    A number that is not finite (the correlation of constants) is left out: the Hub does not take it.

    Raises:
        ValueError: A metric without a name on the Hub.
    """
    made = []
    for result in results:
        for cell in result.cells:
            if cell.metric not in NAMES:
                raise ValueError(f"{result.task}: found metric {cell.metric!r}, expected one of {sorted(NAMES)}")
        few = len(result.cells) <= MAX_CELL_COLUMNS
        groups = group_cells(result.cells)
        for group in ("Same", "Cross"):
            members = [result.cells[place] for place in groups.get(group, [])]
            if len(members) > (1 if few else 0):  # of few cells the mean of one is there as that cell
                made += _of_cells(result, group, members)
        for cell in result.cells if few else ():
            made += _of_cells(result, f"{cell.source}-{cell.target}", [cell])
    return [entry for entry in made if math.isfinite(entry.metric_value)]


def model_index(results: Sequence[TaskResult], model_name: str) -> list[dict[str, Any]]:
    """The value of `model-index` in a model card's metadata.

    Args:
        results: Of one system. Of several systems, those whose name is `model_name` are taken.
        model_name: As in the card.

    Raises:
        ValueError: Results of several systems of which none has this name; no results; an unknown metric.
    """
    systems = sorted({result.system for result in results})
    if len(systems) > 1:
        results = [result for result in results if result.system == model_name]
    if not results:
        raise ValueError(f"model_index of {model_name!r}: found results of {systems}, expected those of the model")
    return eval_results_to_model_index(model_name, eval_results(results))


def write_model_index(path: str | Path, results: Sequence[TaskResult], model_name: str) -> None:
    """Writes YAML to paste into a model card's metadata: `model-index: [...]`. See `model_index`."""
    content = {"model-index": model_index(results, model_name)}
    write_atomically(Path(path), yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=119))


def _of_cells(result: TaskResult, config: str, cells: Sequence[Cell]) -> list[EvalResult]:
    """The mean value of the cells, and those of the further measures that all of them have."""
    metric = cells[0].metric
    made = [_entry(result, config, metric, float(np.mean([cell.value for cell in cells])))]
    for key, (metric_type, name) in EXTRA_NAMES.items():
        if all(key in cell.extra for cell in cells):
            value = float(np.mean([cell.extra[key] for cell in cells]))
            made.append(_entry(result, config, metric, value, metric_type, name))
    return made


def _entry(
    result: TaskResult,
    config: str,
    metric: str,
    value: float,
    metric_type: str | None = None,
    metric_name: str | None = None,
) -> EvalResult:
    task_type, task_name, own_type, own_name = NAMES[metric]
    settings = dict(flatten(result.settings))
    chosen = {key: settings[key] for key in ("head", "scoring") if key in settings}
    return EvalResult(
        task_type=task_type,
        task_name=task_name,
        dataset_type=result.data.get("hub_id") or re.sub(r"\W+", "-", result.task),
        dataset_name=result.task,
        dataset_config=config,
        dataset_split=result.data.get("split"),
        metric_type=metric_type or own_type,
        metric_name=metric_name or own_name,
        metric_value=round(value, 6),
        metric_args={"protocol": result.protocol, **chosen},
    )
