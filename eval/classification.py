"""Cross-lingual classification: trained on labels of some languages, tested on others.

`evaluate_classification` measures every X-Y cell, a classifier trained on language X and tested on language Y:

- Evaluation I of thesis 4.3.3 (English-Y): `train_languages=["en"]`;
- Evaluation II (X-Y): all languages, the default;
- Evaluation III (bilingual): the two languages of the model, as `train_languages` and `test_languages`.

`modeling_tmde.eval.results.summarize` turns the cells into `Same`, `Cross` and `All` (thesis 4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from sklearn.metrics import f1_score
from sklearn.preprocessing import normalize

from modeling_tmde.documents.neighbours import Matrix
from modeling_tmde.eval.heads import Classifier, Head, get_head, pair_features
from modeling_tmde.eval.results import Cell
from modeling_tmde.eval.systems import System
from modeling_tmde.eval.tasks import ClassificationData, Split, TaskError

PROTOCOLS = {
    "zero-shot": "tuned on the dev set of the source language",
    "targeted": "tuned on the dev set of the target language",
    "leave-one-out": "tuned on the English dev set (of the first other source language where English is the target "
    "or is missing)",
}


@dataclass(frozen=True)
class Plan:
    """Train, tuning and test languages of one training of the head.

    Args:
        source: Name in the table.
        sources: Languages of the train sets, pooled.
        tuned_on: By target language, the language whose dev set chooses the classifier that is tested on it.
    """

    source: str
    sources: tuple[str, ...]
    tuned_on: Mapping[str, str]


@dataclass(frozen=True)
class Trained:
    """A trained head with what is needed to test it.

    Args:
        source: Name of what it was trained on.
        classifiers: By dev language the classifier chosen on it, one a seed.
        dev_accuracy: By dev language, mean over seeds.
        classes: Classes of the train set, sorted.
        majority: The most frequent of them.
        fit_on: Texts that the representation is fitted on.
    """

    source: str
    classifiers: Mapping[str, Sequence[Classifier]]
    dev_accuracy: Mapping[str, float]
    classes: Sequence[str]
    majority: str
    fit_on: Sequence[str]


def plan_protocol(protocol: str, train_languages: Sequence[str], test_languages: Sequence[str]) -> list[Plan]:
    """Plans which languages are used for training, tuning and testing.

    - `zero-shot`: one classifier a source language, the same for all targets; nothing of a target but its test set is
      used (thesis 4.3.3; paper 001, 5.2).
    - `targeted`: one classifier for each source and target (paper 001, 5.2).
    - `leave-one-out`: one classifier for each target, trained on all other languages (paper 001, 5.2), tuned as
      `PROTOCOLS` says.

    Raises:
        ValueError: Unknown protocol, no language, or no language left to train on.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"Found protocol {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    if not train_languages or not test_languages:
        raise ValueError(f"Expected train and test languages, found {list(train_languages)}, {list(test_languages)}")
    if protocol == "zero-shot":
        return [Plan(source, (source,), dict.fromkeys(test_languages, source)) for source in train_languages]
    if protocol == "targeted":
        tuned_on = {target: target for target in test_languages}
        return [Plan(source, (source,), tuned_on) for source in train_languages]
    plans = []
    for target in test_languages:
        sources = tuple(language for language in train_languages if language != target)
        if not sources:
            raise ValueError(f"Leave-one-out needs a train language other than the target, found only {target!r}")
        dev = "en" if "en" in sources else sources[0]
        plans.append(Plan(f"all-but-{target}", sources, {target: dev}))
    return plans


def evaluate_classification(
    data: ClassificationData,
    system: System,
    head: str | Head = "logistic_regression",
    protocol: str = "zero-shot",
    train_languages: Sequence[str] | None = None,
    test_languages: Sequence[str] | None = None,
    test_split: str = "test",
    seeds: Sequence[int] = (0, 1, 2),
    progress: Callable[[str], None] | None = None,
) -> list[Cell]:
    """Accuracy of every source and target language.

    Each classifier is trained and tuned by `train_head`, which is given train and dev splits and nothing else, before
    `score_head` reads the labels of a test split. A representation that is fitted is fitted on the train texts.

    Args:
        data: Splits `train`, `dev` and `test_split` of the languages; `dev` where the protocol tunes on it.
        system: What represents the texts. Pairs of texts become [u, v, |u - v|, u * v].
        head: Name in `modeling_tmde.eval.heads.HEADS`, or a head.
        protocol: See `plan_protocol`.
        train_languages, test_languages: None for all languages of the data.
        test_split: Name of the split that is tested on.
        seeds: One run a seed; a deterministic head runs for the first alone.
        progress: Called with a line on what comes next.

    Returns:
        Cells in the order of the languages, with the accuracy, in `outcomes` the share of seeds in which each item is
        right, and in `extra`: `macro_f1` (mean over seeds of the mean over the classes that occur in the test labels
        or in the predictions), `majority` (accuracy of always guessing the most frequent class of the train set, of
        equals the first in the alphabet), `dev` (accuracy on the dev set that chose, mean over seeds) and `size` (test
        items). `chance` is 1 / classes of the train set.

    Raises:
        TaskError: A language or split that is missing or empty, a train set of one class, a dev or test label that is
            not in the train set, pairs in one split and single texts in another.
        ValueError: Unknown head or protocol, no seed, features that are not finite.
    """
    head = get_head(head) if isinstance(head, str) else head
    if not seeds:
        raise ValueError("Expected at least one seed, found none")
    seeds = list(seeds)[:1] if head.deterministic else list(seeds)
    train_languages = list(dict.fromkeys(data.languages if train_languages is None else train_languages))
    test_languages = list(dict.fromkeys(data.languages if test_languages is None else test_languages))
    plans = plan_protocol(protocol, train_languages, test_languages)
    check_plans(data, plans, test_split)
    cells = []
    for plan in plans:
        if progress:
            progress(f"{system.name}: training {head.name} on {plan.source}")
        trains = {language: data.splits[language]["train"] for language in plan.sources}
        devs = {language: data.splits[language]["dev"] for language in plan.tuned_on.values()}
        trained = train_head(head, system, plan.source, trains, devs, seeds)
        for target, dev in plan.tuned_on.items():
            cells.append(score_head(trained, system, data.splits[target][test_split], test_split, target, dev))
    return cells


def check_plans(data: ClassificationData, plans: Sequence[Plan], test_split: str) -> None:
    """Checks the data before anything is trained. Never reads the labels of a test split, only its length.

    Raises:
        TaskError: See `evaluate_classification`.
    """
    pairs: dict[str, bool] = {}  # by "language/split"
    for plan in plans:
        trains = [_split(data, language, "train", "training") for language in plan.sources]
        classes = {label for split in trains for label in split.labels}
        pairs |= {f"{language}/train": _paired(split) for language, split in zip(plan.sources, trains, strict=True)}
        if len(classes) < 2:
            found = ", ".join(map(repr, classes))
            raise TaskError(f"{plan.source}/train: found the class {found} alone, expected at least two classes")
        for target, dev in plan.tuned_on.items():
            split = _split(data, dev, "dev", "tuning")
            check_labels(split, f"{dev}/dev", classes, plan.source)
            pairs[f"{dev}/dev"] = _paired(split)
            pairs[f"{target}/{test_split}"] = _paired(_split(data, target, test_split, "testing"))
    if len(set(pairs.values())) > 1:
        single, paired = (next(where for where in pairs if pairs[where] is kind) for kind in (False, True))
        raise TaskError(
            f"Found pairs of texts in {paired} and single texts in {single}, expected the same in all splits"
        )


def _split(data: ClassificationData, language: str, name: str, purpose: str) -> Split:
    if language not in data.splits:
        raise TaskError(f"Found no language {language!r}, expected one of {', '.join(data.languages)}")
    if name not in data.splits[language]:
        found = ", ".join(data.splits[language]) or "none"
        raise TaskError(f"Language {language!r} has no split {name!r}, needed for {purpose}; found {found}")
    if not len(data.splits[language][name]):
        raise TaskError(f"{language}/{name}: found no items, expected some for {purpose}")
    return data.splits[language][name]


def _paired(split: Split) -> bool:
    return split.second_texts is not None


def check_labels(split: Split, where: str, classes: Collection[str], source: str) -> None:
    """Raises TaskError at the first label that is none of the `classes` of the train set."""
    for name, label in zip(split.ids, split.labels, strict=True):
        if label not in classes:
            raise TaskError(
                f"{where}: found the label {label!r} (item {name!r}), which never occurs in the train set of "
                f"{source}, expected one of {', '.join(map(repr, sorted(classes)))}"
            )


def training_texts(splits: Iterable[Split]) -> list[str]:
    """All texts of the splits, both of each pair; a representation may be fitted on them."""
    return [text for split in splits for column in (split.texts, split.second_texts or []) for text in column]


def split_features(
    split: Split, system: System, fit_on: Sequence[str], where: str, rows: Sequence[int] | None = None
) -> Matrix:
    """(n, d) features of the texts, or (n, 4 d) of the pairs; if `rows` are given, theirs, of the whole split's.

    The vectors of pairs are scaled to length 1 before they are combined, as in LASER's `nli.py`.

    Args:
        where: `<language>/<name of the split>`: the language that the system is told, and the place errors name.

    Raises:
        ValueError: Not one row a text, or a value that is not finite.
    """
    language = where.partition("/")[0]
    parts = [split.texts] if split.second_texts is None else [split.texts, split.second_texts]
    represented = []
    for texts in parts:
        part = system.represent(texts, fit_on, language)
        if part.shape[0] != len(split):
            raise ValueError(f"{system.name}: found {part.shape[0]} rows for the {len(split)} items of {where}")
        part = part if rows is None else part[rows]
        sparse = scipy.sparse.issparse(part)
        bad = np.argwhere(~np.isfinite(part.data if sparse else part))
        if len(bad):
            row = np.searchsorted(part.indptr, bad[0][0], "right") - 1 if sparse else bad[0][0]
            name = split.ids[row if rows is None else rows[row]]
            raise ValueError(f"{system.name}: {where}: found features that are not finite for item {name!r}")
        represented.append(part)
    return represented[0] if len(parts) == 1 else pair_features(*map(normalize, represented))


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Stacks dense or sparse matrices vertically."""
    return scipy.sparse.vstack(parts, format="csr") if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)


def train_head(
    head: Head,
    system: System,
    source: str,
    trains: Mapping[str, Split],
    devs: Mapping[str, Split],
    seeds: Sequence[int],
) -> Trained:
    """Trains on the pooled `trains` and tunes on each of the `devs` (by language): all that a classifier ever sees."""
    fit_on = training_texts(trains.values())
    parts = [split_features(split, system, fit_on, f"{name}/train") for name, split in trains.items()]
    labels = [label for split in trains.values() for label in split.labels]
    tuning = {
        name: (split_features(split, system, fit_on, f"{name}/dev"), list(split.labels))
        for name, split in devs.items()
    }
    features = stack_rows(parts)
    runs = [head.fit(features, labels, tuning, seed) for seed in seeds]
    classes, counts = np.unique(labels, return_counts=True)
    return Trained(
        source=source,
        classifiers={name: [run[name] for run in runs] for name in devs},
        dev_accuracy={
            name: float(np.mean([run[name].predict(rows) == np.asarray(gold) for run in runs]))
            for name, (rows, gold) in tuning.items()
        },
        classes=classes.tolist(),
        majority=str(classes[counts.argmax()]),
        fit_on=fit_on,
    )


def score_head(trained: Trained, system: System, split: Split, split_name: str, target: str, dev: str) -> Cell:
    """The cell of one target: the classifiers that were chosen on the dev set of `dev`, on the target's test split."""
    where = f"{target}/{split_name}"
    features = split_features(split, system, trained.fit_on, where)
    predictions = [classifier.predict(features) for classifier in trained.classifiers[dev]]
    check_labels(split, where, trained.classes, trained.source)
    gold = np.asarray(list(split.labels))
    correct = np.stack([predicted == gold for predicted in predictions])  # (seeds, n)
    outcomes = correct.mean(axis=0)
    return Cell(
        source=trained.source,
        target=target,
        metric="accuracy",
        value=float(outcomes.mean()),
        ids=list(split.ids),
        outcomes=outcomes,
        chance=1 / len(trained.classes),
        std=float(correct.mean(axis=1).std(ddof=1)) if len(correct) > 1 else None,
        seed_values=tuple(correct.mean(axis=1).tolist()) if len(correct) > 1 else (),
        extra={
            "macro_f1": float(np.mean([f1_score(gold, predicted, average="macro") for predicted in predictions])),
            "majority": float(np.mean(gold == trained.majority)),
            "dev": trained.dev_accuracy[dev],
            "size": float(len(split)),
        },
    )
