"""Cross-lingual classification: trained on labels of some languages, tested on others.

`evaluate_classification` measures every X-Y cell, a classifier trained on language X and tested on
language Y:

- Evaluation I of Li (2021, section 4.3.3) (English-Y): `train_languages=["en"]`;
- Evaluation II (X-Y): all languages, the default;
- Evaluation III (bilingual): the two languages of the model, as `train_languages` and
  `test_languages`.

`tmde.eval.results.summarize` turns the cells into `Same`, `Cross` and `All`
(Li, 2021, section 4.4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import scipy.sparse
from sklearn.metrics import f1_score
from sklearn.preprocessing import normalize

from modeling_tmde import TmdeError
from tmde.documents.unit_rows import Matrix
from tmde.eval.ffn import Training
from tmde.eval.heads import Classifier, Head, get_head, pair_features
from tmde.eval.results import Cell
from tmde.eval.systems import System
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError
from tmde.eval.tasks.base import LabeledText

FOLDS = 10
TEN_FOLDS = "ten folds, each tuned on the next"
PROTOCOLS = {
    "zero-shot": "tuned on the dev set of the source language",
    "targeted": "tuned on the dev set of the target language",
    "leave-one-out": "tuned on the English dev set (of the first other source language where "
    "English is the target or is missing)",
}


@dataclass(frozen=True)
class Plan:
    """Train, tuning and test languages of one training of the head.

    Args:
        source: The name of the train languages in tables.
        sources: The languages of the train sets, which are pooled.
        tuned_on: By target language, the language whose dev set chooses the classifier that is
            tested on it.
    """

    source: str
    sources: tuple[str, ...]
    tuned_on: Mapping[str, str]


def plan_protocol(
    protocol: str, train_languages: Sequence[str], test_languages: Sequence[str]
) -> list[Plan]:
    """Plan which languages are used for training, tuning and testing.

    - `zero-shot`: one classifier a source language, the same for all targets; nothing of a target
      but its test set is used (Li, 2021, section 4.3.3; Yu et al., 2018, 5.2).
    - `targeted`: one classifier for each source and target (Yu et al., 2018, 5.2).
    - `leave-one-out`: one classifier for each target, trained on all other languages (Yu et al.,
      2018, 5.2), tuned as `PROTOCOLS` says.

    Args:
        protocol: A key of `PROTOCOLS`.
        train_languages: Languages with labels to train on.
        test_languages: Languages to test on.

    Raises:
        TmdeError: The protocol is unknown, or no language is left to train on.
    """
    if protocol not in PROTOCOLS:
        raise TmdeError(f"Found protocol {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    if protocol == "leave-one-out":
        return [_leave_one_out_plan(train_languages, target) for target in test_languages]
    plans = []
    for source in train_languages:
        if protocol == "zero-shot":
            tuned_on = dict.fromkeys(test_languages, source)
        else:
            # The dev set of each target chooses the classifier that is tested on it.
            tuned_on = dict(zip(test_languages, test_languages, strict=True))
        plans.append(Plan(source, (source,), tuned_on))
    return plans


def _leave_one_out_plan(train_languages: Sequence[str], target: str) -> Plan:
    """Plan to train on all languages but the target."""
    sources = tuple(language for language in train_languages if language != target)
    if not sources:
        raise TmdeError(
            f"Leave-one-out needs a training language other than the target, found only {target!r}"
        )
    dev_language = "en" if "en" in sources else sources[0]
    return Plan(f"all-but-{target}", sources, {target: dev_language})


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
    """Evaluate classification accuracy for every source and target language.

    Classifiers are trained on train splits and tuned on dev splits before any label of a test split
    is read. Representations that require fitting are fitted to the train texts.

    Args:
        data: For each language, the splits `train`, `test_split` and, if the protocol tunes on it,
            `dev`; or one split, `all`, for ten-fold cross-validation.
        system: The system to evaluate. Pairs of texts become [u, v, |u - v|, u * v].
        head: The classifier: a name in `tmde.eval.heads.HEADS`, or a head.
        protocol: How classifiers are trained and tuned, see `plan_protocol`.
        train_languages: The training languages; None for all.
        test_languages: The test languages; None for all.
        test_split: The split to test on.
        seeds: The seeds; a deterministic head uses only the first.
        progress: A function called with a line of text before each step.

    Returns:
        Cells in the order of the languages. `value` is the accuracy, and `outcomes` the share of
        seeds for which each item is correct. `extra` contains `macro_f1` (over the classes in test
        labels or predictions), `majority` (the accuracy of the most frequent training class; ties
        go to the alphabetically first), `dev` (the accuracy on the dev set) and `size` (test
        items). `chance` is 1 / number of training classes.

    Raises:
        TaskError: A language or split is missing, a train set has one class, or a dev or test label
            is not in the train set.
        TmdeError: The head or protocol is unknown.
    """
    if isinstance(head, str):
        head = get_head(head)
    seeds = list(seeds)
    if head.deterministic:
        seeds = seeds[:1]
    train_languages = list(dict.fromkeys(train_languages or data.languages))
    test_languages = list(dict.fromkeys(test_languages or data.languages))
    plans = plan_protocol(protocol, train_languages, test_languages)
    has_ten_folds = "all" in data.splits[data.languages[0]]
    if data.monolingual or has_ten_folds:
        plans = _monolingual_plans(plans, protocol, test_languages)
    if has_ten_folds:
        cells = []
        for plan in plans:
            split = _find_split(data, plan.source, "all")
            cells.append(_cross_validate(plan.source, split, system, head, seeds, progress))
        return cells
    return evaluate_plans(data, plans, system, head, seeds, (test_split,), progress)[test_split]


def evaluate_plans(
    data: ClassificationData,
    plans: Sequence[Plan],
    system: System,
    head: Head,
    seeds: Sequence[int],
    test_splits: Sequence[str] = ("test",),
    progress: Callable[[str], None] | None = None,
) -> dict[str, list[Cell]]:
    """Train the classifiers of all plans, and test them on one or several splits.

    Args:
        data: Splits `train`, `dev` and `test_splits` of the languages.
        plans: What is trained, tuned and tested.
        system: What represents the texts.
        head: The head, all of whose trainings are one call of its `fit_all`.
        seeds: The seeds of each plan.
        test_splits: The names of the splits that are tested on.
        progress: Called with a line on what comes next.

    Returns:
        The cells of each split, by its name.

    Raises:
        TaskError: See `evaluate_classification`.
    """
    for test_split in test_splits:
        check_plans(data, plans, test_split)
    # A head reads trainings when it needs them: the features of TF-IDF are large.
    trainings = _trainings(data, plans, system, seeds)
    classifiers_of_trainings = head.fit_all(trainings)
    cells: dict[str, list[Cell]] = {test_split: [] for test_split in test_splits}
    for plan in plans:
        if progress is not None:
            progress(f"{system.name}: training {head.name} on {plan.source}")
        runs = list(islice(classifiers_of_trainings, len(seeds)))
        for test_split in test_splits:
            cells[test_split] += _test_plan(data, plan, system, runs, test_split)
    return cells


def _monolingual_plans(
    plans: Sequence[Plan], protocol: str, test_languages: Sequence[str]
) -> list[Plan]:
    """Return the plans that train and test in one language.

    Raises:
        TaskError: The protocol needs several languages, or there is no such plan.
    """
    monolingual_plans = []
    for plan in plans:
        if plan.source in test_languages:
            monolingual_plans.append(replace(plan, tuned_on={plan.source: plan.source}))
    if not monolingual_plans or protocol != "zero-shot":
        raise TaskError(
            f"Found the protocol {protocol} with labels in one language, expected zero-shot, "
            "with that language for training and testing"
        )
    return monolingual_plans


def _trainings(
    data: ClassificationData,
    plans: Sequence[Plan],
    system: System,
    seeds: Sequence[int],
) -> Iterator[Training]:
    """Yield a training for each plan and seed; those of one plan share features and labels."""
    for plan in plans:
        fit_on, fit_languages = _train_texts(data, plan)
        labels = _train_labels(data, plan)
        train_features = []
        for language in plan.sources:
            split = data.splits[language]["train"]
            train_features.append(split_features(split, system, fit_on, language, fit_languages))
        features = _stack_rows(train_features)
        dev_sets = _dev_sets(data, plan, system)
        for seed in seeds:
            yield Training(features, labels, dev_sets, seed)


def _dev_sets(
    data: ClassificationData, plan: Plan, system: System
) -> dict[str, tuple[Matrix, np.ndarray]]:
    """Return features and labels of the dev sets of a plan, by language."""
    fit_on, fit_languages = _train_texts(data, plan)
    dev_sets = {}
    for language in dict.fromkeys(plan.tuned_on.values()):
        split = data.splits[language]["dev"]
        features = split_features(split, system, fit_on, language, fit_languages)
        dev_sets[language] = (features, np.asarray(list(split.labels)))
    return dev_sets


def _test_plan(
    data: ClassificationData,
    plan: Plan,
    system: System,
    runs: Sequence[Mapping[str, Classifier]],
    test_split: str,
) -> list[Cell]:
    """Test the classifiers of each seed, by dev language, in each target language of a plan."""
    fit_on, fit_languages = _train_texts(data, plan)
    train_labels = _train_labels(data, plan)
    dev_accuracies = {}
    for language, (dev_features, dev_labels) in _dev_sets(data, plan, system).items():
        correct = [run[language].predict(dev_features) == dev_labels for run in runs]
        dev_accuracies[language] = float(np.mean(correct))
    cells = []
    for target, dev_language in plan.tuned_on.items():
        split = data.splits[target][test_split]
        test_features = split_features(split, system, fit_on, target, fit_languages)
        predictions = [run[dev_language].predict(test_features) for run in runs]
        # The predictions are made: the labels of the test split may be read now.
        check_labels(split, f"{target}/{test_split}", set(train_labels), plan.source)
        dev_accuracy = dev_accuracies[dev_language]
        cells.append(_cell(plan.source, target, split, predictions, train_labels, dev_accuracy))
    return cells


def _train_labels(data: ClassificationData, plan: Plan) -> list[str]:
    """Return the labels of the train sets of a plan."""
    labels: list[str] = []
    for language in plan.sources:
        labels += data.splits[language]["train"].labels
    return labels


def _train_texts(data: ClassificationData, plan: Plan) -> tuple[list[str], list[str]]:
    """Return the texts of the train sets of a plan, and for pairs the second ones, too.

    Returns:
        The texts, and the language of each.
    """
    texts: list[str] = []
    languages: list[str] = []
    for language in plan.sources:
        split = data.splits[language]["train"]
        split_texts = [*split.texts, *(split.second_texts or [])]
        texts += split_texts
        languages += [split.language or language] * len(split_texts)
    return texts, languages


def _stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Return the rows of all parts, which are all dense or all sparse, as one matrix."""
    if len(parts) == 1:
        return parts[0]
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def _cross_validate(
    language: str,
    split: Split,
    system: System,
    head: Head,
    seeds: Sequence[int],
    progress: Callable[[str], None] | None,
) -> Cell:
    """Test ten folds in turn; the next fold tunes and the others train.

    This is SentEval's protocol of MR, CR, SUBJ and MPQA, whose items are single texts.
    """
    order = np.random.default_rng(seeds[0]).permutation(len(split))
    fold_of = np.arange(len(split)) % FOLDS
    cells = []
    for fold in range(FOLDS):
        is_test = fold_of == fold
        is_dev = fold_of == (fold + 1) % FOLDS
        splits = {
            "train": _select_rows(split, order[~is_test & ~is_dev]),
            "dev": _select_rows(split, order[is_dev]),
            "test": _select_rows(split, order[is_test]),
        }
        data = ClassificationData({language: splits}, Provenance("", ""))
        cells += evaluate_classification(data, system, head, seeds=seeds, progress=progress)
    ids: list[str] = []
    outcomes_of_folds = []
    for cell in cells:
        ids += cell.ids
        outcomes_of_folds.append(cell.outcomes)
    outcomes = np.concatenate(outcomes_of_folds)
    means = {}
    for name in cells[0].extra:
        means[name] = float(np.mean([cell.extra[name] for cell in cells]))
    means["size"] = float(len(split))
    return replace(
        cells[0],
        value=float(outcomes.mean()),
        ids=ids,
        outcomes=outcomes,
        std=None,
        seed_values=(),
        extra=means,
    )


def _select_rows(split: Split, rows: np.ndarray) -> Split:
    """Return some rows of a split of single texts."""
    items = []
    for row in rows:
        items.append(LabeledText(split.ids[row], split.texts[row], split.labels[row]))
    return Split.of(items, split.place)


def _cell(
    source: str,
    target: str,
    split: Split,
    predictions: Sequence[np.ndarray],
    train_labels: Sequence[str],
    dev_accuracy: float,
) -> Cell:
    """Return the scores of the predictions of each seed for a test split."""
    classes, counts = np.unique(train_labels, return_counts=True)
    most_frequent = classes[counts.argmax()]
    gold = np.asarray(list(split.labels))
    correct = np.stack(predictions) == gold  # (seeds, n)
    accuracies = correct.mean(axis=1)  # (seeds,)
    f1_scores = [f1_score(gold, predicted, average="macro") for predicted in predictions]
    std = None
    seed_values: tuple[float, ...] = ()
    if len(predictions) > 1:
        std = float(accuracies.std(ddof=1))
        seed_values = tuple(accuracies.tolist())
    return Cell(
        source=source,
        target=target,
        metric="accuracy",
        value=float(correct.mean()),
        ids=list(split.ids),
        outcomes=correct.mean(axis=0),
        chance=1 / len(classes),
        std=std,
        seed_values=seed_values,
        extra={
            "macro_f1": float(np.mean(f1_scores)),
            "majority": float(np.mean(gold == most_frequent)),
            "dev": dev_accuracy,
            "size": float(len(split)),
        },
    )


def check_plans(data: ClassificationData, plans: Sequence[Plan], test_split: str) -> None:
    """Check the data before anything is trained. The labels of a test split are never read.

    Args:
        data: The data to check.
        plans: What will be trained, tuned and tested.
        test_split: The name of the split that will be tested on.

    Raises:
        TaskError: See `evaluate_classification`.
    """
    for plan in plans:
        classes: set[str] = set()
        for language in plan.sources:
            classes.update(_find_split(data, language, "train").labels)
        if len(classes) < 2:
            listed = ", ".join(map(repr, classes))
            raise TaskError(
                f"{plan.source}/train: found only the class {listed}, expected at least two classes"
            )
        for target, dev_language in plan.tuned_on.items():
            dev_split = _find_split(data, dev_language, "dev")
            check_labels(dev_split, f"{dev_language}/dev", classes, plan.source)
            _find_split(data, target, test_split)


def _find_split(data: ClassificationData, language: str, name: str) -> Split:
    """Return a split, or raise TaskError if the data lack it."""
    if language not in data.splits:
        raise TaskError(
            f"Found no language {language!r}, expected one of {', '.join(data.languages)}"
        )
    if name not in data.splits[language]:
        listed = ", ".join(data.splits[language]) or "none"
        raise TaskError(
            f"Language {language!r} has no split {name!r}, expected train, dev and test; found "
            f"{listed}"
        )
    return data.splits[language][name]


def check_labels(split: Split, where: str, classes: Collection[str], source: str) -> None:
    """Check that the train set has every label of a split.

    Args:
        split: The split to check.
        where: Its place in messages.
        classes: The classes of the train set.
        source: The name of the train set in messages.

    Raises:
        TaskError: A label is none of the classes.
    """
    for item_id, label in zip(split.ids, split.labels, strict=True):
        if label not in classes:
            expected = ", ".join(map(repr, sorted(classes)))
            raise TaskError(
                f"{where}: found the label {label!r} (item {item_id!r}), which is not in the "
                f"train set of {source}, expected one of {expected}"
            )


def split_features(
    split: Split,
    system: System,
    fit_on: Sequence[str],
    language: str,
    fit_language: Sequence[str] | None = None,
) -> Matrix:
    """Return the features of the items of a split.

    The vectors of pairs are scaled to length 1 before they are combined, as in LASER's `nli.py`.

    Args:
        split: n texts or pairs of texts.
        system: What represents texts as vectors (n, d).
        fit_on: Texts that the system may be fitted on.
        language: The language of the texts, unless the split says another.
        fit_language: The language of each text of `fit_on`.

    Returns:
        (n, d) features of the texts, or (n, 4 d) of the pairs.
    """
    text_language = split.language or language
    vectors = system.represent(split.texts, fit_on, text_language, fit_language=fit_language)
    if split.second_texts is None:
        return vectors
    second_vectors = system.represent(
        split.second_texts, fit_on, text_language, fit_language=fit_language
    )
    return pair_features(normalize(vectors), normalize(second_vectors))
