"""Zero-shot classification: what the classifier is shown, and planted cases."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from modeling_tmde.eval.classification import (
    chance_accuracy,
    embedding_classifier,
    tfidf_classifier,
    zero_shot_accuracy,
)


class Recorder(ClassifierMixin, BaseEstimator):
    """Guesses its first training label, and keeps what it is given; the list outlives scikit-learn's copies."""

    calls: list = []

    def fit(self, X, y):
        self.calls.append(("fit", list(X), list(y)))
        self.classes_ = np.unique(y)
        self.first_ = y[0]
        return self

    def predict(self, X):
        self.calls.append(("predict", list(X)))
        return np.array([self.first_] * len(X))


@pytest.fixture
def recorder():
    Recorder.calls = []
    return Recorder()


def test_only_the_source_language_is_learnt(recorder):
    test = {"de": ["eins", "zwei", "drei", "vier"], "fr": ["un", "deux"]}
    labels = {"de": ["a", "b", "a", "a"], "fr": ["b", "b"]}
    accuracy = zero_shot_accuracy(recorder, ["one", "two"], ["a", "b"], test, labels)
    assert accuracy == {"de": 0.75, "fr": 0.0}
    assert Recorder.calls == [
        ("fit", ["one", "two"], ["a", "b"]),
        ("predict", ["eins", "zwei", "drei", "vier"]),
        ("predict", ["un", "deux"]),
    ]
    assert not hasattr(recorder, "first_")  # a copy was fitted


def planted(seed: int, shift: float = 0.0):
    """Three classes around three far corners, in languages that differ by a small shift."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["CCAT", "ECAT", "GCAT"], size=60)
    corners = {"CCAT": [8, 0, 0], "ECAT": [0, 8, 0], "GCAT": [0, 0, 8]}
    return np.array([corners[label] for label in labels]) + rng.normal(size=(60, 3)) + shift, labels.tolist()


def test_planted_vectors_are_classified():
    train, train_labels = planted(0)
    german, german_labels = planted(1, shift=0.5)
    wrong = ["ECAT" if label == "CCAT" else "CCAT" if label == "ECAT" else "GCAT" for label in german_labels]
    accuracy = zero_shot_accuracy(
        embedding_classifier(), train, train_labels, {"de": german, "xx": german}, {"de": german_labels, "xx": wrong}
    )
    assert accuracy["de"] == 1.0
    assert accuracy["xx"] == german_labels.count("GCAT") / 60


def test_embedding_classifier_does_not_depend_on_scale():
    train, labels = planted(0)
    test, _ = planted(1)
    expected = embedding_classifier().fit(train, labels).predict_proba(test)
    scaled = embedding_classifier().fit(train * 1e-3 + 5, labels).predict_proba(test * 1e-3 + 5)
    np.testing.assert_allclose(scaled, expected, atol=1e-6)
    plain = LogisticRegression(max_iter=1000).fit(train * 1e-3, labels).predict_proba(test * 1e-3)
    assert np.abs(plain - expected).max() > 0.1


def test_tfidf_reads_words_and_not_other_alphabets():
    train = ["market prices rise", "prices fall at the market", "the team wins the match", "a match for the team"] * 3
    labels = ["economy", "economy", "sport", "sport"] * 3
    test = {"en": ["marketing price", "teams and matches"], "ru": ["рынок", "команда"]}
    accuracy = zero_shot_accuracy(
        tfidf_classifier(), train, labels, test, {"en": ["economy", "sport"], "ru": ["economy", "sport"]}
    )
    assert accuracy == {"en": 1.0, "ru": 0.5}  # nothing known: the same guess for both


def test_chance():
    assert chance_accuracy(["a", "b", "b", "c", "d", "d"]) == 0.25
