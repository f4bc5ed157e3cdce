"""Word vectors of two languages: planted rotations, precision, the bag."""

import numpy as np
import pytest

from tmde.documents import word_measures
from tmde.documents.unit_rows import unit_vectors
from tmde.documents.word_vectors import (
    WordVectors,
    align_words,
    translation_precision,
    word_bag,
)
from tmde.embedding.document_embedder import DocumentEmbedder


def planted(count=2000, width=20, noise=0.05):
    """Words of unequal topics, with heavy tails and a falling spectrum.

    Those of the other language are the same, turned and noisy.
    """
    rng = np.random.default_rng(0)
    spectrum = np.arange(1, width + 1) ** -0.5
    topics = rng.standard_t(4, size=(30, width)) * spectrum
    first = topics[rng.choice(30, count, p=rng.dirichlet(np.full(30, 0.5)))]
    first = first + 0.7 * spectrum * rng.standard_t(5, size=first.shape)
    rotation = np.linalg.qr(rng.normal(size=(width, width)))[0]
    second = first @ rotation.T + noise * rng.normal(size=first.shape)
    source = WordVectors([f"x{row}" for row in range(count)], first.astype("f"))
    target = WordVectors([f"y{row}" for row in range(count)], second.astype("f"))
    gold = np.stack([np.arange(count)] * 2, axis=1)
    return source, target, rotation, gold


def test_a_dictionary_gives_the_rotation():
    source, target, rotation, gold = planted()
    mapping = align_words(source, target, gold, refinements=0)
    np.testing.assert_allclose(mapping, rotation, atol=0.02)


@pytest.mark.parametrize(("rounds", "least", "most"), [(0, 0.1, np.inf), (5, 0, 0.03)])
def test_refinement_repairs_a_bad_dictionary(rounds, least, most):
    source, target, rotation, gold = planted()
    wrong = np.stack([gold[100:160, 0], gold[200:260, 1]], axis=1)
    dictionary = np.concatenate([gold[:60], wrong])
    error = np.abs(align_words(source, target, dictionary, rounds) - rotation).max()
    assert least < error < most


@pytest.mark.slow
def test_without_a_dictionary():
    first, second, rotation, _ = planted()
    mapping = align_words(first, second, epochs=2, steps=1500, hidden=256)
    np.testing.assert_allclose(mapping, rotation, atol=0.03)


@pytest.mark.parametrize("scoring", ["cosine", "distance"])
def test_precision_equals_a_plain_loop(scoring, monkeypatch):
    monkeypatch.setattr(word_measures, "NEIGHBORS", 3)
    rng = np.random.default_rng(1)
    words = list(map(str, range(40)))
    first = WordVectors(words, rng.normal(size=(40, 5)))
    second = WordVectors(words, rng.normal(size=(40, 5)))
    # Some words have several translations.
    pairs = np.unique(rng.integers(0, 40, size=(60, 2)), axis=0)
    cosines = unit_vectors(first.vectors) @ unit_vectors(second.vectors).T
    scores = cosines.copy()
    if scoring == "distance":
        first_means = np.sort(cosines, axis=1)[:, -3:].mean(axis=1)
        second_means = np.sort(cosines.T, axis=1)[:, -3:].mean(axis=1)
        scores = 2 * cosines - first_means[:, None] - second_means  # 004, equation 4.6
    best_ranks = []
    for word in np.unique(pairs[:, 0]):
        translations = pairs[pairs[:, 0] == word, 1]
        is_translation = np.isin(np.argsort(-scores[word]), translations)
        best_ranks.append(1 + is_translation.argmax())
    expected = {}
    for k in (1, 5, 10):
        expected[f"precision_at_{k}"] = np.mean(np.array(best_ranks) <= k)
    assert translation_precision(first, second, pairs, scoring) == expected


def test_a_bag_is_the_mean_weighted_by_idf():
    vectors = np.array([[2, 0, 0], [0, 3, 0], [0, 0, 1.0]], np.float32)
    german = WordVectors(["haus", "in", "!"], vectors)
    english = WordVectors(["house", "in"], vectors[[0, 2]])
    rows = [
        {"de": "Haus!", "en": "House in"},
        {"de": "in", "en": None},
        {"de": "x", "en": "y"},
        {"de": "z", "en": "z"},
    ]
    embedder = DocumentEmbedder(*word_bag({"de": german, "en": english}, rows))
    shared = np.array([0, 1, 1]) / 2  # The word "in" of both languages has the mean of two vectors.
    weighted_house = np.log(4) * np.array([1, 0, 0])
    weighted_mark = np.log(4) * np.array([0, 0, 1])
    total = weighted_house + weighted_mark + np.log(2) * shared
    text_vectors = embedder.encode(["Unbekanntes HAUS! in", "House"])
    expected = [total / np.linalg.norm(total), [1, 0, 0]]
    np.testing.assert_allclose(text_vectors, expected, atol=1e-6)
