"""Checkpoints of a run: whole, or skipped."""

from pathlib import Path

from transformers.trainer_utils import sort_checkpoints
from transformers.utils import logging

from modeling_tmde.data.io import digests, write_atomically

logger = logging.get_logger("modeling_tmde.training")

SEAL = "sha256"  # the last file of a checkpoint; `sha256sum -c sha256` reads it


def seal(folder: Path) -> None:
    """Writes down the digests of a checkpoint's files; from now on it is complete."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    write_atomically(folder / SEAL, digests(files, folder))


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint; None if its files are those that were sealed."""
    try:
        sealed = (folder / SEAL).read_text()
        found = digests([folder / line.partition("  ")[2] for line in sealed.splitlines()], folder)
    except (OSError, ValueError) as error:  # such as a file that is missing
        return str(error)
    wrong = set(sealed.splitlines()) - set(found.splitlines())
    return f"{min(wrong).partition('  ')[2]} is damaged" if wrong else None


def find_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint. One that was cut off while it was written is not sealed; one that was damaged
    later, as by a crash of the machine, has other digests."""
    for path in map(Path, reversed(sort_checkpoints(str(folder)))):
        if (reason := damage(path)) is None:
            return path
        logger.warning("%s is incomplete or damaged, and is skipped: %s", path, reason)
    return None
