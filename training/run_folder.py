"""The folder of a run: whether a run may use it, and what stays in it after an error."""

from __future__ import annotations

import glob
import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import recursively_apply
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.io import locked, write_atomically
from tmde.training.checkpoints import find_checkpoint
from tmde.training.data_files import describe_change
from tmde.training.interruption import Interruption, RunInterrupted
from tmde.training.recipe import (
    Recipe,
    RecipeError,
    load_recipe,
    with_sections,
    with_settings,
)
from tmde.training.resuming import SOURCE_SECTIONS, changed_settings

RECIPE_NAME = "recipe.yaml"
RUN_RECORD_NAME = "run.json"
RESULTS_NAME = "results.json"  # The last of the files that a run writes before its card.
MAX_SHOWN_KEYS = 5
logger = logging.get_logger("tmde.training")


class RunCompleteError(TmdeError):
    """A run that is to be resumed has ended before."""


@contextmanager
def opened_folder(recipe: Recipe, folder: Path, resume: bool, overwrite: bool) -> Iterator[None]:
    """Lock the folder of a run for the processes of this run.

    After an error or a signal before the first checkpoint, a folder that is new is deleted, and one
    that was empty is emptied: the same command would be refused otherwise.

    Args:
        recipe: The recipe of the run.
        folder: The folder.
        resume: Resume the run in the folder.
        overwrite: Delete an earlier run in the folder.

    Raises:
        TmdeError: The folder holds another run, or none to resume, or another process trains in it.
        RunInterrupted: A signal ended the run; the message says how to go on.
    """
    state = PartialState()
    with ExitStack() as stack:
        stack.enter_context(_explained_interruption(folder, resume))
        if state.is_main_process:
            stack.enter_context(locked(folder))
            stack.enter_context(_removed_after_error(folder, recipe.data.train))
        if resume:
            check_resumed_folder(recipe, folder)
        else:
            check_new_folder(recipe, folder, overwrite)
        state.wait_for_everyone()  # Every process has checked the folder before it changes.
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
        return f"Interrupted before training began; {folder} is as it was. Run the command again."
    checkpoint = find_checkpoint(folder)
    if checkpoint is not None:
        step = int(checkpoint.name.rpartition("-")[2])
        return (
            f"Interrupted. Step {step:,} is saved in {checkpoint}: the same command with --resume "
            "goes on from there."
        )
    if (folder / RESULTS_NAME).is_file():
        return f"Interrupted at the very end: {folder} is complete."
    return "Interrupted before the first step, so nothing is trained: run the same command again."


def check_resumed_folder(recipe: Recipe, folder: Path) -> None:
    """Refuse to resume a run that is not there, or another one.

    Args:
        recipe: The recipe with which the run is to be resumed.
        folder: The folder of the run.

    Raises:
        RunCompleteError: The run has ended, and its checkpoints were deleted.
        TmdeError: The folder holds no checkpoint to resume from, or its run has other settings or
            other training data.
    """
    has_checkpoint = find_checkpoint(folder) is not None
    is_complete = (folder / RESULTS_NAME).is_file()
    if not has_checkpoint and not is_complete:
        raise TmdeError(
            f"{folder} holds no complete checkpoint to resume from; --overwrite begins again"
        )
    check_same_settings(recipe, folder)
    if not has_checkpoint:
        _refuse_complete(recipe, folder)
    check_same_files(recipe, folder)


def _refuse_complete(recipe: Recipe, folder: Path) -> None:
    """Raise an error for a run that has ended: a mistake if it was to be extended."""
    steps = json.loads((folder / RESULTS_NAME).read_text(encoding="utf-8"))["steps"]
    stored = load_recipe(str(folder / RECIPE_NAME))
    further = (
        f"To train its model further, begin a new run with it: --warm-start {folder} and another "
        "-o. A run with keep_checkpoints=true can be extended by --resume, if its learning rates "
        "do not depend on its limits"
    )
    if stored.training.settings() == recipe.training.settings():
        raise RunCompleteError(f"{folder} is already complete, after {steps:,} steps. {further}.")
    raise TmdeError(
        f"{folder} is complete, after {steps:,} steps, and its checkpoints were deleted: it cannot "
        f"go on with other settings. {further}"
    )


def check_same_settings(recipe: Recipe, folder: Path) -> None:
    """Refuse to resume a run with other settings, except those that `changed_settings` allows.

    Args:
        recipe: The recipe with which the run is to be resumed.
        folder: The folder of the run.

    Raises:
        RecipeError: Names every key that differs, with both values.
    """
    stored = load_recipe(str(folder / RECIPE_NAME))
    changes = changed_settings(stored, recipe)
    refused = [change for change in changes if not change.is_allowed]
    if not refused:
        return
    parts = []
    for change in refused[:MAX_SHOWN_KEYS]:
        part = f"{change.key} is {change.now!r}, and the run was begun with {change.before!r}"
        if change.reason:
            part += f" ({change.reason})"
        parts.append(part)
    if len(refused) > MAX_SHOWN_KEYS:
        parts.append(f"and {len(refused) - MAX_SHOWN_KEYS} more")
    message = (
        f"{folder} cannot be resumed with other values: {'; '.join(parts)}. Only limits, reports, "
        "the times of evaluations and checkpoints, and the hardware may change, where the learning "
        "rates do not depend on them. To go on as the run was begun: "
        f"tmde train {folder / RECIPE_NAME} -o {folder} --resume. To train its model with other "
        f"settings, begin a new run: --warm-start {folder} and another -o"
    )
    if any(change.key.startswith("data.") for change in refused):
        message += f". If a file has moved, change its path in {folder / RECIPE_NAME}"
    raise RecipeError(message)


def record_changes(recipe: Recipe, folder: Path) -> None:
    """Write the settings that a resumed run changes into its `recipe.yaml`, and say which.

    Args:
        recipe: The recipe with which the run is resumed, checked by `check_same_settings`.
        folder: The folder of the run.
    """
    path = folder / RECIPE_NAME
    stored = load_recipe(str(path))
    changes = [change for change in changed_settings(stored, recipe) if change.is_allowed]
    if not changes:
        return
    # A change of `card.data_licenses` may be one of its keys, so the section is taken as a whole,
    # and so are mappings of the training section.
    settings = {}
    for change in changes:
        if change.section == "training":
            settings[f"training.{change.name}"] = getattr(recipe.training, change.name)
    updated = with_sections(with_settings(stored, settings), card=recipe.card.settings())
    write_atomically(path, updated.to_yaml())
    parts = [f"{change.key} from {change.before!r} to {change.now!r}" for change in changes]
    logger.warning(f"Changed since the run was begun: {'; '.join(parts)}")


def check_same_files(recipe: Recipe, folder: Path) -> None:
    """Compare the files of the training data with those that the run to resume was begun with.

    Args:
        recipe: The recipe, which names the same sources as the run's.
        folder: The folder of the run.

    Raises:
        RecipeError: A file has changed; names it.
    """
    record = folder / RUN_RECORD_NAME
    if not record.is_file():
        return  # The run has made no model yet, and so no step.
    files = json.loads(record.read_text(encoding="utf-8"))["data"]["files"]
    if files is None:
        return  # A trainer that was built in Python records none.
    change = describe_change(files, recipe.settings()["data"].get("train"))
    if change is not None:
        raise RecipeError(
            f"{folder} cannot be resumed with other training data: {change}. Put the former file "
            f"back to go on; to train the model on the new text, begin a new run: --warm-start "
            f"{folder} and another -o"
        )


def with_stored_data(recipe: Recipe, folder: Path, train: bool, dev: bool) -> Recipe:
    """Return the recipe of a run to resume, with the data that the run was begun with.

    Args:
        recipe: The recipe.
        folder: The folder of the run. Without `recipe.yaml` in it, nothing changes.
        train: Take the run's training data.
        dev: Take the run's dev rows.
    """
    path = folder / RECIPE_NAME
    if not path.is_file():
        return recipe
    stored = load_recipe(str(path)).data.settings()
    settings = {}
    if train and "train" in stored:
        settings["data.train"] = stored["train"]
        if "columns" in stored and "columns" not in recipe.data.settings():
            settings["data.columns"] = stored["columns"]
    states_dev_rows = "dev" in stored or "dev" in recipe.data.settings()
    if dev and states_dev_rows:
        settings["data.dev"] = stored.get("dev")
    return with_settings(recipe, settings)


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
            f"{folder} is not empty: choose another folder, or --resume its run, or --overwrite it"
        )
    if is_used and not (folder / RECIPE_NAME).exists():
        raise TmdeError(f"{folder} does not look like a training run; it is not overwritten")
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
        is_inside = path.resolve().is_relative_to(folder.resolve())
        # A value that matches no file is an id of the Hub.
        if is_inside and glob.glob(f"{path}*", recursive=True):
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
