"""Epochs: evaluation and checkpoints at their ends, and the table of what every evaluation measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainingArguments

from modeling_tmde.data.io import write_atomically

if TYPE_CHECKING:
    from modeling_tmde.training.trainer import TmdeTrainer

TABLE_NAME = "epochs.md"
COLUMNS = {
    "eval_same": "dev Same",
    "eval_cross": "dev Cross",
    "eval_test_same": "test Same",
    "eval_test_cross": "test Cross",
    "eval_retrieval": "dev retrieval",
    "eval_document_retrieval": "dev documents",
    "eval_mix": "dev mix",
}


class EpochEnds(TrainerCallback):
    """Gives the strategies `epoch` of evaluation, saving and logging their meaning, and writes `epochs.md`.

    transformers takes the whole run for one epoch. An epoch of a stream of unknown length is seen to be over when the
    next has begun, by the step with its first rows.
    """

    def __init__(self, trainer: TmdeTrainer) -> None:
        self.trainer = trainer
        self.epochs = 0
        self.evaluated_step: int | None = None
        self.saved_step: int | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.epochs = self.trainer.whole_epochs

    def on_step_end(self, args, state, control, **kwargs):
        if self.trainer.whole_epochs > self.epochs:
            self.epochs = self.trainer.whole_epochs
            control.should_log |= args.logging_strategy == "epoch"
            control.should_evaluate |= args.eval_strategy == "epoch" and self.epochs >= args.eval_delay
            control.should_save |= args.save_strategy == "epoch"
        return control

    def on_epoch_end(self, args, state, control, **kwargs):
        # The end of the run, where transformers evaluates and saves for `epoch`, even if this step already has.
        control.should_evaluate &= self.evaluated_step != state.global_step
        control.should_save &= self.saved_step != state.global_step
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        self.evaluated_step = state.global_step
        if state.is_world_process_zero:
            table = epoch_table(state.log_history, args)
            write_atomically(Path(args.output_dir) / TABLE_NAME, table)

    def on_save(self, args, state, control, **kwargs):
        self.saved_step = state.global_step


def epoch_table(log_history: Sequence[Mapping[str, Any]], args: TrainingArguments) -> str:
    """Markdown table of every evaluation, in percent, as tables 4.8 to 4.11 of the thesis.

    The checkpoint chosen so far, by `args.metric_for_best_model`, is marked, if one is chosen. Columns that no
    evaluation has are left out.
    """
    rows: dict[int, Mapping[str, Any]] = {}
    for entry in log_history:
        if "eval_minutes" in entry:
            rows.setdefault(entry["step"], entry)
    metric = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
    chosen = None
    if args.load_best_model_at_end:
        # The first of equals, as transformers has it; before the first step nothing is saved.
        measured = {step: row[metric] for step, row in rows.items() if metric in row and step}
        chosen = (max if args.greater_is_better else min)(measured, key=measured.get, default=None)
    names = [name for name in COLUMNS if any(name in row for row in rows.values())]
    lines = [["epoch", "step", *(COLUMNS[name] for name in names)], ["---:"] * (2 + len(names))]
    for step, row in rows.items():
        values = [f"{100 * row[name]:.2f}" if name in row else "-" for name in names]
        cells = [f"{row['epoch']:.2f}", f"{step}", *values]
        lines.append([f"**{cell}**" for cell in cells] if step == chosen else cells)
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    if chosen is not None:
        table += f"\nBold: the chosen checkpoint, by {COLUMNS.get(metric, metric)}.\n"
    return table
