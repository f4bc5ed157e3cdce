"""The ten and the six folds: what is drawn, that nothing leaks, and `Cross` of planted systems."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered, numbered_by_language
from tmde.eval.folds import Fold, draw_folds, draw_six_folds, fold_pools, run_folds
from tmde.eval.heads import get_head
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError
from tmde.eval.tasks.base import LabeledText

# A dev set of a few items would choose by chance.
ONE_C = replace(get_head("logistic_regression"), grid=(1.0,), sparse_grid=(10.0,))
LANGUAGES = ("de", "en", "fr")
PARALLEL_IDS = dict.fromkeys(LANGUAGES, numbered("", range(33)))
SEPARATE_IDS = numbered_by_language(LANGUAGES, "", 33)

all_ids = pytest.mark.parametrize("ids", [PARALLEL_IDS, SEPARATE_IDS], ids=["parallel", "separate"])


@all_ids
def test_train_and_test_of_a_draw_are_exchanged(ids):
    folds = draw_folds(ids, 6, seed=3)
    assert len(folds) == 10
    for first, second in zip(folds[::2], folds[1::2], strict=True):
        assert first.train == second.test
        assert first.test == second.train


@all_ids
def test_draws_are_disjoint(ids):
    folds = draw_folds(ids, 6, seed=3)
    for language in LANGUAGES:
        drawn = []
        for fold in folds[::2]:
            assert len(fold.train[language]) == len(fold.test[language]) == 3
            drawn += fold.train[language] + fold.test[language]
        assert len(set(drawn)) == 30
        assert set(drawn) <= set(ids[language])


def test_translations_are_drawn_together():
    for fold in draw_folds(PARALLEL_IDS, 6, seed=3):
        assert fold.train["de"] == fold.train["en"]


def test_only_ids_that_all_languages_have_are_drawn_of_translations():
    ids = {"de": ["3", "1", "2"], "en": ["2", "3", "4"]}
    assert fold_pools(ids) == ({"de": ["2", "3"], "en": ["2", "3"]}, True)


def test_languages_without_translations_are_drawn_on_their_own():
    folds_with_other_rows = 0
    for fold in draw_folds(SEPARATE_IDS, 6, seed=3):
        german_rows = [item_id.removeprefix("de") for item_id in fold.train["de"]]
        english_rows = [item_id.removeprefix("en") for item_id in fold.train["en"]]
        if german_rows != english_rows:
            folds_with_other_rows += 1
    assert folds_with_other_rows > 0


@all_ids
def test_draws_do_not_depend_on_the_order_of_ids_or_languages(ids):
    shuffled = {language: ids[language][::-1] for language in reversed(ids)}
    folds = draw_folds(ids, 6, seed=3)
    folds_of_shuffled = draw_folds(shuffled, 6, seed=3)
    for fold, fold_of_shuffled in zip(folds, folds_of_shuffled, strict=True):
        assert fold_of_shuffled.train["de"] == fold.train["de"]


TRAIN_IDS = numbered_by_language(("de", "en"), " train ", 4)
TEST_IDS = numbered_by_language(("de", "en"), " test ", 22)


@pytest.fixture
def six_folds() -> list[Fold]:
    return draw_six_folds(TRAIN_IDS, TEST_IDS, seed=3)


def test_the_first_of_six_folds_is_the_published_split(six_folds):
    assert sorted(six_folds[0].train["de"]) == TRAIN_IDS["de"]
    assert sorted(six_folds[0].test["en"]) == sorted(TEST_IDS["en"])


def test_the_other_folds_train_on_random_fifths_of_the_test_set(six_folds):
    sizes = [len(fold.train["en"]) for fold in six_folds]
    assert sizes == [4, 5, 5, 4, 4, 4]
    train_sets = {tuple(fold.train["de"]) for fold in six_folds}
    assert len(train_sets) == 6
    assert six_folds[1].train["de"] != TEST_IDS["de"][:5]


def test_each_of_six_folds_tests_on_all_that_it_does_not_train_on(six_folds):
    for fold in six_folds:
        for language in ("de", "en"):
            items = fold.train[language] + fold.test[language]
            assert sorted(items) == sorted(TRAIN_IDS[language] + TEST_IDS[language])


def corpus(languages: Sequence[str] = ("de", "en")) -> ClassificationData:
    """Texts "de train 0 a" ...; each split counts its ids from 0."""
    splits = {}
    for language in languages:
        splits[language] = {}
        for name, size in (("train", 60), ("dev", 20), ("test", 20)):
            items = []
            for row in range(size):
                label = "ab"[(row + len(name)) % 2]
                items.append(LabeledText(str(row), f"{language} {name} {row} {label}", label))
            splits[language][name] = Split.of(items, "planted")
    return ClassificationData(splits, Provenance("planted", "none"))


def noisy_vector(text: str) -> list[float]:
    """The class of a text with noise, so that the folds differ."""
    noise = np.random.default_rng(list(text.encode())).normal(size=3)
    side = 1 if text.endswith("a") else -1
    return (noise + side * np.array([0.7, 0, 0])).tolist()


def columns_of(
    items: dict[str, tuple[list[float], str]], ids: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """Vectors (n, d) and labels of the items with these ids."""
    vectors = []
    labels = []
    for item_id in ids:
        vector, label = items[item_id]
        vectors.append(vector)
        labels.append(label)
    return np.array(vectors), labels


def cross_by_hand(fold: Fold, items: dict[str, dict[str, tuple[list[float], str]]]) -> float:
    """The mean accuracy of a classifier of either language on the other."""
    correct = []
    for source, target in (("de", "en"), ("en", "de")):
        features, labels = columns_of(items[source], fold.train[source])
        dev = (features[8:], labels[8:])  # A fifth of the ten rows is for tuning.
        classifier = ONE_C.fit(features[:8], labels[:8], {"dev": dev}, 0)["dev"]
        features, labels = columns_of(items[target], fold.test[target])
        correct += (classifier.predict(features) == np.array(labels)).tolist()
    return float(np.mean(correct))


def measure(seed: int, **options) -> list[float]:
    cross, _ = run_folds(corpus(), FakeSystem(noisy_vector), ONE_C, seed=seed, **options)
    return cross


def test_cross_against_a_loop_over_the_folds():
    items = {}
    for language, splits in corpus().splits.items():
        items[language] = {}
        for name, split in splits.items():
            for row, (text, label) in enumerate(zip(split.texts, split.labels, strict=True)):
                items[language][f"{name}/{row}"] = (noisy_vector(text), label)
    folds = draw_folds(items, size=20, seed=7)
    expected = [cross_by_hand(fold, items) for fold in folds]

    assert measure(seed=7, size=20) == pytest.approx(expected)


def test_folds_differ():
    assert len(set(measure(seed=7, size=20))) > 3


def test_folds_depend_on_the_seed_alone():
    assert measure(seed=7, size=20) == measure(seed=7, size=20)
    assert measure(seed=7, size=20) != measure(seed=8, size=20)


def test_too_little_data_for_folds_is_an_error():
    with pytest.raises(TaskError, match="the data allow 20 items per fold, expected at least 100"):
        measure(seed=7)


class ReadsAhead:
    """A head that reads all trainings before it returns its first classifier."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def fit_all(self, trainings):
        for training in list(trainings):
            self.events.append("classifier")
            yield ONE_C.fit(*training)


def test_a_line_precedes_the_classifiers_of_each_fold():
    events: list[str] = []
    run_folds(
        corpus(), FakeSystem(noisy_vector), ReadsAhead(events), size=20, progress=events.append
    )
    lines = [event for event in events if event != "classifier"]
    assert len(lines) == 10
    assert lines[1].endswith(": fold 2 of 10")
    assert events[::3] == lines
