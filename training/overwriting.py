"""Inputs of a run in the folder of an earlier one, which `overwrite` would delete before they are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from modeling_tmde.training.recipe import Recipe, RecipeError


def check_inputs_stay(recipe: Recipe, folder: Path, made: Collection[str] = ()) -> None:
    """
    Looks for inputs of the recipe in a folder that is to be deleted, before it is.

    Args:
        folder: Of the run.
        made: Keys of what the run itself puts into the folder.

    Raises:
        RecipeError: Names the key of one, and where it is.
    """
    target = folder.expanduser().resolve()
    for key, value in _inputs(recipe):
        place = Path(value).expanduser()
        if key in made or not place.resolve().is_relative_to(target):
            continue
        if place.exists() or glob.glob(str(place)):  # or it is an id of the Hub
            raise RecipeError(
                f"{key}={value}: the run would overwrite it, since it is in {folder}; choose another output folder, "
                "or move it"
            )


def _inputs(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Every path or Hub id that the recipe reads from, by its key."""
    sections, start = recipe.sections, recipe.warm_start
    yield from _strings("warm_start.checkpoint", start.checkpoint)
    yield from _strings("warm_start.recipe", start.recipe)
    yield from _strings("model.encoder", sections["model"].get("encoder"))
    yield from _strings("tokenizer.path", sections["tokenizer"].get("path"))
    for name, options in sections["objectives"].items():
        yield from _strings(f"objectives.{name}.teacher", (options or {}).get("teacher"))
    yield from _strings("data.train", recipe.data.train)
    yield from _strings("data.dev", recipe.data.dev)
    for key, task in _strings("data.eval_task", recipe.data.eval_task):
        yield key, task.partition("=")[2] or task


def _strings(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, os.PathLike)):
        yield key, os.fspath(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strings(f"{key}.{name}", part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(key, part)
