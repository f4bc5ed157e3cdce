"""Pairs of a premise and a hypothesis, as the tasks of natural language inference read them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tmde.data.labeled_texts import XNLI_TEXTS
from tmde.data.tables import Table

from .base import Split


def read_pairs(
    table: Table,
    name: str,
    max_train: int | None,
    seed: int,
    language: str | None = None,
    batches: Iterable[pa.RecordBatch] | None = None,
) -> Split:
    """Read the columns premise, hypothesis and label of a table.

    The hypotheses are the `second_texts`, and `train:7` is the id of the eighth row of train.

    Args:
        table: The table.
        name: The name of its split.
        max_train: Of a train table, at most that many rows: the first after a shuffle.
        seed: Seed of that shuffle.
        language: The language of the texts, if it is not that of their place in the data.
        batches: The rows to read; None for all.

    Raises:
        CorpusError: A column is missing, a text is none, or a label is none of the three.
    """
    head = None
    if name == "train" and max_train is not None:
        head = (max_train, seed)
    numbers, columns = XNLI_TEXTS.read(table, head, batches)
    return Split(
        ids=[f"{name}:{number - 1}" for number in numbers],
        texts=columns["premise"],
        labels=columns["label"],
        second_texts=columns["hypothesis"],
        language=language,
        place=table.place,
    )
