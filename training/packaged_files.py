"""Find the YAML files that come with the package."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # Python 3.10 has no such module.

# The packages whose folder `recipes` holds recipes. `tmde.papers`, which is built on this package,
# has those of the papers; its `__init__` holds no code, so that finding them imports none.
PACKAGES = ("tmde.training", "tmde.papers")


def recipe_files() -> dict[str, Traversable]:
    """Return the files of all recipes by name, in alphabetical order."""
    files: dict[str, Traversable] = {}
    for package in PACKAGES:
        files |= yaml_files(package, "recipes")
    return dict(sorted(files.items()))


def yaml_files(package: str, folder: str) -> dict[str, Traversable]:
    """Return the YAML files in a folder of a package by name, in alphabetical order."""
    files = {}
    for path in resources.files(package).joinpath(folder).iterdir():
        if path.name.endswith(".yaml"):
            files[path.name.removesuffix(".yaml")] = path
    return dict(sorted(files.items()))
