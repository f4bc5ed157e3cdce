"""Evaluations on disk: what is written comes back, and damaged folders raise."""

import itertools
import json
import shutil

import numpy as np
import pytest

from tmde.eval.results import Cell, TaskResult, read_results, summarize, write_results


def result(system="mine", outcomes=(1.0, 0.0, 0.5), **changes) -> TaskResult:
    extra = {"macro_f1": 0.5, "majority": 0.3}
    values = {
        "value": float(np.mean(outcomes)),
        "ids": ["a", "ä b", "c"],
        "outcomes": np.array(outcomes),
    }
    values |= {
        "chance": 0.25,
        "std": 0.1,
        "seed_values": (0.4, 0.6),
        "interval": (0.1, 0.9),
        "extra": extra,
    }
    cells = [
        Cell(*pair, "accuracy", **values) for pair in itertools.product(("de", "en"), repeat=2)
    ]
    values = {
        "task": "t", "system": system, "protocol": "zero-shot", "cells": cells, "folds": [0.5, 0.6],
        "intervals": {"Cross": (0.2, 0.8)}, "settings": {"head": {"head": "svm"}, "seeds": [0, 1]},
        "data": {"fingerprint": "f", "rows": {"de": 3, "en": 3}, "split": "test"}, "system_fingerprint": "x",
        "seconds": {"embedding": 1.5}, "truncated": (1, 3),
    }  # fmt: skip
    return TaskResult(**values | changes)


def test_results_survive_a_round_trip(tmp_path):
    results = [result(), result("TF-IDF", (0.0, 0.0, 1.0), truncated=None, folds=[])]
    write_results(tmp_path / "new", results, {"command": ["tmde", "eval"]})
    for before, after in zip(results, read_results(tmp_path / "new"), strict=True):
        assert {**vars(before), "cells": 0} == {**vars(after), "cells": 0}
        for one, other in zip(before.cells, after.cells, strict=True):
            assert {**vars(one), "outcomes": 0} == {**vars(other), "outcomes": 0}
            np.testing.assert_array_equal(one.outcomes, other.outcomes)
    content = json.loads((tmp_path / "new" / "eval.json").read_text(encoding="utf-8"))
    assert content["command"] == ["tmde", "eval"] and content["versions"]["torch"]
    assert content["results"][0]["summary"] == summarize(results[0].cells)


def test_eval_json_has_the_columns_and_the_model_index(tmp_path):
    write_results(tmp_path, [result()], {})
    record = json.loads((tmp_path / "eval.json").read_text(encoding="utf-8"))["results"][0]
    columns = {column["title"]: column for column in record["columns"]}
    assert list(columns) == ["Same", "Cross", "All", "de → de", "de → en", "en → de", "en → en"]
    assert columns["Cross"] | {"std": None} == {
        "title": "Cross", "value": 0.5, "std": None, "interval": [0.2, 0.8], "chance": 0.25, "majority": 0.3,
        "extra": {"macro_f1": 0.5, "majority": 0.3},
    }  # fmt: skip
    assert columns["Cross"]["std"] == pytest.approx(np.std([0.4, 0.6], ddof=1))
    assert columns["de → en"]["interval"] == [0.1, 0.9]
    assert (record["metric_name"], record["baseline"]) == ("Accuracy (%)", False)
    assert record["model_index"][0]["dataset_config"] == "Same"


def test_numbers_that_are_not_finite_survive_a_round_trip(tmp_path):
    cell = Cell(
        "a",
        "b",
        "spearman",
        float("nan"),
        ["x"],
        np.array([[1.0, 2.0]]),
        extra={"pearson": float("inf")},
    )
    write_results(tmp_path, [result(cells=[cell], intervals={})], {})
    (found,) = read_results(tmp_path)[0].cells
    assert np.isnan(found.value) and found.extra["pearson"] == float("inf")


def test_damaged_evaluations(tmp_path):
    with pytest.raises(
        ValueError, match="found no eval.json, expected the folder of an evaluation"
    ):
        read_results(tmp_path)
    for name, outcomes in (("one", (1.0, 0.0, 0.0)), ("two", (0.0, 0.0, 0.0))):
        write_results(tmp_path / name, [result(outcomes=outcomes)], {})
    shutil.copy(tmp_path / "one" / "outcomes.npz", tmp_path / "two" / "outcomes.npz")
    with pytest.raises(
        ValueError, match="two: .*outcomes.npz is of another evaluation .*copy both"
    ):
        read_results(tmp_path / "two")
    (tmp_path / "one" / "outcomes.npz").write_bytes(b"PK cut off")
    with pytest.raises(ValueError, match="one: the evaluation is damaged"):
        read_results(tmp_path / "one")
