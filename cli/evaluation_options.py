"""The arguments of `tmde eval`: names of models, lists of languages, tasks and their settings."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from modeling_tmde import TmdeError
from tmde.data.plain_yaml import PlainLoader
from tmde.eval.planning import PlannedTask, plan_tasks

_SETTING = re.compile(r"(?P<task>[^.=]+)\.(?P<option>[^=]+)=(?P<value>.*)", re.DOTALL)


def find_tasks(
    specs: list[str] | None, data: Path | None, settings: list[str] | None
) -> list[PlannedTask]:
    """Resolve the options `--tasks`, `--data` and `--set` to tasks.

    Raises:
        TmdeError: A setting is not TASK.OPTION=VALUE, or `plan_tasks` refuses a task.
    """
    options: dict[str, dict[str, Any]] = {}
    for setting in settings or []:
        match = _SETTING.fullmatch(setting)
        if not match:
            raise TmdeError(f"--set: found {setting!r}, expected TASK.OPTION=VALUE")
        try:
            value = yaml.load(match["value"], PlainLoader)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise TmdeError(f"--set {setting}: expected a YAML value ({reason})") from error
        options.setdefault(match["task"], {})[match["option"]] = value
    names = split_list(",".join(specs or ["all"]))
    return plan_tasks(names or (), data, options)


def split_list(text: str | None) -> tuple[str, ...] | None:
    """Return the parts of a comma-separated list; None for an option that was not given."""
    if not text:
        return None
    parts = [part.strip() for part in text.split(",")]
    return tuple(part for part in parts if part)


def named_paths(specs: Sequence[str]) -> dict[str, str]:
    """Return paths by their names.

    Args:
        specs: `NAME=PATH`, or a path alone, which is named by its folder.

    Raises:
        TmdeError: Two have the same name.
    """
    paths: dict[str, str] = {}
    for spec in specs:
        name, path = _split_name(spec)
        if name in paths:
            raise TmdeError(f"Found the name {name!r} twice; give each its own as NAME=PATH")
        paths[name] = path
    return paths


def _split_name(spec: str) -> tuple[str, str]:
    """Return name and path of `NAME=PATH` or of a path alone, which may hold an equals sign."""
    if Path(spec).exists():
        folder = Path(spec).resolve()
        # `tmde quickstart` calls the folder of its model so.
        named_folder = folder.parent if folder.name == "model" else folder
        return named_folder.name, spec
    name, _, path = spec.partition("=")
    return name, path or spec
