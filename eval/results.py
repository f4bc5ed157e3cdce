"""What an evaluation measures, its means, its names on the Hub, and how it is stored."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from huggingface_hub import EvalResult

from modeling_tmde import TmdeError
from tmde.data.io import replacing, write_atomically
from tmde.embedding.loading import errors_about
from tmde.eval.environment import environment
from tmde.eval.metrics.same_cross_accuracy.same_cross_accuracy import group_pairs, same_cross

EVAL_NAME = "eval.json"
OUTCOMES_NAME = "outcomes.npz"

# A summary table also shows single cells, if a result has at most so many.
MAX_CELL_COLUMNS = 6

# Prefixes of names in `Cell.extra`: the value on a group of the items, and on a control group.
ACCURACY_OF = "accuracy_of_"
CONTROL = "control_"


class Metric(NamedTuple):
    """The names of a metric in tables and on the Hub.

    Attributes:
        title: The name in tables, with its unit.
        rows: What a row of its matrix is, by the source language.
        columns: What a column of its matrix is, by the target language.
        task_type: The Hub's identifier of the kind of task.
        task_name: The name of the kind of task.
        hub_type: The Hub's identifier of the metric.
        hub_name: The name of the metric on the Hub.
    """

    title: str
    rows: str
    columns: str
    task_type: str
    task_name: str
    hub_type: str
    hub_name: str


METRICS = {
    "accuracy": Metric(
        title="Accuracy (%)",
        rows="trained on",
        columns="tested on",
        task_type="text-classification",
        task_name="Text classification",
        hub_type="accuracy",
        hub_name="Accuracy",
    ),
    "contrast_accuracy": Metric(
        title="Accuracy (%)",
        rows="sentence",
        columns="chooses in",
        task_type="sentence-similarity",
        task_name="Contrastive minimal pairs",
        hub_type="accuracy",
        hub_name="Accuracy",
    ),
    "language_accuracy": Metric(
        title="Languages told apart (%)",
        rows="language",
        columns="told from",
        task_type="text-classification",
        task_name="Geometry of vectors",
        hub_type="language_accuracy",
        hub_name="Accuracy of a linear classifier of the language",
    ),
    "precision_at_1": Metric(
        title="Precision at 1 (%)",
        rows="query",
        columns="found in",
        task_type="translation-retrieval",
        task_name="Translation retrieval",
        hub_type="precision_at_1",
        hub_name="Precision at 1",
    ),
    "question_precision_at_1": Metric(
        title="Precision at 1 (%)",
        rows="question",
        columns="paragraph",
        task_type="text-retrieval",
        task_name="Question retrieval",
        hub_type="precision_at_1",
        hub_name="Precision at 1",
    ),
    "recall_at_1": Metric(
        title="Recall at 1 (%)",
        rows="query",
        columns="found among",
        task_type="caption-image-retrieval",
        task_name="Caption-image retrieval",
        hub_type="recall_at_1",
        hub_name="Recall at 1",
    ),
    "recall": Metric(
        title="Recall (%)",
        rows="documents",
        columns="aligned with",
        task_type="translation-retrieval",
        task_name="Document alignment",
        hub_type="recall",
        hub_name="Recall",
    ),
    "strict_f1": Metric(
        title="Strict F1 (%)",
        rows="sentences",
        columns="aligned with",
        task_type="translation-retrieval",
        task_name="Sentence alignment",
        hub_type="f1",
        hub_name="Strict F1",
    ),
    "spearman": Metric(
        title="Spearman correlation × 100",
        rows="first text",
        columns="second text",
        task_type="sentence-similarity",
        task_name="Sentence similarity",
        hub_type="spearmanr",
        hub_name="Spearman correlation",
    ),
}


class ExtraMeasure(NamedTuple):
    """The names of a further measure in `Cell.extra`.

    Attributes:
        title: The name in tables, with its unit.
        hub_type: The Hub's identifier of the metric.
        hub_name: The name of the metric on the Hub.
        is_share: Whether it is a share, which tables show in percent, and not a count.
    """

    title: str
    hub_type: str
    hub_name: str
    is_share: bool = True


EXTRAS = {
    "lax_f1": ExtraMeasure("Lax F1 (%)", "lax_f1", "Lax F1"),
    "precision": ExtraMeasure("Strict precision (%)", "precision", "Strict precision"),
    "recall": ExtraMeasure("Strict recall (%)", "recall", "Strict recall"),
    "macro_f1": ExtraMeasure("Macro F1 (%)", "f1", "Macro F1"),
    "precision_at_1_margin": ExtraMeasure(
        "P@1 by margin (%)", "precision_at_1_margin", "Precision at 1 by margin"
    ),
    "error_rate": ExtraMeasure(
        "Error rate by margin (%, lower is better)", "error_rate", "Error rate by margin"
    ),
    "mrr": ExtraMeasure("MRR (%)", "mrr", "Mean reciprocal rank"),
    "recall_at_5": ExtraMeasure("R@5 (%)", "recall_at_5", "Recall at 5"),
    "recall_at_10": ExtraMeasure("R@10 (%)", "recall_at_10", "Recall at 10"),
    "median_rank": ExtraMeasure("Median rank", "median_rank", "Median rank", is_share=False),
    "pearson": ExtraMeasure("Pearson correlation × 100", "pearsonr", "Pearson correlation"),
    "precision_at_1_cosine": ExtraMeasure(
        "P@1 by cosine (%)", "precision_at_1", "Precision at 1 by cosine"
    ),
    "precision_at_1_euclidean": ExtraMeasure(
        "P@1 by Euclidean distance (%)",
        "precision_at_1_euclidean",
        "Precision at 1 by Euclidean distance",
    ),
    "precision_at_1_debiased": ExtraMeasure(
        "P@1 by cosine, debiased (%)",
        "precision_at_1_debiased",
        "Precision at 1 of debiased vectors",
    ),
    "language_accuracy_debiased": ExtraMeasure(
        "Languages told apart, debiased (%)",
        "language_accuracy_debiased",
        "Accuracy of a linear classifier of the language on debiased vectors",
    ),
    "debiased_rank": ExtraMeasure(
        "Directions removed", "debiased_rank", "Directions removed", is_share=False
    ),
    "components_90": ExtraMeasure(
        "Components with 90% of the variance",
        "components_90",
        "Principal components that hold 90% of the variance",
        is_share=False,
    ),
}


@dataclass(frozen=True)
class Cell:
    """One measured number, with the outcome of each test item.

    Outcomes are kept so that systems can be compared item by item.

    Args:
        source: The training language of a classifier, or the language of the queries;
            `"all-but-<target>"` for leave-one-out.
        target: The test language, or the language of the candidates.
        metric: A key of `METRICS`.
        value: A share (0 to 1) or a correlation (-1 to 1), averaged over seeds.
        ids: n ids of test items. Items with the same id are resampled together: translations in
            different cells, or questions about one paragraph or captions of one image in the same
            cell.
        outcomes: The outcome of each item, (n,), averaged over seeds; their mean is `value`. For
            `spearman` the gold and the measured similarity, (n, 2). For `strict_f1` the numbers of
            predicted, right, gold and found pairs at each place, (n, 4).
        chance: The value of guessing uniformly.
        std: The standard deviation of the value over seeds (n - 1 in the denominator); None for a
            single seed.
        seed_values: The value of each seed, if there are several.
        interval: The bootstrap confidence interval of the value; None if it was not computed.
        extra: Further numbers, such as `macro_f1`, `error_rate`, `mrr`, `recall_at_10`,
            `majority` or `size`.
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
        """The source and the target language."""
        return self.source, self.target


@dataclass
class TaskResult:
    """The numbers of one system on one task.

    Args:
        task: The name of the task, as in the report.
        system: The name of the system.
        protocol: `zero-shot`, `targeted`, `leave-one-out`, `retrieval`, `questions`, `alignment`,
            `sentence-alignment`, `contrast`, `geometry`, `similarity` or `captions`.
        cells: The numbers, all of one metric.
        intervals: The bootstrap confidence intervals of the means `Same`, `Cross` and `All`.
        folds: `Cross` in each of the ten folds of Li (2021, section 4.6), or of the six of section
            3.3; empty if they were not run.
        settings: What decided the numbers beside data and system: head, scoring, seeds ...
        data: The fingerprint, the provenance and the numbers of rows of the data.
        system_fingerprint: The fingerprint of the system.
        seconds: The wall-clock time by part, and that of CPU cores for embedding.
        truncated: The number of texts that were longer than the system's limit, and the number of
            all texts; None if they were not counted, as for TF-IDF.
        dense: Whether the system's vectors have a fixed length, as those of an embedder; False for
            TF-IDF.
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
    dense: bool = True

    @property
    def metric(self) -> str:
        """The metric of all cells."""
        return self.cells[0].metric

    @property
    def head(self) -> str | None:
        """The name of the classifier; None if there is none."""
        return self.settings.get("head", {}).get("head")


def group_cells(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Return the positions of the cells of `Same`, `Cross` and `All` (Li, 2021, section 4.4.2).

    Empty groups are omitted.
    """
    return group_pairs(pairs_of(cells))


def summarize(cells: Sequence[Cell]) -> dict[str, float]:
    """Return the means `Same`, `Cross` and `All` over cells (Li, 2021, section 4.4.2).

    `Same` averages the cells with source = target, `Cross` the cells with source != target, and
    `All` all cells.
    """
    return same_cross(pairs_of(cells), values_of(cells))


def pairs_of(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """Return the source and target language of each cell."""
    return [cell.pair for cell in cells]


def values_of(cells: Sequence[Cell]) -> list[float]:
    """Return the value of each cell."""
    return [cell.value for cell in cells]


def pick_cells(cells: Sequence[Cell], positions: Sequence[int]) -> list[Cell]:
    """Return the cells at some positions, such as those of a group."""
    return [cells[position] for position in positions]


def mean_value(cells: Sequence[Cell]) -> float:
    """Return the mean of the values of cells."""
    return float(np.mean(values_of(cells)))


def languages_of(cells: Iterable[Cell]) -> tuple[list[str], list[str]]:
    """Return the source and the target languages; those that are both come in the same order."""
    # Dicts serve as sets that are in the order of insertion.
    sources: dict[str, None] = {}
    targets: dict[str, None] = {}
    for cell in cells:
        sources[cell.source] = None
        targets[cell.target] = None
    common = [language for language in sources if language in targets]
    only_targets = [language for language in targets if language not in sources]
    return list(sources), common + only_targets


# ---- Summary columns


@dataclass(frozen=True)
class SummaryColumn:
    """A column of a summary table: the mean of some cells, or a single cell.

    Args:
        title: The name of the mean, or the pair of languages.
        value: The mean value.
        std: The standard deviation of that mean over seeds; None for a single seed.
        interval: The bootstrap confidence interval; None if it was not computed.
        chance: The mean value of guessing uniformly.
        majority: The mean accuracy of always guessing the most frequent class.
        extra: The means of the further measures that all cells have.
    """

    title: str
    value: float
    std: float | None
    interval: tuple[float, float] | None
    chance: float | None
    majority: float | None
    extra: dict[str, float]


def summary_columns(result: TaskResult) -> list[SummaryColumn]:
    """Return the columns of a result in a summary table.

    They are `Same`, `Cross` and `All`, unless one repeats another column, then the single cells if
    there are at most `MAX_CELL_COLUMNS`.
    """
    positions_of_group = group_cells(result.cells)
    if len(positions_of_group) < 3:
        # `All` equals the only other group.
        positions_of_group.pop("All")
    has_cell_columns = len(result.cells) <= MAX_CELL_COLUMNS
    groups: dict[str, list[Cell]] = {}
    for name, positions in positions_of_group.items():
        # A mean over one cell would repeat the column of that cell.
        if len(positions) > 1 or not has_cell_columns:
            groups[name] = pick_cells(result.cells, positions)
    if has_cell_columns:
        for cell in result.cells:
            groups[f"{cell.source} → {cell.target}"] = [cell]
    columns = []
    for title, cells in groups.items():
        interval = cells[0].interval if len(cells) == 1 else result.intervals.get(title)
        columns.append(_summary_column(title, cells, interval))
    return columns


def _summary_column(
    title: str, cells: Sequence[Cell], interval: tuple[float, float] | None
) -> SummaryColumn:
    extra: dict[str, float] = {}
    for name in cells[0].extra:
        mean = _mean_of_extra(cells, name)
        if mean is not None:
            extra[name] = mean
    return SummaryColumn(
        title=title,
        value=mean_value(cells),
        std=_deviation_of_mean(cells),
        interval=interval,
        chance=_mean_or_none([cell.chance for cell in cells]),
        majority=_mean_of_extra(cells, "majority"),
        extra=extra,
    )


def _mean_of_extra(cells: Sequence[Cell], name: str) -> float | None:
    """Return the mean of a further measure; None unless all cells have it."""
    return _mean_or_none([cell.extra.get(name) for cell in cells])


def _mean_or_none(values: Sequence[float | None]) -> float | None:
    """Return the mean of numbers; None if one is missing."""
    numbers = []
    for value in values:
        if value is None:
            return None
        numbers.append(value)
    return float(np.mean(numbers))


def _deviation_of_mean(cells: Sequence[Cell]) -> float | None:
    """Return the standard deviation (n - 1) over seeds of the mean of the cells.

    Cells of one seed are correlated, so this is computed from `seed_values` and not from the
    deviations of the cells. It is None unless all cells were run with the same number of seeds.
    """
    seed_values = [cell.seed_values for cell in cells]
    numbers_of_seeds = set(map(len, seed_values))
    if len(numbers_of_seeds) == 1 and max(numbers_of_seeds) > 1:
        means_of_seeds = np.mean(seed_values, axis=0)  # (seeds,)
        return float(means_of_seeds.std(ddof=1))
    return cells[0].std if len(cells) == 1 else None


# ---- Names on the Hub


def model_index(result: TaskResult) -> list[EvalResult]:
    """Return the entries of a result in the `model-index` of a model card.

    They are its summary columns without `All`. Values are shares (0 to 1) or correlations. The
    dataset config of a cell is `<source>-<target>`. Data from outside the Hub are named after the
    task. Values that are not finite are skipped, because the Hub rejects them.
    """
    metric = METRICS[result.metric]
    arguments = {"protocol": result.protocol}
    if result.head:
        arguments["head"] = result.head
    if result.settings.get("scoring"):
        arguments["scoring"] = result.settings["scoring"]

    entries = []
    for column in summary_columns(result):
        if column.title == "All":
            continue
        for metric_type, metric_name, value in _hub_measures(metric, column):
            if not math.isfinite(value):
                continue
            entry = EvalResult(
                task_type=metric.task_type,
                task_name=metric.task_name,
                dataset_type=result.data.get("hub_id") or re.sub(r"\W+", "-", result.task),
                dataset_name=result.task,
                dataset_config=column.title.replace(" → ", "-"),
                dataset_split=result.data.get("split"),
                metric_type=metric_type,
                metric_name=metric_name,
                metric_value=round(value, 6),
                metric_args=arguments,
            )
            entries.append(entry)
    return entries


def _hub_measures(metric: Metric, column: SummaryColumn) -> Iterator[tuple[str, str, float]]:
    """Yield identifier, name and value of every measure in a column."""
    yield metric.hub_type, metric.hub_name, column.value
    for name, measure in EXTRAS.items():
        if name in column.extra:
            yield measure.hub_type, measure.hub_name, column.extra[name]


# ---- Files


def write_results(folder: str | Path, results: Iterable[TaskResult], info: dict[str, Any]) -> None:
    """Write or replace `eval.json` and `outcomes.npz`.

    `eval.json` also contains the summary table and the `model-index` entries of a model card.

    Args:
        folder: The folder, created if missing.
        results: The results.
        info: More keys for the top of `eval.json`, such as the command and its options.

    Raises:
        TypeError: `info`, `settings` or `data` contain something that is not JSON.
    """
    arrays = _Arrays()
    records = [_record_of_result(result, arrays) for result in results]
    content = _without_nonfinite({**environment(), **info, "results": records})
    fingerprint = _fingerprint(content, arrays.by_name)
    text = json.dumps(
        {"fingerprint": fingerprint, **content}, indent=2, ensure_ascii=False, allow_nan=False
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stored: dict[str, Any] = {"fingerprint": np.array(fingerprint), **arrays.by_name}
    with replacing(folder / OUTCOMES_NAME) as temporary:
        np.savez_compressed(temporary, **stored)
    write_atomically(folder / EVAL_NAME, text + "\n")


def read_results(folder: str | Path) -> list[TaskResult]:
    """Return the results that `write_results` wrote.

    Args:
        folder: The folder of an evaluation.

    Raises:
        TmdeError: There is no evaluation, or its outcomes are missing, damaged or from another run.
    """
    folder = Path(folder)
    for name in (EVAL_NAME, OUTCOMES_NAME):
        if not (folder / name).is_file():
            raise TmdeError(f"{folder}: found no {name}, expected the folder of an evaluation")
    with errors_about(f"{folder}: the evaluation is damaged"):
        content = json.loads((folder / EVAL_NAME).read_text(encoding="utf-8"))
        with np.load(folder / OUTCOMES_NAME, allow_pickle=False) as stored:
            arrays = dict(stored)
        if str(arrays["fingerprint"]) != content["fingerprint"]:
            raise TmdeError(
                f"{OUTCOMES_NAME} belongs to another evaluation than {EVAL_NAME}; copy both files"
            )
        return [_result_of_record(record, arrays) for record in content["results"]]


def read_system(place: str) -> list[TaskResult]:
    """Return the results of one system that `write_results` wrote.

    Args:
        place: The folder of an evaluation, or `FOLDER#SYSTEM` if it holds several systems.

    Raises:
        TmdeError: There is no such evaluation or system, or it is not clear which.
    """
    folder = place
    system = ""
    # The name of a folder may hold a # itself.
    if "#" in place and not Path(place, EVAL_NAME).exists():
        folder, _, system = place.rpartition("#")
    results = read_results(folder)
    names = list(dict.fromkeys(result.system for result in results))
    if system and system not in names:
        raise TmdeError(f"{folder}: found no system {system!r}, expected one of {', '.join(names)}")
    if not system and len(names) > 1:
        raise TmdeError(
            f"{folder} contains several systems ({', '.join(names)}); choose one, such as "
            f"{folder}#{names[0]}"
        )
    return [result for result in results if not system or result.system == system]


class _Arrays:
    """The arrays of `outcomes.npz`. Equal lists of ids are stored only once."""

    def __init__(self) -> None:
        self.by_name: dict[str, np.ndarray] = {}
        self._names_of_ids: dict[tuple[str, ...], str] = {}

    def add_ids(self, ids: Sequence[str]) -> str:
        """Add the ids of a cell, and return the name of their array."""
        key = tuple(ids)
        if key not in self._names_of_ids:
            name = f"ids_{len(self._names_of_ids)}"
            self._names_of_ids[key] = name
            self.by_name[name] = np.array(key, dtype=np.str_)
        return self._names_of_ids[key]

    def add_outcomes(self, outcomes: np.ndarray) -> str:
        """Add the outcomes of a cell, and return the name of their array."""
        name = f"outcomes_{len(self.by_name)}"
        self.by_name[name] = np.asarray(outcomes)
        return name


def _record_of_result(result: TaskResult, arrays: _Arrays) -> dict[str, Any]:
    """Return a result as JSON values; its ids and outcomes go to `arrays`."""
    cells = []
    for cell in result.cells:
        references = {
            "items": len(cell.ids),
            "ids": arrays.add_ids(cell.ids),
            "outcomes": arrays.add_outcomes(cell.outcomes),
        }
        cells.append(vars(cell) | references)
    return {
        **vars(result),
        "cells": cells,
        "summary": summarize(result.cells),
        "metric": result.metric,
        "metric_name": METRICS[result.metric].title,
        "baseline": not result.dense,
        "columns": list(map(asdict, summary_columns(result))),
        "model_index": list(map(vars, model_index(result))),
    }


def _fingerprint(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Return the first 16 hexadecimal digits of a SHA-256 over both files."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256(text.encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _result_of_record(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> TaskResult:
    values = {field.name: record[field.name] for field in fields(TaskResult)}
    values["cells"] = [_cell_of_record(cell, arrays) for cell in record["cells"]]
    values["intervals"] = {}
    for name, bounds in record["intervals"].items():
        values["intervals"][name] = _interval_of_record(bounds)
    if record["truncated"] is not None:
        values["truncated"] = tuple(record["truncated"])
    return TaskResult(**values)


def _cell_of_record(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Cell:
    return Cell(
        source=record["source"],
        target=record["target"],
        metric=record["metric"],
        value=_number(record["value"]),
        ids=arrays[record["ids"]].tolist(),
        outcomes=arrays[record["outcomes"]],
        chance=_number_or_none(record["chance"]),
        std=_number_or_none(record["std"]),
        seed_values=tuple(map(_number, record["seed_values"])),
        interval=_interval_of_record(record["interval"]),
        extra={name: _number(value) for name, value in record["extra"].items()},
    )


def _interval_of_record(bounds: Sequence[float | str] | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    low, high = bounds
    return float(low), float(high)


def _without_nonfinite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by strings that `float` reads."""
    if isinstance(value, dict):
        return {key: _without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nonfinite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _number(value: float | str) -> float:
    """Return the number that `_without_nonfinite` may have made a string."""
    return float(value) if isinstance(value, str) else value


def _number_or_none(value: float | str | None) -> float | None:
    return None if value is None else _number(value)
