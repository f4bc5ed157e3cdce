"""Checkpoints of a run: complete, or skipped."""

import os
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import logging

from tmde.data.io import digests, write_atomically

logger = logging.get_logger("tmde.training")

SEAL = "sha256"  # the last file of a checkpoint; `sha256sum -c sha256` reads it


def seal(folder: Path) -> None:
    """Write down the digests of a checkpoint's files, once they are on the disk.

    From then on the checkpoint is complete.
    """
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != SEAL]
    for path in files:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    write_atomically(folder / SEAL, digests(files, folder))


def damage(folder: Path, only: str = "") -> str | None:
    """Return what is wrong with a checkpoint; None if its files are those that were sealed.

    Args:
        folder: The checkpoint.
        only: The end of the lines of the seal to check, to check one file; all by default.
    """
    try:
        lines = (folder / SEAL).read_text().splitlines()
        sealed = [line for line in lines if line.endswith(only)]
        files = [folder / line.partition("  ")[2] for line in sealed]
        current = digests(files, folder).splitlines()
    except (OSError, ValueError) as error:  # such as a file that is missing
        return str(error)
    expected_end = only or TRAINER_STATE_NAME
    if not any(line.endswith(expected_end) for line in sealed):
        return f"{SEAL} is empty or cut off"
    changed = set(sealed) - set(current)
    if changed:
        name = min(changed).partition("  ")[2]
        return f"{name} is damaged"
    return None


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a run; None if there is none.

    A checkpoint that was cut off while it was written is not sealed; one that was damaged later, as
    by a crash of the machine, has other digests.
    """
    checkpoints = [Path(name) for name in sort_checkpoints(str(folder))]
    for path in reversed(checkpoints):
        if not path.name.rpartition("-")[2].isdigit():
            continue
        reason = damage(path)
        if reason is None:
            return path
        logger.warning("%s is incomplete or damaged, and is skipped: %s", path, reason)
    return None
