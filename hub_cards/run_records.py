"""What a run recorded in its folder, and which parts may be published."""

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
        TmdeError: The file is damaged, or does not contain a JSON object.
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
        TmdeError: The file is damaged, or the folder contains no model of this package.
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

# The keys of each section, at any depth, for paths, addresses or Hub ids.
SOURCE_KEYS = {
    "data": {"train", "dev", "eval_task"},
    "tokenizer": {"path"},
    "warm_start": {"checkpoint"},
    "model": {"encoder"},
    "objectives": {"teacher"},
    "training": {"accelerator_config", "fsdp_config", "resume_from_checkpoint"},
}


def public_recipe(folder: str | os.PathLike) -> dict[str, Any]:
    """Return the recipe of a run without its token, and with only the last part of each path.

    Text that is not a source, such as the options of a custom loss, is unchanged. `tmde train
    recipe.yaml --train ...` accepts the result, with the user's own sources.

    Args:
        folder: The folder of the run. If it contains no recipe, return {}.
    """
    path = Path(folder, "recipe.yaml")
    if not path.is_file():
        return {}
    recipe = yaml.safe_load(path.read_text("utf-8"))
    return {name: _publish(name, section) for name, section in recipe.items() if section}


def _publish(section: str, value: Any) -> Any:
    """Return a value of a section without the Hub token and without paths."""
    if not isinstance(value, Mapping):
        return value
    published = {}
    for key, item in value.items():
        if key in SOURCE_KEYS.get(section, ()):
            published[key] = _publish_sources(item)
        elif key == "data_licenses":
            published[key] = {_publish_path(path): license for path, license in item.items()}
        elif key != "hub_token":
            published[key] = _publish(section, item)
    return published


def _publish_sources(value: Any) -> Any:
    """Return sources, each optionally `NAME=SOURCE`, without paths."""
    if isinstance(value, Mapping):
        return {name: _publish_sources(source) for name, source in value.items()}
    if isinstance(value, list):
        return [_publish_sources(source) for source in value]
    if not isinstance(value, str):
        return value
    name, equals, source = value.partition("=")
    if not equals or "/" in name or "\\" in name:  # A path may contain an equals sign.
        return _publish_path(value)
    return f"{name}={_publish_path(source)}"


def _publish_path(path: str) -> str:
    """Return the last component of a path or an address; a Hub id unchanged."""
    return path if is_possible_hub_id(path, needs_owner=True) else public_name(path)


def public_name(source: Any) -> str:
    """Return the last component of a path or an address.

    Args:
        source: A path, an address, or paths by language; their names are joined.
    """
    if isinstance(source, Mapping):
        return ", ".join(public_name(path) for _, path in sorted(source.items()))
    text = str(source)
    if "://" in text:
        address = urlsplit(text)
        text = address.path.strip("/") or address.hostname or ""
    return PureWindowsPath(text).name or text  # It splits at both kinds of slashes.
