"""Measure systems on tasks, and keep the results."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tmde.eval.alignment import evaluate_alignment
from tmde.eval.captions import RankingSettings, evaluate_captions
from tmde.eval.classification import PROTOCOLS, TEN_FOLDS, evaluate_classification
from tmde.eval.contrast import evaluate_contrast
from tmde.eval.environment import CODE_OF_RESULTS, code_digest, environment
from tmde.eval.folds import run_folds
from tmde.eval.geometry import evaluate_geometry
from tmde.eval.heads import Head, get_head
from tmde.eval.lawdr_system import lawdr_record
from tmde.eval.planning import LoadedTask
from tmde.eval.questions import evaluate_questions
from tmde.eval.results import Cell, TaskResult, read_results, write_results
from tmde.eval.retrieval import evaluate_retrieval
from tmde.eval.sentence_alignment import evaluate_sentence_alignment
from tmde.eval.similarity import evaluate_similarity
from tmde.eval.statistics import summary_intervals, with_interval
from tmde.eval.systems import EmbeddingSystem, System
from tmde.eval.tasks import TaskError, text_fingerprint
from tmde.eval.tasks.base import (
    AlignmentData,
    CaptionData,
    ClassificationData,
    ContrastData,
    GeometryData,
    QuestionData,
    RetrievalData,
    SentenceAlignmentData,
    SimilarityData,
)

Progress = Callable[[str], None]


def _no_progress(text: str) -> None:
    """Ignore a line of progress."""


@dataclass(frozen=True)
class EvaluationOptions:
    """Options that affect the scores.

    Args:
        protocol: `zero-shot`, `targeted` or `leave-one-out`, see `evaluate_classification`.
        head: The classifier. Default: the task's.
        train_languages: The training languages; None for all. `("en",)` is Evaluation I of Li
            (2021), None is Evaluation II.
        test_languages: The test languages; None for all.
        seeds: The number of seeds for randomly initialized heads.
        folds: Also run the ten folds of Li (2021, section 4.6). Requires the zero-shot protocol,
            all languages, and a system other than TF-IDF.
        scoring: The retrieval score, see `evaluate_retrieval`.
        margin: The margin of the retrieval error rate.
        k: The number of neighbors for a margin.
        max_queries: The number of retrieval queries. Default: the task's, or all rows.
        samples: The number of bootstrap samples for intervals.
        seed: The seed for folds, intervals and heads.
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
class _Measurement:
    """The numbers of a system on a task.

    Args:
        protocol: The protocol, as in `TaskResult`.
        cells: The numbers.
        settings: What decided them beside the data and the system.
        folds: `Cross` in each fold; empty if folds were not run.
    """

    protocol: str
    cells: list[Cell]
    settings: dict[str, Any] = field(default_factory=dict)
    folds: list[float] = field(default_factory=list)


def evaluate(
    tasks: Sequence[LoadedTask],
    systems: Sequence[System],
    options: EvaluationOptions,
    cache_folder: Path | None = None,
    progress: Progress = _no_progress,
) -> Iterator[TaskResult]:
    """Evaluate every system on every task, and yield results with intervals.

    Args:
        tasks: The tasks with their data.
        systems: The systems to evaluate.
        options: The options that affect the scores.
        cache_folder: The cache folder for results of the same system, data, options and code.
            None disables caching.
        progress: A function called with a line of text before each step.

    Raises:
        ValueError: The data is invalid, or a vector is not finite.
    """
    for task, system in itertools.product(tasks, systems):
        # The fingerprint is read after this: the model may have been trained since the last task.
        system.begin()
        if isinstance(system, EmbeddingSystem):
            system.warn_of_languages(task.data.languages)
        if cache_folder is None:
            yield _measure(task, system, options, progress)
            continue
        folder = cache_folder / "results" / _result_key(task, system, options)
        result = _read_result(folder)
        if result is None:
            result = _measure(task, system, options, progress)
            write_results(folder, [result], {})
        # Neither the name of a system nor the place of the data affects the numbers.
        data = result.data | {"source": task.data.provenance.source}
        yield replace(result, system=system.name, data=data)


def _result_key(task: LoadedTask, system: System, options: EvaluationOptions) -> str:
    """Return a hash of everything that decides a result."""
    decisive = [
        system.fingerprint,
        task.name,
        task.fingerprint,
        options,
        task.task.train_languages,
    ]
    return text_fingerprint([*map(repr, decisive), _code_fingerprint()])


def _code_fingerprint() -> str:
    """Return a hash of the code of this package and of the versions of the libraries that it uses.

    Cached results of other code are never used.
    """
    versions = json.dumps(environment()["versions"], sort_keys=True)
    return text_fingerprint([versions, code_digest(CODE_OF_RESULTS)])


def _read_result(folder: Path) -> TaskResult | None:
    """Return the cached result; None if there is none or it is damaged."""
    try:
        (result,) = read_results(folder)
    except ValueError:
        return None
    return result


def _measure(
    task: LoadedTask, system: System, options: EvaluationOptions, progress: Progress
) -> TaskResult:
    """Measure a system on a task, with intervals."""
    fingerprint = system.fingerprint
    start = time.perf_counter()
    measurement = _run_protocol(task, system, options, progress)
    measured = time.perf_counter()
    cells = [with_interval(cell, options.samples, options.seed) for cell in measurement.cells]
    intervals = summary_intervals(cells, options.samples, options.seed)
    finished = time.perf_counter()

    common_settings = {
        "system": system.describe(),
        "bootstrap_samples": options.samples,
        "seed": options.seed,
    }
    data = {
        "fingerprint": task.fingerprint,
        "rows": task.data.rows(),
        "kind": type(task.data).__name__,
        **task.data.provenance.as_record(),
    }
    seconds = {
        "embedding": system.seconds,
        "embedding on CPU cores": system.cpu_seconds,
        "measuring": measured - start - system.seconds,
        "intervals": finished - measured,
    }
    return TaskResult(
        task=task.name,
        system=system.name,
        protocol=measurement.protocol,
        cells=cells,
        intervals=intervals,
        folds=measurement.folds,
        settings=measurement.settings | common_settings,
        data=data,
        system_fingerprint=fingerprint,
        seconds=seconds,
        truncated=(system.truncated, system.texts) if system.dense else None,
        dense=system.dense,
    )


def _run_protocol(
    task: LoadedTask, system: System, options: EvaluationOptions, progress: Progress
) -> _Measurement:
    """Run the protocol that belongs to the kind of the data."""
    match task.data:
        case ClassificationData() as data:
            measurement = _classify(task, data, system, options, progress)
        case RetrievalData() as data:
            measurement = _retrieve(data, system, options, progress)
        case QuestionData() as data:
            measurement = _ask(data, system, options, progress)
        case AlignmentData() as data:
            measurement = _align(data, system, options, progress)
        case SentenceAlignmentData() as data:
            cells = evaluate_sentence_alignment(data, system, progress)
            measurement = _Measurement("sentence-alignment", cells)
        case CaptionData() as data:
            measurement = _rank_captions(data, system, options, progress)
        case ContrastData() as data:
            cells = evaluate_contrast(data, system)
            measurement = _Measurement("contrast", cells, {"scoring": "cosine"})
        case GeometryData() as data:
            measurement = _Measurement("geometry", evaluate_geometry(data, system, progress))
        case SimilarityData() as data:
            measurement = _Measurement("similarity", evaluate_similarity(data, system))
    return measurement


def _retrieve(
    data: RetrievalData, system: System, options: EvaluationOptions, progress: Progress
) -> _Measurement:
    settings: dict[str, Any] = {
        "scoring": options.scoring,
        "margin": options.margin,
        "k": options.k,
        "max_queries": options.max_queries or data.queries,
    }
    cells = evaluate_retrieval(data, system, progress=progress, seed=options.seed, **settings)
    return _Measurement("retrieval", cells, settings | lawdr_record(system, data.lawdr))


def _ask(
    data: QuestionData, system: System, options: EvaluationOptions, progress: Progress
) -> _Measurement:
    settings: dict[str, Any] = {
        "scoring": options.scoring,
        "k": options.k,
        "max_queries": options.max_queries,
    }
    cells = evaluate_questions(data, system, progress=progress, seed=options.seed, **settings)
    return _Measurement("questions", cells, settings)


def _align(
    data: AlignmentData, system: System, options: EvaluationOptions, progress: Progress
) -> _Measurement:
    cells = evaluate_alignment(data, system, options.scoring, options.k, progress)
    settings = {
        "scoring": options.scoring,
        "k": options.k,
        "by_url": data.by_url,
    }
    return _Measurement("alignment", cells, settings | lawdr_record(system, data.lawdr))


def _rank_captions(
    data: CaptionData, system: System, options: EvaluationOptions, progress: Progress
) -> _Measurement:
    ranking = RankingSettings()
    seeds = _seeds_of(options)
    cells = evaluate_captions(data, system, ranking, seeds, progress)
    return _Measurement("captions", cells, {"ranking": asdict(ranking), "seeds": seeds})


def _classify(
    task: LoadedTask,
    data: ClassificationData,
    system: System,
    options: EvaluationOptions,
    progress: Progress,
) -> _Measurement:
    head = _choose_head(data, system, options)
    train_languages = _choose_train_languages(task, data, options)
    seeds = _seeds_of(options)
    cells = evaluate_classification(
        data,
        system,
        head,
        options.protocol,
        train_languages,
        options.test_languages,
        seeds=seeds,
        progress=progress,
    )
    has_one_split = "all" in data.splits[data.languages[0]]
    settings: dict[str, Any] = {
        "head": head.describe(),
        "seeds": [] if head.deterministic else seeds,
        "train_languages": list(train_languages or data.languages),
        "tuning": TEN_FOLDS if has_one_split else PROTOCOLS[options.protocol],
    }
    folds: list[float] = []
    if _wants_folds(data, system, options, train_languages):
        try:
            folds, settings["folds"] = run_folds(
                data, system, head, options.seed, progress=progress
            )
        except TaskError as error:
            settings["folds"] = {"left_out": str(error)}
    return _Measurement(options.protocol, cells, settings, folds)


def _seeds_of(options: EvaluationOptions) -> list[int]:
    """Return the seeds of what is trained on vectors."""
    return list(range(options.seed, options.seed + options.seeds))


def _choose_head(data: ClassificationData, system: System, options: EvaluationOptions) -> Head:
    name = options.head or data.head
    is_network = name.startswith(("ffn", "mlp"))
    if is_network and not system.dense:
        # Networks are for vectors of hundreds of dimensions, and TF-IDF has millions.
        name = "logistic_regression"
    return get_head(name)


def _choose_train_languages(
    task: LoadedTask, data: ClassificationData, options: EvaluationOptions
) -> tuple[str, ...] | None:
    """Return the languages whose labels are trained on; None for all."""
    if options.train_languages is not None:
        return options.train_languages
    of_task = task.task.train_languages or ()
    languages = tuple(language for language in of_task if language in data.languages)
    return languages or None


def _wants_folds(
    data: ClassificationData,
    system: System,
    options: EvaluationOptions,
    train_languages: tuple[str, ...] | None,
) -> bool:
    """Return whether the folds are asked for and defined: `Cross` needs every pair of languages."""
    if not options.folds or not system.dense or options.protocol != "zero-shot":
        return False
    has_all_languages = train_languages is None and options.test_languages is None
    return has_all_languages and len(data.languages) > 1 and not data.monolingual
