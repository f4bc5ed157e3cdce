"""The clock of a run: two kinds of seconds, interruptions, and limits of CPU time."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainerCallback

from tests.conftest import make_rows, tiny_model
from tests.training.trainers import tiny_trainer
from tmde.embedding.progress import progress_bar
from tmde.training import callbacks
from tmde.training import throughput as clock_module
from tmde.training.callbacks import RunProgress
from tmde.training.objectives import InfoNCE
from tmde.training.throughput import RunMeter
from tmde.training.trainer import DATA_STATE_NAME, TmdeTrainer

STEP = 6.0  # The seconds of the processor that a step takes.


class Hands:
    """The hands of a faked clock: seconds on the wall and of the processor."""

    def __init__(self, wall: float = 0.0, cpu: float = 0.0):
        self.wall = wall
        self.cpu = cpu

    def set(self, monkeypatch: pytest.MonkeyPatch) -> "Hands":
        fake = SimpleNamespace(perf_counter=lambda: self.wall, process_time=lambda: self.cpu)
        monkeypatch.setattr(clock_module, "time", fake)
        return self


# ---- Seconds


@pytest.fixture
def hands(monkeypatch) -> Hands:
    return Hands().set(monkeypatch)


def work(hands: Hands, wall: float, cpu: float) -> None:
    hands.wall += wall
    hands.cpu += cpu


def test_evaluations_are_no_seconds_of_training(hands):
    meter = RunMeter()
    work(hands, wall=10.0, cpu=8.0)
    with meter.evaluation():
        work(hands, wall=5.0, cpu=4.0)
    work(hands, wall=1.0, cpu=1.0)
    assert (meter.seconds, meter.training_seconds, meter.cpu_seconds) == (16.0, 11.0, 13.0)
    assert meter.evaluation_cpu_seconds == 4.0


def test_the_evaluation_before_the_first_step_takes_no_budget(hands):
    meter = RunMeter()
    with meter.evaluation(is_before_training=True):
        work(hands, wall=50.0, cpu=40.0)
    assert (meter.training_seconds, meter.cpu_seconds) == (0.0, 0.0)
    assert meter.evaluation_seconds == 50.0
    assert meter.evaluation_cpu_seconds == 0.0


def test_a_resumed_clock_knows_the_evaluations_before(hands):
    before = RunMeter()
    work(hands, wall=10.0, cpu=8.0)
    with before.evaluation():
        work(hands, wall=5.0, cpu=4.0)
    state = before.state()
    hands.wall = 777.0
    resumed = RunMeter()
    resumed.load_state(state, (0, 0))
    assert (resumed.elapsed, resumed.cpu_elapsed) == (10.0, 12.0)
    assert (resumed.seconds, resumed.training_seconds) == (15.0, 10.0)
    assert resumed.evaluation_cpu_seconds == 4.0


class SlowEvaluation(TrainerCallback):
    """Makes evaluations take a minute each."""

    def __init__(self, hands: Hands):
        self.hands = hands

    def on_evaluate(self, args, state, control, **kwargs):
        self.hands.wall += 60.0


def test_minutes_are_minutes_of_training(tokenizer, tmp_path, hands):
    """Steps of 6 seconds fill a minute, however long the evaluations take."""
    steps = Work(hands, seconds=6.0)
    trainer = make_trainer(
        tmp_path,
        tokenizer,
        steps,
        max_minutes=1.0,
        dev=make_rows(20, seed=5),
        eval_on_start=True,
        eval_strategy="steps",
        eval_steps=4,
    )
    trainer.add_callback(SlowEvaluation(hands))
    trainer.train()
    assert trainer.meter.evaluation_seconds == 60.0 * 4  # Before step 1, at 4 and 8, at the end.
    # The eleventh step begins at 60 seconds, which is known after it.
    assert trainer.state.global_step == 11


# ---- Runs


class Work(TrainerCallback):
    """Makes steps take time, and keeps the learning rate of each.

    Every step takes `cpu_seconds` of the processor and `seconds` on the wall.
    """

    def __init__(
        self,
        hands: Hands,
        seconds: float = 0.0,
        killed_after: int | None = None,
        cpu_seconds: float = STEP,
    ):
        self.hands = hands
        self.seconds = seconds
        self.killed_after = killed_after
        self.cpu_seconds = cpu_seconds
        self.rates: list[float] = []

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.hands.cpu += self.cpu_seconds
        self.hands.wall += self.seconds

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.killed_after:
            raise KeyboardInterrupt


def make_trainer(folder: Path, tokenizer, work: Work, **arguments) -> TmdeTrainer:
    options = {
        "max_steps": 1000,
        "warmup_steps": 0,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
    }
    options |= {
        "micro_batch_tokens": 200,
        "model": tiny_model(encoder_layers=1),
        "objectives": {"infonce": InfoNCE()},
    }
    return tiny_trainer(
        folder, tokenizer, make_rows(200, seed=2), callbacks=[work], **(options | arguments)
    )


def test_minutes_of_the_processor_end_a_run_and_cool_it_down(tokenizer, tmp_path, monkeypatch):
    """A limit of 30 seconds, of which a step takes 6: the sixth begins at 30, and is the last."""
    work = Work(Hands().set(monkeypatch), seconds=1000.0)
    trainer = make_trainer(tmp_path, tokenizer, work, max_cpu_minutes=0.5, cooldown=0.5)
    assert trainer.progress() == 0.0
    trainer.train()
    assert trainer.state.global_step == 6
    assert trainer.meter.cpu_elapsed == 30.0
    # A rate is set after the step before, by what had passed when that one began: 0, 6, 12, 18 and
    # 24 of 30 seconds.
    shares = [1.0, *(min(1.0, (1 - seconds / 30) / 0.5) for seconds in (0, 6, 12, 18, 24))]
    assert shares[-2:] == pytest.approx([0.8, 0.4])
    assert work.rates == pytest.approx([1e-3 * share for share in shares])
    assert trainer.progress() == 1.0


def test_a_killed_run_goes_on_with_the_seconds_it_had(tokenizer, tmp_path, monkeypatch, caplog):
    whole = Work(Hands().set(monkeypatch), seconds=2.0)
    options = {"max_cpu_minutes": 0.5, "cooldown": 1.0, "save_strategy": "steps", "save_steps": 3}
    trainer = make_trainer(tmp_path / "whole", tokenizer, whole, **options)
    trainer.train()
    expected = trainer.state.global_step, trainer.meter.seconds, trainer.meter.cpu_seconds
    assert expected == (6, 12.0, 36.0)

    killed = Work(Hands().set(monkeypatch), seconds=2.0, killed_after=4)
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path / "run", tokenizer, killed, **options).train()
    checkpoint = tmp_path / "run" / "checkpoint-3"
    state = json.loads((checkpoint / DATA_STATE_NAME).read_text())
    assert (state["elapsed"], state["cpu_elapsed"]) == (6.0, 18.0)  # The fourth step is lost.

    hands = Hands(wall=12345.0, cpu=0.25).set(monkeypatch)
    resumed = Work(hands, seconds=2.0)
    trainer = make_trainer(tmp_path / "run", tokenizer, resumed, **options)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert (
        trainer.state.global_step,
        trainer.meter.seconds,
        trainer.meter.cpu_seconds,
    ) == pytest.approx(expected)
    assert resumed.rates == pytest.approx(whole.rates[3:])
    assert len(resumed.rates) == 3
    # Done: resumed once more, it makes no step and says why.
    again = make_trainer(tmp_path / "run", tokenizer, Work(hands), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6"))
    assert again.state.global_step == 6
    assert (
        "The run has reached its limit (max_cpu_minutes=0.5, max_steps=1000) at step 6 and ends."
    ) in caplog.messages


# ---- The bar


def test_the_bar_of_a_resumed_run_counts_from_where_it_was(monkeypatch):
    trainer = SimpleNamespace(progress=lambda: 0.5)
    args = SimpleNamespace(disable_tqdm=True)
    state = SimpleNamespace(is_world_process_zero=True, global_step=10)
    bars = []

    def remembered_bar(**options):
        bars.append(progress_bar(**(options | {"disable": False, "file": io.StringIO()})))
        return bars[-1]

    monkeypatch.setattr(callbacks, "progress_bar", remembered_bar)
    progress = RunProgress(trainer)
    progress.on_train_begin(args, state, None)
    trainer.progress = lambda: 0.75
    progress.on_step_end(args, state, None)

    # Half of what was left is done, so that the rest takes as long.
    (bar,) = bars
    values = bar.format_dict | {"elapsed": 60.0, "rate": None}
    assert "[01:00<01:00" in bar.format_meter(**values)


def test_the_bar_says_at_which_step_the_dev_rows_were_measured(monkeypatch, tmp_path):
    trainer = SimpleNamespace(progress=lambda: 0.5, args=SimpleNamespace(output_dir=tmp_path))
    args = SimpleNamespace(disable_tqdm=True)
    state = SimpleNamespace(is_world_process_zero=True, global_step=300)
    progress = RunProgress(trainer)
    progress.on_train_begin(args, state, None)

    progress.on_log(args, state, None, {"eval_retrieval": 0.951})
    state.global_step = 1480
    progress.on_log(args, state, None, {"loss": 2.0})
    progress.on_step_end(args, state, None)

    assert progress.bar.postfix == "step 1,480 loss 2.000 dev P@1 95.1% at step 300"
