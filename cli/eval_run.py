"""What `tmde eval` does between its input and its output: measures, and compares."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from modeling_tmde.cli.embedder_options import LongDocumentsMode, long_document_options
from modeling_tmde.cli.eval_inputs import split_names
from modeling_tmde.eval.results import TaskResult
from modeling_tmde.eval.runner import EvaluationOptions, LoadedTask, evaluate_cached
from modeling_tmde.eval.significance import ComparisonError, Difference, compare
from modeling_tmde.eval.systems import System


def loading_options(
    max_length: int | None,
    device: str | None,
    dtype: str | None,
    trust_remote_code: bool,
    long_documents: LongDocumentsMode | None,
    window: int | None,
    stride: int | None,
    aggregation: str | None,
) -> dict[str, Any]:
    """What `load_models` passes on to `DocumentEmbedder.from_pretrained`."""
    options = {"max_length": max_length, "device": device, "dtype": dtype, "trust_remote_code": trust_remote_code}
    return options | long_document_options(long_documents, window, stride, aggregation)


def evaluation_options(
    protocol: str,
    head: str | None,
    train_languages: str | None,
    languages: str | None,
    seeds: int,
    folds: bool,
    scoring: str,
    margin: str,
    max_queries: int | None,
    seed: int,
) -> EvaluationOptions:
    """The options of the command line, without those of data and models."""
    return EvaluationOptions(
        protocol=protocol,
        head=head,
        train_languages=split_names(train_languages),
        test_languages=split_names(languages) if train_languages else None,
        seeds=seeds,
        folds=folds,
        scoring=scoring,
        margin=margin,
        max_queries=max_queries,
        seed=seed,
    )


def evaluate_tasks(
    tasks: Sequence[LoadedTask], systems: Sequence[System], options: EvaluationOptions, cache: Path
) -> tuple[list[TaskResult], list[Exception]]:
    """The results; what could not be measured costs one number, not the others."""
    results: list[TaskResult] = []
    errors: list[Exception] = []
    with tqdm(total=len(tasks) * len(systems), desc="evaluating", unit="result", dynamic_ncols=True) as bar:
        for task, system in itertools.product(tasks, systems):
            bar.set_description(f"{task.name}: {system.name}")
            try:
                results.append(evaluate_cached(task, system, options, cache, bar.set_postfix_str))
            except (ValueError, RuntimeError, ImportError) as error:
                errors.append(type(error)(f"{task.name}, {system.name}: {error}"))
            bar.set_postfix_str("")
            bar.update()
    if not results:
        raise errors[0]
    return results, errors


def all_differences(results: Sequence[TaskResult], systems: Sequence[str], seed: int) -> list[tuple[str, Difference]]:
    """Of every later model from the first, as (name of both, difference)."""
    by_key = {(result.task, result.system): result for result in results}
    return [
        (f"{other} - {systems[0]}", difference)
        for other in systems[1:]
        for task in dict.fromkeys(result.task for result in results)
        if (task, systems[0]) in by_key and (task, other) in by_key
        for difference in compare(by_key[task, systems[0]], by_key[task, other], seed=seed)
    ]


def compare_sides(
    a: Sequence[TaskResult], b: Sequence[TaskResult], each_cell: bool, seed: int
) -> tuple[list[tuple[str, Difference]], list[tuple[str, str]]]:
    """Differences on the tasks of both; and the tasks of one, with its system."""
    sides = [{result.task: result for result in side} for side in (a, b)]
    shared = [(result, sides[1][task]) for task, result in sides[0].items() if task in sides[1]]
    alone = [
        (task, result.system)
        for side, other in (sides, sides[::-1])
        for task, result in side.items()
        if task not in other
    ]
    if not shared:
        raise ComparisonError(f"No task in common: found {sorted(sides[0])} and {sorted(sides[1])}")
    differences = []
    for first, second in shared:
        names = (first.system, second.system)
        names = (f"{names[0]} (A)", f"{names[1]} (B)") if names[0] == names[1] else names
        found = compare(first, second, each_cell=each_cell, seed=seed)
        differences += [(f"{names[1]} - {names[0]}", difference) for difference in found]
    return differences, alone
