"""What a run recorded in its folder, and what of it may be published."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import yaml

from modeling_tmde import TmdeError
from tmde.embedding.hub_names import is_possible_hub_id


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; {} if it does not exist.

    Raises:
        TmdeError: The file is damaged, or holds no JSON object.
    """
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TmdeError(f"{path}: damaged JSON ({error})") from None
    if not isinstance(content, dict):
        raise TmdeError(f"{path}: found {type(content).__name__}, expected a JSON object")
    return content


def read_model_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a model of this package.

    Raises:
        TmdeError: The file is damaged, or the folder has no model of this package.
    """
    config = read_json(folder / "config.json")
    model_type = str(config.get("model_type"))
    if not model_type.startswith("tmde"):
        raise TmdeError(
            f"{folder}: found model_type {model_type!r} in config.json, "
            "expected a model of this package"
        )
    return config


# ---- What may be published


def public_recipe(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the recipe of a run without its token, and with the last component of each path.

    `tmde train recipe.yaml --train ...` takes it, with one's own sources.

    Args:
        folder: The folder of the run. Without a recipe in it, the result is {}.
    """
    path = Path(folder, "recipe.yaml")
    if not path.is_file():
        return {}
    recipe = yaml.safe_load(path.read_text("utf-8"))
    return _publish({name: section for name, section in recipe.items() if section})


def _publish(value: Any) -> Any:
    """Return a value of a recipe without the token of the Hub and without paths, at any depth."""
    if isinstance(value, Mapping):
        published = {}
        for name, item in value.items():
            if name == "description":
                published[name] = item  # It is prose, written to be read.
            elif name != "hub_token":
                published[name] = _publish(item)
        return published
    if isinstance(value, list):
        return [_publish(item) for item in value]
    if isinstance(value, str):
        return _publish_text(value)
    return value


def _publish_text(text: str) -> str:
    """Return a text of a recipe; of a path or an address its last component."""
    if "://" in text:
        return public_name(text)
    # In `NAME=SOURCE` of a task only the source is a path.
    name, equals, source = text.rpartition("=")
    is_path = "/" in source or "\\" in source
    if is_path and not is_possible_hub_id(source, needs_owner=True):
        return f"{name}{equals}{public_name(source)}"
    return text


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
