"""Checkpoints of a run: whole, or skipped."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from transformers.utils import logging

logger = logging.get_logger("modeling_tmde.training")

SEAL = "sha256"  # the last file of a checkpoint: the digest of the others


def digest(files: Iterable[Path], folder: Path) -> str:
    """SHA-256 of the names in the folder, sizes and contents of files."""
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while block := file.read(2**24):
                found.update(block)
    return found.hexdigest()


def seal(folder: Path) -> str:
    """The digest of a checkpoint, from which damage shows once it is written to `SEAL`."""
    return digest((path for path in folder.rglob("*") if path.is_file() and path.name != SEAL), folder)


def find_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint. One that was cut off while it was written has no readable state; one that was
    damaged later, as by a crash of the machine, has another digest."""
    steps = [path for path in folder.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
    for path in sorted(steps, key=lambda path: int(path.name.rpartition("-")[2]), reverse=True):
        try:
            json.loads((path / "trainer_state.json").read_text())
            if not (path / SEAL).exists() or (path / SEAL).read_text() == seal(path):
                return path
        except (OSError, ValueError, RecursionError):
            pass
        logger.warning("%s is incomplete or damaged, and is skipped", path)
    return None
