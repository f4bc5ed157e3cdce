"""Checkpoints of a run. Those that are incomplete or damaged are skipped."""

import os
import shutil
from pathlib import Path

from accelerate import PartialState
from transformers.trainer import (
    OPTIMIZER_NAME,
    OPTIMIZER_NAME_BIN,
    SCHEDULER_NAME,
    TRAINER_STATE_NAME,
)
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.io import digests, write_atomically

logger = logging.get_logger("tmde.training")

# The states that a run resumes with, beside its model, and patterns of their files. With FSDP, the
# optimizer has the folder `optimizer_0`, or the second name.
RESUMED_STATES = {
    "optimizer": (OPTIMIZER_NAME, OPTIMIZER_NAME_BIN, "optimizer_*"),
    "schedule": (SCHEDULER_NAME,),
    "random numbers": ("rng_state.pth", "rng_state_*.pth"),
}
SEAL = "sha256"  # The last file of a checkpoint. `sha256sum -c sha256` reads it.


def seal(folder: Path) -> None:
    """Record the digests of a checkpoint's files once they are on the disk.

    From then on the checkpoint is complete.
    """
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != SEAL]
    for path in files:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    write_atomically(folder / SEAL, digests(files, folder))


def find_damage(folder: Path, only_file: str | None = None) -> str | None:
    """Return what is wrong with a checkpoint; None if its files are those that were sealed.

    Args:
        folder: The checkpoint.
        only_file: The name of the one file to check; None for all files.
    """
    try:
        sealed = _read_seal(folder)
        if only_file is not None:
            sealed = {name: line for name, line in sealed.items() if name == only_file}
        current_lines = digests([folder / name for name in sealed], folder).splitlines()
    except (OSError, ValueError) as error:  # A file is missing, or the seal is not text.
        return str(error)
    expected_file = TRAINER_STATE_NAME if only_file is None else only_file
    if expected_file not in sealed:
        return f"{SEAL} is empty or cut off"
    changed = set(sealed.values()) - set(current_lines)
    if changed:
        return f"{_name_in(min(changed))} is damaged"
    return None


def _read_seal(folder: Path) -> dict[str, str]:
    """Return the lines of a checkpoint's seal, `digest  name`, by the names of the files."""
    lines = (folder / SEAL).read_text().splitlines()
    return {_name_in(line): line for line in lines}


def _name_in(seal_line: str) -> str:
    return seal_line.partition("  ")[2]


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a run; None if there is none.

    A checkpoint that was cut off while it was written is not sealed; one that was damaged later, as
    by a crash of the machine, has other digests.
    """
    checkpoints = [Path(name) for name in sort_checkpoints(str(folder))]
    for path in reversed(checkpoints):
        if not path.name.rpartition("-")[2].isdigit():
            continue
        reason = find_damage(path)
        if reason is None:
            return path
        logger.warning("%s is incomplete or damaged, and is skipped: %s", path, reason)
    return None


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
            f"{folder} cannot be resumed: it lacks the state of {', '.join(missing)}, as a "
            "checkpoint of a run with save_only_model=true does. To train its model further, begin "
            f"a new run: --warm-start {folder} and another -o (in Python: from_pretrained)"
        )


def discard_checkpoints(folder: Path) -> None:
    """Delete all checkpoints of a run that has ended. Every process must call it.

    The newest goes first. If the process is killed amid this, `--resume` goes on from an older one,
    and makes the last steps again.
    """
    state = PartialState()
    if state.is_main_process:
        checkpoints = [Path(name) for name in sort_checkpoints(str(folder))]
        for path in reversed(checkpoints):
            shutil.rmtree(path)
    state.wait_for_everyone()
