"""Plan which tasks to run on which data, and load the data."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tmde.data.languages import check_codes
from tmde.eval.tasks import GROUPS, TASKS, Task, TaskError, data_fingerprint
from tmde.eval.tasks.base import TaskData

ALL_TASKS = "all"

# Arguments of `Task.load` that belong to every task. The others are the options of one task.
COMMON_LOAD_ARGUMENTS = {"source", "languages", "streaming"}


@dataclass
class LoadedTask:
    """A task with its data.

    Args:
        name: The name in reports. It differs from the task's where a task runs on several sources.
        task: The task that loaded the data.
        data: Texts with labels, alignments or gold similarities.
        fingerprint: A hash of the data.
    """

    name: str
    task: Task
    data: TaskData
    fingerprint: str


@dataclass(frozen=True)
class PlannedTask:
    """A task whose source is known, but not read yet.

    Args:
        name: The name in reports, see `LoadedTask`.
        task: The task that will load the data.
        source: A file, a folder or a Hub id; None for the task's default source.
        options: Further arguments of the task's `load`.
    """

    name: str
    task: Task
    source: str | None
    options: dict[str, Any] = field(default_factory=dict)

    def load(
        self,
        languages: Sequence[str] | None = None,
        streaming: bool = False,
        known: Sequence[str] | None = None,
        train_languages: Sequence[str] | None = None,
    ) -> LoadedTask:
        """Read the data.

        Args:
            languages: The languages to load; None for the task's.
            streaming: Stream datasets of the Hub.
            known: The languages of the models. If `languages` is None, only those of the task's
                languages are loaded that are among these.
            train_languages: The languages to train on, for a task that does not train on all.

        Returns:
            The task with its data.

        Raises:
            TaskError: The task lacks an option, or it has no language that the models know.
            ValueError: The data are bad.
        """
        self._check_options()
        check_codes(languages or (), "languages")
        check_codes(train_languages or (), "train_languages")
        # A plan can be loaded more than once, for other languages.
        task = copy.copy(self.task)
        if train_languages and task.train_languages is not None:
            task.train_languages = tuple(train_languages)
        if known is not None:
            # The task itself finds out which of these languages its data have.
            task.languages = tuple(known)
        data = task.load(self.source, languages, streaming=streaming, **self.options)
        return LoadedTask(self.name, task, data, data_fingerprint(data))

    def _check_options(self) -> None:
        arguments = inspect.signature(self.task.load).parameters.keys()
        accepted = arguments - COMMON_LOAD_ARGUMENTS
        unknown = self.options.keys() - accepted
        if unknown:
            raise TaskError(
                f"{self.task.name}: found option {min(unknown)!r}, "
                f"expected one of {sorted(accepted)}"
            )


@dataclass(frozen=True)
class _TaskRequest:
    """A task that a user asked for.

    Args:
        task: The class of the task.
        source: The source that the user named; None if it must be looked for.
        only_local: Run the task only where its files are in the data folder.
    """

    task: type[Task]
    source: str | None
    only_local: bool


def plan_tasks(
    specs: Sequence[str],
    folder: str | Path | None = None,
    options: dict[str, dict[str, Any]] | None = None,
) -> list[PlannedTask]:
    """Find the data of tasks.

    Args:
        specs: `NAME`, `NAME=SOURCE` (a file, folder or Hub id) or `all`. `NAME` may be a key of
            `GROUPS`. `all` runs the built-in sample and every task whose files are in `folder`.
        folder: The folder of task files with their usual names. Other tasks use the Hub.
        options: Arguments for a task's `load`, by task name.

    Returns:
        The tasks in the order of `specs`.

    Raises:
        TaskError: A task is unknown, the folder is missing, two sources have the same name, or
            options are set for a task that does not run.
    """
    if folder is not None and not Path(folder).is_dir():
        raise TaskError(
            f"--data: found no folder {str(folder)!r}, expected one with the tasks' files"
        )
    options = options or {}
    names_and_sources = _split_specs(specs)
    _check_names([name for name, _ in names_and_sources if name != ALL_TASKS])
    _check_names(options)

    planned: dict[str, PlannedTask] = {}
    for request in _requests(names_and_sources):
        for source in _find_sources(request, folder):
            name = _name_of_plan(request.task, source, planned)
            task_options = options.get(request.task.name, {})
            planned[name] = PlannedTask(name, request.task(), source, task_options)

    unused = options.keys() - {plan.task.name for plan in planned.values()}
    if unused:
        names = ", ".join(sorted(unused))
        raise TaskError(f"Found options of {names}, which does not run")
    return list(planned.values())


def _split_specs(specs: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return the name and the source, if any, of every task; groups are replaced by their tasks."""
    names_and_sources: list[tuple[str, str | None]] = []
    for spec in specs:
        group, _, source = spec.partition("=")
        for name in GROUPS.get(group, [group]):
            names_and_sources.append((name, source or None))
    return names_and_sources


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in TASKS:
            expected = ", ".join(sorted([*TASKS, *GROUPS]))
            raise TaskError(f"Found task {name!r}, expected one of {expected}, or 'all'")


def _requests(names_and_sources: Sequence[tuple[str, str | None]]) -> list[_TaskRequest]:
    """Return one request per task; `all` becomes a request of every task."""
    requests = []
    for name, source in names_and_sources:
        if name == ALL_TASKS:
            for task_name in sorted(TASKS):
                requests.append(_TaskRequest(TASKS[task_name], source, only_local=True))
        else:
            requests.append(_TaskRequest(TASKS[name], source, only_local=False))
    return requests


def _find_sources(request: _TaskRequest, folder: str | Path | None) -> Sequence[str | None]:
    """Return the sources on which a task runs; None stands for the task's default."""
    task = request.task
    if request.source is not None:
        return [request.source]
    paths = [] if folder is None else _local_files(task, Path(folder))
    if paths:
        return paths if _has_many_files(task) else paths[:1]
    if task.default_source == "sample" or not request.only_local:
        return [task.default_source]
    return []


def _local_files(task: type[Task], folder: Path) -> list[str]:
    paths: set[Path] = set()
    for pattern in task.local_names:
        paths.update(folder.glob(pattern))
    return [str(path) for path in sorted(paths)]


def _has_many_files(task: type[Task]) -> bool:
    """Return whether a folder may hold several files of the task, each of them a source."""
    return any("*" in pattern for pattern in task.local_names)


def _name_of_plan(task: type[Task], source: str | None, planned: dict[str, PlannedTask]) -> str:
    """Return the task's name, followed by the source's where the task alone does not tell.

    Raises:
        TaskError: Another source has this name already.
    """
    name = task.name
    is_second_source = name in planned and planned[name].source != source
    if is_second_source or _has_many_files(task):
        name = f"{task.name}/{Path(source or 'data').stem}"
    if name in planned and planned[name].source != source:
        raise TaskError(
            f"Found two sources called {name!r}; evaluate them one at a time, or rename one"
        )
    return name
