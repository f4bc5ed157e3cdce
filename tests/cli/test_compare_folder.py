"""The folder of a comparison: what is kept and what made anew, and the jobs that follow."""

import subprocess
import sys

import pytest
import yaml

from modeling_tmde.cli import compare_run
from modeling_tmde.cli.compare_file import Comparison, load_comparison
from modeling_tmde.cli.compare_folder import ComparisonFolder, ComparisonFolderError
from modeling_tmde.cli.compare_run import plan_jobs
from modeling_tmde.cli.compare_values import ComparisonFileError
from tests.cli.compare_helpers import TINY, change, content, load, opened, write


def pretend(comparison: Comparison, folder: ComparisonFolder) -> None:
    """As if everything had been trained and evaluated."""
    for training in comparison.trainings:
        folder.run(training).mkdir(parents=True)
        (folder.run(training) / "results.json").write_text("{}")
        if not training.is_start:
            folder.evaluation(training).mkdir(parents=True)
            folder.finish_evaluation(training)


def states(comparison: Comparison, folder: ComparisonFolder) -> dict[str, str]:
    return {
        each.job: ("trained " if folder.is_trained(each) else "") + ("evaluated" if folder.is_evaluated(each) else "")
        for each in comparison.trainings
    }


def test_the_same_comparison_goes_on(tmp_path):
    comparison, folder = opened(tmp_path)
    pretend(comparison, folder)
    assert folder.open(load(tmp_path), overwrite=False) == []
    assert plan_jobs(comparison, folder, comparison.trainings) == []
    kept = yaml.safe_load((folder.path / "comparison.yaml").read_text())
    assert kept["systems"] == content()["systems"] and kept["data"]["data.train"] == "sample"
    recipe = yaml.safe_load((folder.path / "recipes" / "warm-2.yaml").read_text())
    assert recipe["training"]["seed"] == 2


def test_another_comparison_is_refused_and_told(tmp_path):
    comparison, folder = opened(tmp_path)
    pretend(comparison, folder)
    values = change("systems/bag/overrides/d_model", 24)
    values["reference"] = "warm"
    with pytest.raises(ComparisonFolderError) as error:
        opened(tmp_path, values)
    assert "systems.bag.overrides.d_model: was 16, is 24" in str(error.value)
    assert 'reference: was "bag", is "warm"' in str(error.value) and "--overwrite" in str(error.value)
    assert len(set(states(comparison, folder).values())) == 2  # nothing is gone


def test_overwrite_makes_anew_what_has_changed(tmp_path):
    comparison, folder = opened(tmp_path)
    pretend(comparison, folder)
    values = change("systems/bag/overrides/d_model", 24)
    values["systems"]["new"] = {"recipe": "bag", "overrides": TINY}
    comparison, folder = opened(tmp_path, values, overwrite=True)
    assert states(comparison, folder) == {
        "start base": "trained ", "train bag-42": "", "train warm-1": "trained evaluated",
        "train warm-2": "trained evaluated", "train new-42": "",
    }  # fmt: skip
    assert folder.open(comparison, overwrite=False) == []


def test_a_changed_start_takes_with_it_what_began_with_it(tmp_path):
    comparison, folder = opened(tmp_path)
    pretend(comparison, folder)
    comparison, folder = opened(tmp_path, change("start/base/overrides/learning_rate", 0.2), overwrite=True)
    assert [job.name for job in plan_jobs(comparison, folder, comparison.trainings)] == [
        "start base", "train warm-1", "train warm-2", "eval warm-1", "eval warm-2"
    ]  # fmt: skip


def test_other_tasks_cost_evaluations_and_other_titles_nothing(tmp_path):
    comparison, folder = opened(tmp_path)
    pretend(comparison, folder)
    comparison, folder = opened(tmp_path, content(titles={"sample": "x"}, contrasts=[]), overwrite=True)
    assert plan_jobs(comparison, folder, comparison.trainings) == []
    comparison, folder = opened(tmp_path, content(tasks=["sample", "word_order"]), overwrite=True)
    names = [job.name for job in plan_jobs(comparison, folder, comparison.trainings)]
    assert names == ["eval bag-42", "eval warm-1", "eval warm-2"]


def test_a_changed_recipe_of_the_package_is_another_comparison(tmp_path):
    recipe = yaml.safe_load(load(tmp_path).trainings[1].recipe.to_yaml())
    values = change("systems/bag", {"recipe": write(tmp_path / "mine.yaml", recipe)})
    opened(tmp_path, values)
    recipe["objectives"]["infonce"]["temperature"] = 0.1
    write(tmp_path / "mine.yaml", recipe | {"description": "other words"})
    with pytest.raises(ComparisonFolderError, match=r"recipe of bag-42: objectives.infonce.temperature: was 0.05, is"):
        opened(tmp_path, values)


def test_a_moved_folder_is_the_same_comparison(tmp_path):
    comparison, folder = opened(tmp_path, content(tokenizer="base"))
    pretend(comparison, folder)
    folder.path.rename(tmp_path / "moved")
    moved = load_comparison(str(tmp_path / "file.yaml"), tmp_path / "moved", ["sample"], {"sample": "sample"})
    assert ComparisonFolder(tmp_path / "moved").open(moved, overwrite=False) == []


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(ComparisonFolderError, match="found other files, expected an empty folder"):
        opened(tmp_path, overwrite=True)


def test_how_a_training_goes_on(tmp_path):
    comparison, folder = opened(tmp_path)
    warm = comparison.trainings[2]
    run = folder.run(warm)
    assert run == tmp_path / "out" / "runs" / "warm-1" and folder.begin_run(warm) == []
    run.mkdir(parents=True)
    (run / "recipe.yaml").touch()  # began, and has no checkpoint
    assert folder.begin_run(warm) == [] and not run.exists()
    (run / "checkpoint-3").mkdir(parents=True)  # that was cut off
    assert folder.begin_run(warm) == [] and not run.exists()
    (run / "checkpoint-3").mkdir(parents=True)
    (run / "checkpoint-3" / "trainer_state.json").write_text("{}")
    assert folder.begin_run(warm) == ["--resume"] and run.exists()
    (run / "checkpoint-3").rename(tmp_path / "elsewhere")
    (run / "warm_start").mkdir()
    (run / "warm_start" / "results.json").write_text("{}")  # a first stage that is done
    assert folder.begin_run(warm) == ["--resume"] and run.exists()


def test_jobs_of_a_comparison(tmp_path):
    comparison, folder = opened(tmp_path)
    jobs = {job.name: job for job in plan_jobs(comparison, folder, comparison.trainings)}
    assert list(jobs) == [
        "start base", "train bag-42", "train warm-1", "train warm-2", "eval bag-42", "eval warm-1", "eval warm-2"
    ]  # fmt: skip
    assert jobs["train warm-1"].needs == ["start base"] and jobs["eval warm-1"].needs == ["train warm-1"]
    out = tmp_path / "out"
    assert jobs["train bag-42"].command() == ["train", f"{out}/recipes/bag-42.yaml", "-o", f"{out}/runs/bag-42"]
    command = jobs["eval warm-1"].command()
    assert command[:5] == ["eval", "run", f"warm-1={out}/runs/warm-1", "--tasks", "sample"]
    assert "sample.sizes=[40, 20, 20]" in command and "--no-folds" in command and "--tfidf" in command
    jobs["eval warm-1"].process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert "--no-tfidf" in jobs["eval warm-2"].command()  # the other one is at it
    finally:
        jobs["eval warm-1"].process.kill()
        jobs["eval warm-1"].process.wait()
    assert "--tfidf" in jobs["eval warm-2"].command()  # it failed
    assert "--max-length" not in command
    jobs = plan_jobs(load(tmp_path, content(max_length=128)), folder, comparison.trainings)
    assert " --max-length 128 " in " ".join(jobs[-1].command())


def test_only_takes_a_system_with_its_start(tmp_path):
    comparison = load(tmp_path)
    chosen = compare_run._chosen(comparison, ["warm"], "file.yaml")
    assert [each.job for each in chosen] == ["start base", "train warm-1", "train warm-2"]
    assert [each.job for each in compare_run._chosen(comparison, ["bag"], "file.yaml")] == ["train bag-42"]
    with pytest.raises(ComparisonFileError, match="--only: found worm, expected some of the systems of file.yaml"):
        compare_run._chosen(comparison, ["worm"], "file.yaml")
