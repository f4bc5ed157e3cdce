"""Measured results of a model: of `tmde eval`, and on the dev rows of its run."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from modeling_tmde import TmdeError
from tmde.hub_cards.markdown import escape, interval_text, percent, table
from tmde.hub_cards.run_records import RunRecords, read_json

EVAL_NAME = "eval.json"


# ---- Evaluations


@dataclass(frozen=True)
class EvaluationTables:
    """The results of `tmde eval`.

    Args:
        summary: A table of the columns of each task; empty without results.
        cells: A table of all cells with their intervals.
        model_index: The entries for the metadata of the card.
    """

    summary: str
    cells: str
    model_index: list[EvalResult]


def read_evaluations(results: Sequence[str | os.PathLike], model_name: str) -> EvaluationTables:
    """Read the results of a model in evaluations.

    Args:
        results: Folders of `tmde eval -o`, each `FOLDER` or `FOLDER#SYSTEM`.
        model_name: The name of the system in folders with several ones of which none is named.

    Raises:
        TmdeError: A folder holds no evaluation, or none of the system.
    """
    records: list[dict[str, Any]] = []
    for place in results:
        records.extend(_records_of_system(os.fspath(place), model_name))
    columns: list[list[str]] = []
    cells: list[list[str]] = []
    model_index: list[EvalResult] = []
    for record in records:
        for column in record["columns"]:
            columns.append(_column_row(record, column))
        for cell in record["cells"]:
            cells.append(_cell_row(record, cell))
        for entry in record["model_index"]:
            model_index.append(EvalResult(**entry))
    column_header = [
        "task",
        "measure",
        "languages",
        "this model",
        "95% interval",
        "chance",
        "majority",
    ]
    cell_header = ["task", "languages", "this model", "95% interval", "items"]
    return EvaluationTables(
        summary=table(column_header, columns, left=3),
        cells=table(cell_header, cells, left=2),
        model_index=model_index,
    )


def _records_of_system(place: str, model_name: str) -> list[dict[str, Any]]:
    """Return the records of one system in `eval.json`.

    Args:
        place: `FOLDER` or `FOLDER#SYSTEM`.
        model_name: The system, if there are several and `place` names none.
    """
    folder, system = _split_place(place)
    path = Path(folder, EVAL_NAME)
    if not path.is_file():
        raise TmdeError(f"{folder}: found no {EVAL_NAME}, expected the folder of an evaluation")
    records_of_system: dict[str, list[dict[str, Any]]] = {}
    for record in read_json(path).get("results") or []:
        # Baselines such as TF-IDF are no models.
        if not record["baseline"]:
            records_of_system.setdefault(record["system"], []).append(record)
    systems = list(records_of_system)
    if system is None:
        system = systems[0] if len(systems) == 1 else model_name
    if system not in systems:
        listed = ", ".join(systems) or "no system"
        example = systems[0] if systems else "NAME"
        raise TmdeError(
            f"{folder}: found results of {listed}, expected some of {system!r}; "
            f"give FOLDER#SYSTEM, such as {folder}#{example}"
        )
    return records_of_system[system]


def _split_place(place: str) -> tuple[str, str | None]:
    """Return the folder and the system, if any, of `FOLDER` or `FOLDER#SYSTEM`."""
    folder_has_hash = Path(place, EVAL_NAME).is_file()
    if folder_has_hash or "#" not in place:
        return place, None
    folder, _, system = place.rpartition("#")
    return folder, system


def _task_text(record: Mapping[str, Any]) -> str:
    return f"{escape(record['task'])} ({record['protocol']})"


def _column_row(record: Mapping[str, Any], column: Mapping[str, Any]) -> list[str]:
    return [
        _task_text(record),
        record["metric_name"],
        column["title"],
        percent(column["value"]),
        interval_text(column["interval"]),
        percent(column.get("chance")),
        percent(column.get("majority")),
    ]


def _cell_row(record: Mapping[str, Any], cell: Mapping[str, Any]) -> list[str]:
    return [
        _task_text(record),
        f"{cell['source']} → {cell['target']}",
        percent(cell["value"]),
        interval_text(cell["interval"]),
        f"{cell['items']:,}",
    ]


# ---- Dev rows


@dataclass
class _DevRetrieval:
    """Precision at 1 on one dev set.

    Args:
        dev_set: The name of the dev set.
        kind: `sentences` or `documents`.
        pool_sizes: The number of candidates by measure; a missing one is unknown.
        values: Precision at 1 by pair of languages.
    """

    dev_set: str
    kind: str
    pool_sizes: Mapping[str, int]
    values: dict[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean over pairs."""
        return sum(self.values.values()) / len(self.values)

    @property
    def chance(self) -> float | None:
        """The mean of guessing uniformly; None if a pool is of unknown size."""
        prefix = "doc_" if self.kind == "documents" else ""
        chances = []
        for pair in self.values:
            size = self.pool_sizes.get(f"{prefix}p1_{pair}")
            if not size:
                return None
            chances.append(1 / size)
        return sum(chances) / len(chances)

    def table_row(self, pairs: Sequence[str]) -> list[str]:
        """Return the texts of a row with these pairs as columns."""
        texts = [percent(self.values.get(pair)) for pair in pairs]
        label = f"{escape(self.dev_set)}, {self.kind}"
        return [label, *texts, percent(self.mean), percent(self.chance)]

    def model_index_entry(self) -> EvalResult:
        """Return the entry for the metadata of the card."""
        return EvalResult(
            task_type="translation-retrieval",
            dataset_type=re.sub(r"\W+", "-", self.dev_set),
            dataset_name=f"{self.dev_set}, {self.kind}",
            dataset_config=self.kind,
            dataset_split="dev",
            metric_type="precision_at_1",
            metric_name="Precision at 1",
            metric_value=round(self.mean, 6),
            metric_args={
                "protocol": "retrieval",
                "pairs": list(self.values),
                "checkpoint": "chosen on these rows",
            },
        )


# The models that a run is measured against, by their keys in `results.json`.
# What a card calls the dev rows of a trainer that was given one set of them.
UNNAMED_SET = "dev"
_BASELINES = {"start": "before training", "packaged": "the model that comes with tmde"}


def dev_results(records: RunRecords) -> tuple[str, list[EvalResult]]:
    """Return precision at 1 on the dev rows of a run, at the step whose weights were kept.

    The table has the scores of the run's start and of the model that comes with tmde as well, where
    they were measured.

    Returns:
        A table, empty without results, and the entries for the metadata of the card.
    """
    dev_sets = _dev_retrievals(records, "best")
    baselines = {name: _dev_retrievals(records, name) for name in _BASELINES}
    pairs: list[str] = []
    for dev_set in dev_sets:
        pairs.extend(pair for pair in dev_set.values if pair not in pairs)
    rows = []
    entries = []
    for dev_set in dev_sets:
        rows.append(dev_set.table_row(pairs))
        for name, baseline_sets in baselines.items():
            rows.extend(_baseline_rows(dev_set, baseline_sets, _BASELINES[name], pairs))
        entries.append(dev_set.model_index_entry())
    return table(["dev set", *pairs, "mean", "chance"], rows), entries


def _baseline_rows(
    dev_set: _DevRetrieval,
    baseline_sets: Sequence[_DevRetrieval],
    title: str,
    pairs: Sequence[str],
) -> list[list[str]]:
    """Return the row of another model on a dev set; none if it was not measured there."""
    rows = []
    for baseline in baseline_sets:
        if (baseline.dev_set, baseline.kind) == (dev_set.dev_set, dev_set.kind):
            _, *cells = baseline.table_row(pairs)
            rows.append([f"... {title}", *cells])
    return rows


def _dev_retrievals(records: RunRecords, key: str) -> list[_DevRetrieval]:
    """Collect the measures `eval[_<dev set>][_doc]_p1_<pair>` of a run by dev set and kind.

    Args:
        records: The records of the run.
        key: The key of the scores in `results.json`.
    """
    languages = records.config["languages"]
    pairs = {f"{first}-{second}" for first, second in itertools.permutations(languages, 2)}
    pool_sizes = records.results.get("dev_pools") or {}
    dev_sets: dict[str, _DevRetrieval] = {}
    for measure, value in (records.results.get(key) or {}).items():
        name, _, pair = measure.removeprefix("eval").rpartition("_p1_")
        if pair not in pairs:
            continue
        if name not in dev_sets:
            dev_set = name.removesuffix("_doc").removeprefix("_")
            kind = "documents" if name.endswith("_doc") else "sentences"
            sizes = pool_sizes.get(dev_set) or {}
            dev_sets[name] = _DevRetrieval(dev_set or UNNAMED_SET, kind, sizes)
        dev_sets[name].values[pair] = value
    return list(dev_sets.values())
