"""The arguments of `tmde eval`: names of models, lists of languages, tasks and their settings."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from modeling_tmde import TmdeError
from tmde.data.plain_yaml import PlainLoader
from tmde.eval.planning import PlannedTask, plan_tasks
from tmde.eval.tasks import GROUPS, TASKS
from tmde.eval.tasks.labeled_documents import LabeledDocuments

_SETTING = re.compile(r"(?P<task>[^.=]+)\.(?P<option>[^=]+)=(?P<value>.*)", re.DOTALL)


def find_tasks(
    specs: list[str] | None,
    data: Path | None,
    settings: list[str] | None,
    labeled: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> list[PlannedTask]:
    """Resolve the options `--tasks`, `--data`, `--set`, `--labeled` and `--columns` to tasks.

    Raises:
        TmdeError: An option is malformed, or `plan_tasks` rejects a task.
    """
    options = _parse_settings(settings or [])
    labeled_tasks = _plan_labeled(labeled, columns or {}, options.get(LabeledDocuments.name, {}))
    if labeled_tasks and LabeledDocuments.name not in _names_of_specs(specs):
        # `plan_tasks` refuses options of tasks that it does not plan.
        options.pop(LabeledDocuments.name, None)
    if labeled and not specs and data is None:
        return labeled_tasks
    names = split_list(",".join(specs or ["all"]))
    return plan_tasks(names or (), data, options) + labeled_tasks


def _parse_settings(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of tasks by the names of the tasks.

    Raises:
        TmdeError: A setting is not TASK.OPTION=VALUE.
    """
    options: dict[str, dict[str, Any]] = {}
    for setting in settings:
        match = _SETTING.fullmatch(setting)
        if not match:
            raise TmdeError(f"--set: found {setting!r}, expected TASK.OPTION=VALUE")
        try:
            value = yaml.load(match["value"], PlainLoader)
        except yaml.YAMLError as error:
            reason = " ".join(str(error).split())
            raise TmdeError(f"--set {setting}: expected a YAML value ({reason})") from error
        options.setdefault(match["task"], {})[match["option"]] = value
    return options


def _names_of_specs(specs: Sequence[str] | None) -> list[str]:
    """Return the names of the tasks of `--tasks`, without their sources."""
    names = []
    for spec in split_list(",".join(specs or ())) or ():
        name, _, _ = spec.partition("=")
        names.append(name)
    return names


def _plan_labeled(
    labeled: Sequence[str], columns: Mapping[str, str], options: dict[str, Any]
) -> list[PlannedTask]:
    """Return the tasks of `--labeled`.

    Args:
        labeled: `NAME=FILE`, or a file alone, which is named by itself without its suffixes.
        columns: Columns by `FIELD`, for all files, or by `NAME.FIELD`, for one of them.
        options: Options of `--set` for all files.

    Raises:
        TmdeError: Two files have the same name, a name is that of a task, or columns are named for
            no file.
    """
    sources: dict[str, str] = {}
    for spec in labeled:
        name, source = _split_labeled(spec)
        if name in TASKS or name in GROUPS:
            raise TmdeError(
                f"--labeled {spec}: found the name {name!r}, which is a task of tmde; choose "
                f"another one, such as --labeled my_{name}={source}"
            )
        if name in sources:
            raise TmdeError(
                f"--labeled: found the name {name!r} twice; name each file with NAME=FILE"
            )
        sources[name] = source
    columns_by_file = _columns_by_file(columns, list(sources))
    planned = []
    for name, source in sources.items():
        task_options = dict(options)
        if columns_by_file[name]:
            task_options["columns"] = columns_by_file[name]
        planned.append(PlannedTask(name, LabeledDocuments(), source, task_options))
    return planned


def _split_labeled(spec: str) -> tuple[str, str]:
    """Return name and path of `NAME=FILE`, or of a file alone, which may hold an equals sign."""
    name, equals_sign, path = spec.partition("=")
    if Path(spec).exists() or not equals_sign:
        return Path(spec).name.partition(".")[0] or spec, spec
    return name, path


def _columns_by_file(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the columns of the fields, by the names of the files.

    Raises:
        TmdeError: There is no such file.
    """
    columns_by_file: dict[str, dict[str, str]] = {name: {} for name in names}
    for target, column in columns.items():
        name, dot, field = target.rpartition(".")
        if not names or (dot and name not in names):
            expected = ", ".join(names) or "none, because --labeled is missing"
            raise TmdeError(
                f"--columns {target}={column}: found columns of "
                f"{name or 'labeled documents'}, expected those of a --labeled file "
                f"({expected})"
            )
        for file_name in [name] if dot else names:
            columns_by_file[file_name][field] = column
    return columns_by_file


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
            raise TmdeError(f"Found the name {name!r} twice; name each with NAME=PATH")
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
