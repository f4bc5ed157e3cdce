"""Finds and loads tasks, and measures systems on them."""

from __future__ import annotations

import inspect
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tmde.eval.alignment import evaluate_alignment
from tmde.eval.classification import PROTOCOLS, TEN_FOLDS, evaluate_classification
from tmde.eval.contrast import evaluate_contrast
from tmde.eval.folds import run_folds
from tmde.eval.heads import get_head
from tmde.eval.imported_code import imported_files
from tmde.eval.results import Cell, TaskResult, read_results, write_results
from tmde.eval.retrieval import evaluate_retrieval
from tmde.eval.similarity import evaluate_similarity
from tmde.eval.statistics import summary_intervals, with_interval
from tmde.eval.systems import System, environment
from tmde.eval.tasks import GROUPS, TASKS, Task, TaskError, data_fingerprint, text_fingerprint
from tmde.eval.tasks.base import (
    AlignmentData,
    ClassificationData,
    ContrastData,
    RetrievalData,
    TaskData,
)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class EvaluationOptions:
    """Options that affect the numbers.

    Args:
        protocol: `zero-shot`, `targeted` or `leave-one-out`, see `evaluate_classification`.
        head: Classifier; None takes the task's.
        train_languages: `("en",)` is the thesis's Evaluation I; None (all) its Evaluation II.
        test_languages: None for all of the task's data.
        seeds: Number of seeds for heads that have any.
        folds: Run the ten folds of thesis 4.6 too (zero-shot, all languages; embedders, not TF-IDF).
        scoring, margin, k: Retrieval options, see `evaluate_retrieval`.
        max_queries: Number of retrieval queries; None takes the task's, or all rows.
        samples: Number of bootstrap samples for the intervals.
        seed: Seed of folds, intervals and heads.
    """

    protocol: str = "zero-shot"
    head: str | None = None
    train_languages: tuple[str, ...] | None = None
    test_languages: tuple[str, ...] | None = None
    seeds: int = 3
    folds: bool = True
    scoring: str = "cosine"
    margin: str = "ratio"
    k: int = 4
    max_queries: int | None = None
    samples: int = 2000
    seed: int = 0


@dataclass
class LoadedTask:
    """A task with its data; `name` distinguishes several sources of one task."""

    name: str
    task: Task
    data: TaskData
    fingerprint: str  # of the data


@dataclass(frozen=True)
class PlannedTask:
    """A task whose source is known but not read yet."""

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
        """Reads the data.

        Args:
            languages: Languages to load; None for the task's.
            streaming: Stream Hub datasets.
            known: Languages of the models. If `languages` is None, only the task's languages among these are loaded.
            train_languages: Languages to train on, for a task that does not train on all of them.

        Raises:
            TaskError: An option that the task does not have, or no language that the models know.
            ValueError: Bad data.
        """
        accepted = inspect.signature(self.task.load).parameters.keys() - {
            "source",
            "languages",
            "streaming",
        }
        if unknown := self.options.keys() - accepted:
            raise TaskError(
                f"{self.task.name}: found option {min(unknown)!r}, expected one of {sorted(accepted)}"
            )
        if train_languages and self.task.train_languages:
            self.task.train_languages = tuple(train_languages)
        if known is not None:
            self.task.languages = tuple(known)  # the task knows which of them its data have
        data = self.task.load(self.source, languages, streaming=streaming, **self.options)
        return LoadedTask(self.name, self.task, data, data_fingerprint(data))


def plan_tasks(
    specs: Sequence[str],
    folder: str | Path | None = None,
    options: dict[str, dict[str, Any]] | None = None,
) -> list[PlannedTask]:
    """Finds the data of tasks.

    Args:
        specs: `NAME`, `NAME=SOURCE` (a file, a folder or a Hub id) or `all`: every task whose files are in `folder`,
            and the built-in sample. `NAME` may be one of `GROUPS`.
        folder: Where files of tasks are looked for, by their usual names; otherwise they come from the Hub.
        options: By task name, what its `load` takes.

    Raises:
        TaskError: Unknown task, missing folder, two sources of one name, or options of a task that is not run.
    """
    if folder is not None and not Path(folder).is_dir():
        raise TaskError(
            f"--data: found no folder {str(folder)!r}, expected one with the tasks' files"
        )
    options, planned = options or {}, {}
    names = [spec.partition("=")[::2] for spec in specs]  # and sources
    names = [(name, given) for group, given in names for name in GROUPS.get(group, [group])]
    for name in [*(name for name, _ in names if name != "all"), *options]:
        if name not in TASKS:
            raise TaskError(
                f"Found task {name!r}, expected one of {', '.join(sorted([*TASKS, *GROUPS]))}, or 'all'"
            )
    for spec, given in names:
        for name in sorted(TASKS) if spec == "all" else [spec]:
            for source in (
                [given] if given else _sources(TASKS[name], folder, only_local=spec == "all")
            ):
                second = name in planned and planned[name].source != source
                label = (
                    f"{name}/{Path(source or 'data').stem}"
                    if second or _has_many(TASKS[name])
                    else name
                )
                if label in planned and planned[label].source != source:
                    raise TaskError(
                        f"Found two sources called {label!r}; evaluate them one at a time, or rename one"
                    )
                planned[label] = PlannedTask(label, TASKS[name](), source, options.get(name, {}))
    if unused := options.keys() - {plan.task.name for plan in planned.values()}:
        raise TaskError(
            f"Found options of {', '.join(sorted(unused))}, which is not among the tasks to run"
        )
    return list(planned.values())


def _has_many(task: type[Task]) -> bool:
    """Whether a folder may hold several files of the task."""
    return any("*" in pattern for pattern in task.local_names)


def _sources(task: type[Task], folder: str | Path | None, only_local: bool) -> list[str | None]:
    found = (
        sorted({path for name in task.local_names for path in Path(folder).glob(name)})
        if folder
        else []
    )
    if found:
        return [str(path) for path in (found if _has_many(task) else found[:1])]
    return [task.default_source] if task.default_source == "sample" or not only_local else []


def evaluate(
    tasks: Sequence[LoadedTask],
    systems: Sequence[System],
    options: EvaluationOptions,
    cache_folder: Path | None = None,
    progress: Progress = lambda text: None,
) -> Iterator[TaskResult]:
    """Yields the result of every system on every task, with intervals.

    Results with the same system, data, options and code are read from the cache.

    Raises:
        ValueError: Bad data, or vectors that are not finite.
    """
    for task, system in itertools.product(tasks, systems):
        system.begin()  # before its fingerprint is read: a model may have been trained since the last task
        if cache_folder is None:
            yield _measure(task, system, options, progress)
            continue
        decisive = [
            system.fingerprint,
            task.name,
            task.fingerprint,
            options,
            task.task.train_languages,
        ]
        folder = (
            cache_folder / "results" / text_fingerprint([*map(repr, decisive), _code_fingerprint()])
        )
        try:
            (result,) = read_results(folder)
        except ValueError:
            result = _measure(task, system, options, progress)
            write_results(folder, [result], {})
        yield replace(
            result, system=system.name, data=result.data | {"source": task.data.provenance.source}
        )


@cache
def _code_fingerprint() -> str:
    """Return a hash of the code that measures and of the versions of the libraries that it uses.

    Cached results of other code are never used. Reports and figures are no part of it: nothing here imports them.
    """
    code = [file.read_text(encoding="utf-8") for file in imported_files(__name__)]
    return text_fingerprint([json.dumps(environment()["versions"], sort_keys=True), *code])


def _measure(
    task: LoadedTask, system: System, options: EvaluationOptions, progress: Progress
) -> TaskResult:
    fingerprint = system.fingerprint
    start = time.perf_counter()
    data, folds, settings = task.data, [], {}
    if isinstance(data, ClassificationData):
        protocol = options.protocol
        cells, folds, settings = _classify(task, system, options, progress)
    elif isinstance(data, RetrievalData):
        protocol = "retrieval"
        settings = {"scoring": options.scoring, "margin": options.margin, "k": options.k}
        settings["max_queries"] = options.max_queries or data.queries
        cells = evaluate_retrieval(data, system, progress=progress, seed=options.seed, **settings)
    elif isinstance(data, AlignmentData):
        protocol, settings = "alignment", {"scoring": options.scoring, "k": options.k}
        settings |= {"by_url": data.by_url, "lawdr_rank": data.lawdr_rank if system.dense else None}
        cells = evaluate_alignment(data, system, options.scoring, options.k, progress)
    elif isinstance(data, ContrastData):
        cells, protocol, settings = (
            evaluate_contrast(data, system),
            "contrast",
            {"scoring": "cosine"},
        )
    else:
        cells, protocol = evaluate_similarity(data, system), "similarity"
    measured = time.perf_counter()
    cells = [with_interval(cell, options.samples, seed=options.seed) for cell in cells]
    intervals = summary_intervals(cells, options.samples, seed=options.seed)
    about = {"fingerprint": task.fingerprint, "rows": data.rows(), "kind": type(data).__name__}
    return TaskResult(
        task=task.name,
        system=system.name,
        protocol=protocol,
        cells=cells,
        intervals=intervals,
        folds=folds,
        settings=settings
        | {"system": system.describe(), "bootstrap_samples": options.samples, "seed": options.seed},
        data=about | asdict(data.provenance),
        system_fingerprint=fingerprint,
        seconds={
            "embedding": system.seconds,
            "measuring": measured - start - system.seconds,
            "intervals": time.perf_counter() - measured,
        },
        truncated=(system.truncated, system.texts) if system.dense else None,
    )


def _classify(
    task: LoadedTask, system: System, options: EvaluationOptions, progress: Progress
) -> tuple[list[Cell], list[float], dict[str, Any]]:
    name = options.head or task.task.head
    if name.startswith(("ffn", "mlp")) and not system.dense:
        name = "logistic_regression"  # networks are for vectors of hundreds of dimensions
    head, languages, train = get_head(name), task.data.languages, options.train_languages
    if train is None and task.task.train_languages:
        train = tuple(code for code in task.task.train_languages if code in languages) or None
    seeds = list(range(options.seed, options.seed + options.seeds))
    cells = evaluate_classification(
        task.data,
        system,
        head,
        options.protocol,
        train,
        options.test_languages,
        seeds=seeds,
        progress=progress,
    )
    settings = {
        "head": head.describe(),
        "seeds": [] if head.deterministic else seeds,
        "train_languages": list(train or languages),
        "tuning": TEN_FOLDS
        if "all" in task.data.splits[languages[0]]
        else PROTOCOLS[options.protocol],
    }
    whole_matrix = (
        train is None
        and options.test_languages is None
        and len(languages) > 1
        and not task.data.monolingual
    )
    folds: list[float] = []
    if options.folds and system.dense and options.protocol == "zero-shot" and whole_matrix:
        try:
            folds, settings["folds"] = run_folds(
                task.data, system, head, options.seed, progress=progress
            )
        except TaskError as error:
            settings["folds"] = {"left_out": str(error)}
    return cells, folds, settings
