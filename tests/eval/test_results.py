"""Evaluations on disk: what is written comes back, and damaged folders raise."""

import itertools
import json
import shutil

import numpy as np
import pytest

from tmde.eval.results import Cell, TaskResult, read_results, summarize, write_results


def result(system="mine", outcomes=(1.0, 0.0, 0.5), **changes) -> TaskResult:
    """A result in two languages whose four cells have the same outcomes."""
    cells = []
    for source, target in itertools.product(("de", "en"), repeat=2):
        cell = Cell(
            source=source,
            target=target,
            metric="accuracy",
            value=float(np.mean(outcomes)),
            ids=["a", "ä b", "c"],
            outcomes=np.array(outcomes),
            chance=0.25,
            std=0.1,
            seed_values=(0.4, 0.6),
            interval=(0.1, 0.9),
            extra={"macro_f1": 0.5, "majority": 0.3},
        )
        cells.append(cell)
    fields = {
        "task": "t",
        "system": system,
        "protocol": "zero-shot",
        "cells": cells,
        "folds": [0.5, 0.6],
        "intervals": {"Cross": (0.2, 0.8)},
        "settings": {"head": {"head": "svm"}, "seeds": [0, 1]},
        "data": {"fingerprint": "f", "rows": {"de": 3, "en": 3}, "split": "test"},
        "system_fingerprint": "x",
        "seconds": {"embedding": 1.5},
        "truncated": (1, 3),
    }
    return TaskResult(**fields | changes)


def read_eval_json(folder) -> dict:
    return json.loads((folder / "eval.json").read_text(encoding="utf-8"))


def without(value, field: str) -> dict:
    return {name: content for name, content in vars(value).items() if name != field}


def test_results_survive_a_round_trip(tmp_path):
    written = [result(), result("TF-IDF", (0.0, 0.0, 1.0), truncated=None, dense=False, folds=[])]

    write_results(tmp_path / "new", written, {})
    read = read_results(tmp_path / "new")

    for before, after in zip(written, read, strict=True):
        assert without(before, "cells") == without(after, "cells")
        for cell_before, cell_after in zip(before.cells, after.cells, strict=True):
            assert without(cell_before, "outcomes") == without(cell_after, "outcomes")
            np.testing.assert_array_equal(cell_before.outcomes, cell_after.outcomes)


def test_results_say_whether_vectors_are_dense(tmp_path):
    """Whether truncated texts were counted has no part in it."""
    sparse = result("sparse", truncated=(1, 3), dense=False)
    uncounted = result("uncounted", truncated=None)
    write_results(tmp_path, [sparse, uncounted], {})
    assert [read.dense for read in read_results(tmp_path)] == [False, True]
    assert [record["baseline"] for record in read_eval_json(tmp_path)["results"]] == [True, False]


def test_numbers_that_are_not_finite_survive_a_round_trip(tmp_path):
    outcomes = np.array([[1.0, 2.0]])
    extra = {"pearson": float("inf")}
    cell = Cell("a", "b", "spearman", float("nan"), ["x"], outcomes, extra=extra)

    write_results(tmp_path, [result(cells=[cell], intervals={})], {})
    (read_cell,) = read_results(tmp_path)[0].cells

    assert np.isnan(read_cell.value)
    assert read_cell.extra["pearson"] == float("inf")


def test_eval_json_tells_how_it_was_made(tmp_path):
    write_results(tmp_path, [result()], {"command": ["tmde", "eval"]})
    content = read_eval_json(tmp_path)

    assert content["command"] == ["tmde", "eval"]
    assert content["versions"]["torch"]


def test_eval_json_has_the_means(tmp_path):
    written = result()
    write_results(tmp_path, [written], {})
    (record,) = read_eval_json(tmp_path)["results"]

    assert record["summary"] == summarize(written.cells)
    assert record["metric_name"] == "Accuracy (%)"
    assert record["baseline"] is False


def test_eval_json_has_the_columns_of_the_report(tmp_path):
    write_results(tmp_path, [result()], {})
    (record,) = read_eval_json(tmp_path)["results"]
    columns = {column["title"]: column for column in record["columns"]}

    assert list(columns) == ["Same", "Cross", "All", "de → de", "de → en", "en → de", "en → en"]
    assert columns["Cross"] == {
        "title": "Cross",
        "value": 0.5,
        "std": pytest.approx(np.std([0.4, 0.6], ddof=1)),
        "interval": [0.2, 0.8],
        "chance": 0.25,
        "majority": 0.3,
        "extra": {"macro_f1": 0.5, "majority": 0.3},
    }
    assert columns["de → en"]["interval"] == [0.1, 0.9]


def test_eval_json_has_the_entries_of_a_model_card(tmp_path):
    write_results(tmp_path, [result()], {})
    (record,) = read_eval_json(tmp_path)["results"]

    assert record["model_index"][0]["dataset_config"] == "Same"


def test_a_folder_without_an_evaluation(tmp_path):
    with pytest.raises(ValueError, match="found no eval.json, expected the folder of an eval"):
        read_results(tmp_path)


def test_outcomes_of_another_evaluation(tmp_path):
    write_results(tmp_path / "one", [result(outcomes=(1.0, 0.0, 0.0))], {})
    write_results(tmp_path / "two", [result(outcomes=(0.0, 0.0, 0.0))], {})
    shutil.copy(tmp_path / "one" / "outcomes.npz", tmp_path / "two" / "outcomes.npz")

    message = "two: .*outcomes.npz belongs to another evaluation .*copy both"
    with pytest.raises(ValueError, match=message):
        read_results(tmp_path / "two")


def test_damaged_outcomes(tmp_path):
    write_results(tmp_path / "one", [result()], {})
    (tmp_path / "one" / "outcomes.npz").write_bytes(b"PK cut off")

    with pytest.raises(ValueError, match="one: the evaluation is damaged"):
        read_results(tmp_path / "one")
