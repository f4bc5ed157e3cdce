"""A trainer of a tiny model, for all tests of training."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import make_dataset, make_rows, tiny_model
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.callbacks import RunSchedule
from tmde.training.objectives import DistanceConstraint, TranslationObjective
from tmde.training.parallel_model import ParallelModel
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
    """Trains translation and distance on 120 rows, without checkpoints, and measured only on the
    given rows or task.

    Args:
        rows, dev: Lists of rows, or datasets.
    """
    if task is None and dev is None:
        arguments = {"eval_strategy": "no"} | arguments
    rows, dev = (make_dataset(found) if isinstance(found, list) else found for found in (rows, dev))
    dev = dev if dev is None or isinstance(dev, dict) else {"dev": dev}
    tasks = task if task is None or isinstance(task, dict) else {"task": task}
    both = {"translation": TranslationObjective(), "distance": DistanceConstraint(negatives=100)}
    return TmdeTrainer(
        ParallelModel(tiny_model(seed=1) if model is None else model, objectives or both),
        TmdeTrainingArguments(output_dir=str(folder), **(ARGUMENTS | arguments)),
        make_dataset(make_rows(120, seed=2)) if rows is None else rows,
        tokenizer,
        eval_dataset=dev,
        eval_tasks=tasks,
        callbacks=list(callbacks),
    )


def interrupt(monkeypatch: pytest.MonkeyPatch, folder: Path, step: int) -> None:
    """Ctrl-C after so many steps of the run in `folder`."""
    go_on = RunSchedule.on_step_end

    def stop(self, args, state, control, **kwargs):
        if state.global_step == step and Path(args.output_dir).resolve() == folder.resolve():
            raise KeyboardInterrupt
        return go_on(self, args, state, control, **kwargs)

    monkeypatch.setattr(RunSchedule, "on_step_end", stop)


def on_two_processes(script: str, argument: Path, **environment: str) -> None:
    """Starts a worker of this folder by `torchrun`, and waits for it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += [str(Path(__file__).with_name(script)), str(argument)]
    options = {"env": ENVIRONMENT | environment, "capture_output": True, "text": True}
    process = subprocess.run(command, timeout=300, **options)  # a deadlock
    assert process.returncode == 0, process.stderr[-4000:]
