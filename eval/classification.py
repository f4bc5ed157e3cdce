"""Cross-lingual classification: trained on labels of some languages, tested on others.

`evaluate_classification` measures every X-Y cell, a classifier trained on language X and tested on language Y:

- Evaluation I of thesis 4.3.3 (English-Y): `train_languages=["en"]`;
- Evaluation II (X-Y): all languages, the default;
- Evaluation III (bilingual): the two languages of the model, as `train_languages` and `test_languages`.

`tmde.eval.results.summarize` turns the cells into `Same`, `Cross` and `All` (thesis 4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
from sklearn.metrics import f1_score
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError
from tmde.documents.neighbours import Matrix
from tmde.eval.heads import Head, get_head, pair_features
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError

FOLDS = 10
TEN_FOLDS = "ten folds, each tuned on the next"
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


def plan_protocol(
    protocol: str, train_languages: Sequence[str], test_languages: Sequence[str]
) -> list[Plan]:
    """Plans which languages are used for training, tuning and testing.

    - `zero-shot`: one classifier a source language, the same for all targets; nothing of a target but its test set is
      used (thesis 4.3.3; paper 001, 5.2).
    - `targeted`: one classifier for each source and target (paper 001, 5.2).
    - `leave-one-out`: one classifier for each target, trained on all other languages (paper 001, 5.2), tuned as
      `PROTOCOLS` says.

    Raises:
        ValueError: Unknown protocol, or no language left to train on.
    """
    if protocol not in PROTOCOLS:
        raise TmdeError(f"Found protocol {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    if protocol == "zero-shot":
        return [
            Plan(source, (source,), dict.fromkeys(test_languages, source))
            for source in train_languages
        ]
    if protocol == "targeted":
        return [
            Plan(source, (source,), {target: target for target in test_languages})
            for source in train_languages
        ]
    plans = []
    for target in test_languages:
        sources = tuple(language for language in train_languages if language != target)
        if not sources:
            raise TmdeError(
                f"Leave-one-out needs a train language other than the target, found only {target!r}"
            )
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

    Each classifier is trained on train splits and tuned on dev splits, before the labels of a test split are read. A
    representation that is fitted is fitted on the train texts.

    Args:
        data: Splits `train`, `dev` and `test_split` of the languages; `dev` where the protocol tunes on it. Or a split
            `all`, for ten-fold cross-validation in each language.
        system: What represents the texts. Pairs of texts become [u, v, |u - v|, u * v].
        head: Name in `tmde.eval.heads.HEADS`, or a head.
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
        TaskError: A language or split that is missing, a train set of one class, or a dev or test label that is not
            in the train set.
        ValueError: Unknown head or protocol.
    """
    head = get_head(head) if isinstance(head, str) else head
    seeds = list(seeds)[:1] if head.deterministic else list(seeds)
    train_languages = list(dict.fromkeys(train_languages or data.languages))
    test_languages = list(dict.fromkeys(test_languages or data.languages))
    plans = plan_protocol(protocol, train_languages, test_languages)
    ten_folds = "all" in data.splits[data.languages[0]]
    if data.monolingual or ten_folds:
        plans = [
            replace(plan, tuned_on={plan.source: plan.source})
            for plan in plans
            if plan.source in test_languages
        ]
        if not plans or protocol != "zero-shot":
            expected = "zero-shot, and a language to train and to test on"
            raise TaskError(
                f"Found the protocol {protocol} for labels of one language, expected {expected}"
            )
    if ten_folds:
        by_language = {plan.source: _split(data, plan.source, "all") for plan in plans}
        return [
            _cross_validate(*each, system, head, seeds, progress) for each in by_language.items()
        ]
    check_plans(data, plans, test_split)
    cells = []
    for plan in plans:
        if progress:
            progress(f"{system.name}: training {head.name} on {plan.source}")
        trains = {language: data.splits[language]["train"] for language in plan.sources}
        devs = {language: data.splits[language]["dev"] for language in plan.tuned_on.values()}
        # Both texts of a pair.
        fit_on = [
            text
            for x in trains.values()
            for column in (x.texts, x.second_texts or [])
            for text in column
        ]
        labels = [label for split in trains.values() for label in split.labels]
        parts = [
            split_features(split, system, fit_on, language) for language, split in trains.items()
        ]
        tuning = {
            name: (split_features(split, system, fit_on, name), list(split.labels))
            for name, split in devs.items()
        }
        sparse = scipy.sparse.issparse(parts[0])
        features = scipy.sparse.vstack(parts, format="csr") if sparse else np.concatenate(parts)
        runs = [head.fit(features, labels, tuning, seed) for seed in seeds]
        dev_accuracy = {
            name: float(np.mean([run[name].predict(rows) == np.asarray(gold) for run in runs]))
            for name, (rows, gold) in tuning.items()
        }
        for target, dev in plan.tuned_on.items():
            split = data.splits[target][test_split]
            features_of_target = split_features(split, system, fit_on, target)
            predictions = [run[dev].predict(features_of_target) for run in runs]
            check_labels(split, f"{target}/{test_split}", set(labels), plan.source)
            cells.append(_cell(plan.source, target, split, predictions, labels, dev_accuracy[dev]))
    return cells


def _cross_validate(
    language: str,
    split: Split,
    system: System,
    head: Head,
    seeds: Sequence[int],
    progress: Callable[[str], None] | None,
) -> Cell:
    """Ten folds in turn are tested, the next one tunes and the others train (SentEval's MR, CR, SUBJ and MPQA)."""
    order, cells = np.random.default_rng(seeds[0]).permutation(len(split)), []

    def part(rows: np.ndarray) -> Split:
        columns = (
            [column[row] for row in rows] for column in (split.ids, split.texts, split.labels)
        )
        return Split(*columns, place=split.place)

    for fold in range(FOLDS):
        of = np.arange(len(split)) % FOLDS
        tests, tunes = of == fold, of == (fold + 1) % FOLDS
        rows = {"train": order[~tests & ~tunes], "dev": order[tunes], "test": order[tests]}
        data = ClassificationData(
            {language: {name: part(chosen) for name, chosen in rows.items()}}, Provenance("", "")
        )
        cells += evaluate_classification(data, system, head, seeds=seeds, progress=progress)
    outcomes = np.concatenate([cell.outcomes for cell in cells])
    extra = {name: float(np.mean([cell.extra[name] for cell in cells])) for name in cells[0].extra}
    return replace(
        cells[0],
        value=float(outcomes.mean()),
        ids=[name for cell in cells for name in cell.ids],
        outcomes=outcomes,
        std=None,
        seed_values=(),
        extra=extra | {"size": float(len(split))},
    )


def _cell(
    source: str,
    target: str,
    split: Split,
    predictions: Sequence[np.ndarray],
    train_labels: Sequence[str],
    dev: float,
) -> Cell:
    """The scores of the predictions of each seed for a test split."""
    classes, counts = np.unique(train_labels, return_counts=True)
    gold = np.asarray(list(split.labels))
    correct = np.stack([predicted == gold for predicted in predictions])  # (seeds, n)
    by_seed, several = correct.mean(axis=1), len(predictions) > 1
    return Cell(
        source=source,
        target=target,
        metric="accuracy",
        value=float(correct.mean()),
        ids=list(split.ids),
        outcomes=correct.mean(axis=0),
        chance=1 / len(classes),
        std=float(by_seed.std(ddof=1)) if several else None,
        seed_values=tuple(by_seed.tolist()) if several else (),
        extra={
            "macro_f1": float(
                np.mean([f1_score(gold, predicted, average="macro") for predicted in predictions])
            ),
            "majority": float(np.mean(gold == classes[counts.argmax()])),
            "dev": dev,
            "size": float(len(split)),
        },
    )


def check_plans(data: ClassificationData, plans: Sequence[Plan], test_split: str) -> None:
    """Checks the data before anything is trained. Never reads the labels of a test split.

    Raises:
        TaskError: See `evaluate_classification`.
    """
    for plan in plans:
        classes = {
            label for language in plan.sources for label in _split(data, language, "train").labels
        }
        if len(classes) < 2:
            found = ", ".join(map(repr, classes))
            raise TaskError(
                f"{plan.source}/train: found the class {found} alone, expected at least two classes"
            )
        for target, dev in plan.tuned_on.items():
            check_labels(_split(data, dev, "dev"), f"{dev}/dev", classes, plan.source)
            _split(data, target, test_split)


def _split(data: ClassificationData, language: str, name: str) -> Split:
    if language not in data.splits:
        raise TaskError(
            f"Found no language {language!r}, expected one of {', '.join(data.languages)}"
        )
    if name not in data.splits[language]:
        found = ", ".join(data.splits[language]) or "none"
        raise TaskError(
            f"Language {language!r} has no split {name!r}, expected train, dev and test; found {found}"
        )
    return data.splits[language][name]


def check_labels(split: Split, where: str, classes: Collection[str], source: str) -> None:
    """Raises TaskError at the first label that is none of the `classes` of the train set."""
    for name, label in zip(split.ids, split.labels, strict=True):
        if label not in classes:
            found = f"the label {label!r} (item {name!r}), which never occurs in the train set of {source}"
            expected = ", ".join(map(repr, sorted(classes)))
            raise TaskError(f"{where}: found {found}, expected one of {expected}")


def split_features(split: Split, system: System, fit_on: Sequence[str], language: str) -> Matrix:
    """(n, d) features of the texts, or (n, 4 d) of the pairs.

    The vectors of pairs are scaled to length 1 before they are combined, as in LASER's `nli.py`.
    """
    columns = [split.texts] if split.second_texts is None else [split.texts, split.second_texts]
    vectors = [system.represent(texts, fit_on, split.language or language) for texts in columns]
    return vectors[0] if len(vectors) == 1 else pair_features(*map(normalize, vectors))
