"""An evaluation survives its files, and files that are none say so."""

import json
import math
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modeling_tmde.data.io import environment, replacing, write_atomically
from modeling_tmde.eval import records, storage
from modeling_tmde.eval.results import Cell, StorageError, TaskResult, read_results, write_results


def results() -> list[TaskResult]:
    ids = ["a", "ü 1", ""]
    cells = [
        Cell(
            "de",
            "de",
            "accuracy",
            2 / 3,
            ids,
            np.array([1.0, 0.0, 1.0]),
            0.25,
            0.1,
            (0.6, 0.7),
            (0.1, 1.0),
            {"size": 3},
        ),
        Cell("de", "en", "accuracy", 0.5, ids, np.array([0.5, 0.5, 0.5], dtype=np.float32), extra={"macro_f1": 0.1}),
    ]
    pairs = np.array([[0.0, -1.5], [2.0, 0.25]])
    similarity = [Cell("en", "es", "spearman", math.nan, ["x", "y"], pairs, extra={"pearson": math.inf})]
    return [
        TaskResult(
            "mldoc",
            "ctmde",
            "zero-shot",
            cells,
            folds=[0.1, 0.7],
            settings={"head": {"head": "ffn", "hidden": [10]}, "seeds": [0, 1]},
            data={"fingerprint": "ab", "citation": "Müller", "url": None},
            system_fingerprint="cd",
            seconds={"measuring": 1.25},
            truncated=(3, 7000),
        ),
        TaskResult("sts", "TF-IDF", "similarity", similarity),
    ]


def assert_same(found: list[TaskResult], expected: list[TaskResult]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name in ("task", "system", "protocol", "folds", "settings", "data", "system_fingerprint", "seconds"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.truncated == other.truncated
        assert type(one.truncated) is type(other.truncated)
        assert len(one.cells) == len(other.cells)
        for cell, expected_cell in zip(one.cells, other.cells, strict=True):
            for name in ("source", "target", "metric", "chance", "std", "seed_values", "interval", "extra"):
                assert getattr(cell, name) == getattr(expected_cell, name), name
            assert cell.ids == list(expected_cell.ids)
            np.testing.assert_array_equal(cell.value, expected_cell.value)  # NaN equals NaN here
            np.testing.assert_array_equal(cell.outcomes, expected_cell.outcomes)
            assert cell.outcomes.dtype == expected_cell.outcomes.dtype


def test_everything_comes_back(tmp_path):
    write_results(tmp_path / "new" / "folder", results(), {"command": "tmde eval"})
    assert_same(read_results(tmp_path / "new" / "folder"), results())
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["eval.json", "outcomes.npz"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    ids=st.lists(st.text(max_size=5).filter(lambda text: not text.endswith("\0")), max_size=4, unique=True),
    value=st.floats(allow_nan=True),
    bound=st.floats(allow_nan=False),
    numbers=st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False) | st.integers(), max_size=3),
)
def test_any_numbers_and_ids_come_back(tmp_path, ids, value, bound, numbers):
    cell = Cell("a", "b", "m", value, ids, np.arange(len(ids)) / 7, bound, bound, (bound, 0.5), (bound, 1.0), numbers)
    expected = [TaskResult("t", "s", "p", [cell, cell], folds=[bound], seconds={"x": bound})]
    write_results(tmp_path, expected, {})
    assert_same(read_results(tmp_path), expected)


def test_the_record_is_readable_json_without_items(tmp_path):
    write_results(tmp_path, results(), {"command": "tmde eval"})

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    content = json.loads((tmp_path / "eval.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert content["command"] == "tmde eval"
    assert content["versions"]["numpy"] == np.__version__
    assert content["machine"]["cpus"] == os.cpu_count()
    first, second = content["results"]
    # Same is the one cell de -> de, Cross the one de -> en, All their mean (2/3 + 1/2) / 2.
    assert first["summary"] == pytest.approx({"Same": 2 / 3, "Cross": 1 / 2, "All": 7 / 12})
    assert first["cells"][0]["items"] == 3
    assert first["cells"][0]["ids"] == first["cells"][1]["ids"]  # equal ids are stored once
    assert second["cells"][0]["value"] == "nan"
    assert "Müller" in (tmp_path / "eval.json").read_text(encoding="utf-8")
    with np.load(tmp_path / "outcomes.npz", allow_pickle=False) as stored:
        assert str(stored["fingerprint"]) == content["fingerprint"]
        assert len(stored.files) == 1 + 2 + 3  # fingerprint, two lists of ids, three cells


def test_a_folder_that_is_no_evaluation(tmp_path):
    with pytest.raises(StorageError, match=r"found no eval\.json, expected the folder of an evaluation"):
        read_results(tmp_path)
    for text in ("{not json", "[1]", '{"accuracy": 1}'):
        (tmp_path / "eval.json").write_text(text)
        with pytest.raises(StorageError, match="not the record of an evaluation"):
            read_results(tmp_path)


def test_missing_damaged_and_foreign_outcomes(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    write_results(mine, results(), {})
    changed = results()
    changed[0].cells[0].outcomes[:] = [0.0, 1.0, 1.0]
    write_results(other, changed, {})
    outcomes = (mine / "outcomes.npz").read_bytes()
    (mine / "outcomes.npz").write_bytes((other / "outcomes.npz").read_bytes())
    with pytest.raises(StorageError, match="copy both files of one evaluation"):
        read_results(mine)
    (mine / "outcomes.npz").write_bytes(outcomes[: len(outcomes) // 2])
    with pytest.raises(StorageError, match=r"outcomes\.npz: damaged"):
        read_results(mine)
    (mine / "outcomes.npz").unlink()
    with pytest.raises(StorageError, match=r"found no outcomes\.npz beside eval\.json"):
        read_results(mine)
    (mine / "outcomes.npz").write_bytes(outcomes)
    assert_same(read_results(mine), results())
    record = json.loads((mine / "eval.json").read_text())
    del record["results"][0]["cells"][0]["value"]
    (mine / "eval.json").write_text(json.dumps(record))
    with pytest.raises(StorageError, match="of another version"):
        read_results(mine)


def test_the_same_numbers_under_another_name_are_another_evaluation(tmp_path):
    renamed = results()
    renamed[0].system = "another"
    write_results(tmp_path / "a", results(), {})
    write_results(tmp_path / "b", renamed, {})
    (tmp_path / "a" / "outcomes.npz").write_bytes((tmp_path / "b" / "outcomes.npz").read_bytes())
    with pytest.raises(StorageError, match="is of evaluation"):
        read_results(tmp_path / "a")


def test_a_run_killed_between_the_two_files_is_noticed(tmp_path, monkeypatch):
    write_results(tmp_path, results(), {})

    def killed(path, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        write_results(tmp_path, results()[:1], {})
    with pytest.raises(StorageError, match="expected the same"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"settings": {"languages": ("de", "en")}},
            r"mldoc, ctmde: settings, languages: found \('de', 'en'\), .*lists rather than tuples",
        ),
        ({"settings": {1: "x"}}, "text as keys"),
        ({"data": {"rows": np.int64(3)}}, "mldoc, ctmde: data, rows: found a value that JSON does not hold"),
        ({"data": {"rows": math.nan}}, "data, rows: found a value that JSON does not hold"),
    ],
)
def test_what_would_not_come_back_is_refused_before_anything_is_written(tmp_path, change, message):
    result = results()[0]
    for name, value in change.items():
        setattr(result, name, value)
    with pytest.raises(StorageError, match=message):
        write_results(tmp_path, [result], {})
    assert not list(tmp_path.iterdir())


def test_other_bad_input_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"info: found the keys \['results'\]"):
        write_results(tmp_path, results(), {"results": 1})
    with pytest.raises(StorageError, match="info: found a value that JSON does not hold"):
        write_results(tmp_path, results(), {"path": tmp_path})
    for ids, outcomes, message in (
        (["a\0"], np.ones(1), r"item id 'a\\x00'"),
        (["a"], np.array([None]), "outcomes are objects"),
    ):
        result = TaskResult("t", "s", "p", [Cell("de", "en", "m", 1.0, ids, outcomes)])
        with pytest.raises(StorageError, match=message):
            write_results(tmp_path, [result], {})


def test_a_file_is_replaced_whole_or_stays(tmp_path):
    path = tmp_path / "x.txt"
    write_atomically(path, "first ü")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        assert path.read_text(encoding="utf-8") == "first ü"
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "first ü"
    assert [file.name for file in tmp_path.iterdir()] == ["x.txt"]


def test_versions_of_absent_packages_are_left_out(monkeypatch):
    assert environment()["versions"]["scipy"]
    monkeypatch.setattr(records, "OPTIONAL_PACKAGES", ("scipy", "no-such-package-of-tmde"))
    assert "scipy" in environment()["versions"]
    assert "no-such-package-of-tmde" not in environment()["versions"]
