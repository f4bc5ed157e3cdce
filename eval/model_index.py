"""Results as the Hub's model-card metadata (`model-index`), with huggingface_hub's own classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index

from modeling_tmde.eval.records import write_atomically
from modeling_tmde.eval.results import Cell, TaskResult, summarize
from modeling_tmde.eval.sections import flatten

# By metric of the cells: task type and name, metric type and name.
NAMES = {
    "accuracy": ("text-classification", "Text classification", "accuracy", "Accuracy"),
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
    """All numbers of one system: of each task the means Same and Cross (thesis 4.4.2), then cell by cell.

    Values are shares (0 to 1) and correlations, as in `Cell`. A cell's languages are its dataset config,
    `<source>-<target>`; a mean's is `Same` or `Cross`. Protocol and head are the metric's arguments.
    A number that is not finite (the correlation of constants) is left out: the Hub does not take it.

    Raises:
        ValueError: A metric without a name on the Hub.
    """
    made = []
    for result in results:
        for cell in result.cells:
            if cell.metric not in NAMES:
                raise ValueError(f"{result.task}: found metric {cell.metric!r}, expected one of {sorted(NAMES)}")
        means = summarize(result.cells)
        sizes = {"Same": sum(cell.source == cell.target for cell in result.cells)}
        sizes["Cross"] = len(result.cells) - sizes["Same"]
        for group in ("Same", "Cross"):
            if sizes[group] > 1:  # the mean of one cell is that cell
                made.append(_entry(result, group, result.cells[0].metric, means[group]))
        for cell in result.cells:
            made += _of_cell(result, cell)
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


def _of_cell(result: TaskResult, cell: Cell) -> list[EvalResult]:
    config = f"{cell.source}-{cell.target}"
    made = [_entry(result, config, cell.metric, cell.value)]
    for key, (metric_type, name) in EXTRA_NAMES.items():
        if key in cell.extra:
            made.append(_entry(result, config, cell.metric, cell.extra[key], metric_type, name))
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
        dataset_type=result.data.get("hub_id") or result.task,
        dataset_name=result.task,
        dataset_config=config,
        dataset_split=result.data.get("split", "test"),
        metric_type=metric_type or own_type,
        metric_name=metric_name or own_name,
        metric_value=round(float(value), 6),
        metric_args={"protocol": result.protocol, **chosen},
    )
