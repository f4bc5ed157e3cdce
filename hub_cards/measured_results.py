"""Measured results of a model: from `tmde eval`, and on the dev rows of its run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from huggingface_hub import EvalResult

from modeling_tmde import TmdeError
from tmde.hub_cards.run_records import read_json

EVAL_NAME = "eval.json"


# ---- Evaluations


def read_evaluations(results: Sequence[str | os.PathLike], model_name: str) -> list[dict[str, Any]]:
    """Return the evaluation records of a model, one for each task.

    Args:
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`.
        model_name: The system to read from a folder with several if SYSTEM is omitted.

    Raises:
        TmdeError: A folder contains no evaluation, or none of the system.
    """
    records: list[dict[str, Any]] = []
    for place in results:
        records.extend(_records_of_system(os.fspath(place), model_name))
    return records


def _records_of_system(place: str, model_name: str) -> list[dict[str, Any]]:
    """Return the records of one system in `eval.json`.

    Args:
        place: `FOLDER` or `FOLDER#SYSTEM`.
        model_name: The system to read if there are several and `place` names none.
    """
    folder, system = _split_place(place)
    path = Path(folder, EVAL_NAME)
    if not path.is_file():
        raise TmdeError(f"{folder}: found no {EVAL_NAME}, expected an evaluation folder")
    records_of_system: dict[str, list[dict[str, Any]]] = {}
    for record in read_json(path)["results"]:
        # Baselines such as TF-IDF are not models.
        if not record["baseline"]:
            records_of_system.setdefault(record["system"], []).append(record)
    systems = list(records_of_system)
    if not system:
        system = systems[0] if len(systems) == 1 else model_name
    if system not in systems:
        listed = ", ".join(systems) or "no system"
        example = systems[0] if systems else "NAME"
        raise TmdeError(
            f"{folder}: found results of {listed}, expected some of {system!r}; "
            f"set FOLDER#SYSTEM, such as {folder}#{example}"
        )
    return records_of_system[system]


def _split_place(place: str) -> tuple[str, str]:
    """Return the folder and the system of `FOLDER#SYSTEM`; the system of `FOLDER` is ""."""
    folder_has_hash = Path(place, EVAL_NAME).is_file()
    if folder_has_hash or "#" not in place:
        return place, ""
    folder, _, system = place.rpartition("#")
    return folder, system


def model_index(records: Sequence[Mapping[str, Any]]) -> list[EvalResult]:
    """Return the `model-index` entries of evaluations."""
    entries: list[EvalResult] = []
    for record in records:
        entries.extend(EvalResult(**entry) for entry in record["model_index"])
    return entries


# ---- Dev rows

# The means over all dev sets and language pairs, by what is retrieved.
_MEANS = {"sentences": "eval_retrieval", "documents": "eval_document_retrieval"}


class DevMeasure(NamedTuple):
    """A measure in `results.json`: precision at 1 on dev rows, as a share.

    Attributes:
        label: What was retrieved.
        key: The key of the measure in the run's evaluations.
        chance: The expected value of a random guess.
    """

    label: str
    key: str
    chance: float


def dev_measures(results: Mapping[str, Any]) -> list[DevMeasure]:
    """Return the measures on the dev rows of a run.

    Args:
        results: The content of `results.json`.
    """
    evaluation = results.get("best") or {}
    measures = []
    chances = defaultdict(list)
    for dev_set, pools in results.get("dev_pools", {}).items():
        for pool_name, size in pools.items():
            prefix, _, pair = pool_name.partition("p1_")  # `p1_de-en` or `doc_p1_de-en`
            texts = "documents" if prefix else "sentences"
            label = ", ".join(filter(None, [dev_set, texts, pair]))
            key = "_".join(filter(None, ["eval", dev_set, pool_name]))
            if key in evaluation:
                measures.append(DevMeasure(label, key, 1 / size))
                chances[texts].append(1 / size)
    for texts, values in chances.items():
        measures.append(DevMeasure(f"mean, {texts}", _MEANS[texts], fmean(values)))
    return measures


def dev_model_index(results: Mapping[str, Any]) -> list[EvalResult]:
    """Return the means on dev rows as `model-index` entries.

    Args:
        results: The content of `results.json`.
    """
    trained = results.get("best") or {}
    dev_sets = ", ".join(filter(None, results.get("dev_pools", {})))
    entries = []
    for texts, key in _MEANS.items():
        if key in trained:
            entry = EvalResult(
                task_type="translation-retrieval",
                dataset_type="dev",
                dataset_name=f"dev rows ({dev_sets or 'unnamed'}), {texts}",
                dataset_config=texts,
                dataset_split="dev",
                metric_type="precision_at_1",
                metric_name="Precision at 1",
                metric_value=trained[key],
                metric_args={"protocol": "retrieval", "checkpoint": "chosen on these rows"},
            )
            entries.append(entry)
    return entries
