"""Callbacks of `TmdeTrainer`: what ends a run, when it is evaluated, and its progress bar, log, table and curves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.utils import logging

from tmde.embedding.progress import progress_bar
from tmde.eval.figures import LOG_NAME, draw_training_curves

if TYPE_CHECKING:
    from tmde.training.trainer import TmdeTrainer

logger = logging.get_logger("tmde.training")

SHOWN = {
    "loss": "loss {:.3f}",
    "words_per_second": "{:,.0f} words/s",
    "eval_retrieval": "dev P@1 {:.1%}",
}


class RunSchedule(TrainerCallback):
    """Ends a run at its nearest limit, with a last evaluation and checkpoint, and evaluates every `eval_minutes`.

    For transformers the whole run is one epoch, so this callback also gives the strategies `epoch` their meaning. An
    epoch of a stream of unknown length is over when the next has begun.
    """

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.epochs = self.trainer.whole_epochs
        self.last_evaluation = self.trainer.meter.elapsed
        # The checkpoint of a resume need not be evaluated and saved again.
        self.saved_step = state.global_step or None
        evaluated = (entry["step"] for entry in state.log_history if "eval_minutes" in entry)
        self.evaluated_step = max(evaluated, default=-1)

    def on_step_end(self, args, state, control, **kwargs):
        meter = self.trainer.meter
        if args.eval_minutes and meter.elapsed - self.last_evaluation >= args.eval_minutes * 60:
            self.last_evaluation = meter.elapsed
            control.should_log = True
            control.should_evaluate = self.trainer.eval_dataset is not None
            control.should_save = args.save_strategy != "no"
        if self.trainer.whole_epochs > self.epochs:
            self.epochs = self.trainer.whole_epochs
            control.should_log |= args.logging_strategy == "epoch"
            control.should_evaluate |= (
                args.eval_strategy == "epoch" and self.epochs >= args.eval_delay
            )
            control.should_save |= args.save_strategy == "epoch"
        control.should_training_stop |= self.trainer.progress() >= 1.0
        return control

    def on_epoch_end(self, args, state, control, **kwargs):  # the end of the run
        control.should_log = control.should_training_stop = True
        measures = args.eval_strategy != "no" and self.trainer.eval_dataset is not None
        control.should_evaluate = measures and self.evaluated_step != state.global_step
        control.should_save = args.save_strategy != "no" and self.saved_step != state.global_step
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluated_step = state.global_step

    def on_save(self, args, state, control, **kwargs):
        self.saved_step = state.global_step


class EarlyStopping(EarlyStoppingCallback):
    """transformers' early stopping, whose count of evaluations without improvement survives a resume."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        saved = state.stateful_callbacks.get(type(self).__name__)
        if state.global_step and saved:
            self.early_stopping_patience_counter = saved["attributes"][
                "early_stopping_patience_counter"
            ]
        control.should_training_stop |= (
            self.early_stopping_patience_counter >= self.early_stopping_patience
        )
        return control


class RunProgress(TrainerCallback):
    """A progress bar towards the run's nearest limit, with loss, words per second and dev retrieval; and in the run's
    folder `log.jsonl`, one line for every log, and at the end `curves.png`."""

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.last: dict[str, float] = {}  # of every value that was logged

    def on_train_begin(self, args, state, control, **kwargs):
        hidden = args.disable_tqdm or not state.is_world_process_zero
        self.bar = progress_bar(total=100, desc="training", disable=hidden)
        self.bar.bar_format = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
        self.bar.miniters = 0  # speeds and losses change more often than percents

    def on_step_end(self, args, state, control, **kwargs):
        shown = [text.format(self.last[name]) for name, text in SHOWN.items() if name in self.last]
        self.bar.postfix = " ".join([f"step {state.global_step:,}", *shown])
        self.bar.update(max(int(100 * self.trainer.progress()) - self.bar.n, 0))

    def on_log(self, args, state, control, logs, **kwargs):
        if state.is_world_process_zero:
            self.last |= logs
            folder = Path(args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / LOG_NAME, "a", encoding="utf-8") as log:
                log.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_train_end(self, args, state, control, **kwargs):
        self.bar.close()
        if state.is_world_process_zero and find_spec("matplotlib") is not None:
            folder = Path(args.output_dir).resolve()
            try:
                draw_training_curves(folder / "curves.png", {folder.name: folder / LOG_NAME})
            except Exception as error:  # a picture must not end a run
                logger.warning(f"curves.png could not be drawn: {type(error).__name__}: {error}")
