"""`tmde compare`: the file, what is done again, the table's numbers, and a whole comparison."""

import copy
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

from modeling_tmde import TmdeError
from tests.cli.conftest import run
from tmde.data.io import locked
from tmde.eval.results import Cell, TaskResult, write_results
from tmde.papers.published import published_tables
from tmde.papers.runs import Runner, causes_of_failures, open_folder
from tmde.papers.table import write_table
from tmde.papers.trainings import load_comparison
from tmde.training.checkpoints import find_checkpoint
from tmde.training.interruption import RunInterrupted
from tmde.training.packaged_files import yaml_files

TINY = {
    "tokenizer.vocab_size": 400,
    "max_characters": 20000,
    "d_model": 16,
    "per_device_train_batch_size": 64,
}
SHARED = {
    "max_rows": 300,
    "eval_strategy": "no",
    "bf16": False,
    "max_steps": 2,
    "warmup_steps": 1,
    "cooldown": 0,
    "max_minutes": None,
    "eval_minutes": None,
    "max_cpu_minutes": 5,
    "token_cache_dir": None,
}
CONTENT = {
    "description": "tiny",
    "shared": {"all": SHARED, "bag": {"model.normalize": True}},
    "start": {"base": {"recipe": "bag", "overrides": TINY}},
    "systems": {
        "bag": {"recipe": "bag", "overrides": TINY},
        "warm": {"recipe": "bag", "start": "base", "seeds": [1, 2], "overrides": TINY},
    },
    "tasks": ["sample"],
    "task_options": {"sample.sizes": [40, 20, 20]},
    "contrasts": [["warm", "bag"]],
}


def changed(path: str, value) -> dict:
    """The comparison with one value changed, by its path."""
    content = copy.deepcopy(CONTENT)
    *parents, last = path.split("/")
    place = content
    for key in parents:
        place = place[key]
    place[last] = value
    return content


def load(folder: Path, content: dict = CONTENT):
    (folder / "file.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_comparison(
        str(folder / "file.yaml"), folder / "out", {"data.train": "sample"}, None
    )


def names_of(trainings) -> list[str]:
    return [training.name for training in trainings]


def names_of_runs(trainings) -> list[str]:
    """The names of the trainings whose runs exist."""
    return names_of(training for training in trainings if training.run.exists())


def names_of_evaluations(trainings) -> list[str]:
    """The names of the trainings whose evaluations exist."""
    return names_of(training for training in trainings if training.evaluation.exists())


def opened(folder: Path, content: dict = CONTENT, overwrite: bool = False):
    file, trainings = load(folder, content)
    options = file.options_of_evaluations(folder, None)
    open_folder(folder / "out", options, trainings, overwrite)
    return trainings


def test_every_training_has_its_recipe(tmp_path):
    _, trainings = load(tmp_path)
    assert names_of(trainings) == ["base", "bag-42", "warm-1", "warm-2"]
    assert [training.recipe.training.seed for training in trainings] == [42, 42, 1, 2]


def test_a_recipe_has_shared_keys_and_its_own(tmp_path):
    _, trainings = load(tmp_path)
    bag = trainings[1].recipe
    warm = trainings[2].recipe
    assert bag.data.train == "sample"
    assert bag.data.max_rows == 300
    assert bag.model.d_model == 16
    assert warm.model.normalize is True


def test_a_system_begins_with_its_start(tmp_path):
    _, trainings = load(tmp_path)
    bag = trainings[1].recipe
    warm = trainings[2].recipe
    assert bag.warm_start.checkpoint is None
    assert warm.warm_start.checkpoint == str(tmp_path / "out" / "start" / "base")


def test_other_starts_take_the_tokenizer_of_one(tmp_path):
    content = copy.deepcopy(CONTENT)
    content["start"]["half"] = {"recipe": "bag", "overrides": TINY | {"data.train_share": 0.5}}
    content["tokenizer"] = "base"
    content["systems"]["warm"]["start"] = "half"
    _, (base, half, _, warm, _) = load(tmp_path, content)
    shared_tokenizer = str(tmp_path / "out" / "start" / "base")
    assert base.recipe.tokenizer.path is None
    assert base.needed_starts == set()
    assert half.recipe.tokenizer.path == shared_tokenizer
    assert half.needed_starts == {"base"}
    assert warm.recipe.tokenizer.path == shared_tokenizer
    assert warm.needed_starts == {"base", "half"}


def test_needed_starts_are_finished_one_after_the_other_before_systems(tmp_path, monkeypatch):
    content = copy.deepcopy(CONTENT)
    content["start"] = {
        "half": {"recipe": "bag", "overrides": TINY},
        "base": {"recipe": "bag", "overrides": TINY},
        "unneeded": {"recipe": "bag", "overrides": TINY},
    }
    content["tokenizer"] = "base"
    content["systems"]["warm"]["start"] = "half"
    _, trainings = load(tmp_path, content)
    done = []
    monkeypatch.setattr(Runner, "_finish", lambda self, training: done.append(training.name))
    Runner({}, jobs=2).run_all(trainings)
    assert done[:2] == ["base", "half"]
    assert sorted(done[2:]) == ["bag-42", "warm-1", "warm-2"]


@pytest.mark.parametrize("name", yaml_files("tmde.papers", "comparisons"))
def test_comparisons_of_the_package_load(name, tmp_path, monkeypatch):
    monkeypatch.setattr("tmde.papers.trainings.plan_tasks", lambda *_: [])
    file, trainings = load_comparison(name, tmp_path, {"data.train": "sample"}, None)
    assert {training.system for training in trainings} - {None} == set(file.systems)
    assert all(pair for pair in file.contrasts)


def test_the_comparison_of_the_thesis_trains_the_systems_of_table_4_3(tmp_path):
    (tmp_path / "mldoc").mkdir()
    file, trainings = load_comparison("thesis", tmp_path / "out", {}, tmp_path)

    tables = {(table.short, table.number): table for table in published_tables()}
    published = {row[0] for row in tables["Li, 2021", "4.3"].rows}
    published -= {"LASER 2018", "XLM-R"}  # Models that others trained.
    assert {file.titles[name] for name in file.systems} == published
    for training in trainings:
        data = training.recipe.data
        assert data.train == "Helsinki-NLP/europarl"
        assert data.languages == ["de", "en", "es", "fr", "it"]
        assert training.recipe.training.num_train_epochs == 20
        assert training.recipe.tokenizer.vocab_size == 50_000


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("systemss", {}, "key 'systemss' is unknown; did you mean systems"),
        ("systems/bag/recipes", "bag", "bag: key 'recipes' is unknown; did you mean recipe"),
        ("systems/bag/recipe", "bagg", "Recipe 'bagg' is unknown; did you mean bag"),
        ("systems/warm/start", "bse", "start 'bse' is unknown; did you mean base"),
        ("shared/all/max_stepps", 3, "'max_stepps' is unknown; did you mean"),
        ("contrasts", [["warm", "bg"]], "system 'bg' is unknown; did you mean bag"),
        ("seeds", ["one"], "seeds.0: found 'one'"),
        ("systems/bag/overrides", [1], "systems.bag.overrides: found"),
        ("systems", {}, "found no systems or no seeds"),
        ("tasks", ["xnlii"], "xnlii"),
    ],
)
def test_mistakes_are_one_sentence(path, value, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, changed(path, value))


def test_a_shallow_pyramid_is_refused_before_anything_is_trained(tmp_path):
    pyramid = {"recipe": "ctmde_p", "overrides": {"model.encoder_layers": 3}}
    with pytest.raises(
        ValueError, match="recipe ctmde_p: found bottleneck=pyramid with encoder_layers=3"
    ):
        load(tmp_path, changed("systems/warm", pyramid))


def test_processes_share_the_cpus_where_the_system_does_not_say_which_are_free(
    tmp_path, monkeypatch
):
    """As on macOS and Windows."""
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    program = "import os; print(os.environ['OMP_NUM_THREADS'])"
    with open(tmp_path / "printed.txt", "w") as output:
        assert Runner({}, jobs=2).call([sys.executable, "-c", program], output) == 0
    assert (tmp_path / "printed.txt").read_text() == "3\n"


def test_what_a_change_affects_is_done_again(tmp_path):
    trainings = opened(tmp_path)
    for training in trainings:
        training.run.mkdir(parents=True)
        training.evaluation.mkdir(parents=True)
    opened(tmp_path)  # Nothing has changed.
    wider = changed("systems/bag/overrides", {**TINY, "d_model": 32})
    with pytest.raises(ValueError, match="--overwrite.*Changed: bag-42$"):
        opened(tmp_path, wider)
    opened(tmp_path, wider, overwrite=True)
    assert names_of_runs(trainings) == ["base", "warm-1", "warm-2"]
    assert names_of_evaluations(trainings[1:]) == ["warm-1", "warm-2"]
    opened(tmp_path, {**wider, "task_options": {}}, overwrite=True)
    assert names_of_runs(trainings) == ["base", "warm-1", "warm-2"]
    assert names_of_evaluations(trainings[1:]) == []
    opened(tmp_path, changed("start/base/seed", 5), overwrite=True)
    assert names_of_runs(trainings) == []


def test_a_reworded_description_changes_nothing(tmp_path):
    trainings = opened(tmp_path)
    for training in trainings:
        training.run.mkdir(parents=True)
        written = yaml.safe_load(training.recipe_path.read_text("utf-8"))
        written["description"] = "Other words"
        training.recipe_path.write_text(yaml.safe_dump(written), encoding="utf-8")
    opened(tmp_path)  # Does not ask for `overwrite`.
    opened(tmp_path, overwrite=True)
    assert names_of_runs(trainings) == names_of(trainings)


def result(system: str, right: int) -> TaskResult:
    """Return a result on 100 items within German and 100 from German to English.

    All of the first are right, and `right` of the others.
    """
    ids = [str(number) for number in range(100)]
    cells = []
    for target, count in (("de", 100), ("en", right)):
        outcomes = (np.arange(100) < count).astype(float)
        cells.append(Cell("de", target, "accuracy", count / 100, ids, outcomes, 0.25))
    return TaskResult("sib200", system, "zero-shot", cells, data={"fingerprint": "f"})


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of a comparison."""
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def table(compared):
    """The text of a table of measured trainings, of which one has failed."""
    trainings = opened(compared)
    for training, right in zip(trainings, (0, 40, 60, 46), strict=True):
        if training.system is not None:
            write_results(training.evaluation, [result(training.name, right)], {})
        training.run.mkdir(parents=True)
        (training.run / "results.json").write_text(json.dumps({"cpu_minutes": 5.0}))
        (training.run / "run.json").write_text(json.dumps({"parameters": 9}))
    file, _ = load(compared)
    return write_table(file, trainings, {"x": "eval: broke"})


def cells_of(table: str) -> dict[str, list[str]]:
    """The cells of each line of Markdown tables by the first of them."""
    cells = {}
    for line in table.splitlines():
        if "|" in line:
            first, *other_cells = map(str.strip, line.strip("|").split("|"))
            cells[first] = other_cells
    return cells


def test_the_table_by_hand(table, compared):
    cells = cells_of(table)
    assert cells["bag"] == ["100.0", "40.0", "5.0", "9"]
    # 60 and 46 with the two seeds: 53 ± 14 / sqrt(2). The first is tested. The start's minutes
    # count too.
    assert cells["warm"] == ["100.0 ± 0.0", "53.0 ± 9.9 ▲", "10.0", "9"]
    assert cells["chance"] == ["25.0", "25.0", "–", "–"]
    assert "warm-2" not in table
    assert (compared / "out" / "table.md").read_text() == table


def test_the_table_has_contrasts_and_failures(table):
    assert "### warm - bag" in table
    assert cells_of(table)["sib200"][:4] == ["Cross", "40.0", "60.0", "+20.0"]
    assert "Not measured: x: eval: broke" in table


def test_the_numbers_of_the_table(table, compared):
    numbers = json.loads((compared / "out" / "table.json").read_text())
    assert numbers["values"]["warm"]["sib200 Cross"] == pytest.approx([0.6, 0.46])
    assert numbers["differences"]["warm - bag"][1]["difference"] == pytest.approx(0.2)


def test_systems_of_other_languages_stand_in_the_table_and_are_not_compared(tmp_path):
    """`warm` has other texts: no arrow, and no contrast."""
    trainings = opened(tmp_path)
    for training, fingerprint in zip(trainings, "ffgg", strict=True):
        if training.system is not None:
            measured = result(training.name, 60 if training.system == "warm" else 40)
            measured.data["fingerprint"] = fingerprint
            write_results(training.evaluation, [measured], {})
        training.run.mkdir(parents=True)
        (training.run / "results.json").write_text(json.dumps({"cpu_minutes": 5.0}))
        (training.run / "run.json").write_text(json.dumps({"parameters": 9}))
    file, _ = load(tmp_path)
    text = write_table(file, trainings, {})
    assert cells_of(text)["warm"][1] == "60.0 ± 0.0"
    numbers = json.loads((tmp_path / "out" / "table.json").read_text())
    assert numbers["differences"] == {}


def test_a_failed_start_is_named_once(tmp_path, monkeypatch):
    def fail(self, training) -> None:
        raise RuntimeError("train: no data")

    monkeypatch.setattr(Runner, "_train", fail)
    _, trainings = load(tmp_path)
    runner = Runner({})
    runner.run_all([trainings[0], *trainings[2:]])
    assert runner.failures["warm-1"] == "needs the start base, which failed"
    assert causes_of_failures(runner.failures) == "base: train: no data"


def test_a_missing_folder_of_tasks_is_named_as_its_option(tmp_path):
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(CONTENT), encoding="utf-8")
    with pytest.raises(TmdeError, match="--eval-data: found no folder .*tasks"):
        load_comparison(
            str(tmp_path / "file.yaml"), tmp_path, {"data.train": "sample"}, tmp_path / "none"
        )


def test_nothing_begins_after_a_signal():
    runner = Runner({})
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RunInterrupted), runner.ending_processes():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)  # The signal ends it.
    assert signal.getsignal(signal.SIGTERM) == handler
    with pytest.raises(RuntimeError, match="interrupted"):
        runner.call([sys.executable, "-c", ""], sys.stdout)


def test_a_process_that_begins_as_the_signal_comes_ends(monkeypatch):
    runner = Runner({})
    start = subprocess.Popen

    def start_as_the_signal_comes(*arguments, **options) -> subprocess.Popen:
        process = start(*arguments, **options)
        runner._is_interrupted = True
        return process

    monkeypatch.setattr(subprocess, "Popen", start_as_the_signal_comes)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with open(os.devnull, "w") as output:
        assert runner.call(command, output) == -signal.SIGTERM


def test_the_error_is_that_of_the_last_attempt(tmp_path):
    """The second attempt is killed, and says nothing."""
    _, trainings = load(tmp_path)
    training = trainings[0]
    training.folder.mkdir()
    runner = Runner({})
    for text, expected in [
        ("ValueError: the disk is full\n", "train: ValueError: the disk is full .exit code 1;"),
        ("", "train: it ended without an error message .exit code 1;"),
    ]:
        program = f"import sys; print({text!r}, end=''); sys.exit(1)"
        runner.call = print_and_fail(program)
        with pytest.raises(RuntimeError, match=expected):
            runner.run_command("train", training, [])


def print_and_fail(program: str):
    """Return what takes the place of `Runner.call` and runs a program."""

    def run_program(words: list[str], output) -> int:
        return subprocess.run([sys.executable, "-c", program], stdout=output).returncode

    return run_program


def test_two_commands_do_not_share_a_folder(tmp_path):
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(CONTENT), encoding="utf-8")
    command = ["compare", tmp_path / "file.yaml", "-o", tmp_path / "out", "--train", "sample"]
    with locked(tmp_path / "out"):
        result = run(*command)
    assert result.exit_code == 1
    assert "another process is writing to it" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_a_signal_ends_what_is_running(number, tmp_path):
    """The training saves a checkpoint, nothing begins after it, and the same command goes on."""
    content = copy.deepcopy(CONTENT)
    content["shared"]["all"] = SHARED | {"max_steps": 1_000_000, "logging_steps": 1}
    content["start"] = {}
    content["systems"] = {"first": CONTENT["systems"]["bag"], "second": CONTENT["systems"]["bag"]}
    content["contrasts"] = []
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [sys.executable, "-m", "tmde", "compare", str(tmp_path / "file.yaml")]
    command += ["--train", "sample", "--dev", "sample", "-o", str(tmp_path / "out")]
    run_folder = tmp_path / "out" / "runs" / "first-42"
    log = run_folder / "log.jsonl"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as comparison:
        while not (log.is_file() and log.stat().st_size):
            assert comparison.poll() is None
            time.sleep(0.2)
        comparison.send_signal(number)
        _, errors = comparison.communicate(timeout=120)
    assert comparison.returncode == 128 + number
    assert "Interrupted: give the same command again to go on" in errors
    assert find_checkpoint(run_folder) is not None
    assert not (tmp_path / "out" / "runs" / "second-42").exists()
    steps = log.stat().st_size
    time.sleep(2)
    assert log.stat().st_size == steps  # No process goes on writing.


def test_a_comparison_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Its processes are calls here: each takes seconds to start."""
    monkeypatch.setattr("tmde.data.tokens.default_folder", lambda: tmp_path / "tokens")
    commands = []

    def call(self, words: list[str], output) -> int:
        commands.append(words[3])
        result = run(*words[3:])
        output.write(result.output)
        return result.exit_code

    monkeypatch.setattr(Runner, "call", call)
    content = {
        **CONTENT,
        "systems": copy.deepcopy(CONTENT["systems"]),
        "start": {},
        "contrasts": [],
    }
    content["systems"]["warm"] = {
        "recipe": "bag",
        "overrides": TINY | {"freeze": ["nothing_of_this_name"]},
    }
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    command = [
        "compare",
        tmp_path / "file.yaml",
        "-o",
        tmp_path / "out",
        "--train",
        "sample",
        "--dev",
        "sample",
    ]
    done = run(*command)
    assert done.exit_code == 1
    assert "Error: warm-42: train: " in done.stderr
    assert "Traceback" not in done.stderr
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| bag " in table
    assert "Not measured: warm-42: train" in table
    assert "TF-IDF" in table
    assert commands == ["train", "eval", "train"]
    del content["systems"]["warm"]
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    again = run(*command)
    assert again.exit_code == 0
    assert (tmp_path / "out" / "table.md").read_text() in again.stdout
    assert len(commands) == 3  # Nothing was left to do.
