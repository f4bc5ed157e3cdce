"""The folds of the thesis's t-tests of `Cross`: ten in section 4.6, and six in section 3.3.

The ten, on which a paired t-test compares two systems:

"We combined this 10K train set with the standard test set and development set. From this
combination, We drew 2K non-overlapping samples five times. For each of these 2K subsets, we rotated
the train/test set once. In the end, we had 10 non-overlapping subsets, each with 1K/1K train/test
partitions."

The six, on which a single-sample t-test compares a system with a published accuracy:

"The six sets were constructed from the original training set plus the data sampled from test set".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tmde.eval.classification import split_features
from tmde.eval.ffn import Training
from tmde.eval.heads import Classifier, Head
from tmde.eval.systems import System
from tmde.eval.tasks import ClassificationData, Split, TaskError

SIX = 6
DRAWS = 5  # Each gives two folds.
THESIS_SIZE = 2000  # Items of a draw, train and test halves together.
MIN_SIZE = 100  # Smaller folds say little.
# 1 / DEV_SHARE of a train half is held out: the thesis does not say how its folds are tuned.
DEV_SHARE = 5


class Fold(NamedTuple):
    """The halves of one draw, as ids by language."""

    train: dict[str, list[str]]
    test: dict[str, list[str]]


def fold_pools(ids_by_language: Mapping[str, Sequence[str]]) -> tuple[dict[str, list[str]], bool]:
    """Return sorted ids to draw from, and whether languages share ids, which are translations.

    If any ids are shared, every language has the ids that are common to all.

    Args:
        ids_by_language: Unique ids of each language.
    """
    pools = {language: sorted(ids) for language, ids in ids_by_language.items()}
    id_count = sum(map(len, pools.values()))
    if id_count == len(set().union(*pools.values())):
        return pools, False
    first_pool, *other_pools = pools.values()
    common_ids = sorted(set(first_pool).intersection(*other_pools))
    return dict.fromkeys(pools, common_ids), True


def draw_folds(ids_by_language: Mapping[str, Sequence[str]], size: int, seed: int) -> list[Fold]:
    """Draw disjoint samples; each is halved into train and test of one fold, and of the next.

    Languages that share ids (translations) get the same sample of their common ids, so that no
    translation of a training text is ever tested on. Otherwise each language is sampled on its own:
    its sample depends only on `seed`, its name and its ids, not on the other languages or on any
    order.

    Args:
        ids_by_language: Unique ids, at least `DRAWS` * size.
        size: Items of a draw, even.
        seed: Seed of the draws.

    Returns:
        2 * `DRAWS` folds; 2 k and 2 k + 1 come from draw k, with train and test exchanged.
    """
    pools, shared = fold_pools(ids_by_language)
    halves: dict[str, list[list[str]]] = {}
    for language, pool in pools.items():
        seeds = [seed] if shared else [seed, *language.encode()]
        order = np.random.default_rng(seeds).permutation(len(pool))
        sample = np.array(pool)[order[: DRAWS * size]]
        halves[language] = sample.reshape(2 * DRAWS, size // 2).tolist()
    folds = []
    for draw in range(DRAWS):
        first: dict[str, list[str]] = {}
        second: dict[str, list[str]] = {}
        for language, halves_of_language in halves.items():
            first[language] = halves_of_language[2 * draw]
            second[language] = halves_of_language[2 * draw + 1]
        folds += [Fold(first, second), Fold(second, first)]
    return folds


def draw_six_folds(
    train: Mapping[str, Sequence[str]], test: Mapping[str, Sequence[str]], seed: int
) -> list[Fold]:
    """Draw folds that train on one of six sets of a language and are tested on the other five.

    The sets are the train set, which gives the published split, and five parts of the test set.

    Args:
        train: Unique ids by language.
        test: Unique ids by language.
        seed: Seed of the order of ids.
    """
    sets: dict[str, list[list[str]]] = {}
    for language, train_ids in train.items():
        rng = np.random.default_rng([seed, *language.encode()])
        test_ids = rng.permutation(np.array(test[language]))
        test_parts = [part.tolist() for part in np.array_split(test_ids, SIX - 1)]
        sets[language] = [rng.permutation(np.array(train_ids)).tolist(), *test_parts]
    folds = []
    for train_set in range(SIX):
        fold = Fold(train={}, test={})
        for language, parts in sets.items():
            fold.train[language] = parts[train_set]
            fold.test[language] = []
            for part in parts[:train_set] + parts[train_set + 1 :]:
                fold.test[language] += part
        folds.append(fold)
    return folds


@dataclass(frozen=True)
class _Pool:
    """The items of one language.

    Args:
        row_of: The row of each id.
        features: (n, d).
        labels: (n,) class names.
    """

    row_of: Mapping[str, int]
    features: np.ndarray
    labels: np.ndarray

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of these ids."""
        return [self.row_of[item_id] for item_id in ids]


def run_folds(
    data: ClassificationData,
    system: System,
    head: Head,
    seed: int = 0,
    size: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[float], dict[str, object]]:
    """Measure zero-shot `Cross` in the ten folds of Li (2021, section 4.6), or the six of 3.3.

    The thesis does not say how the hyperparameters of a fold are chosen, and its folds have no dev
    set. Here the last fifth of the train half of the source is held out as one. A class that is
    missing from a train half is never predicted by its classifiers.

    Args:
        data: The pool of each language is its `train_10k` (or else `train`), `dev` and `test`. With
            `six_folds`, the train set is the two former together.
        system: An embedder. TF-IDF, which is fitted, is not measured on folds.
        head: The classification head.
        seed: Seed of the draws and of the head.
        size: Items per draw of ten folds; None for the thesis's 2000, or as many as the smallest
            pool allows.
        progress: Called with a line before each fold. Small networks of several folds are trained
            together, before the first of them is tested.

    Returns:
        Of each fold the mean over all pairs of a source and another target language; and for JSON
        how the folds were drawn, and with the six the accuracies of each pair.

    Raises:
        TaskError: Pools are too small, or a train half has one class.
    """
    splits = {}
    ids = {}
    test_sizes = {}
    for language, by_name in data.splits.items():
        splits[language] = _pooled_splits(by_name)
        ids[language] = _pooled_ids(splits[language])
        test_sizes[language] = len(by_name["test"])
    settings: dict[str, object]
    if data.six_folds:
        folds = _six_folds(ids, test_sizes, seed)
        settings = {"sets": SIX}
    else:
        folds, settings = _ten_folds(ids, size, seed)
    pools = {}
    for language, by_name in splits.items():
        pools[language] = _pool(by_name, ids[language], system, language)
    accuracies: dict[str, list[float]] = defaultdict(list)
    classifiers = head.fit_all(_trainings(folds, pools, seed))
    for number, fold in enumerate(folds, start=1):
        progress(f"{system.name}: fold {number} of {len(folds)}")
        for source in fold.train:
            classifier = next(classifiers)["dev"]
            for target, accuracy in _accuracies(fold, source, pools, classifier).items():
                accuracies[f"{source} -> {target}"].append(accuracy)
    if data.six_folds:
        settings["accuracies"] = dict(accuracies)
    settings["tuning"] = f"last 1/{DEV_SHARE} of the train half of the source"
    return np.mean(list(accuracies.values()), axis=0).tolist(), settings


def _pooled_splits(by_name: Mapping[str, Split]) -> dict[str, Split]:
    """Return the splits of a language that folds are drawn from; the largest train split."""
    return {
        "train": by_name.get("train_10k", by_name["train"]),
        "dev": by_name["dev"],
        "test": by_name["test"],
    }


def _pooled_ids(by_name: Mapping[str, Split]) -> list[str]:
    """Return the ids of all splits with the split's name, because a task may count each from 0."""
    ids = []
    for name, split in by_name.items():
        ids += [f"{name}/{item_id}" for item_id in split.ids]
    return ids


def _six_folds(
    ids: Mapping[str, Sequence[str]], test_sizes: Mapping[str, int], seed: int
) -> list[Fold]:
    """Draw six folds from ids of which the last of each language are those of its test set."""
    train_ids = {}
    test_ids = {}
    for language, ids_of_language in ids.items():
        test_size = test_sizes[language]
        train_ids[language] = ids_of_language[:-test_size]
        test_ids[language] = ids_of_language[-test_size:]
    return draw_six_folds(train_ids, test_ids, seed)


def _ten_folds(
    ids: Mapping[str, Sequence[str]], size: int | None, seed: int
) -> tuple[list[Fold], dict[str, object]]:
    """Draw ten folds, and describe how.

    Raises:
        TaskError: The pools allow fewer than `MIN_SIZE` items a draw, and no size is asked for.
    """
    pools, shared = fold_pools(ids)
    if size is None:
        smallest = min(map(len, pools.values()))
        largest_even_size = smallest // DRAWS // 2 * 2
        size = min(THESIS_SIZE, largest_even_size)
        if size < MIN_SIZE:
            raise TaskError(f"the data allow {size} items per fold, expected at least {MIN_SIZE}")
    settings: dict[str, object] = {
        "draws": DRAWS,
        "size": size,
        "same_ids_in_all_languages": shared,
    }
    return draw_folds(ids, size, seed), settings


def _pool(by_name: Mapping[str, Split], ids: Sequence[str], system: System, language: str) -> _Pool:
    """Represent whole splits, whose vectors the system has in its cache."""
    features = []
    labels = []
    for split in by_name.values():
        features.append(split_features(split, system, (), language))
        labels.append(split.labels)
    row_of = {item_id: row for row, item_id in enumerate(ids)}
    return _Pool(row_of, np.concatenate(features), np.concatenate(labels))


def _trainings(folds: Sequence[Fold], pools: Mapping[str, _Pool], seed: int) -> Iterator[Training]:
    """Yield the training of each fold and language.

    Raises:
        TaskError: A train half has one class.
    """
    for number, fold in enumerate(folds, start=1):
        for source, train_ids in fold.train.items():
            pool = pools[source]
            rows = pool.rows(train_ids)
            dev_size = len(rows) // DEV_SHARE
            train_rows, dev_rows = np.split(rows, [-dev_size])
            train_labels = pool.labels[train_rows]
            if len(set(train_labels)) < 2:
                place = f"fold {number}, {source}"
                raise TaskError(f"{place}: found one class to train on, expected two")
            dev_sets = {"dev": (pool.features[dev_rows], pool.labels[dev_rows])}
            yield Training(pool.features[train_rows], train_labels, dev_sets, seed)


def _accuracies(
    fold: Fold, source: str, pools: Mapping[str, _Pool], classifier: Classifier
) -> dict[str, float]:
    """Return the accuracy of a classifier in each language of a fold other than its own."""
    accuracies = {}
    for target, test_ids in fold.test.items():
        if target == source:
            continue
        test_rows = pools[target].rows(test_ids)
        predicted = classifier.predict(pools[target].features[test_rows])
        correct = predicted == pools[target].labels[test_rows]
        accuracies[target] = float(correct.mean())
    return accuracies
