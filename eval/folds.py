"""The folds of the thesis's t-tests of `Cross`: ten in section 4.6, and six in section 3.3.

The ten, on which a paired t-test compares two systems:

"We combined this 10K train set with the standard test set and development set. From this combination, We drew 2K
non-overlapping samples five times. For each of these 2K subsets, we rotated the train/test set once. In the end, we
had 10 non-overlapping subsets, each with 1K/1K train/test partitions."

The six, on which a single-sample t-test compares a system with a published accuracy:

"The six sets were constructed from the original training set plus the data sampled from test set".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tmde.eval.classification import split_features
from tmde.eval.heads import Head
from tmde.eval.systems import System
from tmde.eval.tasks import ClassificationData, TaskError

SIX = 6
DRAWS = 5  # each gives two folds
THESIS_SIZE = 2000  # items of a draw, train and test halves together
MIN_SIZE = 100  # smaller folds say little
DEV_SHARE = (
    5  # 1 / DEV_SHARE of a train half is held out; the thesis does not say how its folds are tuned
)


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
    return {
        code: sorted(common if shared else set(ids)) for code, ids in ids_by_language.items()
    }, shared


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
        first, second = (
            {language: half[draw + side] for language, half in halves.items()} for side in (0, 1)
        )
        folds += [Fold(first, second), Fold(second, first)]
    return folds


def draw_six_folds(
    train: Mapping[str, Sequence[str]], test: Mapping[str, Sequence[str]], seed: int
) -> list[Fold]:
    """Each fold trains on one of six sets of a language, and is tested on the other five: the train set, which gives
    the published split, and five parts of the test set.

    Args:
        train, test: Unique ids by language.
    """
    sets = {}
    for language, ids in train.items():
        rng = np.random.default_rng([seed, *language.encode()])
        parts = np.array_split(rng.permutation(np.array(test[language])), SIX - 1)
        sets[language] = [part.tolist() for part in (rng.permutation(np.array(ids)), *parts)]
    folds = []
    for chosen in range(SIX):
        trains = {language: parts[chosen] for language, parts in sets.items()}
        tests = {
            language: sum(parts[:chosen] + parts[chosen + 1 :], [])
            for language, parts in sets.items()
        }
        folds.append(Fold(trains, tests))
    return folds


def run_folds(
    data: ClassificationData,
    system: System,
    head: Head,
    seed: int = 0,
    size: int | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[list[float], dict[str, object]]:
    """Zero-shot `Cross` in each of the ten folds of thesis 4.6, or in the six of 3.3 of data with `six_folds`.

    The thesis does not say how the hyperparameters of a fold are chosen, and its folds have no dev set. Here the last
    fifth of the train half of the source is held out as one. A class that is missing from a train half is never
    predicted by its classifiers.

    Args:
        data: The pool of each language is its `train_10k` (or else `train`), `dev` and `test`; of the six folds, the
            train set is the two former together.
        system: An embedder. TF-IDF, which is fitted, is not measured on folds.
        head: Classification head.
        seed: Seed of the draws and of the head.
        size: Items per draw of ten folds; None for the thesis's 2000, or as many as the smallest pool allows.
        progress: Called with a line before each fold.

    Returns:
        Of each fold the mean over all pairs of a source and another target language; and for JSON how the folds were
        drawn, and with the six the accuracies of each pair.

    Raises:
        TaskError: Pools that are too small, or a train half of one class.
    """
    splits = {
        language: {
            "train": by_name.get("train_10k", by_name["train"]),
            "dev": by_name["dev"],
            "test": by_name["test"],
        }
        for language, by_name in data.splits.items()
    }
    ids = {  # a task may count each split from 0
        language: [f"{part}/{name}" for part, split in parts.items() for name in split.ids]
        for language, parts in splits.items()
    }
    if data.six_folds:
        tested = {language: len(parts["test"]) for language, parts in splits.items()}
        train = {language: names[: -tested[language]] for language, names in ids.items()}
        test = {language: names[-tested[language] :] for language, names in ids.items()}
        folds, about = draw_six_folds(train, test, seed), {"sets": SIX}
    else:
        pools, shared = fold_pools(ids)
        if size is None:
            size = min(THESIS_SIZE, min(map(len, pools.values())) // DRAWS // 2 * 2)
            if size < MIN_SIZE:
                raise TaskError(f"the data allow {size} items a fold, expected at least {MIN_SIZE}")
        folds, about = (
            draw_folds(ids, size, seed),
            {"draws": DRAWS, "size": size, "same_ids_in_all_languages": shared},
        )
    rows, features, labels = {}, {}, {}
    for language, parts in splits.items():  # whole splits, which the system has in its cache
        rows[language] = {name: row for row, name in enumerate(ids[language])}
        features[language] = np.concatenate(
            [split_features(split, system, (), language) for split in parts.values()]
        )
        labels[language] = np.concatenate([split.labels for split in parts.values()])
    accuracies: dict[str, list[float]] = {}
    for number, fold in enumerate(folds, start=1):
        progress(f"{system.name}: fold {number} of {len(folds)}")
        for source, train_names in fold.train.items():
            chosen = [rows[source][name] for name in train_names]
            train, dev = np.split(chosen, [-(len(chosen) // DEV_SHARE)])
            if len(set(labels[source][train])) < 2:
                raise TaskError(
                    f"fold {number}, {source}: found one class to train on, expected two"
                )
            x, y = features[source], labels[source]
            classifier = head.fit(x[train], y[train], {"dev": (x[dev], y[dev])}, seed)["dev"]
            for target, names in fold.test.items():
                if target != source:
                    test = [rows[target][name] for name in names]
                    right = classifier.predict(features[target][test]) == labels[target][test]
                    accuracies.setdefault(f"{source} -> {target}", []).append(float(right.mean()))
    about |= {"accuracies": accuracies} if data.six_folds else {}
    about |= {"tuning": f"last 1/{DEV_SHARE} of the train half of the source"}
    return np.mean(list(accuracies.values()), axis=0).tolist(), about
