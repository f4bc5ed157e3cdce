"""What a resumed run may change: some of its settings, and nothing of its training data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data.io import digests, write_atomically
from tmde.data.tables import find_tables
from tmde.training.argument_table import CHANGEABLE, CHANGEABLE_ADDITIONS
from tmde.training.checkpoints import find_checkpoint
from tmde.training.optimization import METRIC_SCHEDULES, OPEN_SCHEDULES
from tmde.training.recipe import Recipe, RecipeError, load_recipe, with_sections, with_settings
from tmde.training.recipe.schema import SECTIONS
from tmde.training.run_folder import (
    RECIPE_NAME,
    RESULTS_NAME,
    RUN_RECORD_NAME,
    SOURCE_SECTIONS,
)

CHANGEABLE_KEYS = {*CHANGEABLE, *CHANGEABLE_ADDITIONS}
# The training keys that a resumed run may change only where its learning rates do not depend on
# them.
LIMITS = ("max_steps", "num_train_epochs", "max_minutes", "max_cpu_minutes")
EVALUATION_TIMES = ("eval_strategy", "eval_steps", "eval_minutes", "eval_delay")
MAX_SHOWN_KEYS = 5
SAMPLE = "sample"
logger = logging.get_logger("tmde.training")


class RunCompleteError(TmdeError):
    """A run that is to be resumed has ended before."""


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
            f"{folder} has no complete checkpoint to resume from; start over with --overwrite"
        )
    check_same_settings(recipe, folder)
    if not has_checkpoint:
        _refuse_complete(recipe, folder)
    _check_same_files(recipe, folder)


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
        f"{folder} is complete, after {steps:,} steps, and its checkpoints were deleted, so "
        f"it can't continue with other settings. {further}"
    )


# ---- Settings


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
        part = f"{change.key} is {change.now!r}, but the run started with {change.before!r}"
        if change.reason:
            part += f" ({change.reason})"
        parts.append(part)
    if len(refused) > MAX_SHOWN_KEYS:
        parts.append(f"and {len(refused) - MAX_SHOWN_KEYS} more")
    message = (
        f"{folder} cannot be resumed with other values: {'; '.join(parts)}. Only limits, reports, "
        "the times of evaluations and checkpoints, and the hardware may change, unless the "
        "learning rate depends on them. To continue with the original settings: "
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
    logger.warning(f"Changed since the start of the run: {'; '.join(parts)}")


@dataclass(frozen=True)
class SettingChange:
    """A key whose value is not the one that a run was begun with.

    Attributes:
        key: The key, such as `training.learning_rate`.
        before: The value of the run.
        now: The value of the recipe with which it is resumed.
        is_allowed: Whether a resumed run may change the key.
        reason: Why this run may not change a key that others may, as a clause; "" for every other
            change.
    """

    key: str
    before: Any
    now: Any
    is_allowed: bool = False
    reason: str = ""

    @property
    def section(self) -> str:
        """The section of the key."""
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the key in its section, without the keys of a mapping below it."""
        return self.key.split(".")[1]


def changed_settings(stored: Recipe, recipe: Recipe) -> list[SettingChange]:
    """Return the keys in which two recipes differ.

    A key that is left out has its default. Two names of the same file are equal.

    Args:
        stored: The recipe with which a run was begun.
        recipe: The recipe with which it is resumed.
    """
    changes = []
    for section in SECTIONS:
        before = getattr(stored, section).values()
        now = getattr(recipe, section).values()
        for change in _differences(section, before, now):
            names_same_file = section in SOURCE_SECTIONS and _is_same_source(
                change.before, change.now
            )
            if not names_same_file:
                changes.append(_judge(change, stored))
    return changes


def _judge(change: SettingChange, stored: Recipe) -> SettingChange:
    """Return a change with the answer to whether a resumed run may make it, and why not."""
    reason = ""
    if change.section == "card":  # The model card may say anything.
        is_allowed = True
    elif change.section == "training" and change.name in LIMITS:
        reason = _dependence_on_limits(stored)
        is_allowed = not reason
    elif change.section == "training" and change.name in EVALUATION_TIMES:
        reason = _dependence_on_evaluations(stored)
        is_allowed = not reason
    else:
        is_allowed = change.section == "training" and change.name in CHANGEABLE_KEYS
    return replace(change, is_allowed=is_allowed, reason=reason)


def _dependence_on_limits(recipe: Recipe) -> str:
    """Return why the learning rates of a run depend on its limits; "" if they do not."""
    training = recipe.training
    if training.lr_scheduler_type not in OPEN_SCHEDULES:
        return f"lr_scheduler_type={training.lr_scheduler_type} depends on where the run ends"
    if training.cooldown:
        return f"cooldown={training.cooldown} lowers the learning rate toward the end of the run"
    if 0 < training.warmup_steps < 1:
        return f"warmup_steps={training.warmup_steps} is a share of all steps"
    return ""


def _dependence_on_evaluations(recipe: Recipe) -> str:
    """Return why the learning rates of a run depend on its evaluations; "" if they do not."""
    schedule = recipe.training.lr_scheduler_type
    if schedule in METRIC_SCHEDULES:
        return f"lr_scheduler_type={schedule} follows the evaluations"
    return ""


def _differences(key: str, before: Any, now: Any) -> Iterator[SettingChange]:
    """Yield the differences of two values of a key; of two mappings, those of their keys."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        if before != now:
            yield SettingChange(key, before, now)
        return
    for name in {**before, **now}:
        yield from _differences(f"{key}.{name}", before.get(name), now.get(name))


def _is_same_source(old: Any, new: Any) -> bool:
    """Return whether two sources are the same; a file may be named in several ways."""
    return bool(_absolute(old) == _absolute(new))


def _absolute(source: Any) -> Any:
    """Return a source whose files have absolute paths, at any depth."""
    if isinstance(source, str):
        path = Path(source).expanduser()
        return str(path.resolve()) if path.exists() else source
    if isinstance(source, Mapping):
        return {name: _absolute(value) for name, value in source.items()}
    if isinstance(source, list):
        return [_absolute(value) for value in source]
    return source


# ---- Training data


def _check_same_files(recipe: Recipe, folder: Path) -> None:
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
    change = _describe_change(files, recipe.settings()["data"].get("train"))
    if change is not None:
        raise RecipeError(
            f"{folder} can't be resumed with other training data: {change}. Restore the file "
            "to continue; to train the model on the new text, start a new run: --warm-start "
            f"{folder} and another -o"
        )


def record_files(train: Any, is_streamed: bool) -> list[dict[str, Any]]:
    """Return what `run.json` keeps of the files of the training data.

    Args:
        train: The value of `data.train`, see `_data_paths`.
        is_streamed: Whether the data are streamed: such files are too large to be read twice, so
            their digests are left out.

    Returns:
        For each file its `bytes`, the time of its last change as `modified`, in nanoseconds since
        the epoch, and its `sha256`.
    """
    records = []
    for path in _data_paths(train):
        status = path.stat()
        record: dict[str, Any] = {"bytes": status.st_size, "modified": status.st_mtime_ns}
        if not is_streamed:
            record["sha256"] = _digest(path)
        records.append(record)
    return records


def _describe_change(records: Sequence[Mapping[str, Any]], train: Any) -> str | None:
    """Return how the files differ from those of a record, as a clause; None if they do not.

    A file of another time with the same content has not changed: it may have been copied.

    Args:
        records: What `record_files` returned when the run began.
        train: The value of `data.train` today.
    """
    paths = _data_paths(train)
    if len(paths) != len(records):
        return f"data.train has {len(paths):,} files, before {len(records):,}"
    for path, record in zip(paths, records, strict=True):
        status = path.stat()
        if status.st_size != record["bytes"]:
            return f"{path} has {status.st_size:,} bytes, before {record['bytes']:,}"
        if status.st_mtime_ns != record["modified"] and _has_other_content(path, record):
            return f"{path} has been modified since"
    return None


def _has_other_content(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a file has changed, as far as is known: without a digest it has."""
    return "sha256" not in record or _digest(path) != record["sha256"]


def _digest(path: Path) -> str:
    return digests([path], path.parent).partition(" ")[0]


def _data_paths(train: Any) -> list[Path]:
    """Return the files of the training data in a fixed order; data of the Hub have none.

    Args:
        train: A source, a list of sources, Moses files by language, or the sections `new` and
            `replay` of a run that adds languages.
    """
    paths: list[Path] = []
    for source in _sources(train):
        for file in find_tables(source) or ():
            paths.extend(Path(path) for path in file.paths)
    return paths


def _sources(train: Any) -> Iterator[str | os.PathLike | Mapping[str, str]]:
    """Yield the single sources of `data.train`, without the sample."""
    if isinstance(train, Mapping) and "new_languages" in train:
        yield from _sources(train["new"])
        yield from _sources(train.get("replay"))
    elif isinstance(train, list | tuple):
        for source in train:
            yield from _sources(source)
    elif train is not None and train != SAMPLE:
        yield train
