"""The folder of a run: whether a run may use it, and what stays in it after an error."""

from __future__ import annotations

import glob
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import recursively_apply

from modeling_tmde import TmdeError
from tmde.data.io import locked, write_atomically
from tmde.training.checkpoints import find_checkpoint
from tmde.training.interruption import Interruption, RunInterrupted
from tmde.training.recipe import Recipe, RecipeError

RECIPE_NAME = "recipe.yaml"
RUN_RECORD_NAME = "run.json"
RESULTS_NAME = "results.json"  # The last of the files that a run writes before its card.
# Sections whose values may be the names of files.
SOURCE_SECTIONS = ("data", "tokenizer", "warm_start", "model", "objectives")


@contextmanager
def opened_folder(recipe: Recipe, folder: Path, resume: bool) -> Iterator[None]:
    """Lock the folder of a run for the processes of this run.

    After an error or a signal before the first checkpoint, a folder that is new is deleted, and one
    that was empty is emptied: the same command would be refused otherwise.

    Args:
        recipe: The recipe of the run.
        folder: The folder.
        resume: Resume the run in the folder.

    Raises:
        TmdeError: Another process trains in the folder.
        RunInterrupted: A signal ended the run; the message says how to go on.
    """
    with ExitStack() as stack:
        stack.enter_context(_explained_interruption(folder, resume))
        if PartialState().is_main_process:
            stack.enter_context(locked(folder))
            stack.enter_context(_removed_after_error(folder, recipe.data.train))
        yield


@contextmanager
def _removed_after_error(folder: Path, source: Any) -> Iterator[None]:
    """After an error, undo a new folder without a checkpoint, and name a damaged source."""
    was_there = folder.exists()
    was_used = _is_used(folder)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if not was_used and not _is_worth_keeping(folder):
            with suppress(OSError):  # The error that is on its way says more.
                _empty_folder(folder)
        if not was_there and not _is_used(folder):
            shutil.rmtree(folder, ignore_errors=True)
        # Arrow does not name the file that it streams.
        is_damaged_source = type(error) is OSError and error.errno is None
        if is_damaged_source:
            reason = " ".join(str(error).split())
            raise TmdeError(f"{reason} (the training data is {source})") from error
        raise


def _is_worth_keeping(folder: Path) -> bool:
    """Return whether a run is complete, or `--resume` finds something in its folder."""
    return (folder / RESULTS_NAME).is_file() or find_checkpoint(folder) is not None


def _empty_folder(folder: Path) -> None:
    """Delete everything in a folder except hidden files. One of them may be its lock."""
    for path in folder.glob("[!.]*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


# ---- Interrupted runs


@contextmanager
def _explained_interruption(folder: Path, resume: bool) -> Iterator[None]:
    """Let signals end the run, and say what of it is saved and how it goes on."""
    started = time.time()
    number: int = signal.SIGINT
    try:
        with Interruption().heard():
            yield
    except KeyboardInterrupt as error:
        if isinstance(error, RunInterrupted):
            number = error.number
        holds_earlier_run = not resume and _is_older(folder / RECIPE_NAME, started)
        message = describe_interruption(folder, holds_earlier_run)
        raise RunInterrupted(message, number) from None


def _is_older(path: Path, seconds: float) -> bool:
    """Return whether a file was written before a time, in seconds since the epoch."""
    return path.exists() and path.stat().st_mtime < seconds


def describe_interruption(folder: Path, holds_earlier_run: bool) -> str:
    """Return what an interrupted run has saved, and how to go on.

    Args:
        folder: The folder of the run.
        holds_earlier_run: Whether the folder still holds a run that this one would overwrite.
    """
    if holds_earlier_run:
        return f"Interrupted before training started; {folder} is unchanged. Run the command again."
    checkpoint = find_checkpoint(folder)
    if checkpoint is not None:
        step = int(checkpoint.name.rpartition("-")[2])
        return (
            f"Interrupted. Step {step:,} is saved in {checkpoint}: the same command with --resume "
            "continues from there."
        )
    if (folder / RESULTS_NAME).is_file():
        return f"Interrupted at the very end: {folder} is complete."
    return "Interrupted before the first step, so nothing is trained: run the same command again."


def check_new_folder(recipe: Recipe, folder: Path, overwrite: bool) -> None:
    """Refuse a folder in which a new run may not begin.

    Args:
        recipe: The recipe of the run.
        folder: The folder.
        overwrite: Delete an earlier run in the folder.

    Raises:
        TmdeError: The folder holds another run; or it would be overwritten and holds an input of
            the run.
    """
    is_used = _is_used(folder)
    if is_used and not overwrite:
        raise TmdeError(
            f"{folder} is not empty: choose another folder, resume its run with --resume, or "
            "replace it with --overwrite"
        )
    if is_used and not (folder / RECIPE_NAME).exists():
        raise TmdeError(f"{folder} does not look like a training run and was not overwritten")
    if overwrite:
        check_inputs_stay(recipe, folder)


def _is_used(folder: Path) -> bool:
    """Return whether a folder holds anything but the lock of a run."""
    if not folder.exists():
        return False
    lock = f".{folder.resolve().name}.lock"
    return any(path.name != lock for path in folder.iterdir())


def check_inputs_stay(recipe: Recipe, folder: Path, *files: str) -> None:
    """Refuse to delete a folder that holds an input of the run.

    Args:
        recipe: The recipe, which names inputs.
        folder: The folder.
        files: Further inputs.

    Raises:
        RecipeError: An input lies in the folder; the message names it.
    """
    values = list(files)
    settings = recipe.settings()
    sections = [settings[section] for section in SOURCE_SECTIONS]
    recursively_apply(values.append, sections, test_type=lambda value: isinstance(value, str))
    for value in values:
        path = Path(value.rpartition("=")[2]).expanduser()  # A task may be NAME=SOURCE.
        # A value may be the beginning of names, and one that matches no file is an id of the Hub.
        for match in glob.glob(f"{path}*", recursive=True):
            if Path(match).resolve().is_relative_to(folder.resolve()):
                raise RecipeError(
                    f"{value}: the run would overwrite it; choose another folder than {folder}, or "
                    "move it"
                )


def begin_folder(recipe: Recipe, folder: Path, overwrite: bool) -> None:
    """Empty the folder of a new run if it is to be overwritten, and write its recipe.

    From now on `--overwrite` may delete the folder.
    """
    if overwrite:
        _empty_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / RECIPE_NAME, recipe.to_yaml())
