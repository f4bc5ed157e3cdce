"""The 2-D map of a collection: against hand-made numbers and planted groups."""

import math

import numpy as np
import pytest

from tmde.documents.collection_map import CollectionMap, drawn_rows, map_collection


def planted(groups=3, size=20, dimension=16, seed=0):
    """Vectors of well-parted groups, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), size)
    return rng.normal(size=(groups, dimension))[group] + 0.1 * rng.normal(
        size=(len(group), dimension)
    ), group


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_planted_groups_stay_together(method):
    vectors, group = planted()
    found = map_collection(vectors, method, seed=1)
    assert found.method == method and found.places.shape == (60, 2)
    assert np.abs(found.places).max() == pytest.approx(1)
    distances = np.linalg.norm(found.places[:, None] - found.places[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (group[distances.argmin(axis=1)] == group).all()
    assert np.array_equal(map_collection(vectors, method, seed=1).places, found.places)


def test_the_place_of_a_query_is_a_weighted_mean_of_its_neighbours():
    angles = np.radians([0, 10, 20, 60, 90, 180, 270])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    places = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1], [-1, 0], [9, 9], [-9, -9]])
    query = np.array([3.0, 0])
    # Cosines are 1, cos 10, cos 20, cos 60, then 0 twice: of equal ones the first counts.
    total, x, y = 0.0, 0.0, 0.0
    for angle, (to_right, up) in zip(angles[:5], places[:5], strict=True):
        weight = math.exp(math.cos(angle) / 0.05)
        total, x, y = total + weight, x + weight * to_right, y + weight * up
    found = CollectionMap(places, vectors, "tsne").place_of(query)
    assert found == pytest.approx([x / total, y / total])
    assert 0.2 < found[0] < 0.5  # the second neighbour counts less than the first, but it does


@pytest.mark.parametrize("count", [1, 2, 3, 9, 11, 40])
def test_collections_that_are_small_or_all_alike(count):
    vectors = np.random.default_rng(0).normal(size=(count, 4))
    for given in (
        vectors,
        vectors[:, :1],
        np.ones((count, 4)),
        np.zeros((count, 4)),
        vectors[np.arange(count) % 3],
    ):
        found = map_collection(given)
        assert found.places.shape == (count, 2) and np.isfinite(found.places).all()
        assert np.abs(found.places).max() <= 1 + 1e-9
        assert np.isfinite(found.place_of(given[0])).all()
    assert map_collection(vectors).method == ("tsne" if count > 9 else "pca")


def test_rows_that_are_drawn():
    assert drawn_rows(7, 7).tolist() == list(range(7))
    rows = drawn_rows(1000, 100, seed=4)
    assert (
        len(set(rows.tolist())) == 100
        and (np.diff(rows) > 0).all()
        and 0 <= rows[0]
        and rows[-1] < 1000
    )
    assert np.array_equal(rows, drawn_rows(1000, 100, seed=4)) and not np.array_equal(
        rows, drawn_rows(1000, 100, 5)
    )
