"""What is told beside the table of a comparison: costs, and what keeps systems from being compared as equals."""

import json
from pathlib import Path

import pytest

from modeling_tmde.cli.compare_costs import costs_of, ended_early, is_told_languages, unlike_runs
from modeling_tmde.cli.compare_file import Comparison, Training
from modeling_tmde.cli.compare_folder import ComparisonFolder
from modeling_tmde.cli.compare_report import write_table
from modeling_tmde.training.recipe import load_recipe
from tests.cli.compare_helpers import change, load, opened, staged


def finish(run: Path, cpu_minutes: float, **more) -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "results.json").write_text(json.dumps({"cpu_minutes": cpu_minutes, "minutes": 2 * cpu_minutes} | more))


def record(folder: ComparisonFolder, training: Training, train: str = "aa", dev: str = "bb", **more) -> None:
    """`run.json` as trainings write it."""
    data = {
        "train": {"rows": 300, "fingerprint": train},
        "dev": {"sample": {"rows": 20, "fingerprint": dev}},
        "eval_task": None,
    }
    run = folder.run(training)
    run.mkdir(parents=True, exist_ok=True)
    whole = {"tmde": "0.1.0", "versions": {"torch": "2.9", "numpy": "2.0"}, "machine": {"threads": 1}, "data": data}
    (run / "run.json").write_text(json.dumps(whole | more))


@pytest.fixture
def recorded(tmp_path) -> tuple[Comparison, ComparisonFolder]:
    """Runs of the same data, package and machine."""
    comparison, folder = opened(tmp_path)
    for training in comparison.trainings:
        record(folder, training)
    return comparison, folder


# ---- Costs


def test_a_first_stage_and_the_start_cost_minutes_and_give_no_words(tmp_path):
    comparison, folder = opened(tmp_path, staged(tmp_path))
    training = comparison.trainings[-1]
    finish(folder.run(comparison.trainings[0]), 5.0, seen={"source_words": 1e9})
    finish(folder.run(training), 4.0, seen={"source_words": 120_000.0}, steps=9)
    finish(folder.run(training) / "warm_start", 2.0, seen={"source_words": 1e9})
    costs = costs_of(training, comparison, folder)
    assert (costs["cpu_minutes"], costs["minutes"]) == (11.0, 22.0)
    assert (costs["own_cpu_minutes"], costs["limit"], costs["steps"]) == (4.0, 5, 9)
    assert costs["words_per_cpu_second"] == 500.0  # 120,000 words in 240 seconds


def test_whatever_ended_before_its_own_limit_is_told(tmp_path):
    comparison, folder = opened(tmp_path, staged(tmp_path))
    start, bag, first, second, last = comparison.trainings
    for training in (start, bag, first, second, last):
        finish(folder.run(training), 5.0)
    finish(folder.run(last) / "warm_start", 2.01)
    assert ended_early(comparison, folder) == []
    finish(folder.run(bag), 4.76)  # 0.952 of it: the last step is a whole one
    assert ended_early(comparison, folder) == []
    finish(folder.run(start), 1.5)
    finish(folder.run(second), 4.0)
    finish(folder.run(last) / "warm_start", 1.2)
    assert ended_early(comparison, folder) == [
        "Ended before its limit of CPU minutes: start base after 1.5 of 5, warm-2 after 4 of 5, "
        "the first stage of staged after 1.2 of 2"
    ]


def test_what_has_no_limit_or_is_not_done_ended_at_no_time(tmp_path):
    comparison, folder = opened(tmp_path, change("systems/bag/overrides/max_cpu_minutes", None))
    finish(folder.run(comparison.trainings[1]), 0.5)
    assert ended_early(comparison, folder) == []


# ---- Runs of other data, another package or machine


def test_runs_that_are_alike(recorded):
    comparison, folder = recorded
    assert unlike_runs(comparison, folder) == []
    (folder.run(comparison.trainings[1]) / "run.json").write_text('{"data": {')  # cut off
    (folder.run(comparison.trainings[2]) / "run.json").unlink()  # not begun
    assert unlike_runs(comparison, folder) == []


def test_runs_on_other_data_are_named(recorded):
    comparison, folder = recorded
    record(folder, comparison.trainings[1], train="cc")
    record(folder, comparison.trainings[3], dev="dd")
    assert unlike_runs(comparison, folder) == [
        "Not the same in all runs: the training data (bag unlike the rest)",
        "Not the same in all runs: the held-out rows (warm-2 unlike the rest)",
    ]
    write_table(comparison, folder, test=False)
    told = (folder.path / "table.md").read_text().partition("## What to know")[2]
    assert "Not the same in all runs: the training data (bag unlike the rest)" in told
    assert unlike_runs(comparison, folder)[0] in json.loads((folder.path / "table.json").read_text())["problems"]


def test_runs_of_other_versions_and_machines_are_named(recorded):
    comparison, folder = recorded
    record(folder, comparison.trainings[0], tmde="0.2.0")
    record(folder, comparison.trainings[1], versions={"torch": "2.8", "numpy": "2.0"}, machine={"threads": 2})
    assert unlike_runs(comparison, folder) == [
        "Not the same in all runs: the version of tmde (start base unlike the rest)",
        "Not the same in all runs: the version of torch (bag unlike the rest)",
        "Not the same in all runs: the machine or its threads (bag unlike the rest)",
    ]


def test_data_that_differ_by_the_seed_alone_name_no_run(tmp_path):
    """Of trainings with the seeds 42, 42, 1 and 2; rows that are held out, for one, follow from the seed."""
    comparison, folder = opened(tmp_path)
    for training in comparison.trainings:
        record(folder, training, train=f"of seed {training.seed}")
    assert unlike_runs(comparison, folder) == ["Not the same for all seeds: the training data"]
    record(folder, comparison.trainings[1], train="other")
    (line,) = unlike_runs(comparison, folder)
    assert line == "Not the same in all runs: the training data (bag, warm-1, warm-2 unlike the rest)"
    for training in comparison.trainings:
        record(folder, training, tmde=f"0.{training.seed}.0")
    (line,) = unlike_runs(comparison, folder)
    assert line == "Not the same in all runs: the version of tmde (warm-1, warm-2 unlike the rest)"


def test_a_source_that_moved_is_the_same(recorded):
    comparison, folder = recorded
    for training in comparison.trainings:
        task = {"source": f"of {training.name}", "rows": {"de": {"train": 3}}, "fingerprint": "ee"}
        record(folder, training, data={"train": None, "dev": {}, "eval_task": {"sib200": task}})
    assert unlike_runs(comparison, folder) == []


# ---- Notes under the table


def test_systems_that_are_told_the_language_of_a_text():
    told = {
        name: is_told_languages(Training(name, 42, load_recipe(name)))
        for name in ("bag", "tmde", "laser_1", "light", "nv", "cnv", "xnli_bilstm", "xnli_cbow")
    }
    assert [name for name, is_told in told.items() if is_told] == ["nv", "cnv", "xnli_bilstm", "xnli_cbow"]


def notes_of(folder: ComparisonFolder) -> str:
    return (folder.path / "table.md").read_text().partition("All in %")[2]


def test_notes_name_systems_that_are_told_languages(measured, monkeypatch):
    comparison, folder = measured
    write_table(comparison, folder, test=False)
    assert "told the language" not in notes_of(folder)
    monkeypatch.setattr("modeling_tmde.cli.compare_table.is_told_languages", lambda each: each.system == "warm")
    write_table(comparison, folder, test=False)
    assert "models of warm are told the language of every text, those of the tests too; those" in notes_of(folder)
    systems = json.loads((folder.path / "table.json").read_text())["systems"]
    assert [systems[name]["told_languages"] for name in ("bag", "warm")] == [False, True]


def test_notes_tell_what_is_of_one_seed(measured, tmp_path):
    comparison, folder = measured
    write_table(comparison, folder, test=False)
    assert "The values of bag are of one seed" in notes_of(folder) and "±: standard deviation" in notes_of(folder)
    write_table(load(tmp_path, change("systems/warm/seeds", [1])), folder, test=False)
    assert "All values are of one seed" in notes_of(folder) and "±" not in notes_of(folder)


def test_notes_tell_what_minutes_and_words_are(measured):
    comparison, folder = measured
    write_table(comparison, folder, test=False)
    notes = notes_of(folder)
    assert "each up to its last training step" in notes and "evaluations included" not in notes
    assert "the words of both sides of all text pairs that a system trained on" in notes
    assert "reads one side of most pairs" in notes
