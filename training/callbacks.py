"""Callbacks of `TmdeTrainer`: a run's limits and evaluations, its progress bar, log and curves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.utils import logging

from tmde.embedding.progress import progress_bar
from tmde.eval.figures import draw_training_curves
from tmde.eval.training_log import LOG_NAME

if TYPE_CHECKING:
    from tmde.training.trainer import TmdeTrainer

logger = logging.get_logger("tmde.training")

CURVES_NAME = "curves.png"
EVALUATED = "eval_retrieval"
# Logged values that the progress bar shows.
SHOWN_FORMATS = {
    "loss": "loss {:.3f}",
    "words_per_second": "{:,.0f} words/s",
    EVALUATED: "dev P@1 {:.1%}",
}


class RunSchedule(TrainerCallback):
    """Ends a run at its nearest limit, and evaluates every `eval_minutes`.

    The end comes with a last evaluation and checkpoint. For transformers the whole run is one
    epoch, so this callback also gives the strategies `epoch` their meaning. An epoch of a stream of
    unknown length is over when the next has begun.

    Args:
        trainer: The trainer, whose data and clock decide.
    """

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Note where the run begins."""
        self.epochs = self.trainer.whole_epochs
        self.last_evaluation = self.trainer.meter.elapsed
        # The checkpoint of a resume need not be evaluated and saved again.
        self.saved_step = state.global_step or None
        self.evaluated_step = -1
        for entry in state.log_history:
            if "eval_minutes" in entry:
                self.evaluated_step = max(self.evaluated_step, int(entry["step"]))
        if state.global_step and self.trainer.progress() >= 1.0:
            logger.warning(
                f"The run has reached its limit ({_limits_of(self.trainer)}) at step "
                f"{state.global_step:,} and ends."
            )

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Note that there will be something to save."""
        self.trainer.interruption.makes_steps = True

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> TrainerControl:
        """Ask for what is due after a step."""
        self._apply_interruption(args, control)
        self._apply_eval_minutes(control)
        if self.trainer.whole_epochs > self.epochs:
            self.epochs = self.trainer.whole_epochs
            self._apply_epoch_strategies(args, control)
        if self.trainer.progress() >= 1.0:
            control.should_training_stop = True
        return control

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> TrainerControl:
        """Ask for the last evaluation and checkpoint; the one epoch is the run."""
        measures = args.eval_strategy != "no" and self.trainer.can_evaluate
        # With "best", an evaluation alone decides whether its checkpoint is saved.
        saves = args.save_strategy not in ("no", "best")
        control.should_log = True
        control.should_training_stop = True
        control.should_evaluate = measures and self.evaluated_step != state.global_step
        control.should_save = saves and self.saved_step != state.global_step
        return control

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Note the step of an evaluation."""
        self.evaluated_step = state.global_step

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Note the step of a checkpoint, which may be the last of an interrupted run."""
        self.saved_step = state.global_step
        if self._is_interrupted(args):
            self.trainer.interruption.stop()

    def _is_interrupted(self, args: TrainingArguments) -> bool:
        """Return whether all processes of the run know that a signal asked for a checkpoint."""
        interruption = self.trainer.interruption
        if args.world_size == 1:
            interruption.is_agreed = interruption.is_asked
        return interruption.is_agreed

    def _apply_interruption(self, args: TrainingArguments, control: TrainerControl) -> None:
        """Ask for a checkpoint if a signal did; an evaluation that is due comes first."""
        if self._is_interrupted(args):
            control.should_log = True  # A resumed run knows nothing of losses that were not logged.
            control.should_save = True

    def _apply_eval_minutes(self, control: TrainerControl) -> None:
        args = self.trainer.args
        elapsed = self.trainer.meter.elapsed
        if args.eval_strategy == "no":
            return
        if not args.eval_minutes or elapsed - self.last_evaluation < args.eval_minutes * 60:
            return
        self.last_evaluation = elapsed
        control.should_log = True
        control.should_evaluate = self.trainer.can_evaluate
        control.should_save = args.save_strategy != "no"

    def _apply_epoch_strategies(self, args: TrainingArguments, control: TrainerControl) -> None:
        if args.logging_strategy == "epoch":
            control.should_log = True
        if args.eval_strategy == "epoch" and self.epochs >= args.eval_delay:
            control.should_evaluate = True
        if args.save_strategy == "epoch":
            control.should_save = True


def _limits_of(trainer: TmdeTrainer) -> str:
    """Return the limits of a run, such as "max_minutes=10, max_steps=500"."""
    limits = {
        "max_minutes": trainer.args.max_minutes,
        "max_cpu_minutes": trainer.args.max_cpu_minutes,
        "max_steps": trainer.step_limit,
    }
    if not trainer.step_limit:
        limits["num_train_epochs"] = trainer.args.num_train_epochs
    return ", ".join(f"{name}={value:g}" for name, value in limits.items() if value)


class EarlyStopping(EarlyStoppingCallback):
    """transformers' early stopping, whose count survives a resume.

    It counts the evaluations without improvement.
    """

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> TrainerControl:
        """Restore the count of a checkpoint, and stop at once if it is complete."""
        super().on_train_begin(args, state, control, **kwargs)
        self.early_stopping_patience_counter = 0
        # A list before the run begins; from then on the states by the names of their classes.
        saved_states = cast(dict[str, Any], state.stateful_callbacks)
        saved = saved_states.get(type(self).__name__)
        if state.global_step and saved:
            attributes = saved["attributes"]
            self.early_stopping_patience_counter = attributes["early_stopping_patience_counter"]
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True
        return control


class RunProgress(TrainerCallback):
    """A progress bar towards the run's nearest limit, and its log.

    The bar shows loss, words per second and dev retrieval. The run's folder gets `log.jsonl`, one
    line for every log, and at the end `curves.png`.

    Args:
        trainer: The trainer, which knows the progress.
    """

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.last_values: dict[str, float] = {}  # The newest value of everything logged.
        self.evaluated_step = 0  # The step of the newest evaluation.
        self.bar: Any = None

    def close(self) -> None:
        """Close the bar, if there is one."""
        if self.bar is not None:
            self.bar.close()

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Show the bar, in the main process alone."""
        is_hidden = args.disable_tqdm or not state.is_world_process_zero
        # A resumed run has done a part already, which its rate must not count.
        percent = 100 * self.trainer.progress()
        self.bar = progress_bar(initial=percent, total=100, desc="training", disable=is_hidden)
        self.bar.bar_format = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
        self.bar.miniters = 0  # Speeds and losses change more often than percents.

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Move the bar."""
        parts = [f"step {state.global_step:,}"]
        for name, value_format in SHOWN_FORMATS.items():
            if name in self.last_values:
                parts.append(value_format.format(self.last_values[name]))
        if EVALUATED in self.last_values:
            parts.append(f"at step {self.evaluated_step:,}")
        percent = 100 * self.trainer.progress()
        self.bar.postfix = " ".join(parts)
        self.bar.update(max(percent - self.bar.n, 0))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append a line to the log."""
        if logs is None or not state.is_world_process_zero:
            return
        self.last_values |= logs
        if EVALUATED in logs:
            self.evaluated_step = state.global_step
        folder = Path(self.trainer.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / LOG_NAME, "a", encoding="utf-8") as log:
            log.write(json.dumps({"step": state.global_step, **logs}) + "\n")

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Draw the curves."""
        self.close()
        if not state.is_world_process_zero or find_spec("matplotlib") is None:
            return
        folder = Path(self.trainer.args.output_dir).resolve()
        try:
            draw_training_curves(folder / CURVES_NAME, {folder.name: folder / LOG_NAME})
        except Exception as error:  # A picture must not end a run.
            logger.warning(f"{CURVES_NAME} was not drawn: {type(error).__name__}: {error}")
