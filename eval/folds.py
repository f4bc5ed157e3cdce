"""The ten folds of thesis 4.6, over which its paired t-test compares `Cross`.

"We combined this 10K train set with the standard test set and development set. From this combination, We drew 2K
non-overlapping samples five times. For each of these 2K subsets, we rotated the train/test set once. In the end, we
had 10 non-overlapping subsets, each with 1K/1K train/test partitions."
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from modeling_tmde.eval.classification import split_features
from modeling_tmde.eval.heads import Head
from modeling_tmde.eval.systems import System
from modeling_tmde.eval.tasks import ClassificationData, TaskError

DRAWS = 5  # each gives two folds
THESIS_SIZE = 2000  # items of a draw, train and test halves together
MIN_SIZE = 100  # smaller folds say little
DEV_SHARE = 5  # 1 / DEV_SHARE of a train half is held out; the thesis does not say how its folds are tuned


class Fold(NamedTuple):
    """The halves of one draw, as ids by language."""

    train: dict[str, list[str]]
    test: dict[str, list[str]]


def fold_pools(ids_by_language: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], bool]:
    """Sorted ids to draw from, and whether languages share ids, which are translations.

    If any ids are shared, every language has the ids that are common to all.
    """
    sets = [set(ids) for ids in ids_by_language.values()]
    shared = sum(map(len, sets)) > len(set.union(*sets))
    common = set.intersection(*sets)
    return {code: sorted(common if shared else set(ids)) for code, ids in ids_by_language.items()}, shared


def draw_folds(ids_by_language: Mapping[str, Sequence[str]], size: int, seed: int) -> list[Fold]:
    """Draws disjoint samples and halves each into train and test of one fold, then test and train of the next.

    Languages that share ids (translations) get the same sample of their common ids, so that no translation of a
    training text is ever tested on. Otherwise each language is sampled on its own: its sample depends only on `seed`,
    its name and its ids, not on the other languages or on any order.

    Args:
        ids_by_language: Unique ids, at least `DRAWS` * size.
        size: Items of a draw, even.

    Returns:
        2 * `DRAWS` folds; 2 k and 2 k + 1 come from draw k.
    """
    pools, shared = fold_pools(ids_by_language)
    halves = {}
    for language, pool in pools.items():
        name = [] if shared else list(language.encode())
        drawn = np.random.default_rng([seed, *name]).permutation(len(pool))[: DRAWS * size]
        halves[language] = np.array(pool)[drawn].reshape(2 * DRAWS, size // 2).tolist()
    folds = []
    for draw in range(0, 2 * DRAWS, 2):
        first, second = ({language: half[draw + side] for language, half in halves.items()} for side in (0, 1))
        folds += [Fold(first, second), Fold(second, first)]
    return folds


def run_folds(
    data: ClassificationData,
    system: System,
    head: Head,
    seed: int = 0,
    size: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[float], dict[str, object]]:
    """Zero-shot `Cross` in each of the ten folds: thesis 4.6.

    The thesis does not say how the hyperparameters of a fold are chosen, and its folds have no dev set. Here the last
    fifth of the train half of the source is held out as one. A class that is missing from a train half is never
    predicted by its classifiers.

    Args:
        data: The pool of each language is its `train_10k` (or else `train`), `dev` and `test`.
        system: An embedder. TF-IDF, which is fitted, is not measured on folds.
        head: Classification head.
        seed: Seed of the draws and of the head.
        size: Items per draw; None for the thesis's 2000, or as many as the smallest pool allows.
        progress: Called with a line before each fold.

    Returns:
        10 means over all pairs of a source and another target language, and how the folds were drawn, for JSON.

    Raises:
        TaskError: Pools that are too small, or a train half of one class.
    """
    splits = {
        language: {"train": by_name.get("train_10k", by_name["train"]), "dev": by_name["dev"], "test": by_name["test"]}
        for language, by_name in data.splits.items()
    }
    ids = {  # a task may count each split from 0
        language: [f"{part}/{name}" for part, split in parts.items() for name in split.ids]
        for language, parts in splits.items()
    }
    pools, shared = fold_pools(ids)
    if size is None:
        size = min(THESIS_SIZE, min(map(len, pools.values())) // DRAWS // 2 * 2)
        if size < MIN_SIZE:
            raise TaskError(f"the data allow {size} items a fold, expected at least {MIN_SIZE}")
    rows, features, labels = {}, {}, {}
    for language, parts in splits.items():  # whole splits, which the system has in its cache
        rows[language] = {name: row for row, name in enumerate(ids[language])}
        features[language] = np.concatenate([split_features(split, system, (), language) for split in parts.values()])
        labels[language] = np.concatenate([split.labels for split in parts.values()])
    scores = []
    for number, fold in enumerate(draw_folds(ids, size, seed), start=1):
        progress(f"{system.name}: fold {number} of {2 * DRAWS}")
        accuracies = []
        for source, train_names in fold.train.items():
            chosen = [rows[source][name] for name in train_names]
            train, dev = np.split(chosen, [-(len(chosen) // DEV_SHARE)])
            if len(set(labels[source][train])) < 2:
                raise TaskError(f"fold {number}, {source}: found one class to train on, expected two")
            x, y = features[source], labels[source]
            classifier = head.fit(x[train], y[train], {"dev": (x[dev], y[dev])}, seed)["dev"]
            for target, names in fold.test.items():
                if target != source:
                    test = [rows[target][name] for name in names]
                    accuracies.append(np.mean(classifier.predict(features[target][test]) == labels[target][test]))
        scores.append(float(np.mean(accuracies)))
    tuning = f"last 1/{DEV_SHARE} of the train half of the source"
    return scores, {"draws": DRAWS, "size": size, "same_ids_in_all_languages": shared, "tuning": tuning}
