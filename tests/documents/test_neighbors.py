"""Exact search and ranks: against float64 loops, in blocks, with ties; approximate search."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.documents.plain import plain_scores, unit
from tmde.documents import neighbors, unit_rows
from tmde.documents.neighbors import SCORINGS, exact_neighbors, find_neighbors
from tmde.documents.ranks import target_ranks, tied_ranks
from tmde.documents.unit_rows import UnitRows

QUERIES = np.array([[1, 0], [0, 1.0]])
CANDIDATES = np.array([[0.6, -0.8], [0.8, 0.6]])


def random_rows(rng, count, width, whole_numbers):
    if whole_numbers:  # ties and rows of zeros
        return rng.integers(0, 3, size=(count, width)).astype(float)
    return rng.normal(size=(count, width)) + rng.integers(0, 2)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(2, 6)),
    scoring=st.sampled_from(SCORINGS),
    k=st.integers(1, 6),
    block=st.integers(1, 13),
    sparse=st.booleans(),
    whole_numbers=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_a_plain_loop(sizes, scoring, k, block, sparse, whole_numbers, seed):
    rng = np.random.default_rng(seed)
    n, m, width = sizes
    queries = random_rows(rng, n, width, whole_numbers)
    candidates = random_rows(rng, m, width, whole_numbers)
    targets = rng.integers(0, m, size=n)
    _, means, scores = plain_scores(queries, candidates, scoring, k)
    right = scores[range(n), targets][:, None]
    gaps = (scores - right) / np.maximum(np.abs(right), 1)
    assume(not ((abs(gaps) > 1e-9) & (abs(gaps) < 1e-5)).any())  # float32 cannot tell
    assume(scoring != "ratio" or (np.abs(means) > 0.05).all())
    # The right candidate counts, and those that are as good or better.
    expected = (gaps >= -1e-9).sum(axis=1).tolist()
    expected_first = ((gaps > 1e-9).sum(axis=1) + 1).tolist()
    if sparse:
        queries = scipy.sparse.csr_matrix(queries)
        candidates = scipy.sparse.csr_matrix(candidates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_rows, "BLOCK", block)
        assert target_ranks(queries, candidates, targets, scoring, k).tolist() == expected
    single_queries = queries.astype(np.float32)
    single_candidates = candidates.astype(np.float32)
    ranks = tied_ranks(single_queries, single_candidates, targets, scoring, k)
    assert ranks.last.tolist() == expected
    assert ranks.first.tolist() == expected_first


def test_candidates_without_a_ratio_come_last():
    """Even if their cosine, here 0.447, is higher than that of the others, here -0.447."""
    queries = np.array([[1, 0], [0, 1.0]])
    candidates = np.array([[-1, 2], [1, -2.0]])
    # k 2: m(x, y) is 0.112 for the first candidate and -0.112 for the second.
    assert target_ranks(queries, candidates, [0, 0], "ratio", k=2).tolist() == [1, 1]
    assert target_ranks(queries, candidates, [1, 1], "ratio", k=2).tolist() == [2, 2]


# ---- Nearest neighbors


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("block", [1, 3, 10, 4096])
@pytest.mark.parametrize("k", [1, 4, 40])
def test_neighbors_equal_a_full_sort(monkeypatch, sparse, block, k):
    monkeypatch.setattr(unit_rows, "BLOCK", block)
    rng = np.random.default_rng(k)
    queries = rng.normal(size=(13, 6))
    candidates = rng.normal(size=(40, 6))
    original = candidates.copy()
    cosines = np.array(unit(queries)) @ np.array(unit(candidates)).T
    expected = np.argsort(-cosines, axis=1)[:, :k]
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    similarities, indices = find_neighbors(kind(queries), kind(candidates), k)
    assert similarities.dtype == np.float32
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(
        similarities, np.take_along_axis(cosines, expected, axis=1), atol=1e-6
    )
    np.testing.assert_array_equal(candidates, original)


@pytest.mark.parametrize("block", [1, 2, 4096])
def test_neighbors_that_tie_are_in_order(monkeypatch, block):
    monkeypatch.setattr(unit_rows, "BLOCK", block)
    candidates = scipy.sparse.csr_matrix([[0, 1.0], [1, 0], [0, 0], [1, 0], [2, 0]])
    similarities, indices = find_neighbors(
        scipy.sparse.csr_matrix([[1.0, 0], [0, 0]]), candidates, 4
    )
    assert indices.tolist() == [[1, 3, 4, 0], [0, 1, 2, 3]]
    assert similarities.tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    many = scipy.sparse.csr_matrix(np.arange(300)[:, None] % 3 == 0, dtype=float)
    assert find_neighbors(many[:1], many, 100)[1].tolist() == [list(range(0, 300, 3))]


# ---- Approximate search


def recall_of(indices, exact_indices):
    """The share of the exact neighbors that are among these."""
    shares = []
    for row, exact_row in zip(indices, exact_indices, strict=True):
        shares.append(np.isin(exact_row, row).mean())
    return np.mean(shares)


def test_the_effort_grows_until_enough_is_found(monkeypatch, caplog):
    """Rows without any structure: the first effort finds less than 95%.

    The one taken finds as much as it says.
    """
    monkeypatch.setattr(neighbors, "FIRST_EFFORT", 1)
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(300, 24))
    candidates = rng.normal(size=(3000, 24))
    _, exact_indices = find_neighbors(queries, candidates, 4)
    cosines, indices = find_neighbors(queries, candidates, 4, "hnsw")
    unit_queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    unit_candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    expected = np.einsum("id,ijd->ij", unit_queries, unit_candidates[indices])
    np.testing.assert_allclose(cosines, expected, atol=1e-6)

    (message,) = caplog.messages
    assert message.startswith("Approximate search of 300 x 3,000 x 24 by HNSW")
    effort = int(message.split("efSearch = ")[1].split(")")[0])
    stated_recall = float(message.split("finds ")[1].split(" %")[0]) / 100
    assert effort > 1
    assert stated_recall >= 0.95
    # 256 of the 300 queries were the sample.
    assert recall_of(indices, exact_indices) == pytest.approx(stated_recall, abs=0.03)

    # A walk as long as that is not worthwhile, so `auto` searches exactly.
    monkeypatch.setattr(neighbors, "EXACT_COST", 0)
    monkeypatch.setattr(neighbors, "WORTHWHILE", 3000 // (effort // 2))
    _, auto_indices = find_neighbors(queries, candidates, 4, "auto")
    np.testing.assert_array_equal(auto_indices, exact_indices)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("k", [1, 4, 40])
def test_graphs_of_shards_are_searched_one_after_the_other(monkeypatch, caplog, k):
    """Rows of 25 clusters, with at most 30 candidates in a graph, some fewer than k."""
    monkeypatch.setattr(neighbors, "SHARD", 30)
    rng = np.random.default_rng(k)
    centers = rng.normal(size=(25, 8))
    queries = centers + 0.1 * rng.normal(size=(25, 8))
    candidates = np.repeat(centers, 4, axis=0) + 0.1 * rng.normal(size=(100, 8))
    exact_cosines, exact_indices = find_neighbors(queries, candidates, k)
    cosines, indices = find_neighbors(queries, candidates, k, "hnsw")
    assert recall_of(indices, exact_indices) >= 0.9
    assert np.isclose(cosines[:, 0], exact_cosines[:, 0], atol=1e-6).mean() >= 0.9
    assert all(len(set(row)) == k for row in indices.tolist())
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert "100 x 8 by HNSW" in caplog.text


@given(count=st.integers(1, 500), size=st.integers(1, 60))
def test_shards_hold_all_rows(count, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "SHARD", size)
        slices = neighbors.shards(count)
    rows = [row for shard in slices for row in range(shard.start, shard.stop)]
    assert rows == list(range(count))
    lengths = [shard.stop - shard.start for shard in slices]
    assert min(lengths) >= 1
    assert max(lengths) <= size


def test_candidates_in_8_bits_have_exact_cosines():
    """Two candidates that 8 bits cannot tell apart come in the right order."""
    queries = np.array([[1.0, 0, 0]])
    candidates = np.array([[1, 1e-2, 0], [1, 1e-3, 0], [-1, 0, 1], [0, 1, 0], [0, -1, -1]])
    cosines, indices = find_neighbors(queries, candidates, 2, "hnsw")
    assert indices.tolist() == [[1, 0]]
    np.testing.assert_allclose(cosines, [[1 / np.hypot(1, 1e-3), 1 / np.hypot(1, 1e-2)]], atol=1e-7)


class InterruptedWalk:
    """A graph that is not connected: the walk of the first query ends after one candidate."""

    def search(self, queries, k):
        numbers = np.tile(np.arange(k), (len(queries), 1))
        numbers[0, 1:] = -1
        return None, numbers


def test_a_query_whose_walk_ends_early_is_searched_exactly():
    rng = np.random.default_rng(3)
    queries = UnitRows("queries", rng.normal(size=(2, 8)))
    candidates = UnitRows("candidates", rng.normal(size=(30, 8)))
    graph = neighbors.NeighborGraph(candidates)
    graph._graph = InterruptedWalk()
    cosines, numbers = graph.nearest(queries[:], 3)
    exact_cosines, exact_numbers = exact_neighbors(queries, candidates, 3)
    np.testing.assert_array_equal(numbers[0], exact_numbers[0])
    np.testing.assert_allclose(cosines[0], exact_cosines[0], atol=1e-6)
    # The other query gets the best of the first six candidates.
    assert set(numbers[1].tolist()) <= set(range(6))


SPARSE = scipy.sparse.csr_matrix(QUERIES)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (
            target_ranks,
            (QUERIES * np.nan, CANDIDATES, [0, 1]),
            "queries: found a vector that is not finite in row 0",
        ),
        (
            target_ranks,
            (QUERIES, CANDIDATES[:0], [0, 1]),
            r"candidates: found shape \(0, 2\), .* at least one row",
        ),
        (target_ranks, (SPARSE, CANDIDATES, [0, 1]), "found 2 sparse and 2 dense dimensions"),
        (
            target_ranks,
            (QUERIES, CANDIDATES, [0, 2]),
            "targets: found .* expected 2 row numbers below 2",
        ),
        (
            target_ranks,
            (QUERIES, CANDIDATES, [0, 1], "margin"),
            "scoring, k: found 'margin', 4, expected one of",
        ),
        (find_neighbors, (QUERIES, CANDIDATES, 0), "search, k: found 'exact', 0, .* at least 1"),
        (
            find_neighbors,
            (SPARSE, SPARSE, 1, "hnsw"),
            "found 'hnsw' for sparse rows, expected exact",
        ),
    ],
)
def test_bad_arguments(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
