"""Inputs of a run in the folder of an earlier one, which `overwrite` would delete before they are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from modeling_tmde.training.recipe import Recipe, RecipeError, recipe_names


def check_inputs_stay(recipe: Recipe, folder: Path, made: Collection[str] = ()) -> None:
    """
    Looks for inputs of the recipe in a folder that is to be deleted, before it is.

    Args:
        folder: Of the run.
        made: Keys of what the run itself puts into the folder.

    Raises:
        RecipeError: Names the key of one, and where it is.
    """
    for key, value in _inputs(recipe):
        if key not in made and any(is_inside(path, folder) for path in _paths(value)):
            raise RecipeError(
                f"{key}={value}: the run would overwrite it, since it is in {folder}; choose another output folder, "
                "or move it"
            )


def check_recipe_stays(path: str, folder: Path) -> None:
    """
    Raises:
        RecipeError: The file of the recipe would be deleted; that of the run itself is written again.
    """
    if Path(path).is_file() and Path(path).name != "recipe.yaml" and is_inside(path, folder):
        raise RecipeError(f"Recipe {path}: the run would overwrite it, since it is in {folder}; move it")


def is_inside(path: str | os.PathLike, folder: Path) -> bool:
    """Whether it would go with the folder: a file or folder there, or a link."""
    target, place = folder.expanduser().resolve(), Path(path).expanduser().absolute()
    # Of a link, the one is where it is, the other what it names.
    return any(each.is_relative_to(target) for each in (place.parent.resolve() / place.name, place.resolve()))


def _paths(value: str) -> Iterator[str]:
    """Files and folders that a path, a glob or the prefix of Moses files names; none for an id of the Hub."""
    path = os.path.expanduser(value)
    if os.path.lexists(path):
        yield path
    yield from glob.iglob(path, recursive=True)
    yield from glob.iglob(f"{glob.escape(path)}.*")


def _inputs(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Every path or Hub id that the recipe reads from, by its key."""
    sections, start = recipe.sections, recipe.warm_start
    yield from _strings("warm_start.checkpoint", start.checkpoint)
    if start.recipe not in recipe_names():
        yield from _strings("warm_start.recipe", start.recipe)
    yield from _strings("model.encoder", sections["model"].get("encoder"))
    yield from _strings("tokenizer.path", sections["tokenizer"].get("path"))
    for name, options in sections["objectives"].items():
        yield from _strings(f"objectives.{name}.teacher", (options or {}).get("teacher"))
    for key, source in (*_strings("data.train", recipe.data.train), *_strings("data.dev", recipe.data.dev)):
        if source != "sample":
            yield key, source
    for key, task in _strings("data.eval_task", recipe.data.eval_task):
        if source := task.partition("=")[2]:
            yield key, source


def _strings(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, (str, os.PathLike)):
        yield key, os.fspath(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _strings(f"{key}.{name}", part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _strings(key, part)
