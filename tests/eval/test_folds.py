"""The ten folds: what is drawn, that nothing leaks, and `Cross` of planted systems by hand."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.eval.folds import draw_folds, run_folds
from modeling_tmde.eval.heads import LogisticRegressionHead
from modeling_tmde.eval.tasks import ClassificationData, Provenance, Split, TaskError

ONE_C = LogisticRegressionHead(grid=(1.0,), sparse_grid=(10.0,))  # a dev set of a few items would choose by chance


@settings(max_examples=40, deadline=None)
@given(
    half=st.integers(1, 6),
    draws=st.integers(1, 5),
    spare=st.integers(0, 7),
    parallel=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_draws_are_disjoint_and_rotated(half, draws, spare, parallel, seed):
    count = 2 * half * draws + spare
    ids = {x: [f"{'' if parallel else x}{row}" for row in range(count)] for x in ("de", "en", "fr")}
    folds = draw_folds(ids, 2 * half, seed, draws)
    assert len(folds) == 2 * draws
    for language in ids:
        halves = []
        for first, second in zip(folds[::2], folds[1::2], strict=True):
            assert first.train[language] == second.test[language]
            assert first.test[language] == second.train[language]
            halves += [first.train[language], first.test[language]]
        assert {len(part) for part in halves} == {half}
        drawn = [name for part in halves for name in part]
        assert len(set(drawn)) == len(drawn) == 2 * half * draws
        assert set(drawn) <= set(ids[language])
    if parallel:
        assert all(fold.train["de"] == fold.train["en"] == fold.train["fr"] for fold in folds)
    shuffled = {language: ids[language][::-1] for language in reversed(ids)}
    again = draw_folds(shuffled, 2 * half, seed, draws)
    assert [fold.train["de"] for fold in again] == [fold.train["de"] for fold in folds]


def test_only_ids_that_all_languages_share_are_drawn():
    ids = {"de": [str(row) for row in range(30)], "en": [str(row) for row in range(10, 40)]}
    folds = draw_folds(ids, 4, seed=0)
    drawn = {name for fold in folds for name in fold.train["de"]}
    assert drawn == {str(row) for row in range(10, 30)}
    for first, second in combinations(folds[::2], 2):
        assert not set(first.train["de"] + first.test["de"]) & set(second.train["en"] + second.test["en"])


class Planted:
    """A vector for each text, computed from it; keeps what it was asked for."""

    name, fingerprint, truncated, texts = "planted", "0", 0, 0

    def __init__(self, vector) -> None:
        self.vector = vector
        self.calls: list[tuple[list[str], list[str]]] = []

    def represent(self, texts, fit_on, language=None):
        self.calls.append((list(texts), list(fit_on)))
        return np.array([self.vector(text) for text in texts], np.float32)


def corpus(languages=("de", "en", "xx"), parallel=True, **sizes: int) -> ClassificationData:
    """Texts "de train 0 a" ...; each split counts its ids from 0."""
    splits = {}
    for language in languages:
        splits[language] = {}
        for name, size in ({"train": 60, "dev": 20, "test": 20} | sizes).items():
            labels = ["ab"[(row + len(name)) % 2] for row in range(size)]
            ids = [f"{'' if parallel else language}{row}" for row in range(size)]
            texts = [f"{language} {name} {row} {label}" for row, label in enumerate(labels)]
            splits[language][name] = Split(ids, texts, labels)
    return ClassificationData(splits, Provenance("planted", "none"))


def side(text: str) -> list[float]:
    """The class, turned round in the language xx."""
    sign = 1.0 if text.endswith("a") else -1.0
    return [-sign if text.startswith("xx") else sign]


@pytest.mark.parametrize("parallel", [True, False])
def test_cross_by_hand(parallel):
    # de -> en and en -> de are right; the four pairs with xx are wrong
    data = corpus(parallel=parallel)
    assert run_folds(data, Planted(side), ONE_C)[0] == pytest.approx([2 / 6] * 10)
    assert run_folds(data.restrict(["de", "en"]), Planted(side), ONE_C)[0] == [1.0] * 10


def test_cross_against_a_loop_over_the_folds():
    """Noise, so that the folds differ."""
    data = corpus(languages=("de", "en"))

    def vector(text):
        noise = np.random.default_rng(list(text.encode())).normal(size=3)
        return (noise + (1 if text.endswith("a") else -1) * np.array([0.7, 0, 0])).tolist()

    found, _ = run_folds(data, Planted(vector), ONE_C, seed=7, size=20)
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
            rows = [items[source][name] for name in fold.train[source]]
            train, dev = rows[:8], rows[8:]  # a fifth of 10
            parts = [(np.array([row[0] for row in part]), [row[1] for row in part]) for part in (train, dev)]
            classifier = ONE_C.fit(*parts[0], {"dev": parts[1]}, 0)["dev"]
            tests = [items[target][name] for name in fold.test[target]]
            right += [
                guess == label
                for guess, (_, label) in zip(classifier.predict([t[0] for t in tests]), tests, strict=True)
            ]
        expected.append(np.mean(right))
    assert found == pytest.approx(expected)
    assert len(set(found)) > 3
    assert found == run_folds(data, Planted(vector), ONE_C, seed=7, size=20)[0]
    assert found != run_folds(data, Planted(vector), ONE_C, seed=8, size=20)[0]


def test_nothing_of_a_test_half_is_fitted_on_in_any_language():
    data, system, fits = corpus(languages=("de", "en")), Planted(side), []

    class Keep(LogisticRegressionHead):
        def fit(self, features, labels, devs, seed):
            fits.append((len(features), len(devs["dev"][0])))
            return super().fit(features, labels, devs, seed)

    run_folds(data, system, Keep(), size=20)
    assert fits == [(8, 2)] * 20  # ten folds, two sources
    whole = [list(part.texts) for parts in data.splits.values() for part in parts.values()]
    assert all(texts in whole for texts, _ in system.calls)  # what a cache already has
    ids = {
        x: [f"{name}/{row}" for name, part in parts.items() for row in range(len(part))]
        for x, parts in data.splits.items()
    }
    allowed = []
    for fold in draw_folds(ids, 20, seed=0):
        assert not set(fold.train["de"]) & set(fold.test["en"])
        allowed += [{(x, *name.split("/")) for name in fold.train[x]} for x in data.splits]
    fitted = [{tuple(text.split()[:3]) for text in fit_on} for _, fit_on in system.calls]
    fitted = [texts for texts, last in zip(fitted, [None, *fitted], strict=False) if texts != last]
    assert fitted == allowed  # the train half of each fold and source, in turn


def test_errors():
    system = Planted(side)
    with pytest.raises(ValueError, match=r"at least two languages, found \['de'\]"):
        run_folds(corpus(["de"]), system, ONE_C)
    with pytest.raises(TaskError, match="size of 8 .* expected at least 10.* smallest pool has 44 items"):
        run_folds(corpus(train=20, dev=12, test=12), system, ONE_C)
    with pytest.raises(ValueError, match="found size 15"):
        run_folds(corpus(), system, ONE_C, size=15)
    data = corpus()
    del data.splits["en"]["dev"]
    with pytest.raises(TaskError, match=r"'en' has no split 'dev', needed for folds; found \['train', 'test'\]"):
        run_folds(data, system, ONE_C)
    one = {
        x: {n: Split(p.ids, p.texts, ["a"] * len(p)) for n, p in parts.items()} for x, parts in corpus().splits.items()
    }
    with pytest.raises(TaskError, match="Fold 1, de: found one class"):
        run_folds(ClassificationData(one, Provenance("", "")), system, ONE_C)
    assert not system.calls  # all of it before anything is encoded
