"""`tmde compare`: its files, what is kept and made anew, processes, the table's arithmetic, and whole comparisons."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from modeling_tmde.cli import compare_jobs, compare_run
from modeling_tmde.cli.compare_file import Comparison, comparison_names, load_comparison
from modeling_tmde.cli.compare_folder import ComparisonFolder, ComparisonFolderError
from modeling_tmde.cli.compare_jobs import Job, Watcher, run_jobs
from modeling_tmde.cli.compare_report import write_table
from modeling_tmde.cli.compare_run import plan_jobs, run_comparison
from modeling_tmde.cli.compare_table import Column, Differences, Measured, columns_of
from modeling_tmde.cli.compare_values import ComparisonFileError
from modeling_tmde.cli.main import app
from modeling_tmde.eval.results import Cell, TaskResult
from modeling_tmde.eval.significance import compare
from modeling_tmde.eval.storage import read_results, write_results

TINY = {"vocab_size": 400, "max_characters": 20000, "d_model": 16, "micro_batch_rows": 64}
HEADS = {
    "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "objectives.translation.sampled_vocabulary": None,
}  # fmt: skip
SHARED = {
    "max_rows": 300, "eval_pairs": ["de-en"], "eval_pool": 50, "eval_loss_rows": 20, "eval_minutes": None,
    "bf16": False, "max_steps": 3, "warmup_steps": 1, "cooldown": 0, "max_minutes": None, "max_cpu_minutes": 5,
    "token_cache_dir": None,
}  # fmt: skip


def content(**changes) -> dict:
    """A comparison of three tiny systems on the built-in sample; `KEY=None` leaves a key out."""
    whole = {
        "description": "tiny",
        "shared": {"all": dict(SHARED), "tmde": {"decoder_layers": 1}},
        "start": {"base": {"recipe": "bag", "overrides": dict(TINY)}},
        "systems": {
            "bag": {"recipe": "bag", "overrides": dict(TINY)},
            "warm": {"recipe": "small", "start": "base", "seeds": [1, 2], "overrides": dict(HEADS)},
        },
        "reference": "bag",
        "tasks": ["sample"],
        "task_options": {"sample.sizes": [40, 20, 20]},
        "contrasts": [["warm", "bag"]],
    } | changes
    return {key: value for key, value in whole.items() if value is not None}


def write(path: Path, values: dict) -> str:
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return str(path)


def load(folder: Path, values: dict | None = None, **options) -> Comparison:
    file = write(folder / "file.yaml", content() if values is None else values)
    return load_comparison(file, folder / "out", **({"train": ["sample"], "dev": {"sample": "sample"}} | options))


# ---- The file


def test_a_file_becomes_trainings_with_settled_recipes(tmp_path):
    comparison = load(tmp_path)
    assert [each.job for each in comparison.trainings] == [
        "start base",
        "train bag-42",
        "train warm-1",
        "train warm-2",
    ]
    start, bag, warm, second = (each.recipe.sections for each in comparison.trainings)
    for sections in (start, bag, warm, second):
        assert sections["data"]["train"] == "sample" and sections["data"]["dev"] == {"sample": "sample"}
        assert sections["training"]["max_steps"] == 3
    assert [sections["training"]["seed"] for sections in (start, bag, warm, second)] == [42, 42, 1, 2]
    assert (bag["model"]["d_model"], warm["model"]["encoder_ffn_dim"]) == (16, 16)
    assert "decoder_layers" not in bag["model"] and warm["model"]["decoder_layers"] == 1  # the block of tmde alone
    # The start takes the place of the bag that `small` would have trained first.
    assert warm["warm_start"]["checkpoint"] == str(tmp_path / "out" / "start" / "base")


def test_own_overrides_go_before_those_of_the_architecture_and_these_before_all(tmp_path):
    values = content()
    values["shared"]["all"]["learning_rate"] = 0.1
    values["shared"]["tmde"]["learning_rate"] = 0.2
    values["systems"]["bag"]["overrides"]["train"] = "elsewhere"
    values["systems"]["other"] = {"recipe": "quickstart", "overrides": {"learning_rate": 0.3, **HEADS}}
    trainings = {each.name: each.recipe.sections for each in load(tmp_path, values).trainings}
    rates = {name: sections["training"]["learning_rate"] for name, sections in trainings.items()}
    assert rates == {"base": 0.1, "bag-42": 0.1, "warm-1": 0.2, "warm-2": 0.2, "other-42": 0.3}
    assert trainings["bag-42"]["data"]["train"] == "sample"  # --train goes before everything


def test_numbers_are_read_as_recipes_read_them(tmp_path):
    (tmp_path / "file.yaml").write_text(
        "systems: {a: {recipe: bag, overrides: {learning_rate: 3e-4}}}\ntasks: [sample]"
    )
    comparison = load_comparison(str(tmp_path / "file.yaml"), tmp_path, ["sample"])
    assert comparison.trainings[0].recipe.sections["training"]["learning_rate"] == 0.0003
    assert comparison.reference == "a" and comparison.contrasts == []


def test_a_start_goes_to_the_first_stage_of_a_recipe_whose_stage_is_no_bag(tmp_path):
    stage = yaml.safe_load(load(tmp_path).trainings[2].recipe.to_yaml())
    stage = {key: stage[key] for key in ("data", "model", "objectives", "training")} | {"tokenizer": {}}
    first = write(tmp_path / "first.yaml", stage)
    stage["warm_start"] = {"recipe": first, "overrides": {"max_cpu_minutes": 2}}
    values = content()
    values["systems"]["staged"] = {"recipe": write(tmp_path / "second.yaml", stage), "start": "base"}
    comparison = load(tmp_path, values)
    warm_start = comparison.trainings[-1].recipe.warm_start
    assert warm_start.checkpoint is None
    assert warm_start.overrides["warm_start.checkpoint"] == str(tmp_path / "out" / "start" / "base")
    # 5 of the start, 2 of the stage and 5 of its own, beside 10 of `warm` and 5 of the bag, which has no start
    (note,) = comparison.budget_notes()
    assert "12 of staged" in note and "10 of warm" in note and "5 of " in note


def test_budgets_that_are_equal_or_missing(tmp_path):
    values = content()
    values["systems"]["bag"]["overrides"]["max_cpu_minutes"] = 10
    assert load(tmp_path, values).budget_notes() == []
    values["start"]["base"]["overrides"]["max_cpu_minutes"] = None
    (note,) = load(tmp_path, values).budget_notes()
    assert note.startswith("Without a limit") and note.endswith(": warm")


def test_a_tokenizer_for_all(tmp_path):
    comparison = load(tmp_path, content(tokenizer="base"))
    start, bag, warm, _ = comparison.trainings
    assert bag.recipe.sections["tokenizer"]["path"] == str(tmp_path / "out" / "start" / "base")
    assert (start.needs, bag.needs, warm.needs) == ([], ["base"], ["base"])
    with pytest.raises(ComparisonFileError, match="tokenizer: the start 'bas' is unknown; did you mean base"):
        load(tmp_path, content(tokenizer="bas"))


def change(path: str, value):
    """The tiny comparison with one value changed, by its dotted path."""
    values = content()
    *parents, last = path.split("/")
    place = values
    for key in parents:
        place = place[key]
    place[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("sistems", {}, "key 'sistems' is unknown; did you mean systems"),
        ("systems", None, "systems: found none"),
        ("systems", ["bag"], r"systems: found \['bag'\], expected a mapping"),
        ("systems/bag/seed", 3, "systems.bag: key 'seed' is unknown; did you mean seeds"),
        ("systems/bag/recipe", "bagg", "systems.bag: There is no recipe 'bagg'"),
        ("systems/bag", {"start": "base"}, "systems.bag: found no 'recipe'"),
        ("systems/bag/overrides/lerning_rate", 1, "systems.bag: Recipe key 'lerning_rate' is unknown; did you mean"),
        ("systems/bag/overrides/eval_head", "fast", "systems.bag: .*eval_head='fast' is unknown"),
        ("systems/bag/overrides/model.d_model", "wide", "systems.bag: .*d_model"),
        ("systems/bag/overrides/seed", 3, "found seed, expected 'seed' or 'seeds' beside 'recipe'"),
        ("systems/bag/overrides/languages", ["en", "es"], "data.languages of base is .* of bag-42"),
        ("systems/warm/start", "bas", "systems.warm.start: the start 'bas' is unknown; did you mean base"),
        ("systems/warm/seeds", [1, 1], r"systems.warm.seeds: found \[1, 1\], expected different whole numbers"),
        ("systems/warm/seeds", 1, "systems.warm.seeds: found 1"),
        ("systems/warm/seeds", [True], "systems.warm.seeds: found"),
        ("systems/warm/overrides/warm_start.checkpoint", "x", "found start and warm_start.checkpoint"),
        ("systems/a b", {"recipe": "bag"}, "the name 'a b' becomes a folder's"),
        ("systems/../x", {"recipe": "bag"}, "becomes a folder's"),
        ("start/base/seeds", [1], "start.base: key 'seeds' is unknown"),
        ("shared/lasr", {}, "shared: block 'lasr' is unknown"),
        ("shared/all", 3, "shared.all: found 3"),
        ("shared/all/objectives.infonce.temprature", 1, "temprature"),
        ("reference", "tmde", "reference: the system 'tmde' is unknown"),
        ("contrasts", [["warm"]], "contrasts: found .* expected pairs"),
        ("contrasts", [["warm", "worm"]], "contrasts: the system 'worm' is unknown; did you mean warm"),
        ("contrasts", [["warm", "warm"]], "expected two different systems"),
        ("tasks", "sample", "tasks: found 'sample', expected a list"),
        ("tasks", ["simple"], "tasks: Found task 'simple'.*Did you mean 'sample'"),
        ("tasks", ["sample", "sentence_retrieval"], "found no data of .*give --eval-data"),
        ("task_options", {"sizes": 3}, "expected TASK.OPTION=VALUE"),
        ("titles", {"sample": 3}, "titles.sample: found 3, expected text"),
        ("titles", {"sample": "x", "sts": "x"}, "titles: found 'x' twice"),
        ("max_length", 2, "max_length: found 2, expected a whole number of at least 3"),
        ("max_length", "128", "max_length: found '128'"),
        ("folds", 1, "folds: found 1, expected true or false"),
    ],
)
def test_errors_name_file_and_key(tmp_path, path, value, match):
    values = change(path, value) if path != "systems/../x" else content(systems={"../x": value})
    with pytest.raises(ComparisonFileError, match=match) as error:
        load(tmp_path, values)
    assert "file.yaml" in str(error.value)


def test_all_systems_that_do_not_fit_are_named_at_once(tmp_path):
    values = change("systems/bag/recipe", "bagg")
    values["systems"]["warm"]["recipe"] = "smal"
    with pytest.raises(ComparisonFileError) as error:
        load(tmp_path, values)
    assert "systems.bag" in str(error.value) and "systems.warm" in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ComparisonFileError, match="no comparison 'nothing'.*papers"):
        load_comparison("nothing", tmp_path)
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(ComparisonFileError, match="a.yaml is not YAML"):
        load_comparison(str(tmp_path / "a.yaml"), tmp_path)
    (tmp_path / "a.yaml").write_text("systems: {a: {recipe: bag}, b: {recipe: bag}, a: {recipe: small}}")
    with pytest.raises(ComparisonFileError, match="found the key 'a' twice"):
        load_comparison(str(tmp_path / "a.yaml"), tmp_path)
    with pytest.raises(ComparisonFileError, match="found no training data; give --train"):
        load(tmp_path, train=None)


def test_the_built_in_comparisons(tmp_path):
    (tmp_path / "some_dev.parquet").touch()
    (tmp_path / "topic_documents.parquet").touch()
    assert "papers" in comparison_names()
    comparison = load_comparison("papers", tmp_path, ["sample"], {"sample": "sample"}, tmp_path)
    wanted = "bag tmde ctmde tmde_f ctmde_p dbtmde laser_1 laser_6 claser_6 nv cnv similarity_seq2seq light mlm tlm"
    assert {*wanted.split(), "xnli_bilstm", "xnli_cbow"} <= set(comparison.systems)
    assert ("tmde", "laser_6") in comparison.contrasts
    assert not any("Without a limit" in note for note in comparison.budget_notes())
    architectures = {each.recipe.architecture for each in comparison.trainings}
    assert architectures == {"bag", "tmde", "laser", "ntdv", "encoder", "aligned"}


# ---- The folder


def opened(tmp_path: Path, values: dict | None = None, overwrite: bool = False) -> tuple[Comparison, ComparisonFolder]:
    comparison, folder = load(tmp_path, values), ComparisonFolder(tmp_path / "out")
    folder.open(comparison, overwrite)
    return comparison, folder


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


# ---- Processes


@pytest.fixture
def python_jobs(tmp_path, monkeypatch):
    """Jobs whose command is Python code in place of `tmde`."""
    monkeypatch.setattr(compare_jobs, "PROGRAM", [sys.executable, "-c"])
    monkeypatch.setattr(compare_jobs, "PAUSE", 0.01)

    def make(name: str, code: str, *needs: str, **options) -> Job:
        return Job(name, lambda: [code], tmp_path / f"{name}.log", needs, **options)

    return make


class Recorder(Watcher):
    def __init__(self):
        self.events, self.most = [], 0

    def began(self, job):
        self.events.append(("began", job.name))

    def ended(self, job, seconds):
        self.events.append(("ended", job.name))

    def failed(self, job, reason):
        self.events.append(("failed", job.name))

    def running(self, jobs):
        self.most = max(self.most, len(jobs))


def test_jobs_wait_for_what_they_need_and_begin_by_rank(python_jobs, tmp_path):
    watcher, done = Recorder(), []
    append = f"open({str(tmp_path / 'order')!r}, 'a').write('%s ')"
    jobs = [
        python_jobs("c", append % "c", "b"),
        python_jobs("d", append % "d", rank=-1),
        python_jobs("b", append % "b", "a", done=lambda: done.append("b")),
        python_jobs("a", append % "a", "made before"),  # no job of these: it is there
    ]
    assert run_jobs(jobs, 1, 1, watcher) == []
    assert (tmp_path / "order").read_text() == "d a b c " and done == ["b"] and watcher.most == 1


def test_a_failure_costs_what_needs_it_and_nothing_else(python_jobs):
    watcher, done = Recorder(), []
    jobs = [
        python_jobs("a", "print('loading'); raise SystemExit('Error: no such file')"),
        python_jobs("b", "pass", "a", done=lambda: done.append("b")),
        python_jobs("c", "pass", "b"),
        python_jobs("d", "pass", done=lambda: done.append("d")),
        python_jobs("e", "import os; os.kill(os.getpid(), 9)"),
    ]
    failures = run_jobs(jobs, 2, 1, watcher)
    assert done == ["d"]
    told = {failure.partition(": ")[0]: failure for failure in failures}
    assert set(told) == {"a", "b", "c", "e"}
    assert "Error: no such file (exit code 1; log: " in told["a"] and "a.log" in told["a"]
    assert told["b"] == "b: needs 'a', which failed" and told["c"] == "c: needs 'b', which failed"
    assert "signal 9" in told["e"]
    assert ("ended", "d") in watcher.events and ("failed", "c") in watcher.events
    assert watcher.most == 2


def test_a_command_that_cannot_be_made_fails_its_job(python_jobs, tmp_path):
    def command():
        raise OSError("no space left")

    jobs = [Job("a", command, tmp_path / "a.log"), python_jobs("b", "pass", "a"), python_jobs("c", "pass")]
    assert run_jobs(jobs, 1, 1, Watcher()) == ["a: no space left", "b: needs 'a', which failed"]


def test_logs_are_kept_and_the_last_attempt_is_told(python_jobs, tmp_path):
    run_jobs([python_jobs("a", "raise SystemExit('Error: first')")], 1, 1, Watcher())
    (failure,) = run_jobs([python_jobs("a", "import sys; print('second'); sys.exit(3)")], 1, 1, Watcher())
    assert failure.startswith("a: second (exit code 3")
    assert "Error: first" in (tmp_path / "a.log").read_text()


def test_threads_of_a_job(python_jobs, tmp_path):
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['RAYON_NUM_THREADS'])"
    run_jobs([python_jobs("a", code)], 1, 3, Watcher())
    assert (tmp_path / "a.log").read_text().splitlines()[-1] == "3 3"


def test_an_interruption_ends_the_processes(python_jobs, tmp_path):
    """The one that catches it may finish what it is writing; the one that does not is killed after some patience."""
    tidy = tmp_path / "tidy"
    code = f"""
import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.2); pathlib.Path({str(tidy)!r}).touch(); sys.exit()
signal.signal(signal.SIGINT, end); print('ready', flush=True); time.sleep(60)
"""
    jobs = [python_jobs("a", code)]

    class Interrupts(Watcher):
        def running(self, running):
            if running and "ready" in running[0].log.read_text().splitlines():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, 1, 1, Interrupts())
    assert tidy.exists() and jobs[0].process.returncode == 0


def test_a_process_that_does_not_end_is_killed(python_jobs, monkeypatch):
    monkeypatch.setattr(compare_jobs, "PATIENCE", 0.1)
    code = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    jobs = [python_jobs("a", code)]

    class Interrupts(Watcher):
        def running(self, running):
            if running and "ready" in running[0].log.read_text().splitlines():
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, 1, 1, Interrupts())
    assert jobs[0].process.returncode == -signal.SIGKILL


def test_a_folder_is_kept_from_others_also_by_a_process_that_was_left(tmp_path, python_jobs, capsys):
    file, out = write(tmp_path / "file.yaml", content()), tmp_path / "out"
    with compare_run._lock(out) as lock:
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(lock,))
    try:
        assert run_comparison(file, out, ["sample"], None, None, 1, None, False) == 1
        assert "another `tmde compare`, or a process that one started, is at work" in capsys.readouterr().err
    finally:
        left.kill()
        left.wait()
    with compare_run._lock(out) as lock, open(out / ".lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- The table


def classified(system: str, values: dict[tuple[str, str], np.ndarray], task: str = "sib200") -> TaskResult:
    cells = [
        Cell(
            source, target, "accuracy", float(outcomes.mean()), [str(i) for i in range(len(outcomes))], outcomes, 0.25
        )
        for (source, target), outcomes in values.items()
    ]
    return TaskResult(task, system, "zero-shot", cells, data={"fingerprint": "f"}, truncated=(1, 1000))


def outcomes_of(*shares: float, seed: int = 0) -> dict[tuple[str, str], np.ndarray]:
    """Of de-de, de-en, en-de and en-en, 100 items each, exactly so many of them right."""
    rng = np.random.default_rng(seed)
    pairs = [("de", "de"), ("de", "en"), ("en", "de"), ("en", "en")]
    return {
        pair: rng.permutation(np.arange(100) < 100 * share).astype(float)
        for pair, share in zip(pairs, shares, strict=True)
    }


@pytest.fixture
def measured(tmp_path) -> tuple[Comparison, ComparisonFolder]:
    """Evaluations with known values: bag at 60 / 50, warm-1 at 90 / 80 and warm-2 at 70 / 46, and what they cost."""
    comparison, folder = opened(tmp_path)
    shares = {"bag": (0.5, 0.4, 0.6, 0.7), "warm1": (0.85, 0.8, 0.8, 0.95), "warm2": (0.7, 0.45, 0.47, 0.7)}
    for training, key in zip(comparison.trainings[1:], shares, strict=True):
        results = [classified(training.name, outcomes_of(*shares[key], seed=len(key)))]
        if key == "bag":
            results.append(classified("TF-IDF", outcomes_of(1.0, 0.3, 0.5, 1.0)))
        write_results(folder.evaluation(training), results, {})
        folder.finish_evaluation(training)
    for training, minutes in zip(comparison.trainings, (1.5, 2.0, 4.0, 4.0), strict=True):
        folder.run(training).mkdir(parents=True)
        results = {"minutes": 2 * minutes, "cpu_minutes": minutes, "steps": 7, "seen": {"source_words": 60_000.0}}
        (folder.run(training) / "results.json").write_text(json.dumps(results))
        (folder.run(training) / "run.json").write_text(json.dumps({"parameters": 1_234_567, "data": {"train": 1}}))
    return comparison, folder


def test_values_of_the_table(measured):
    comparison, folder = measured
    header, rows = write_table(comparison, folder)
    assert header == ["system", "SIB-200 Same", "SIB-200 Cross", "CPU minutes", "words / CPU s", "parameters"]
    by_name = {row[0]: row[1:] for row in rows}
    assert list(by_name) == ["TF-IDF", "bag", "warm", "chance"]
    assert by_name["TF-IDF"] == ["100.0", "40.0", "–", "–", "–"]
    # 60,000 words in 2 minutes are 500 a second
    assert by_name["bag"] == ["60.0", "50.0", "2.0", "500", "1.23 M"]
    # 90 and 70: mean 80, deviation sqrt(200) = 14.1; 80 and 46: 63, sqrt(578) = 24.0. 4 minutes and 1.5 of the start
    assert by_name["warm"] == ["80.0 ± 14.1 ▲", "63.0 ± 24.0 ▲", "5.5", "250", "1.23 M"]
    assert by_name["chance"][:2] == ["25.0", "25.0"]


def test_tests_and_contrasts_are_those_of_tmde_eval_compare(measured):
    comparison, folder = measured
    write_table(comparison, folder)
    found = json.loads((folder.path / "table.json").read_text())
    (bag,), (warm,) = ([r for r in read_results(folder.evaluation(each)) if r.system == each.name]
                       for each in comparison.trainings[1:3])  # fmt: skip
    expected = {each.group: each for each in compare(bag, warm)}
    tested = found["systems"]["warm"]["differences_from_reference"]
    (contrast,) = found["contrasts"]
    assert (contrast["better"], contrast["worse"]) == ("warm", "bag")
    for group in ("Same", "Cross"):
        for values in (tested[f"SIB-200 {group}"], contrast["measures"][f"SIB-200 {group}"]):
            assert values["difference"] == pytest.approx(0.3)
            assert values["p"] == expected[group].p and tuple(values["interval"]) == expected[group].interval
    # The second seed is above the bag in Same (70 to 60), below it in Cross (46 to 50).
    measures = contrast["measures"]
    counts = [(each["pairs_that_agree"], each["pairs_of_seeds"]) for each in measures.values()]
    assert counts == [(2, 2), (1, 2)]
    assert measures["SIB-200 Cross"]["mean_difference"] == pytest.approx(0.13)
    text = (folder.path / "table.md").read_text()
    assert "| warm - bag | **+20.0** (≤0.0001, 2/2) | **+13.0** (" in text and ", 1/2) |" in text
    assert "Texts that were cut: bag 1 of 1,000 on sib200; warm 1 of 1,000 on sib200." in text
    assert (
        "The limits of CPU minutes differ" in text
        and "Ended before its limit of CPU minutes: bag after 2 of 5" in text
    )


def test_a_worse_system_is_marked_and_a_difference_by_chance_is_not(measured):
    comparison, folder = measured
    values = content(reference="warm", contrasts=[["bag", "warm"]])
    comparison = load(folder.path.parent, values)
    _, rows = write_table(comparison, folder)
    by_name = {row[0]: row for row in rows}
    assert by_name["bag"][1:3] == ["60.0 ▼", "50.0 ▼"] and by_name["warm"][1] == "80.0 ± 14.1"
    assert "| bag - warm | **-20.0** (" in (folder.path / "table.md").read_text()
    # One item of a hundred more is no more than chance.
    near = classified("warm-1", outcomes_of(0.5, 0.41, 0.6, 0.71, seed=3))
    write_results(folder.evaluation(comparison.trainings[2]), [near], {})
    _, rows = write_table(load(folder.path.parent), folder)
    (warm,) = [row for row in rows if row[0] == "warm"]
    assert warm[1:3] == ["65.2 ± 6.7", "48.2 ± 3.2"]  # 60.5 and 70, 50.5 and 46


def test_a_table_of_what_there_is(measured):
    comparison, folder = measured
    folder.begin_evaluation(comparison.trainings[2])
    (folder.evaluation(comparison.trainings[3]) / "outcomes.npz").write_bytes(b"damaged")
    _, rows = write_table(comparison, folder, ["train warm-1: Error: out of memory"])
    assert [row for row in rows if row[0] == "warm"] == [["warm", *5 * ["–"]]]
    text = (folder.path / "table.md").read_text()
    assert "**Not measured:** warm-1, warm-2." in text
    assert "out of memory" in text and "outcomes.npz: damaged" in text


def test_differences_are_drawn_once(measured, monkeypatch):
    comparison, folder = measured
    write_table(comparison, folder)
    first = (folder.path / "table.json").read_text()
    monkeypatch.setattr("modeling_tmde.cli.compare_table.compare", lambda *_: pytest.fail("drawn again"))
    write_table(comparison, folder)
    assert (folder.path / "table.json").read_text() == first


def test_results_on_other_data_are_not_compared(tmp_path):
    results = [classified("a", outcomes_of(1, 1, 1, 1)), classified("b", outcomes_of(1, 1, 1, 1))]
    results[1].data["fingerprint"] = "another"
    found = Measured(
        {("a", 1): {"sib200": results[0]}, ("b", 1): {"sib200": results[1]}}, {("a", 1): "1", ("b", 1): "2"}
    )
    differences = Differences(found, tmp_path / "d.json")
    assert differences.between(("a", 1), ("b", 1), Column("sib200", "Same", "x")) is None
    assert "data of a is 'f', of b 'another'" in found.problems[0]
    assert differences.between(("a", 1), ("c", 1), Column("sib200", "Same", "x")) is None  # not measured


def test_columns_follow_from_the_tasks():
    cross = {pair: values for pair, values in outcomes_of(1, 1, 1, 1).items() if pair[0] != pair[1]}
    results = {
        task: classified("a", values, task)
        for task, values in [
            ("sentence_retrieval/general_dev", cross), ("sentence_retrieval/other", cross),
            ("document_retrieval", cross), ("sib200", outcomes_of(1, 1, 1, 1)), ("mine", cross),
        ]
    }  # fmt: skip
    for task in list(results)[:3]:
        results[task].protocol = "retrieval"
    columns = columns_of(Measured({("a", 1): results}), {"sentence_retrieval/general_dev": "general"})
    assert [column.title for column in columns] == [
        "general", "P@1 sentences other", "P@1 documents", "SIB-200 Same", "SIB-200 Cross", "mine"
    ]  # fmt: skip
    assert [column.group for column in columns] == ["Cross", "Cross", "Cross", "Same", "Cross", "Cross"]


# ---- The whole command


def test_bad_input_is_told_without_a_traceback(tmp_path):
    file = write(tmp_path / "file.yaml", change("systems/bag/recipe", "bagg"))
    result = CliRunner().invoke(app, ["compare", file, "--train", "sample", "-o", str(tmp_path / "out")])
    assert result.exit_code == 1 and "There is no recipe 'bagg'" in result.output
    assert not (tmp_path / "out").exists()


def tmde(*arguments) -> list[str]:
    return [sys.executable, "-m", "modeling_tmde.cli.main", *map(str, arguments)]


@pytest.mark.slow
def test_a_comparison_from_nothing_and_again(tmp_path):
    """With a system that fails: the others are in the table; mended, what was finished is kept."""
    values = content()
    del values["start"], values["systems"]["warm"]
    values |= {"contrasts": [["bag", "other"]]}
    values["systems"]["other"] = {"recipe": "bag", "overrides": TINY | {"d_model": 8}, "title": "narrow"}
    values["systems"]["broken"] = {"recipe": "bag", "overrides": TINY | {"tokenizer.path": str(tmp_path / "nowhere")}}
    out = tmp_path / "out"
    command = tmde("compare", write(tmp_path / "file.yaml", values), "--train", "sample", "--dev", "sample", "-o", out)
    environment = os.environ | {"COLUMNS": "160"}
    first = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, env=environment)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "train broken-42" in first.stderr and "nowhere" in first.stderr
    assert "eval broken-42: needs 'train broken-42', which failed" in first.stderr
    for word in ("TF-IDF", "bag", "narrow", "chance"):
        assert word in first.stdout
    table = json.loads((out / "table.json").read_text())
    assert {name: len(system["values"]) for name, system in table["systems"].items()} == {
        "bag": 2, "other": 2, "broken": 0
    }  # fmt: skip
    assert table["systems"]["bag"]["parameters"] > table["systems"]["other"]["parameters"]
    assert table["systems"]["other"]["differences_from_reference"] and table["contrasts"][0]["measures"]
    assert table["systems"]["bag"]["data"]["train"]["fingerprint"] and table["versions"]["torch"]
    assert 0 < table["systems"]["bag"]["words_per_cpu_second"] and table["tfidf"]["sample Cross"] > 0
    assert (
        len([r for n in ("bag-42", "other-42") for r in read_results(out / "eval" / n) if r.system == "TF-IDF"]) == 1
    )

    finished = (out / "runs" / "bag-42" / "results.json").stat().st_mtime_ns
    values["systems"]["broken"]["overrides"] = dict(TINY)
    write(tmp_path / "file.yaml", values)
    second = subprocess.run([*command, "--overwrite"], capture_output=True, text=True, env=environment)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "4 of 6 trainings and evaluations are finished already" in second.stdout
    assert "systems.broken.overrides.tokenizer.path" in second.stdout
    assert (out / "runs" / "bag-42" / "results.json").stat().st_mtime_ns == finished
    systems = json.loads((out / "table.json").read_text())["systems"]
    assert systems["broken"]["values"] == systems["bag"]["values"]  # the same recipe, data and seed


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_from_the_last_checkpoint(tmp_path):
    values = content(contrasts=None, start=None, systems={"bag": {"recipe": "bag", "overrides": dict(TINY)}})
    limits = {"max_steps": -1, "num_train_epochs": 1_000_000, "max_cpu_minutes": 0.15, "eval_steps": 20}
    values["shared"] = {"all": SHARED | limits}
    out = tmp_path / "out"
    command = tmde("compare", write(tmp_path / "file.yaml", values), "--train", "sample", "--dev", "sample", "-o", out)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = out / "runs" / "bag-42"
    deadline = time.monotonic() + 240
    while not list(run.glob("checkpoint-*/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command goes on from there" in " ".join(output.split())
    assert not (run / "results.json").exists()
    before = max(json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines())

    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    log = (out / "logs" / "bag-42.log").read_text()
    first, second = [line for line in log.splitlines() if line.startswith("$ tmde")]
    assert second == f"{first} --resume"
    losses = [line["step"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in line]
    assert losses.count(losses[0]) == 1 and losses[-1] > before  # it did not begin again
    results = json.loads((run / "results.json").read_text())
    assert 0.15 <= results["cpu_minutes"] < 0.5
    assert json.loads((out / "table.json").read_text())["systems"]["bag"]["values"]
