"""An evaluation on disk: `eval.json` to read, `outcomes.npz` with every test item's outcome to compare systems by."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from modeling_tmde.data.io import environment, replacing, write_atomically
from modeling_tmde.eval.results import Cell, TaskResult, summarize

EVAL_NAME = "eval.json"
OUTCOMES_NAME = "outcomes.npz"


class StorageError(ValueError):
    """A folder that holds no evaluation, or a damaged one."""


def write_results(folder: str | Path, results: list[TaskResult], info: dict[str, Any]) -> None:
    """Writes `eval.json` and `outcomes.npz` into `folder`, in place of an earlier evaluation's.

    Args:
        folder: Made if it is missing.
        results: Their `settings` and `data` are JSON values (lists rather than tuples, no numpy numbers).
        info: More for the top of `eval.json`, JSON values: command, options, total seconds ...

    Raises:
        StorageError: A value that would not come back as it is.
    """
    if taken := {"fingerprint", "results", "tmde", "versions", "python", "machine"} & set(info):
        raise StorageError(f"info: found the keys {sorted(taken)}, which are written anyway; expected other names")
    arrays: dict[str, np.ndarray] = {}
    names_of_ids: dict[tuple[str, ...], str] = {}
    records = [_result_record(result, arrays, names_of_ids) for result in results]
    content = {**environment(), **info, "results": records}
    try:
        fingerprint = _fingerprint(content, arrays)
    except (TypeError, ValueError) as error:
        raise StorageError(f"info: found a value that JSON does not hold ({error}), expected JSON values") from None
    content = {"fingerprint": fingerprint, **content}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / OUTCOMES_NAME) as temporary:
        np.savez_compressed(temporary, fingerprint=np.array(fingerprint), **arrays)
    write_atomically(folder / EVAL_NAME, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_results(folder: str | Path) -> list[TaskResult]:
    """The results that `write_results` wrote, every field as it was.

    Raises:
        StorageError: No evaluation there, or its outcomes are missing, damaged or of another run.
    """
    folder = Path(folder)
    path, outcomes_path = folder / EVAL_NAME, folder / OUTCOMES_NAME
    if not path.is_file():
        raise StorageError(f"{folder}: found no {EVAL_NAME}, expected the folder of an evaluation")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        fingerprint, records = content["fingerprint"], content["results"]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: not the record of an evaluation ({error!r}); evaluate again") from None
    if not outcomes_path.is_file():
        raise StorageError(f"{folder}: found no {OUTCOMES_NAME} beside {EVAL_NAME}; copy both, or evaluate again")
    try:
        with np.load(outcomes_path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        of_outcomes = str(arrays.pop("fingerprint"))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise StorageError(f"{outcomes_path}: damaged ({error!r}); evaluate again") from None
    if of_outcomes != fingerprint:
        raise StorageError(
            f"{folder}: {OUTCOMES_NAME} is of evaluation {of_outcomes}, {EVAL_NAME} of {fingerprint}, expected the "
            "same; copy both files of one evaluation, or evaluate again"
        )
    try:
        return [_result(record, arrays) for record in records]
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"{path}: damaged, or of another version of tmde ({error!r}); evaluate again") from None


def _result_record(
    result: TaskResult, arrays: dict[str, np.ndarray], names_of_ids: dict[tuple[str, ...], str]
) -> dict[str, Any]:
    """One result as JSON values; its ids and outcomes go to `arrays`, equal ids once."""
    record = {field.name: getattr(result, field.name) for field in fields(result) if field.name != "cells"}
    for name in ("settings", "data"):
        _check_json(record[name], f"{result.task}, {result.system}: {name}")
    record["folds"] = [_to_json(value) for value in result.folds]
    record["seconds"] = {part: _to_json(value) for part, value in result.seconds.items()}
    record["truncated"] = None if result.truncated is None else list(result.truncated)
    record["summary"] = {name: _to_json(value) for name, value in summarize(result.cells).items()}
    record["cells"] = []
    for cell in result.cells:
        ids = tuple(cell.ids)
        if ids not in names_of_ids:
            names_of_ids[ids] = f"ids_{len(names_of_ids)}"
            arrays[names_of_ids[ids]] = _ids_array(cell, ids)
        name = f"outcomes_{len(arrays)}"
        arrays[name] = np.asarray(cell.outcomes)
        if arrays[name].dtype.hasobject:
            raise StorageError(
                f"{result.task}, {cell.source} -> {cell.target}: outcomes are objects, expected numbers"
            )
        values = {key: getattr(cell, key) for key in ("source", "target", "metric")}
        values |= {key: _to_json(getattr(cell, key)) for key in ("value", "std", "chance")}
        values["seed_values"] = [_to_json(value) for value in cell.seed_values]
        values["interval"] = None if cell.interval is None else [_to_json(bound) for bound in cell.interval]
        values["extra"] = {key: _to_json(value) for key, value in cell.extra.items()}
        record["cells"].append(values | {"items": len(ids), "ids": names_of_ids[ids], "outcomes": name})
    return record


def _ids_array(cell: Cell, ids: tuple[str, ...]) -> np.ndarray:
    array = np.array(ids, dtype=np.str_)
    if array.tolist() != list(ids):  # numpy drops NUL characters at the end
        bad = next(name for name, kept in zip(ids, array.tolist(), strict=True) if name != kept)
        raise StorageError(f"{cell.source} -> {cell.target}: item id {bad!r}, expected text that does not end in NUL")
    return array


def _result(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> TaskResult:
    values = {field.name: record[field.name] for field in fields(TaskResult)}
    values["folds"] = [_from_json(value) for value in record["folds"]]
    values["seconds"] = {part: _from_json(value) for part, value in record["seconds"].items()}
    values["truncated"] = None if record["truncated"] is None else tuple(record["truncated"])
    values["cells"] = [_cell(cell, arrays) for cell in record["cells"]]
    return TaskResult(**values)


def _cell(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> Cell:
    return Cell(
        **{key: record[key] for key in ("source", "target", "metric")},
        **{key: _from_json(record[key]) for key in ("value", "std", "chance")},
        ids=arrays[record["ids"]].tolist(),
        outcomes=arrays[record["outcomes"]],
        seed_values=tuple(_from_json(value) for value in record["seed_values"]),
        interval=None if record["interval"] is None else tuple(_from_json(bound) for bound in record["interval"]),
        extra={key: _from_json(value) for key, value in record["extra"].items()},
    )


def _to_json(number: float | None) -> float | str | None:
    """JSON has no NaN or infinity: they become the strings that `float` reads."""
    if number is None or isinstance(number, int):
        return number
    return float(number) if math.isfinite(number) else str(float(number))


def _from_json(number: float | str | None) -> float | None:
    return float(number) if isinstance(number, str) else number


def _check_json(values: dict[str, Any], name: str) -> None:
    for key, value in values.items():
        try:
            same = json.loads(json.dumps({key: value}, allow_nan=False)) == {key: value}
        except (TypeError, ValueError) as error:
            raise StorageError(
                f"{name}, {key}: found a value that JSON does not hold ({error}), expected JSON values"
            ) from None
        if not same:
            raise StorageError(
                f"{name}, {key}: found {value!r}, expected what JSON gives back as it is: lists rather than tuples, "
                "text as keys"
            )


def _fingerprint(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
