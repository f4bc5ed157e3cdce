"""Checkpoints of a run: whole, or skipped."""

import os
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import logging

from tmde.data.io import digests, write_atomically

logger = logging.get_logger("tmde.training")

SEAL = "sha256"  # the last file of a checkpoint; `sha256sum -c sha256` reads it


def seal(folder: Path) -> None:
    """Writes down the digests of a checkpoint's files, once they are on the disk; from now on it is complete."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != SEAL]
    for path in files:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    write_atomically(folder / SEAL, digests(files, folder))


def damage(folder: Path, only: str = "") -> str | None:
    """What is wrong with a checkpoint, or with the file `only`; None if its files are those that were sealed."""
    try:
        sealed = [line for line in (folder / SEAL).read_text().splitlines() if line.endswith(only)]
        found = digests([folder / line.partition("  ")[2] for line in sealed], folder)
    except (OSError, ValueError) as error:  # such as a file that is missing
        return str(error)
    if not any(line.endswith(only or TRAINER_STATE_NAME) for line in sealed):
        return f"{SEAL} is empty or cut off"
    wrong = set(sealed) - set(found.splitlines())
    return f"{min(wrong).partition('  ')[2]} is damaged" if wrong else None


def find_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint. One that was cut off while it was written is not sealed; one that was damaged
    later, as by a crash of the machine, has other digests."""
    steps = [
        Path(name) for name in sort_checkpoints(str(folder)) if name.rpartition("-")[2].isdigit()
    ]
    for path in reversed(steps):
        if (reason := damage(path)) is None:
            return path
        logger.warning("%s is incomplete or damaged, and is skipped: %s", path, reason)
    return None
