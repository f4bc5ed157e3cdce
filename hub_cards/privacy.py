"""Recipes and names that may be published: without tokens, passwords and paths of the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

# Names of values that must stay secret.
_SECRET = re.compile(r"(?:.*_)?(?:hub_token|access_token|api_key|password|secret)")

# Addresses: the scheme, a user with a password, the place, and a query or fragment.
_ADDRESS = re.compile(r"(\w+://)(?:[^\s/@]*@)?([^\s?#)>\"'`]*)[^\s)>\"'`]*")
_ADDRESS_WITHOUT_SECRETS = r"\1\2"

# Paths that begin with `~`, `.`, `..`, `/` or a drive, anywhere in a text.
_PATH = re.compile(
    r"(?<![\w:/])(?:~[\w.-]*[/\\]|\.{1,2}[/\\]|/(?=[^/\s])|[A-Za-z]:[/\\])[^\s)\"'`]*"
)

# Texts that are a relative path as a whole, perhaps behind the name of a task and `=`. With only
# one separator they may be an id of the Hub.
_RELATIVE_PATH = re.compile(r"(?:\w+=)?[\w.-]+(?:[/\\][\w.-]+){2,}")


def public_name(source: Any) -> str:
    """Return the last component of a path or an address.

    Args:
        source: A path, an address, or paths by language, whose names are joined.
    """
    if isinstance(source, Mapping):
        return ", ".join(public_name(path) for _, path in sorted(source.items()))
    address = _ADDRESS.sub(_ADDRESS_WITHOUT_SECRETS, str(source))
    return re.split(r"[/\\]", address.rstrip("/\\"))[-1]


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
            if not _SECRET.fullmatch(str(name)):
                published[name] = _publish(item)
        return published
    if isinstance(value, list | tuple):
        return [_publish(item) for item in value]
    if isinstance(value, str):
        return _publish_text(value)
    return value


def _publish_text(text: str) -> str:
    if _RELATIVE_PATH.fullmatch(text):
        # In `NAME=SOURCE` of a task only the source is a path.
        name, equals, path = text.rpartition("=")
        return f"{name}{equals}{public_name(path)}"
    text = _ADDRESS.sub(_ADDRESS_WITHOUT_SECRETS, text)
    return _PATH.sub(lambda match: public_name(match[0]), text)
