"""Dev rows that are held out of the training data, with their copies: mixed corpora repeat the rows of small ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from modeling_tmde.training.dev_documents import hold_out

logger = logging.get_logger("modeling_tmde.training")

CHUNK_ROWS = 10_000

Key = tuple[str | None, ...]  # the texts of a row, by sorted language


def hold_out_rows(
    train: datasets.Dataset | datasets.IterableDataset, number: int, seed: int
) -> tuple[datasets.Dataset | datasets.IterableDataset, datasets.Dataset]:
    """
    Splits off `number` dev rows, but no more than a tenth, each once: of a dataset as `hold_out` draws them, of a
    stream the first ones. The rest has no row with the very texts of one of them.

    Returns:
        The rest, and the rows held out.

    Raises:
        ValueError: Nothing would be left to train.
    """
    if isinstance(train, datasets.Dataset):
        rest, held = hold_out(train, max(min(number, len(train) // 10), 1), seed)
        held = _different(held)
        known = {_key(row) for row in held["translation"][:]}
        left = _without(rest, known)
        if not len(left):
            raise ValueError(
                f"dev_rows={number}: all of the {len(train):,} rows are copies of those held out, so none is left to "
                "train; give --dev"
            )
        if len(left) < len(rest):
            logger.warning(f"{len(rest) - len(left):,} rows are copies of rows held out, and are not trained")
        return left, held
    first = list(train.take(10 * number))
    held = datasets.Dataset.from_list(first[: max(min(number, len(first) // 10), 1)], features=train.features)
    held = _different(held)
    return train.filter(_OtherThan({_key(row) for row in held["translation"][:]}), batched=True), held


class _OtherThan:
    """Of a batch of a stream: whether a row is none of these. Workers get copies of it."""

    def __init__(self, known: Iterable[Key]):
        self.known = frozenset(known)

    def __call__(self, rows: Mapping[str, list]) -> list[bool]:
        return [_key(row) not in self.known for row in rows["translation"]]


def _key(translation: Mapping[str, str | None]) -> Key:
    return tuple(translation[language] for language in sorted(translation))


def _different(rows: datasets.Dataset) -> datasets.Dataset:
    """The first of all that are the same."""
    first: dict[Key, int] = {}
    for number, row in enumerate(rows["translation"][:]):
        first.setdefault(_key(row), number)
    return rows if len(first) == len(rows) else rows.select(list(first.values()))


def _without(rows: datasets.Dataset, known: set[Key]) -> datasets.Dataset:
    languages = sorted(rows.features["translation"])
    texts = {name: pa.array([key[place] for key in known], pa.string()) for place, name in enumerate(languages)}
    kept = []
    for table in rows.with_format("arrow").iter(CHUNK_ROWS):
        translations = table["translation"].combine_chunks()
        masks = [pc.is_in(pc.struct_field(translations, name), found) for name, found in texts.items()]
        copies = np.all([mask.to_numpy(zero_copy_only=False) for mask in masks], axis=0)
        for place in np.flatnonzero(copies):  # each text is one of a row's, but perhaps not of the same row
            copies[place] = _key(translations[int(place)].as_py()) in known
        kept.append(~copies)
    kept = np.concatenate(kept)
    return rows if kept.all() else rows.select(np.flatnonzero(kept))
