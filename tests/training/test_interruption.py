"""Ctrl-C and SIGTERM: a run writes a checkpoint, and goes on from it to the same end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.training.logs import assert_equal_weights
from tests.training.test_batching import numbered_rows
from tests.training.test_train import TINY, tiny_recipe, write_corpus
from tests.training.trainers import ENVIRONMENT
from tmde.training import interruption as module
from tmde.training import trainer as trainer_module
from tmde.training.checkpoints import discard_checkpoints, find_checkpoint, publish
from tmde.training.interruption import Interruption, RunInterrupted
from tmde.training.run import train_recipe
from tmde.training.trainer import TmdeTrainer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", numbered_rows(150))


@pytest.fixture(autouse=True)
def heeds_ctrl_c():
    """Let this process heed SIGINT, which a shell lets processes in its background ignore."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


def send_in_step(monkeypatch: pytest.MonkeyPatch, step: int, number: int = signal.SIGINT) -> None:
    """Send a signal to this process while a step is made; the first is 1."""
    compute_loss = TmdeTrainer.compute_loss

    def compute_and_send(self, *args, **kwargs):
        if self.state.global_step == step - 1:
            os.kill(os.getpid(), number)
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(TmdeTrainer, "compute_loss", compute_and_send)


def interrupted_by(call: Callable[[], object]) -> RunInterrupted:
    with pytest.raises(RunInterrupted) as caught:
        call()
    return caught.value


# ---- After the first step


def test_an_interrupted_run_resumes_to_the_end_of_an_undisturbed_one(corpus, tmp_path, monkeypatch):
    recipe = tiny_recipe(corpus)
    train_recipe(recipe, tmp_path / "whole")
    run = tmp_path / "run"

    with monkeypatch.context() as patch:
        send_in_step(patch, step=3)
        interrupted_by(lambda: train_recipe(recipe, run))
    names = [path.name for path in run.glob("checkpoint-*")]
    train_recipe(recipe, run, resume=True)

    assert "checkpoint-3" in names  # Of its own, the run saves after the steps 2 and 4.
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    assert_equal_weights(load_file(run / "model.safetensors"), expected)


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_the_first_step_is_saved_and_the_message_names_it(
    number, exit_code, corpus, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    send_in_step(monkeypatch, step=1, number=number)

    interruption = interrupted_by(lambda: train_recipe(tiny_recipe(corpus), run))

    assert interruption.exit_code == exit_code
    assert f"Step 1 is saved in {run / 'checkpoint-1'}" in interruption.message
    assert "with --resume" in interruption.message
    assert find_checkpoint(run) == run / "checkpoint-1"


def test_a_run_that_is_interrupted_at_its_very_end_is_complete(corpus, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def discard_and_send(folder: Path) -> None:
        discard_checkpoints(folder)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("tmde.training.run.discard_checkpoints", discard_and_send)
    recipe = tiny_recipe(corpus, "keep_checkpoints=false")
    interruption = interrupted_by(lambda: train_recipe(recipe, run))

    assert interruption.message == f"Interrupted at the very end: {run} is complete."
    assert (run / "model.safetensors").is_file()


def test_handlers_of_signals_are_restored(corpus, tmp_path, monkeypatch):
    before = [signal.getsignal(number) for number in module.SIGNALS]
    send_in_step(monkeypatch, step=1)

    interrupted_by(lambda: train_recipe(tiny_recipe(corpus), tmp_path / "run"))

    assert [signal.getsignal(number) for number in module.SIGNALS] == before


def test_an_ignored_signal_stays_ignored():
    """A shell starts a job with `&` so, which a Ctrl-C in its terminal must not end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption().heard():
            during = signal.getsignal(signal.SIGINT)
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert during == signal.SIG_IGN
    assert after == signal.SIG_IGN


# ---- Before the first step, and a second signal


def test_before_the_first_step_nothing_is_left_and_the_message_says_so(
    corpus, tmp_path, monkeypatch
):
    def send(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)  # The handler ends the wait.

    monkeypatch.setattr(TmdeTrainer, "evaluate", send)
    recipe = tiny_recipe(corpus, "eval_on_start=true")

    interruption = interrupted_by(lambda: train_recipe(recipe, tmp_path / "run"))

    assert "nothing is trained: run the same command again" in interruption.message
    assert not (tmp_path / "run").exists()


def test_an_earlier_run_stays_if_the_new_one_has_not_begun(corpus, tmp_path, monkeypatch):
    run = tmp_path / "run"
    train_recipe(tiny_recipe(corpus, "max_steps=1", "data.dev_rows=0"), run)
    old = time.time() - 60
    os.utime(run / "recipe.yaml", (old, old))

    def send(*args):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    monkeypatch.setattr("tmde.training.run.load_data", send)
    interruption = interrupted_by(lambda: train_recipe(tiny_recipe(corpus), run, overwrite=True))

    assert f"Interrupted before training started; {run} is unchanged." in interruption.message
    assert (run / "model.safetensors").is_file()


def test_a_second_signal_ends_the_run_at_once(corpus, tmp_path, monkeypatch):
    """It comes while the first checkpoint is written, which is then no checkpoint."""
    run = tmp_path / "run"
    published: list[Path] = []

    def send_before_the_end(unfinished: Path, checkpoint: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        published.append(checkpoint)

    monkeypatch.setattr(module, "ECHO_SECONDS", -1.0)
    monkeypatch.setattr(trainer_module, "publish", send_before_the_end)
    send_in_step(monkeypatch, step=1)

    interruption = interrupted_by(lambda: train_recipe(tiny_recipe(corpus), run))

    assert not published
    assert "run the same command again" in interruption.message
    assert not run.exists()


def test_a_second_signal_leaves_the_checkpoint_before(corpus, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def send_before_the_end(unfinished: Path, checkpoint: Path) -> None:
        if checkpoint.name == "checkpoint-3":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        publish(unfinished, checkpoint)

    monkeypatch.setattr(module, "ECHO_SECONDS", -1.0)
    monkeypatch.setattr(trainer_module, "publish", send_before_the_end)
    send_in_step(monkeypatch, step=3)

    interruption = interrupted_by(lambda: train_recipe(tiny_recipe(corpus), run))

    assert (run / "_unfinished" / "checkpoint-3").is_dir()
    assert f"Step 2 is saved in {run / 'checkpoint-2'}" in interruption.message


def test_an_echo_of_a_launcher_is_no_second_signal(monkeypatch, capfd):
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    interruption = Interruption()
    interruption.makes_steps = True

    interruption.handle(signal.SIGINT, None)
    now = 100.5
    interruption.handle(signal.SIGTERM, None)
    now = 102.0
    with pytest.raises(RunInterrupted):
        interruption.handle(signal.SIGINT, None)

    assert capfd.readouterr().err.count("Press Ctrl-C again to stop at once.") == 1


# ---- Real processes


def start(words: list[str], folder: Path, *launcher: str) -> subprocess.Popen:
    """Start `tmde` in a group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", *launcher, "tmde", *words],
        cwd=folder,
        env=ENVIRONMENT | {"HF_DATASETS_CACHE": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Wait until a process has written a file."""
    end = time.monotonic() + 300
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"{path} was not written"
        time.sleep(0.02)


ENDLESS = [*TINY, "max_steps=1000000", "eval_steps=1000000", "save_steps=1000000", "use_cpu=true"]


def test_ctrl_c_in_a_real_process(corpus, tmp_path):
    words = ["train", "quickstart", *ENDLESS, "--train", str(corpus), "-o", "run"]
    process = start(words, tmp_path)
    wait_for(tmp_path / "run" / "log.jsonl", process)

    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=300)[0]

    checkpoint = find_checkpoint(tmp_path / "run")
    assert process.returncode == 130, output
    assert checkpoint is not None
    step = int(checkpoint.name.rpartition("-")[2])
    assert f"Interrupted. Step {step:,} is saved in run/{checkpoint.name}" in output
    assert "Traceback" not in output
    # The data of the run are used again, though the recipe names others.
    again = ["train", "quickstart", *ENDLESS, f"max_steps={step + 1}", "-o", "run", "--resume"]
    resumed = start(again, tmp_path)
    assert resumed.communicate(timeout=300)[0].count("the model is in run") == 1
    assert json.loads((tmp_path / "run" / "results.json").read_text())["steps"] == step + 1


@pytest.mark.nightly
def test_ctrl_c_with_two_processes(corpus, tmp_path):
    """The terminal sends the signal to the launcher and to both processes."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
    words = ["train", "quickstart", *ENDLESS, "--train", str(corpus), "-o", "run"]
    process = start(words, tmp_path, *launcher)
    wait_for(tmp_path / "run" / "log.jsonl", process)

    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=300)[0]

    checkpoint = find_checkpoint(tmp_path / "run")
    assert process.returncode != 0
    assert checkpoint is not None, output
    states = {path.name for path in checkpoint.glob("rng_state_*.pth")}
    assert states == {"rng_state_0.pth", "rng_state_1.pth"}
