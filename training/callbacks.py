"""What ends a run, and what a person sees of it meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm.auto import tqdm
from transformers import TrainerCallback

if TYPE_CHECKING:
    from modeling_tmde.training.trainer import TmdeTrainer

LOG_NAME = "log.jsonl"


class RunLimits(TrainerCallback):
    """Ends the run when its minutes are over or its epochs are done, with a last evaluation and checkpoint."""

    def __init__(self, trainer: TmdeTrainer):
        self.trainer = trainer
        self.evaluated_step: int | None = None
        self.saved_step: int | None = None
        self.last_evaluation = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self.last_evaluation = self.trainer.elapsed

    def on_step_end(self, args, state, control, **kwargs):
        if args.eval_minutes and self.trainer.elapsed - self.last_evaluation >= args.eval_minutes * 60:
            self.last_evaluation = self.trainer.elapsed
            control.should_log = True
            control.should_evaluate = self.trainer.eval_dataset is not None
            control.should_save = args.save_strategy != "no"
        if args.max_minutes and self.trainer.elapsed >= args.max_minutes * 60:
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
            self.bar = tqdm(total=1.0, desc="training ", bar_format=layout, postfix=[""])

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
