"""Density of sentence vectors: against plain loops and hand-computed weights."""

import os

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from tmde.embedding.sentence_density import SentenceDensity

RNG = np.random.default_rng(3)
REPEATED = np.tile(RNG.standard_normal(24), (40, 1))
VECTORS = np.concatenate([RNG.standard_normal((180, 24)), REPEATED])


def distances(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("kernel", ["tophat", "gaussian"])
def test_weights_are_those_of_a_plain_loop(kernel):
    # 24 axes keep all distances.
    density = SentenceDensity(components=24, kernel=kernel, bandwidth=5.0).fit(VECTORS)
    between = distances(VECTORS)
    if kernel == "tophat":
        kernel_values = (between < 5.0).astype(float)
    else:
        kernel_values = np.exp(-(between**2) / 50)
    densities = kernel_values.sum(axis=1)
    b = densities.mean() / 2
    np.testing.assert_allclose(density.weights(VECTORS), b / (b + densities), rtol=1e-5)


# Three equal sentences and one far away: densities 3, 3, 3, 1 of a mean of 2.5, so that b = 1.25.
FOUR_VECTORS = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [10.0, 0.0]])


def test_hand_computed_weights():
    density = SentenceDensity(bandwidth=1.0).fit(FOUR_VECTORS)
    expected = [1.25 / 4.25] * 3 + [1.25 / 2.25]
    np.testing.assert_allclose(density.weights(FOUR_VECTORS), expected, rtol=1e-6)


def test_a_sentence_without_neighbors_weighs_one():
    density = SentenceDensity(bandwidth=1.0).fit(FOUR_VECTORS)
    assert density.weights(np.array([[40.0, 0.0]])).tolist() == [1.0]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_equal_sentences_have_the_weight_of_mean_density():
    equal = np.full((20, 8), 0.1, np.float32)
    weights = SentenceDensity().fit(equal).weights(equal)
    np.testing.assert_allclose(weights, 1 / 3, rtol=1e-6)  # b / (b + 2 b)


@pytest.fixture(scope="module")
def normal_points():
    """One cluster in one dimension, whose best gaussian is known: Silverman's 1.06 s n^-1/5."""
    return np.random.default_rng(0).standard_normal((1000, 1))


def test_the_chosen_bandwidth_is_near_silvermans(normal_points):
    bandwidth = SentenceDensity(kernel="gaussian").fit(normal_points).bandwidth_
    assert 0.5 < bandwidth / (1.06 * 1000**-0.2) < 2


def test_the_chosen_bandwidth_has_the_highest_held_out_likelihood(normal_points):
    bandwidth = SentenceDensity(kernel="gaussian").fit(normal_points).bandwidth_
    likelihoods = {}
    for factor in (0.25, 1, 4):
        likelihoods[factor] = 0.0
        for fold in range(5):
            rest = np.delete(normal_points, slice(fold, None, 5), axis=0)
            held_out = normal_points[fold::5]
            density = KernelDensity(bandwidth=factor * bandwidth).fit(rest)
            likelihoods[factor] += density.score(held_out)
    assert likelihoods[1] == max(likelihoods.values())


def test_a_tophat_is_as_wide_as_a_gaussian_that_smooths_as_much():
    gaussian = SentenceDensity(kernel="gaussian").fit(VECTORS).bandwidth_
    tophat = SentenceDensity(kernel="tophat").fit(VECTORS).bandwidth_
    assert tophat / gaussian == pytest.approx(3.95, abs=0.001)


def test_an_unknown_kernel_is_named():
    with pytest.raises(ValueError, match="kernel: found 'box', expected 'tophat' or 'gaussian'"):
        SentenceDensity(kernel="box")


@pytest.mark.parametrize("bandwidth", [None, 2.5])
def test_a_saved_density_gives_the_same_weights(tmp_path, bandwidth):
    density = SentenceDensity(components=6, bandwidth=bandwidth, sample=100, seed=5).fit(VECTORS)
    density.save(tmp_path / "menus.density")
    loaded = SentenceDensity.load(tmp_path / "menus.density")
    assert os.listdir(tmp_path) == ["menus.density"]
    assert repr(loaded) == repr(density)
    assert loaded.fingerprint() == density.fingerprint()
    np.testing.assert_array_equal(loaded.weights(VECTORS), density.weights(VECTORS))


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_file_of_something_else_is_named(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="other.npz: not a file of SentenceDensity.save"):
        SentenceDensity.load(path)
