"""The ten folds: what is drawn, that nothing leaks, and `Cross` of planted systems by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.eval.fake_system import FakeSystem
from tmde.eval.folds import draw_folds, draw_six_folds, run_folds
from tmde.eval.heads import get_head
from tmde.eval.tasks import ClassificationData, Provenance, Split

# A dev set of a few items would choose by chance.
ONE_C = replace(get_head("logistic_regression"), grid=(1.0,), sparse_grid=(10.0,))


@pytest.mark.parametrize("parallel", [True, False])
def test_draws_are_disjoint_and_rotated(parallel):
    ids = {x: [f"{'' if parallel else x}{row}" for row in range(33)] for x in ("de", "en", "fr")}
    folds = draw_folds(ids, 6, seed=3)
    assert len(folds) == 10
    for language in ids:
        halves = []
        for first, second in zip(folds[::2], folds[1::2], strict=True):
            assert first.train[language] == second.test[language]
            assert first.test[language] == second.train[language]
            halves += [first.train[language], first.test[language]]
        assert {len(half) for half in halves} == {3}
        drawn = {name for half in halves for name in half}
        assert len(drawn) == 30 and drawn <= set(ids[language])
    assert all(fold.train["de"] == fold.train["en"] for fold in folds) == parallel
    shuffled = {language: ids[language][::-1] for language in reversed(ids)}
    assert [fold.train["de"] for fold in draw_folds(shuffled, 6, seed=3)] == [
        fold.train["de"] for fold in folds
    ]


def test_six_folds_are_the_train_set_and_fifths_of_the_test_set():
    train, test = (
        {x: [f"{x}{part}{row}" for row in range(size)] for x in ("de", "en")}
        for part, size in (("a", 4), ("b", 22))
    )
    folds = draw_six_folds(train, test, seed=3)
    assert sorted(folds[0].train["de"]) == train["de"] and sorted(folds[0].test["en"]) == sorted(
        test["en"]
    )
    assert [len(fold.train["en"]) for fold in folds] == [4, 5, 5, 4, 4, 4]
    for fold in folds:
        for code in ("de", "en"):
            assert sorted(fold.train[code] + fold.test[code]) == sorted(train[code] + test[code])
    assert (
        len({tuple(fold.train["de"]) for fold in folds}) == 6
        and folds[1].train["de"] != test["de"][:5]
    )


def corpus(languages=("de", "en")) -> ClassificationData:
    """Texts "de train 0 a" ...; each split counts its ids from 0."""
    splits = {language: {} for language in languages}
    for language, (name, size) in itertools.product(
        languages, {"train": 60, "dev": 20, "test": 20}.items()
    ):
        labels = ["ab"[(row + len(name)) % 2] for row in range(size)]
        ids = [str(row) for row in range(size)]
        texts = [f"{language} {name} {row} {label}" for row, label in enumerate(labels)]
        splits[language][name] = Split(ids, texts, labels)
    return ClassificationData(splits, Provenance("planted", "none"))


def test_cross_against_a_loop_over_the_folds():
    data = corpus()

    def vector(text):  # with noise, so that the folds differ
        noise = np.random.default_rng(list(text.encode())).normal(size=3)
        return (noise + (1 if text.endswith("a") else -1) * np.array([0.7, 0, 0])).tolist()

    found, _ = run_folds(data, FakeSystem(vector), ONE_C, seed=7, size=20)
    items = {
        language: {
            f"{name}/{row}": (vector(text), label)
            for name, part in parts.items()
            for row, (text, label) in enumerate(zip(part.texts, part.labels, strict=True))
        }
        for language, parts in data.splits.items()
    }
    expected = []
    for fold in draw_folds({x: list(items[x]) for x in items}, size=20, seed=7):
        right = []
        for source, target in (("de", "en"), ("en", "de")):
            x, y = zip(*(items[source][name] for name in fold.train[source]), strict=True)
            dev = np.array(x[8:]), y[8:]  # a fifth of 10
            classifier = ONE_C.fit(np.array(x[:8]), y[:8], {"dev": dev}, 0)["dev"]
            x, y = zip(*(items[target][name] for name in fold.test[target]), strict=True)
            right += (classifier.predict(np.array(x)) == np.array(y)).tolist()
        expected.append(np.mean(right))
    assert found == pytest.approx(expected) and len(set(found)) > 3
    assert found == run_folds(data, FakeSystem(vector), ONE_C, seed=7, size=20)[0]
    assert found != run_folds(data, FakeSystem(vector), ONE_C, seed=8, size=20)[0]
