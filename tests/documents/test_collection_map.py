"""The 2-D map of a collection: against hand-made numbers and planted groups."""

import math

import numpy as np
import pytest

from tmde.documents.collection_map import CollectionMap, drawn_rows, map_collection


def planted(groups=3, size=20, dimension=16, seed=0):
    """Vectors of well-parted groups, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    centers = rng.normal(size=(groups, dimension))
    vectors = centers[group] + 0.1 * rng.normal(size=(len(group), dimension))
    return vectors, group


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_planted_groups_stay_together(method):
    vectors, group = planted()
    collection = map_collection(vectors, method, seed=1)
    assert collection.method == method
    assert collection.places.shape == (60, 2)
    assert np.abs(collection.places).max() == pytest.approx(1)
    differences = collection.places[:, None] - collection.places[None]
    distances = np.linalg.norm(differences, axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (group[distances.argmin(axis=1)] == group).all()


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_a_seed_gives_one_map(method):
    vectors, _ = planted()
    first = map_collection(vectors, method, seed=1)
    second = map_collection(vectors, method, seed=1)
    assert np.array_equal(first.places, second.places)


def test_the_place_of_a_query_is_a_weighted_mean_of_its_neighbors():
    angles = np.radians([0, 10, 20, 60, 90, 180, 270])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [-1, 0], [9, 9], [-9, -9]])
    query = np.array([3.0, 0])
    # Cosines are 1, cos 10, cos 20, cos 60, then 0 twice: of equal ones the first counts.
    total = 0.0
    x = 0.0
    y = 0.0
    for angle, (to_right, up) in zip(angles[:5], places[:5], strict=True):
        weight = math.exp(math.cos(angle) / 0.05)
        total += weight
        x += weight * to_right
        y += weight * up
    place = CollectionMap(places, vectors, "tsne").place_of(query)
    assert place == pytest.approx([x / total, y / total])
    assert 0.2 < place[0] < 0.5  # The second neighbor counts less than the first, but it does.


def collections_of(count):
    """Vectors of all kinds: random ones, of one dimension, all alike, zeros, and repeated ones."""
    vectors = np.random.default_rng(0).normal(size=(count, 4))
    repeated = vectors[np.arange(count) % 3]
    return [vectors, vectors[:, :1], np.ones((count, 4)), np.zeros((count, 4)), repeated]


@pytest.mark.parametrize("count", [1, 2, 3, 9, 11, 40])
def test_collections_that_are_small_or_all_alike(count):
    for vectors in collections_of(count):
        collection = map_collection(vectors)
        assert collection.places.shape == (count, 2)
        assert np.isfinite(collection.places).all()
        assert np.abs(collection.places).max() <= 1 + 1e-9
        assert np.isfinite(collection.place_of(vectors[0])).all()


@pytest.mark.parametrize(("count", "method"), [(1, "pca"), (9, "pca"), (11, "tsne"), (40, "tsne")])
def test_few_documents_are_drawn_by_their_components(count, method):
    vectors = np.random.default_rng(0).normal(size=(count, 4))
    assert map_collection(vectors).method == method


def test_all_rows_are_drawn_if_there_are_few():
    assert drawn_rows(7, 7).tolist() == list(range(7))


def test_rows_that_are_drawn():
    rows = drawn_rows(1000, 100, seed=4)
    assert len(set(rows.tolist())) == 100
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < 1000
    assert np.array_equal(rows, drawn_rows(1000, 100, seed=4))
    assert not np.array_equal(rows, drawn_rows(1000, 100, seed=5))
