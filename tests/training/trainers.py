"""A trainer of a tiny model, for all tests of training."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import make_dataset, make_rows, tiny_model
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.callbacks import RunSchedule
from tmde.training.objectives import DistanceConstraint, TranslationObjective
from tmde.training.recipe import Recipe, load_recipe
from tmde.training.trainer import TmdeTrainer

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
ARGUMENTS = {
    "use_cpu": True,
    "disable_tqdm": True,
    "max_steps": 4,
    "warmup_steps": 2,
    "logging_steps": 1,
    "seed": 7,
}
ARGUMENTS |= {"save_strategy": "no", "load_best_model_at_end": False, "micro_batch_tokens": 400}
ARGUMENTS |= {"eval_pairs": ["de-en"]}


def checkpoint_recipe(name: str, *overrides: str) -> Recipe:
    """Return the recipe of the run whose model a recipe begins with, with overrides."""
    _, _, first_name, *words = shlex.split(load_recipe(name).warm_start.made_by)
    return load_recipe(first_name, [*words, *overrides])


def tiny_trainer(
    folder: Path,
    tokenizer,
    rows=None,
    objectives=None,
    dev=None,
    task=None,
    model=None,
    callbacks=(),
    **arguments,
) -> TmdeTrainer:
    """Return a trainer of translation and distance on 120 rows, without checkpoints.

    Args:
        folder: The folder of the run.
        tokenizer: The tokenizer.
        rows: Training rows, as a list or a dataset; None for 120 rows.
        objectives: The objectives; None for translation and distance.
        dev: Dev rows, as a list or a dataset, or dev sets by name; None for no retrieval.
        task: A classification task, or tasks by name; None for no task.
        model: The model; None for a tiny T-MDE.
        callbacks: Callbacks of the trainer.
        arguments: Training arguments beside `ARGUMENTS`.
    """
    if task is None and dev is None:
        arguments = {"eval_strategy": "no"} | arguments
    if rows is None:
        rows = make_rows(120, seed=2)
    if objectives is None:
        distance = DistanceConstraint(negatives=100)
        objectives = {"translation": TranslationObjective(), "distance": distance}
    if model is None:
        model = tiny_model(seed=1)
    return TmdeTrainer(
        model,
        TmdeTrainingArguments(output_dir=str(folder), **(ARGUMENTS | arguments)),
        as_dataset(rows),
        by_name("dev", as_dataset(dev)),
        objectives,
        tokenizer,
        eval_tasks=by_name("task", task),
        callbacks=list(callbacks),
    )


def as_dataset(rows):
    """Return a list of rows as a dataset, and anything else as it is."""
    if isinstance(rows, list):
        return make_dataset(rows)
    return rows


def by_name(name: str, value):
    """Return a single value under a name, and None or a dict as it is."""
    if value is None or isinstance(value, dict):
        return value
    return {name: value}


def interrupt(monkeypatch: pytest.MonkeyPatch, folder: Path, step: int) -> None:
    """Press Ctrl-C after so many steps of the run in `folder`."""
    go_on = RunSchedule.on_step_end

    def stop(self, args, state, control, **kwargs):
        if state.global_step == step and Path(args.output_dir).resolve() == folder.resolve():
            raise KeyboardInterrupt
        return go_on(self, args, state, control, **kwargs)

    monkeypatch.setattr(RunSchedule, "on_step_end", stop)


def on_two_processes(script: str, argument: Path, **environment: str) -> None:
    """Start a worker of this folder by `torchrun`, and wait for it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += [str(Path(__file__).with_name(script)), str(argument)]
    options = {"env": ENVIRONMENT | environment, "capture_output": True, "text": True}
    process = subprocess.run(command, timeout=300, **options)  # Otherwise a deadlock hangs.
    assert process.returncode == 0, process.stderr[-4000:]
