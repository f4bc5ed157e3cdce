"""Draw the splits of labeled documents by label and language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tmde.data.checks import Unquoted, bad_value

from .labeled_rows import LabeledRow

SHARE = 5  # A fifth of the documents is for tests, and a fifth for tuning.


@dataclass(frozen=True)
class _Item:
    """A document and its translations.

    Attributes:
        item_id: Their id.
        label: Their label.
        languages: Their languages, in alphabetical order.
    """

    item_id: str
    label: str
    languages: tuple[str, ...]


def assign_splits(source: str, rows: Sequence[LabeledRow], seed: int) -> tuple[dict[str, str], str]:
    """Return the split of every id: the one that its rows name, or one that is drawn.

    Args:
        source: The name of the source, for messages.
        rows: All rows.
        seed: The seed of the splits that are drawn.

    Returns:
        The splits by id, and a description of how they came about.

    Raises:
        CorpusError: Some rows have a split and some have none, or translations are in different
            splits.
    """
    items = _items_of(rows)
    named_rows = [row for row in rows if row.split is not None]
    if not named_rows:
        return _draw_splits(items, seed), (
            "splits drawn by tmde (60% train, 20% dev, 20% test, by label and language, "
            f"seed {seed})"
        )
    if len(named_rows) < len(rows):
        unnamed = next(row for row in rows if row.split is None)
        raise bad_value(
            unnamed.place,
            unnamed.number,
            "split",
            Unquoted("none"),
            "train, dev or test, because other rows have a split",
            "Give all rows a split, or none: splits are then drawn.",
        )
    splits = _named_splits(named_rows)
    languages = _hold_out_dev(items, splits, seed)
    if not languages:
        return splits, f"splits of {source}"
    return splits, (
        f"splits of {source}; dev drawn by tmde (20% of train in {', '.join(languages)}, by label "
        f"and language, seed {seed})"
    )


def _items_of(rows: Iterable[LabeledRow]) -> list[_Item]:
    """Return the documents with their translations, in the order of their first rows."""
    labels: dict[str, str] = {}
    languages: dict[str, set[str]] = {}
    for row in rows:
        labels[row.item_id] = row.label
        languages.setdefault(row.item_id, set()).add(row.language)
    items = []
    for item_id, label in labels.items():
        items.append(_Item(item_id, label, tuple(sorted(languages[item_id]))))
    return items


def _named_splits(rows: Iterable[LabeledRow]) -> dict[str, str]:
    """Return the splits that rows name, by id.

    Raises:
        CorpusError: Rows of one id name different splits.
    """
    splits: dict[str, str] = {}
    first_rows: dict[str, LabeledRow] = {}
    for row in rows:
        # Rows without a split do not come here.
        assert row.split is not None
        first = first_rows.setdefault(row.item_id, row)
        if splits.setdefault(row.item_id, row.split) != row.split:
            raise bad_value(
                row.place,
                row.number,
                "split",
                row.split,
                f"{first.split!r} as in row {first.number}, which has the same id {row.item_id!r}",
                "Translations must stay in one split, or the test would repeat the training.",
            )
    return splits


def _draw_splits(items: Iterable[_Item], seed: int) -> dict[str, str]:
    """Return splits by id, with train, dev and test in every stratum that is large enough."""
    splits: dict[str, str] = {}
    for ids in _shuffled_strata(items, seed):
        share = _share_of(len(ids))
        # One document trains, and the second tests. The third is the first to tune.
        test_count = share if len(ids) > 1 else 0
        dev_count = share if len(ids) > 2 else 0  # noqa: PLR2004 - see above
        for position, item_id in enumerate(ids):
            if position < test_count:
                splits[item_id] = "test"
            elif position < test_count + dev_count:
                splits[item_id] = "dev"
            else:
                splits[item_id] = "train"
    return splits


def _hold_out_dev(items: Sequence[_Item], splits: dict[str, str], seed: int) -> list[str]:
    """Move a fifth of the train documents of languages without dev documents to `dev`.

    Args:
        items: All documents.
        splits: The splits by id, which are changed.
        seed: The seed of the choice.

    Returns:
        The languages for which documents were moved.
    """
    languages: dict[str, None] = {}
    for item in items:
        languages.update(dict.fromkeys(item.languages))
    changed = []
    for language in languages:
        by_split: Mapping[str, list[_Item]] = {"train": [], "dev": [], "test": []}
        for item in items:
            if language in item.languages:
                by_split[splits[item.item_id]].append(item)
        if by_split["dev"] or not by_split["train"]:
            continue
        changed.append(language)
        for ids in _shuffled_strata(by_split["train"], seed):
            dev_count = _share_of(len(ids)) if len(ids) > 1 else 0
            splits.update(dict.fromkeys(ids[:dev_count], "dev"))
    return changed


def _share_of(count: int) -> int:
    """Return a fifth of a number of documents, rounded, but at least one."""
    return max(1, round(count / SHARE))


def _shuffled_strata(items: Iterable[_Item], seed: int) -> list[list[str]]:
    """Return the ids of the documents that share label and languages, each list shuffled."""
    strata: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for item in items:
        strata.setdefault((item.label, item.languages), []).append(item.item_id)
    rng = np.random.default_rng(seed)
    shuffled = []
    for key in sorted(strata):
        ids = strata[key]
        order = rng.permutation(len(ids))
        shuffled.append([ids[position] for position in order])
    return shuffled
