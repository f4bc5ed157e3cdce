"""Word vectors of two languages: planted rotations, precision, the bag."""

import logging
import math

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

from modeling_tmde import TmdeError
from tmde.documents import word_measures
from tmde.documents.unit_rows import unit_vectors
from tmde.documents.word_mapping import canonical_mapping, criterion, first_mapping
from tmde.documents.word_vectors import (
    WordVectors,
    align_adversarially,
    align_words,
    read_similarities,
    similarity_correlation,
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


@pytest.mark.nightly
def test_adversarial_training_aligns_planted_words(caplog):
    """It does so from nothing, without a refinement, which would repair much."""
    source, target, _, gold = planted(noise=0.02)
    with caplog.at_level(logging.INFO, logger="tmde.documents.word_mapping"):
        mapping = align_adversarially(source, target, epochs=3, steps=1000, hidden=256)
    np.testing.assert_allclose(mapping @ mapping.T, np.eye(20), atol=1e-5)
    assert translation_precision(source, target, gold)["precision_at_1"] < 0.05
    mapped = source.mapped(mapping)
    assert translation_precision(mapped, target, gold)["precision_at_1"] > 0.85

    # The criterion chooses among the epochs of both runs.
    logged = [record.args[1] for record in caplog.records]
    assert len(logged) == 6
    assert criterion(source, target, mapping) == max(logged)


def test_runs_begin_with_rotations_and_reflections_in_turn():
    torch.manual_seed(0)
    mappings = [first_mapping(4, run).numpy() for run in range(6)]
    np.testing.assert_array_equal(mappings[0], np.eye(4))
    np.testing.assert_array_equal(mappings[1], np.diag([1, 1, 1, -1]))
    for run, mapping in enumerate(mappings):
        np.testing.assert_allclose(mapping @ mapping.T, np.eye(4), atol=1e-6)
        assert np.linalg.det(mapping) == pytest.approx((-1) ** run, abs=1e-5)
    assert np.abs(mappings[2] - mappings[4]).max() > 0.1


def test_similarities_find_the_rotation():
    """The words of the other language stand in another order, and each lacks some of the words."""
    source, target, rotation, _ = planted(800)
    order = np.random.default_rng(3).permutation(800)[:700]
    target = WordVectors([target.words[row] for row in order], target.vectors[order])
    source = source[:700]
    mapping = align_words(source, target, refinements=0, frequent=500)
    np.testing.assert_allclose(mapping @ mapping.T, np.eye(20), atol=1e-6)
    np.testing.assert_allclose(mapping, rotation, atol=0.05)


def test_canonical_mapping_equals_sklearn_and_an_eigenvalue_problem():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)) + 3
    y = x @ rng.normal(size=(4, 4)) + [0.2, 1, 3, 6] * rng.normal(size=(300, 4))
    mapping = canonical_mapping(x, y)

    cca = CCA(n_components=4, scale=False, max_iter=10_000, tol=1e-13).fit(x, y)
    x_centered = x - x.mean(axis=0)
    y_centered = y - y.mean(axis=0)
    a = cca.x_rotations_ / (x_centered @ cca.x_rotations_).std(axis=0)
    b = cca.y_rotations_ / (y_centered @ cca.y_rotations_).std(axis=0)
    np.testing.assert_allclose(mapping, (a @ np.linalg.inv(b)).T, atol=1e-5)

    # The directions a solve Cxx^-1 Cxy Cyy^-1 Cyx a = r^2 a, and b is Cyy^-1 Cyx a / r.
    cxx = x_centered.T @ x_centered / 300
    cyy = y_centered.T @ y_centered / 300
    cxy = x_centered.T @ y_centered / 300
    squares, a = np.linalg.eig(np.linalg.solve(cxx, cxy) @ np.linalg.solve(cyy, cxy.T))
    a = a / np.sqrt(np.diag(a.T @ cxx @ a))
    b = np.linalg.solve(cyy, cxy.T @ a) / np.sqrt(squares)
    np.testing.assert_allclose(mapping, (a @ np.linalg.inv(b)).T, atol=1e-8)


def test_cca_finds_a_mapping_that_is_no_rotation():
    source, _, _, gold = planted(600)
    stretch = np.random.default_rng(5).normal(size=(20, 20))
    units = unit_vectors(source.vectors)
    np.testing.assert_allclose(canonical_mapping(units, units @ stretch.T), stretch, atol=1e-4)

    target = WordVectors([f"y{row}" for row in range(600)], units @ stretch.T.astype("f"))
    precisions = {}
    for fit in ("cca", "rotation"):
        mapping = align_words(source, target, gold[:300], fit=fit, refinements=2)
        scores = translation_precision(source.mapped(mapping), target, gold[300:], "cosine")
        precisions[fit] = scores["precision_at_1"]
    assert precisions["cca"] > precisions["rotation"] + 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fit": "cca"}, "CCA: found 20 pairs of words with vectors of rank 19, expected rank 20"),
        ({"fit": "cca", "dictionary": None}, "fit='cca': found no dictionary"),
        ({"fit": "procrustes"}, "fit: found 'procrustes', expected rotation or cca"),
        (
            {"dictionary": None, "start": "gan"},
            "start: found 'gan', expected similarities or adversarial",
        ),
    ],
)
def test_fits_and_starts_that_cannot_be_are_named(arguments, message):
    source, target, _, gold = planted(50)
    arguments = {"dictionary": gold[:20]} | arguments
    with pytest.raises(TmdeError, match=message):
        align_words(source, target, **arguments)


@pytest.mark.parametrize("scoring", ["cosine", "distance", "softmax"])
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
    if scoring == "softmax":
        for column in range(40):
            # Smith et al., 2017: over the source words, for each target word.
            powers = [math.exp(30 * cosine) for cosine in cosines[:, column]]
            scores[:, column] = [power / sum(powers) for power in powers]
    best_ranks = []
    for word in np.unique(pairs[:, 0]):
        translations = pairs[pairs[:, 0] == word, 1]
        is_translation = np.isin(np.argsort(-scores[word]), translations)
        best_ranks.append(1 + is_translation.argmax())
    expected = {}
    for k in (1, 5, 10):
        expected[f"precision_at_{k}"] = np.mean(np.array(best_ranks) <= k)
    assert translation_precision(first, second, pairs, scoring) == expected


def test_the_inverted_softmax_demotes_a_hub():
    """By cosine, the hub is the nearest word of both source words."""
    source = WordVectors(["a", "b"], np.array([[1, 0], [0.8, 0.6]], np.float32))
    hub = [0.9, math.sqrt(1 - 0.81)]
    target = WordVectors(["hub", "b"], np.array([hub, [0.3, math.sqrt(1 - 0.09)]], np.float32))
    translation_of_b = np.array([[1, 1]])
    by_cosine = translation_precision(source, target, translation_of_b, "cosine")
    assert by_cosine["precision_at_1"] == 0
    # The hub has cosines 0.98 to b and 0.9 to a, so it translates back into b with the probability
    # 1 / (1 + exp(-30 * 0.08)) = 0.92. The translation has 0.81 and 0.3, and the probability 1.00.
    by_softmax = translation_precision(source, target, translation_of_b, "softmax")
    assert by_softmax["precision_at_1"] == 1


def judged_pairs(tmp_path, pairs, scores):
    first = tmp_path / "de-en.test.data.txt"
    first.write_text(pairs, encoding="utf-8")
    second = tmp_path / "de-en.test.gold.txt"
    second.write_text(scores, encoding="utf-8")
    rng = np.random.default_rng(2)
    german = WordVectors(["haus", "öl", "hund"], rng.normal(size=(3, 4)).astype("f"))
    english = WordVectors(["dog", "house", "oil"], rng.normal(size=(3, 4)).astype("f"))
    return german, english, read_similarities(first, second, german, english)


def test_similarity_of_words_equals_a_plain_loop(tmp_path):
    """Words are lowercased; phrases and unknown words are left out."""
    pairs = "Haus\thouse\nÖl\tdog\nHund\thot dog\nunbekannt\tdog\nHund\toil\nHund\tdog\n"
    german, english, judged = judged_pairs(tmp_path, pairs, "4\n0.5\n1\n2\n1.25\n3.9\n")
    assert judged.rows.tolist() == [[0, 1], [1, 0], [2, 2], [2, 0]]
    assert judged.scores.tolist() == [4, 0.5, 1.25, 3.9]
    assert judged.left_out == 2
    cosines = []
    for row, other_row in judged.rows:
        first = [float(number) for number in german.vectors[row]]
        second = [float(number) for number in english.vectors[other_row]]
        product = sum(x * y for x, y in zip(first, second, strict=True))
        lengths = math.sqrt(sum(x * x for x in first) * sum(y * y for y in second))
        cosines.append(product / lengths)
    mean_cosine = sum(cosines) / 4
    mean_score = sum(judged.scores) / 4
    covariance = 0.0
    cosine_variance = 0.0
    score_variance = 0.0
    for cosine, score in zip(cosines, judged.scores, strict=True):
        covariance += (cosine - mean_cosine) * (score - mean_score)
        cosine_variance += (cosine - mean_cosine) ** 2
        score_variance += (score - mean_score) ** 2
    expected = covariance / math.sqrt(cosine_variance * score_variance)
    correlation = similarity_correlation(german, english, judged)
    assert correlation == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("pairs", "scores", "message"),
    [
        ("haus house\n", "1\n", r"data.txt, row 1: found 'haus house', expected two words with a"),
        ("haus\t\n", "1\n", r"data.txt, row 1: found 'haus\\t', expected two words with a tab"),
        ("haus\thouse\n", "high\n", "gold.txt, row 1: found 'high', expected a number"),
        ("haus\thouse\n", "nan\n", "gold.txt, row 1: found 'nan', expected a number"),
        (
            "haus\thouse\nhund\tdog\n",
            "1\n",
            "gold.txt: found 1 scores, expected 2, one for each pair of ",
        ),
        (
            "house\thaus\ndog\thund\n",
            "1\n2\n",
            "data.txt: found 2 pairs, 0 of words that both have vectors, expected at least two",
        ),
        (
            "haus\thouse\nhund\tdog\n",
            "1\n1\n",
            "data.txt: found 2 pairs, 2 of words that both have vectors, expected at least two",
        ),
    ],
)
def test_bad_files_of_similarities_are_named(tmp_path, pairs, scores, message):
    with pytest.raises(TmdeError, match=message):
        judged_pairs(tmp_path, pairs, scores)


def test_languages_of_a_bag_have_one_dimension():
    german = WordVectors(["haus"], np.ones((1, 3), np.float32))
    english = WordVectors(["house"], np.ones((1, 2), np.float32))
    with pytest.raises(TmdeError, match="different dimensions, {'de': 3, 'en': 2}, expected equal"):
        word_bag({"de": german, "en": english})


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
