"""What `tmde eval` is given: models, tasks and earlier evaluations, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from modeling_tmde.cli.embedding_job import model_problem
from modeling_tmde.data.io import PlainLoader
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.cache import ArrayCache
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.runner import LoadedTask, PlannedTask, plan_tasks
from modeling_tmde.eval.significance import ComparisonError
from modeling_tmde.eval.storage import EVAL_NAME, read_results
from modeling_tmde.eval.systems import EmbeddingSystem, System
from modeling_tmde.eval.tasks import ClassificationData


def split_names(text: str | None) -> tuple[str, ...] | None:
    """Of a comma-separated list; None of nothing."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else None


def find_tasks(specs: list[str] | None, data: Path | None, settings: list[str] | None) -> list[PlannedTask]:
    """Tasks of `--tasks`, `--data` and `--set`.

    Raises:
        ValueError: A setting that is not TASK.OPTION=VALUE, or what `plan_tasks` refuses.
    """
    options: dict[str, dict[str, Any]] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        task, dot, name = key.partition(".")
        if not (equals and dot and task and name):
            raise ValueError(f"--set: found {setting!r}, expected TASK.OPTION=VALUE")
        options.setdefault(task, {})[name] = yaml.load(value, PlainLoader)
    names = [name.strip() for spec in specs or ["all"] for name in spec.split(",") if name.strip()]
    return plan_tasks(names, data, options)


def load_tasks(
    planned: Sequence[PlannedTask],
    systems: Sequence[EmbeddingSystem],
    languages: str | None,
    train_languages: str | None,
    streaming: bool,
) -> list[LoadedTask]:
    """The data in the requested languages; or else in those of each task that all models were trained on."""
    chosen = split_names(languages)
    if chosen and train_languages:
        chosen = tuple(dict.fromkeys([*chosen, *split_names(train_languages)]))
    trained_on = [system.languages for system in systems if system.languages is not None]
    known = [code for code in trained_on[0] if all(code in codes for codes in trained_on)] if trained_on else None
    loaded = [task.load(chosen, streaming, known, split_names(train_languages)) for task in planned]
    for task in loaded:
        for code in split_names(train_languages) or ():
            if isinstance(task.data, ClassificationData) and code not in task.data.languages:
                raise ValueError(
                    f"--train-languages: found {code!r}, expected some of {', '.join(task.data.languages)}, the "
                    f"languages of task {task.name}"
                )
    return loaded


def named(spec: str) -> tuple[str, str]:
    """Name and path of NAME=PATH, or of a path alone."""
    name, equals, path = spec.partition("=")
    if equals and not Path(spec).exists():
        return name, path
    if not Path(spec).exists():
        return spec, spec
    folder = Path(spec).resolve()
    return folder.parent.name if folder.name == "model" else folder.name, spec  # `tmde quickstart` makes .../model


def load_models(
    specs: Sequence[str], cache: ArrayCache, pooling: str | None, loading: dict[str, Any]
) -> list[EmbeddingSystem]:
    """Opens each PATH or NAME=PATH."""
    systems: list[EmbeddingSystem] = []
    for name, path in map(named, specs):
        embedder = _opened(path, pooling=pooling, **loading)
        systems.append(EmbeddingSystem(name, embedder, cache))
    return systems


def load_baselines(specs: Sequence[str], cache: ArrayCache, loading: dict[str, Any]) -> list[System]:
    """Opens each encoder twice: by its first output and by the mean of its outputs."""
    systems: list[System] = []
    for name, path in map(named, specs):
        first = _opened(path, pooling="cls", **loading)
        kept = {key: value for key, value in loading.items() if key not in ("device", "dtype", "trust_remote_code")}
        mean = DocumentEmbedder(first.model, first.tokenizer, pooling="mean", **kept)
        systems.append(EmbeddingSystem(f"{name} (first output)", first, cache))
        systems.append(EmbeddingSystem(f"{name} (mean)", mean, cache))
    return systems


def _opened(path: str, **loading: Any) -> DocumentEmbedder:
    """
    Raises:
        ValueError: It cannot be; names it.
    """
    try:
        return DocumentEmbedder.from_pretrained(path, **loading)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        told = model_problem(path, error)
        named = path in (word.strip(":;,") for word in told.split())
        raise ValueError(told if named else f"{path}: {told}") from error


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError if two are called alike."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Two are called {name!r}; name them apart as NAME=PATH")


def stored_results(side: str) -> list[TaskResult] | None:
    """Results of one system in an evaluation folder; None if `side` is no such folder."""
    folder, system = Path(side), ""
    if not (folder / EVAL_NAME).exists():
        name, _, system = side.rpartition("#")
        folder = Path(name)
        if not name or not (folder / EVAL_NAME).exists():
            return None
    results = read_results(folder)
    names = list(dict.fromkeys(result.system for result in results))
    if not system and len(names) > 1:
        raise ComparisonError(f"{folder} holds {', '.join(names)}: choose one as {folder}#{names[0]}")
    if system and system not in names:
        raise ComparisonError(f"{folder}: found systems {', '.join(names)}, expected {system!r} among them")
    return [result for result in results if not system or result.system == system]


def spec_of(result: TaskResult) -> str:
    """NAME=SOURCE of a result, as it was measured."""
    name, source = result.task.partition("/")[0], result.data.get("source")
    return name if source in (None, "sample") else f"{name}={source}"
