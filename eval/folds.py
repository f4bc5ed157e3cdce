"""The ten folds of thesis 4.6, over which its paired t-test compares `Cross`.

"We combined this 10K train set with the standard test set and development set. From this combination, We drew 2K
non-overlapping samples five times. For each of these 2K subsets, we rotated the train/test set once. In the end, we
had 10 non-overlapping subsets, each with 1K/1K train/test partitions."
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from modeling_tmde.documents.neighbours import Matrix
from modeling_tmde.eval.classification import split_features, stack_rows
from modeling_tmde.eval.heads import Head
from modeling_tmde.eval.systems import System
from modeling_tmde.eval.tasks import ClassificationData, TaskError

DRAWS = 5  # each gives two folds
THESIS_SIZE = 2000  # items of a draw, train and test halves together
DEV_SHARE = 5  # one of so many items of a train half is held out; the thesis does not say how its folds are tuned


class Fold(NamedTuple):
    """The halves of one draw, as ids by language."""

    train: dict[str, list[str]]
    test: dict[str, list[str]]


def draw_folds(ids_by_language: Mapping[str, Sequence[str]], size: int, seed: int, draws: int = DRAWS) -> list[Fold]:
    """Draws disjoint samples and halves each into train and test of one fold, then test and train of the next.

    Languages that share ids (translations) get the same sample of their common ids, so that no translation of a
    training text is ever tested on. Otherwise each language is sampled on its own: its sample depends only on `seed`,
    its name and its ids, not on the other languages or on any order.

    Args:
        ids_by_language: Unique ids.
        size: Items of a draw, even.

    Returns:
        2 * draws folds; 2 k and 2 k + 1 come from draw k.

    Raises:
        ValueError: `size` is not even and positive, or `draws` not positive.
        TaskError: Fewer than draws * size ids to draw from.
    """
    if size < 2 or size % 2 or draws < 1:
        raise ValueError(f"Expected an even positive size and at least one draw, found size {size} and {draws} draws")
    pools, shared = _pools(ids_by_language)
    samples = {}
    for language, pool in pools.items():
        if len(pool) < draws * size:
            raise TaskError(
                f"Language {language!r}: found {len(pool)} ids{' common to all languages' if shared else ''}, "
                f"expected {draws * size} for {draws} draws of {size}; the most is {_largest_size(pools, draws)}"
            )
        name = [] if shared else list(language.encode())
        order = np.random.default_rng([seed, *name]).permutation(len(pool))
        samples[language] = [pool[position] for position in order[: draws * size]]
    folds = []
    for start in range(0, draws * size, size):
        middle, end = start + size // 2, start + size
        first = {language: sample[start:middle] for language, sample in samples.items()}
        second = {language: sample[middle:end] for language, sample in samples.items()}
        folds += [Fold(first, second), Fold(second, first)]
    return folds


def _pools(ids_by_language: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], bool]:
    """Sorted ids to draw from (those common to all languages if any are shared), and whether ids are shared."""
    sets = {language: set(ids) for language, ids in ids_by_language.items()}
    shared = any(not first.isdisjoint(second) for first, second in combinations(sets.values(), 2))
    common = set.intersection(*sets.values()) if shared else set()
    return {language: sorted(common if shared else ids) for language, ids in sets.items()}, shared


def _largest_size(pools: Mapping[str, Sequence[str]], draws: int) -> int:
    return min(map(len, pools.values())) // draws // 2 * 2


class _Pool:
    """All items of a language, from the train (MLDoc's of 10K, if there is one), dev and test splits.

    Items are named `<split>/<id>`, because a task may count each split from 0.
    """

    def __init__(self, data: ClassificationData, language: str) -> None:
        splits = data.splits[language]
        self.names = {"train": "train_10k" if "train_10k" in splits else "train", "dev": "dev", "test": "test"}
        missing = [name for name in self.names.values() if name not in splits]
        if missing:
            raise TaskError(
                f"Language {language!r} has no split {missing[0]!r}, needed for folds; found {list(splits)}"
            )
        self.language = language
        self.splits = {part: splits[name] for part, name in self.names.items()}
        self.places = {
            f"{part}/{name}": (part, row) for part, split in self.splits.items() for row, name in enumerate(split.ids)
        }

    def labels(self, ids: Sequence[str]) -> np.ndarray:
        return np.array([self.splits[part].labels[row] for part, row in map(self.places.__getitem__, ids)])

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Texts of the items, followed by the second texts if they are pairs."""
        places = [self.places[name] for name in ids]
        first = [self.splits[part].texts[row] for part, row in places]
        return first + [self.splits[part].second_texts[row] for part, row in places if self.splits[part].second_texts]

    def features(self, system: System, ids: Sequence[str], fit_on: Sequence[str]) -> Matrix:
        """Features (len(ids), d). Embeds whole splits, as `evaluate_classification` does, to hit the cache."""
        parts, positions = [], []
        for part, split in self.splits.items():
            chosen = [position for position, name in enumerate(ids) if self.places[name][0] == part]
            rows = [self.places[ids[position]][1] for position in chosen]
            if rows:
                parts.append(split_features(split, system, fit_on, f"{self.language}/{self.names[part]}", rows))
                positions += chosen
        return stack_rows(parts)[np.argsort(positions)]


def run_folds(
    data: ClassificationData,
    system: System,
    head: Head,
    seed: int = 0,
    size: int | None = None,
    min_size: int = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[float], dict[str, object]]:
    """Zero-shot `Cross` in each of the ten folds: thesis 4.6.

    The thesis does not say how the hyperparameters of a fold are chosen, and its folds have no dev set. Here the last
    fifth of the train half of the source is held out as one. A class that is missing from a train half is never
    predicted by its classifiers.

    Args:
        data: The pool of each language is its `train_10k` (or else `train`), `dev` and `test`.
        system: A system that is fitted is fitted on the train half of the source.
        head: Classification head.
        seed: Seed of the draws and of the head.
        size: Items per draw; None for the thesis's 2000, or as many as the smallest pool allows.
        min_size: Smaller draws are refused.
        progress: Called with a line before each fold.

    Returns:
        10 means over all pairs of a source and another target language, and how the folds were drawn, for JSON.

    Raises:
        TaskError: A missing split, a pool that is too small, or a train half of one class.
        ValueError: Fewer than two languages, or a size that is odd or less than 10.
    """
    pools = {language: _Pool(data, language) for language in data.languages}
    if len(pools) < 2:
        raise ValueError(f"Folds compare `Cross`, and need at least two languages, found {list(pools)}")
    ids = {language: list(pool.places) for language, pool in pools.items()}
    size = _fold_size(ids, size)
    if size < min_size:
        raise TaskError(f"{size} items a fold, and fewer than {min_size} say little")
    folds = draw_folds(ids, size, seed)
    scores = []
    for number, fold in enumerate(folds, start=1):
        if progress:
            progress(f"{system.name}: fold {number} of {len(folds)}")
        scores.append(_cross(fold, pools, system, head, seed, number))
    tuning = f"last 1/{DEV_SHARE} of the train half of the source"
    return scores, {"draws": DRAWS, "size": size, "same_ids_in_all_languages": _pools(ids)[1], "tuning": tuning}


def _fold_size(ids: Mapping[str, Sequence[str]], size: int | None) -> int:
    pools, _ = _pools(ids)
    chosen = min(THESIS_SIZE, _largest_size(pools, DRAWS)) if size is None else size
    if chosen < 2 * DEV_SHARE:
        smallest = min(map(len, pools.values()))
        raise TaskError(
            f"Found a size of {chosen} for the draws of the folds, expected at least {2 * DEV_SHARE}, so that a train "
            f"half has a dev set; the smallest pool has {smallest} items, and {DRAWS} draws must fit in it"
        )
    return chosen


def _cross(fold: Fold, pools: Mapping[str, _Pool], system: System, head: Head, seed: int, number: int) -> float:
    accuracies = []
    for source, pool in pools.items():
        ids, held_out = fold.train[source], len(fold.train[source]) // DEV_SHARE
        fit_on, labels = pool.texts(ids), pool.labels(ids)
        if len(set(labels[:-held_out])) < 2:
            raise TaskError(f"Fold {number}, {source}: found one class to train on, expected two; take a larger size")
        features = pool.features(system, ids, fit_on)
        dev = features[-held_out:], labels[-held_out:]
        classifier = head.fit(features[:-held_out], labels[:-held_out], {"dev": dev}, seed)["dev"]
        for target, other in pools.items():
            if target != source:
                predicted = classifier.predict(other.features(system, fold.test[target], fit_on))
                accuracies.append(np.mean(predicted == other.labels(fold.test[target])))
    return float(np.mean(accuracies))
