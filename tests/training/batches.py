"""Micro-batches of parallel rows, for all tests of training."""

import dataclasses
from collections.abc import Sequence

from tmde.training.batches import ParallelBatches
from tmde.training.batches.planning import BatchPlanner


def parallel_batches(
    dataset,
    tokenizer,
    languages: Sequence[str],
    pivot_languages: Sequence[str],
    micro_batch_tokens: int = 4096,
    **options,
) -> ParallelBatches:
    """Return the batches of rows; `options` are those of `BatchPlanner` and `ParallelBatches`."""
    names = {field.name for field in dataclasses.fields(BatchPlanner)}
    planning = {name: options.pop(name) for name in names & options.keys()}
    planner = BatchPlanner(
        languages, pivot_languages, micro_batch_tokens=micro_batch_tokens, **planning
    )
    return ParallelBatches(dataset, tokenizer, planner, **options)
