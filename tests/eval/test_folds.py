"""The ten and the six folds: what is drawn, that nothing leaks, and `Cross` of planted systems."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tmde.eval.folds import Fold, draw_folds, draw_six_folds, run_folds
from tmde.eval.heads import get_head
from tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError

# A dev set of a few items would choose by chance.
ONE_C = replace(get_head("logistic_regression"), grid=(1.0,), sparse_grid=(10.0,))
LANGUAGES = ("de", "en", "fr")
PARALLEL_IDS = {language: [str(row) for row in range(33)] for language in LANGUAGES}
OWN_IDS = {language: [f"{language}{row}" for row in range(33)] for language in LANGUAGES}

all_ids = pytest.mark.parametrize("ids", [PARALLEL_IDS, OWN_IDS], ids=["parallel", "own"])


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


def test_languages_without_translations_are_drawn_on_their_own():
    numbers = []
    for fold in draw_folds(OWN_IDS, 6, seed=3):
        numbers.append([[item_id[2:] for item_id in fold.train[code]] for code in ("de", "en")])
    assert any(german != english for german, english in numbers)


@all_ids
def test_draws_do_not_depend_on_the_order_of_ids_or_languages(ids):
    shuffled = {language: ids[language][::-1] for language in reversed(ids)}
    folds = draw_folds(ids, 6, seed=3)
    folds_of_shuffled = draw_folds(shuffled, 6, seed=3)
    assert [fold.train["de"] for fold in folds_of_shuffled] == [fold.train["de"] for fold in folds]


TRAIN_IDS = {language: [f"{language} train {row}" for row in range(4)] for language in ("de", "en")}
TEST_IDS = {language: [f"{language} test {row}" for row in range(22)] for language in ("de", "en")}


@pytest.fixture
def six_folds() -> list[Fold]:
    return draw_six_folds(TRAIN_IDS, TEST_IDS, seed=3)


def test_the_first_of_six_folds_is_the_published_split(six_folds):
    assert sorted(six_folds[0].train["de"]) == TRAIN_IDS["de"]
    assert sorted(six_folds[0].test["en"]) == sorted(TEST_IDS["en"])


def test_the_other_folds_train_on_random_fifths_of_the_test_set(six_folds):
    assert [len(fold.train["en"]) for fold in six_folds] == [4, 5, 5, 4, 4, 4]
    assert len({tuple(fold.train["de"]) for fold in six_folds}) == 6
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
            labels = ["ab"[(row + len(name)) % 2] for row in range(size)]
            ids = [str(row) for row in range(size)]
            texts = [f"{language} {name} {row} {label}" for row, label in enumerate(labels)]
            splits[language][name] = Split(ids, texts, labels)
    return ClassificationData(splits, Provenance("planted", "none"))


def noisy_vector(text: str) -> list[float]:
    """The class of a text with noise, so that the folds differ."""
    noise = np.random.default_rng(list(text.encode())).normal(size=3)
    side = 1 if text.endswith("a") else -1
    return (noise + side * np.array([0.7, 0, 0])).tolist()


def cross_by_hand(fold: Fold, items: dict[str, dict[str, tuple[list[float], str]]]) -> float:
    """The mean accuracy of a classifier of either language on the other."""
    correct = []
    for source, target in (("de", "en"), ("en", "de")):
        features, labels = zip(*(items[source][name] for name in fold.train[source]), strict=True)
        dev = (np.array(features[8:]), labels[8:])  # a fifth of 10
        classifier = ONE_C.fit(np.array(features[:8]), labels[:8], {"dev": dev}, 0)["dev"]
        features, labels = zip(*(items[target][name] for name in fold.test[target]), strict=True)
        correct += (classifier.predict(np.array(features)) == np.array(labels)).tolist()
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
    ids = {language: list(by_name) for language, by_name in items.items()}
    expected = [cross_by_hand(fold, items) for fold in draw_folds(ids, size=20, seed=7)]

    assert measure(seed=7, size=20) == pytest.approx(expected)


def test_folds_differ():
    assert len(set(measure(seed=7, size=20))) > 3


def test_folds_depend_on_the_seed_alone():
    assert measure(seed=7, size=20) == measure(seed=7, size=20)
    assert measure(seed=7, size=20) != measure(seed=8, size=20)


def test_too_little_data_for_folds_is_an_error():
    with pytest.raises(TaskError, match="the data allow 20 items a fold, expected at least 100"):
        measure(seed=7)
