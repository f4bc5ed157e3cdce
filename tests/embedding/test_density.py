"""Density of sentence vectors: against plain loops and hand-computed weights."""

import os

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from tmde.embedding.long_documents import SentenceDensity

RNG = np.random.default_rng(3)
VECTORS = np.concatenate(
    [RNG.standard_normal((180, 24)), np.tile(RNG.standard_normal(24), (40, 1))]
)
KERNELS = pytest.mark.parametrize("kernel", ["tophat", "gaussian"])


def distances(points):
    return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))


@KERNELS
def test_weights_are_those_of_a_plain_loop(kernel):
    fitted = SentenceDensity(components=24, kernel=kernel, bandwidth=5.0).fit(
        VECTORS
    )  # 24 axes keep all distances
    between = distances(VECTORS)
    for row, weight in enumerate(fitted.weights(VECTORS)):
        values = (between < 5.0).astype(float) if kernel == "tophat" else np.exp(-(between**2) / 50)
        of_each = values.sum(axis=1)
        b = of_each.mean() / 2
        assert weight == pytest.approx(b / (b + of_each[row]), rel=1e-5)


def test_hand_computed_weights():
    """Three equal sentences and one far away: densities 3, 3, 3, 1 of a mean of 2.5, so that b = 1.25."""
    vectors = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [10.0, 0.0]])
    fitted = SentenceDensity(bandwidth=1.0).fit(vectors)
    np.testing.assert_allclose(
        fitted.weights(vectors), [1.25 / 4.25] * 3 + [1.25 / 2.25], rtol=1e-6
    )
    assert fitted.weights(np.array([[40.0, 0.0]])).tolist() == [1.0]
    equal = np.full((20, 8), 0.1, np.float32)  # all densities are their mean: b / (b + 2 b)
    np.testing.assert_allclose(SentenceDensity().fit(equal).weights(equal), 1 / 3, rtol=1e-6)


def test_the_chosen_bandwidth_is_that_of_highest_held_out_likelihood():
    """One cluster of a normal distribution in one dimension: the best gaussian is known (Silverman, 1.06 s n^-1/5)."""
    points = np.random.default_rng(0).standard_normal((1000, 1))
    chosen = SentenceDensity(kernel="gaussian").fit(points).bandwidth_
    assert 0.5 < chosen / (1.06 * 1000**-0.2) < 2
    scores = {}
    for factor in (0.25, 1, 4):
        tree = KernelDensity(bandwidth=factor * chosen)
        scores[factor] = sum(
            tree.fit(np.delete(points, slice(f, None, 5), 0)).score(points[f::5]) for f in range(5)
        )
    assert scores[1] == max(scores.values())
    gaussian, tophat = (
        SentenceDensity(kernel=kernel).fit(VECTORS).bandwidth_ for kernel in ("gaussian", "tophat")
    )
    assert tophat / gaussian == pytest.approx(
        3.95, abs=0.001
    )  # as wide as a gaussian that smooths as much


@pytest.mark.parametrize("chosen", [None, 2.5])
def test_a_saved_density_gives_the_same_weights(tmp_path, chosen):
    fitted = SentenceDensity(components=6, bandwidth=chosen, sample=100, seed=5).fit(VECTORS)
    fitted.save(tmp_path / "menus.density")
    assert os.listdir(tmp_path) == ["menus.density"]
    loaded = SentenceDensity.load(tmp_path / "menus.density")
    assert repr(loaded) == repr(fitted) and loaded.fingerprint() == fitted.fingerprint()
    np.testing.assert_array_equal(loaded.weights(VECTORS), fitted.weights(VECTORS))


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match="other.npz: not a density that SentenceDensity.save wrote"
    ):
        SentenceDensity.load(path)
