"""Recipes and names that may be published: without tokens, passwords and paths of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import yaml

# Ends of the names of values that must stay secret.
_SECRETS = ("_token", "_key", "password", "secret")


def public_name(source: Any) -> str:
    """Return the last component of a path or an address.

    Args:
        source: A path, an address, or paths by language, whose names are joined.
    """
    if isinstance(source, Mapping):
        return ", ".join(public_name(path) for _, path in sorted(source.items()))
    text = str(source)
    if "://" in text:
        address = urlsplit(text)
        text = address.path.strip("/") or address.hostname or ""
    return PureWindowsPath(text).name or text  # It splits at both kinds of slashes.


def public_recipe(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the recipe of a run without tokens, and with the last component of each path.

    `tmde train recipe.yaml --train ...` takes it, with one's own sources.

    Args:
        folder: The folder of the run. Without a recipe in it, the result is {}.
    """
    path = Path(folder, "recipe.yaml")
    if not path.is_file():
        return {}
    recipe = yaml.safe_load(path.read_text("utf-8")) or {}
    filled_sections = {name: value for name, value in recipe.items() if value not in ({}, None)}
    return _publish(filled_sections)


def _publish(value: Any) -> Any:
    """Return a value of a recipe without secrets and paths, at any depth."""
    if isinstance(value, Mapping):
        published = {}
        for name, item in value.items():
            if name == "description":
                published[name] = item  # It is prose, written to be read.
            elif not str(name).endswith(_SECRETS):
                published[name] = _publish(item)
        return published
    if isinstance(value, list | tuple):
        return [_publish(item) for item in value]
    if not isinstance(value, str):
        return value
    if "://" in value:
        return public_name(value)
    # In `NAME=SOURCE` of a task only the source is a path.
    name, equals, source = value.rpartition("=")
    return f"{name}{equals}{public_name(source)}" if _is_path(source) else value


def _is_path(text: str) -> bool:
    """Return whether a text is a path. With one slash alone it may be an id of the Hub."""
    begins_as_path = text.startswith(("/", "~", "./", "../"))
    return begins_as_path or "\\" in text or text.count("/") > 1
