"""Checkpoints of a run, each of which is there as a whole or not at all."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from accelerate import PartialState
from safetensors import safe_open
from transformers.trainer import (
    OPTIMIZER_NAME,
    OPTIMIZER_NAME_BIN,
    SCHEDULER_NAME,
)
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.training.arguments import TmdeTrainingArguments

logger = logging.get_logger("tmde.training")

# The states that a run resumes with, beside its model, and patterns of their files. With FSDP, the
# optimizer has the folder `optimizer_0`, or the second name.
RESUMED_STATES = {
    "optimizer": (OPTIMIZER_NAME, OPTIMIZER_NAME_BIN, "optimizer_*"),
    "schedule": (SCHEDULER_NAME,),
    "random numbers": ("rng_state.pth", "rng_state_*.pth"),
}
# The folder of a run in which checkpoints are written and deleted. transformers pushes nothing to
# the Hub whose name begins with an underscore.
UNFINISHED = "_unfinished"


@contextmanager
def writing_unfinished(args: TmdeTrainingArguments) -> Iterator[Path]:
    """Let transformers write a checkpoint into the folder of unfinished ones, and do no more.

    Older checkpoints are deleted, and this one is pushed, only when it is complete.
    """
    folder = Path(args.output_dir) / UNFINISHED
    before = {
        name: getattr(args, name) for name in ("output_dir", "save_total_limit", "push_to_hub")
    }
    args.output_dir = str(folder)
    args.save_total_limit = None
    args.push_to_hub = False
    try:
        yield folder
    finally:
        for name, value in before.items():
            setattr(args, name, value)


def publish(unfinished: Path, checkpoint: Path) -> None:
    """Give a checkpoint its final name, once all of its files are on the disk."""
    for path in unfinished.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    if checkpoint.exists():  # The run was resumed from an older one.
        shutil.rmtree(checkpoint)
    unfinished.rename(checkpoint)
    shutil.rmtree(unfinished.parent)


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run that is not damaged; None if there is none."""
    checkpoints = [Path(name) for name in sort_checkpoints(str(folder))]
    for path in reversed(checkpoints):
        damage = find_damage(path)
        if damage is None:
            return path
        logger.warning(f"{path} is damaged and skipped: {damage}")
    return None


def find_damage(checkpoint: Path) -> str | None:
    """Return which file of a checkpoint is damaged, as far as its format tells; None if none is.

    Files of torch are archives with a checksum of each part. Of JSON and safetensors, only damage
    that makes them unreadable is found.
    """
    for path in sorted(checkpoint.iterdir()):
        try:
            _read_whole(path)
        except Exception as error:  # Readers of damaged files fail in any way.
            return f"{path.name}: {error or type(error).__name__}"
    return None


def _read_whole(path: Path) -> None:
    if path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix in (".bin", ".pt", ".pth"):
        with ZipFile(path) as archive:
            damaged_part = archive.testzip()
        if damaged_part is not None:
            raise TmdeError(f"the checksum of {damaged_part} is wrong")
    elif path.suffix == ".safetensors":
        with safe_open(path, "pt"):
            pass


def check_undamaged(checkpoint: Path) -> None:
    """Check a checkpoint that a user has named.

    Raises:
        TmdeError: Names the file that is damaged.
    """
    damage = find_damage(checkpoint)
    if damage is not None:
        raise TmdeError(f"{checkpoint} is damaged: {damage}; resume from an older checkpoint")


def check_resumable(folder: Path) -> None:
    """Check that a checkpoint holds all that a run resumes with.

    transformers would begin a missing state anew, without a warning.

    Raises:
        TmdeError: Names the states that are missing.
    """
    missing = []
    for state, patterns in RESUMED_STATES.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            missing.append(state)
    if missing:
        raise TmdeError(
            f"{folder} can't be resumed: it lacks the state of {', '.join(missing)}, as a "
            "checkpoint of a run with save_only_model=true does. To train its model further, "
            f"start a new run: --warm-start {folder} and another -o (in Python: "
            "from_pretrained)"
        )


def discard_checkpoints(folder: Path) -> None:
    """Delete all checkpoints of a run that has ended. Every process must call it.

    The newest goes first. If the process is killed amid this, `--resume` goes on from an older one,
    and makes the last steps again.
    """
    state = PartialState()
    if state.is_main_process:
        unfinished = folder / UNFINISHED
        unfinished.mkdir(exist_ok=True)
        checkpoints = [Path(name) for name in sort_checkpoints(str(folder))]
        for path in reversed(checkpoints):
            # A checkpoint that is half deleted has no name of a checkpoint.
            path.rename(unfinished / f"old-{path.name}")
        shutil.rmtree(unfinished)
    state.wait_for_everyone()
