"""What ends a run, and what a person sees of it: the progress bar, the log and its curves."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm
from transformers import EarlyStoppingCallback, TrainerCallback
from transformers.utils import logging

from modeling_tmde.eval.training_log import LOG_NAME

if TYPE_CHECKING:
    from modeling_tmde.training.trainer import TmdeTrainer

CURVES_NAME = "curves.png"
DRAWING_SHARE = 0.01  # of a run's time, at most, goes into pictures before its end
FIRST_DRAWING = 2.0  # seconds, with the import of matplotlib

logger = logging.get_logger("modeling_tmde.training")


class RunLimits(TrainerCallback):
    """Ends the run when its minutes are over or its epochs are done, with a last evaluation and checkpoint."""

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.evaluated_step: int | None = None
        self.saved_step: int | None = None
        self.last_evaluation = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.last_evaluation = self.trainer.clock.elapsed

    def on_step_end(self, args, state, control, **kwargs):
        self.trainer.clock.step_ended()
        if args.eval_minutes and self.trainer.clock.elapsed - self.last_evaluation >= args.eval_minutes * 60:
            self.last_evaluation = self.trainer.clock.elapsed
            control.should_log = True
            control.should_evaluate = self.trainer.eval_dataset is not None
            control.should_save = args.save_strategy != "no"
        if args.max_minutes and self.trainer.clock.elapsed >= args.max_minutes * 60:
            control.should_training_stop = True
        if args.max_cpu_minutes and self.trainer.clock.cpu_elapsed >= args.max_cpu_minutes * 60:
            control.should_training_stop = True
        epochs = self.trainer.epochs_done
        if self.trainer.step_limit is None and epochs is not None and epochs >= args.num_train_epochs:
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args, state, control, **kwargs):
        # The stream has no epochs for the Trainer, so this is the end of the run.
        control.should_log = True
        if self.evaluated_step != state.global_step:
            control.should_evaluate = args.eval_strategy != "no" and self.trainer.eval_dataset is not None
        if self.saved_step != state.global_step:
            control.should_save = args.save_strategy != "no"
        control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluated_step = state.global_step

    def on_save(self, args, state, control, **kwargs):
        self.saved_step = state.global_step


class EarlyStopping(EarlyStoppingCallback):
    """transformers' early stopping, whose count of evaluations that bettered nothing goes on after a resume."""

    def on_train_begin(self, args, state, control, **kwargs):
        if args.eval_strategy == "no":
            raise ValueError(
                f"early_stopping_patience={self.early_stopping_patience} counts evaluations, of which there are none; "
                "give dev rows or eval_task, and an eval_strategy"
            )
        super().on_train_begin(args, state, control, **kwargs)
        self.early_stopping_patience_counter = 0
        saved = state.stateful_callbacks.get(type(self).__name__)
        if state.global_step and saved:
            self.early_stopping_patience_counter = saved["attributes"]["early_stopping_patience_counter"]
        if self.early_stopping_patience_counter >= self.early_stopping_patience:  # a run that was stopped is resumed
            control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, metrics, **kwargs):
        evaluations = [line for line in state.log_history if "eval_minutes" in line]
        if sum(line["step"] == state.global_step for line in evaluations) == 1:  # a resume may measure a step again
            super().on_evaluate(args, state, control, metrics, **kwargs)


class ParallelProgress(TrainerCallback):
    """A progress bar over the run's nearest limit, with loss, words per second and dev retrieval; and `log.jsonl`,
    one line for every log, in the run's folder."""

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.bar: tqdm | None = None
        self.shown: dict[str, str] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero and not args.disable_tqdm:
            layout = "{desc}{percentage:3.0f}%|{bar}| {postfix[0]} [{elapsed}<{remaining}]"
            bar = tqdm(total=1.0, desc="training ", bar_format=layout, postfix=[""])
            self.bar = None if bar.disable else bar  # TQDM_DISABLE=1 leaves one without a postfix

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.postfix[0] = " ".join([f"step {state.global_step:,}", *self.shown.values()])
            self.bar.update(max(self.trainer.progress() - self.bar.n, 0.0))

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or logs is None:
            return
        if "loss" in logs:
            self.shown["loss"] = f"loss {logs['loss']:.3f}"
            if "words_per_second" in logs:
                self.shown["speed"] = f"{logs['words_per_second']:,.0f} words/s"
        if "eval_retrieval" in logs:
            self.shown["retrieval"] = f"dev P@1 {logs['eval_retrieval']:.1%}"
        folder = Path(args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / LOG_NAME, "a", encoding="utf-8") as log:
            log.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(max(self.trainer.progress() - self.bar.n, 0.0))
            self.bar.close()
            self.bar = None


class CurvePicture(TrainerCallback):
    """`curves.png`, drawn from `log.jsonl`, in the run's folder: at its end, and before that at every evaluation, as
    long as all the drawing takes no more than `DRAWING_SHARE` of the time (of minutes that limit a run, too)."""

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.spent, self.expected = 0.0, FIRST_DRAWING

    def on_evaluate(self, args, state, control, **kwargs):
        if self.spent + self.expected <= DRAWING_SHARE * self.trainer.clock.seconds:
            self._draw(args, state)

    def on_train_end(self, args, state, control, **kwargs):
        self._draw(args, state)

    def _draw(self, args, state) -> None:
        if not state.is_world_process_zero or find_spec("matplotlib") is None:
            return
        begin = time.perf_counter()
        try:
            from modeling_tmde.eval.figures import draw_training_curves

            folder = Path(args.output_dir)
            draw_training_curves(folder / CURVES_NAME, {folder.resolve().name: folder / LOG_NAME})
        except Exception as error:  # whatever it is, a picture is not worth a run
            logger.warning(f"{CURVES_NAME} could not be drawn: {type(error).__name__}: {error}")
        self.expected = time.perf_counter() - begin
        self.spent += self.expected
