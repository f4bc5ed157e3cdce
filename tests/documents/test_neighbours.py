"""Exact search and ranks: by hand, against float64 loops, in blocks, with ties; approximate search beside exact."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from modeling_tmde.documents import neighbours
from modeling_tmde.documents.neighbours import SCORINGS, SEARCHES, find_neighbours, row_cosines, target_ranks

# cosines:          y0     h
#   x0 (1, 0)       0.6    0.8     the right one is y0, but h is a hub: near to both queries
#   x1 (0, 1)      -0.8    0.6     the right one is h
QUERIES = np.array([[1, 0], [0, 1.0]])
CANDIDATES = np.array([[0.6, -0.8], [0.8, 0.6]])


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
@pytest.mark.parametrize(
    ("scoring", "k", "expected"),
    [
        ("cosine", 4, [2, 1]),
        ("absolute", 4, [2, 1]),
        # k is lowered to 2: a(x) = 0.7, -0.1; a(y0) = (0.6 - 0.8) / 2 = -0.1, a(h) = (0.8 + 0.6) / 2 = 0.7
        ("distance", 4, [1, 1]),  # x0: y0 0.6 - 0.3 = 0.3, h 0.8 - 0.7 = 0.1; x1: h 0.6 - 0.3, y0 -0.8 + 0.1
        ("ratio", 4, [1, 1]),  # x0: y0 0.6 / 0.3 = 2, h 0.8 / 0.7 = 1.14; x1: h 0.6 / 0.3 = 2, y0 below 0
        # a(x) = 0.8, 0.6; a(y0) = 0.6, a(h) = 0.8
        ("distance", 1, [2, 1]),  # x0: y0 0.6 - 0.7 = -0.1, h 0.8 - 0.8 = 0
        ("ratio", 1, [2, 1]),  # x0: y0 0.6 / 0.7 = 0.86, h 0.8 / 0.8 = 1
    ],
)
def test_ranks_by_hand(kind, scoring, k, expected):
    ranks = target_ranks(kind(QUERIES), kind(CANDIDATES), [0, 1], scoring, k)
    assert ranks.dtype == np.int64
    assert ranks.tolist() == expected
    lengths = target_ranks(kind(QUERIES * [[7], [0.1]]), kind(CANDIDATES * [[3], [1e-4]]), [0, 1], scoring, k)
    assert lengths.tolist() == expected


def test_ratio_and_distance_differ():
    # k 1; cosines:      y0            y1
    #   x0 (1, 0)        0.6 (right)   0.28       a(x0) 0.6
    #   x1 (0.8, 0.6)    0.96          -0.352     a(x1) 0.96; a(y0) 0.96, a(y1) 0.28
    # x0 distance: y0 0.6 - 0.78 = -0.18, y1 0.28 - 0.44 = -0.16: y1 first
    # x0 ratio:    y0 0.6 / 0.78 = 0.77,  y1 0.28 / 0.44 = 0.64: y0 first
    queries, candidates = np.array([[1, 0], [0.8, 0.6]]), np.array([[0.6, 0.8], [0.28, -0.96]])
    assert target_ranks(queries, candidates, [0, 0], "distance", k=1).tolist() == [2, 1]
    assert target_ranks(queries, candidates, [0, 0], "ratio", k=1).tolist() == [1, 1]


def unit(vectors):
    return [[x / (sum(y * y for y in row) ** 0.5 or 1.0) for x in row] for row in vectors.tolist()]


def plain_ranks(queries, candidates, targets, scoring, k):
    """Ranks by loops over Python floats, all scores, and all denominators; equal scores count as before."""
    cosines = [[sum(p * q for p, q in zip(x, y, strict=True)) for y in unit(candidates)] for x in unit(queries)]

    def mean_of_highest(row):
        highest = sorted(row, reverse=True)[:k]
        return sum(highest) / len(highest)

    of_queries = [mean_of_highest(row) for row in cosines]
    of_candidates = [mean_of_highest(column) for column in zip(*cosines, strict=True)]
    ranks, margins, gaps = [], [], []
    for i, row in enumerate(cosines):
        scores = []
        for j, cosine in enumerate(row):
            margins.append((of_queries[i] + of_candidates[j]) / 2)
            scores.append(
                {
                    "cosine": cosine,
                    "absolute": cosine,
                    "distance": cosine - margins[-1],
                    "ratio": cosine / max(margins[-1], 1e-6),
                }[scoring]
            )
        right = scores[targets[i]]
        others = [score - right for j, score in enumerate(scores) if j != targets[i]]
        gaps += [abs(gap) / max(abs(right), 1) for gap in others]
        ranks.append(1 + sum(gap >= -1e-9 * max(abs(right), 1) for gap in others))
    return ranks, np.array(margins), np.array(gaps)


@settings(max_examples=300, deadline=None)
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
    if whole_numbers:  # ties and rows of zeros
        queries, candidates = (rng.integers(0, 3, size=(rows, width)).astype(float) for rows in (n, m))
    else:
        queries, candidates = (rng.normal(size=(rows, width)) + rng.integers(0, 2) for rows in (n, m))
    targets = rng.integers(0, m, size=n)
    expected, margins, gaps = plain_ranks(queries, candidates, targets, scoring, k)
    assume(not ((gaps > 1e-9) & (gaps < 1e-5)).any())  # float32 cannot tell
    assume(scoring != "ratio" or not ((margins > 1e-9) & (margins < 0.05)).any())
    if sparse:
        queries, candidates = scipy.sparse.csr_matrix(queries), scipy.sparse.csr_matrix(candidates)
    assert target_ranks(queries, candidates, targets, scoring, k, block).tolist() == expected
    single = queries.astype(np.float32), candidates.astype(np.float32)
    assert target_ranks(*single, targets, scoring, k).tolist() == expected


@pytest.mark.parametrize("scoring", SCORINGS)
def test_equals_float64_at_real_size(scoring):
    rng = np.random.default_rng(0)
    candidates = rng.normal(size=(3000, 96)) + 1
    queries = candidates[:300] + 5 * rng.normal(size=(300, 96))
    cosines = (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (
        candidates / np.linalg.norm(candidates, axis=1)[:, None]
    ).T
    near = [np.sort(side, axis=1)[:, -4:].mean(axis=1) for side in (cosines, cosines.T)]
    margin = (near[0][:, None] + near[1]) / 2
    scores = {"ratio": cosines / margin, "distance": cosines - margin}.get(scoring, cosines)
    expected = (scores >= scores[np.arange(300), np.arange(300), None] - 2e-6).sum(axis=1)
    loose = (scores > scores[np.arange(300), np.arange(300), None] + 2e-6).sum(axis=1) + 1
    ranks = target_ranks(queries.astype(np.float32), candidates.astype(np.float32), np.arange(300), scoring, block=701)
    assert (loose <= ranks).all() and (ranks <= expected).all()
    assert (loose == expected).mean() > 0.95 and 5 < np.median(ranks) < 1000  # the bounds say something


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("block", [7, 64, 4096])
def test_equal_vectors_count_as_before(scoring, block):
    rng = np.random.default_rng(1)
    candidates = (rng.normal(size=(150, 300)) + 0.2).astype(np.float32)
    queries = candidates[:30] + rng.normal(size=(30, 300)).astype(np.float32)
    assert target_ranks(queries, candidates, np.arange(30), scoring, block=block).tolist() == [1] * 30
    # the copies are far from their originals, so that they fall into other blocks, and one is longer
    copies = np.vstack([candidates, candidates[:20], 3 * candidates[:10]])
    assert (
        target_ranks(queries, copies, np.arange(30), scoring, block=block).tolist() == [3] * 10 + [2] * 10 + [1] * 10
    )


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        ("cosine", [1, 4, 4]),  # x1 and x2 are 0 to all four, zero vectors or at a right angle
        ("absolute", [1, 4, 4]),
        ("ratio", [1, 4, 4]),  # 0 / m is 0 everywhere, even where m is 0
        ("distance", [1, 3, 3]),  # a(x) = 1, 0, 0 and a(y) = 1, 0, 0, 0: y0 at -0.5 falls behind the others at 0
    ],
)
def test_zero_vectors_lose(kind, scoring, expected):
    queries = kind(np.array([[1.0, 0, 0], [0, 0, 0], [0, 1, 0]]))
    candidates = kind(np.array([[1.0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]))
    with np.errstate(all="raise"):
        assert target_ranks(queries, candidates, [0, 1, 2], scoring, k=1).tolist() == expected
        everything = target_ranks(kind(np.zeros((2, 3))), kind(np.zeros((5, 3))), [0, 4], scoring)
    assert everything.tolist() == [5, 5]


def test_memory_does_not_grow_with_candidates():
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(500, 8)).astype(np.float32)
    candidates = rng.normal(size=(20_000, 8)).astype(np.float32)  # 40 MB of cosines
    for scoring in SCORINGS:
        tracemalloc.start()
        target_ranks(queries, candidates, np.arange(500), scoring, block=250)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 15e6, scoring


# ---- Nearest neighbours


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("block", [1, 3, 10, 4096])
@pytest.mark.parametrize("k", [1, 4, 40])
def test_neighbours_equal_a_full_sort(monkeypatch, sparse, block, k):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    rng = np.random.default_rng(k)
    queries, candidates = rng.normal(size=(13, 6)), rng.normal(size=(40, 6))
    original = candidates.copy()
    cosines = np.array(unit(queries)) @ np.array(unit(candidates)).T
    expected = np.argsort(-cosines, axis=1)[:, :k]
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    similarities, indices = find_neighbours(kind(queries), kind(candidates), k)
    assert (similarities.dtype, indices.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(similarities, np.take_along_axis(cosines, expected, axis=1), atol=1e-6)
    np.testing.assert_array_equal(candidates, original)


@pytest.mark.parametrize("block", [1, 2, 4096])
def test_neighbours_that_tie_are_in_order(monkeypatch, block):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    candidates = scipy.sparse.csr_matrix([[0, 1.0], [1, 0], [0, 0], [1, 0], [2, 0]])
    similarities, indices = find_neighbours(scipy.sparse.csr_matrix([[1.0, 0], [0, 0]]), candidates, 4)
    assert indices.tolist() == [[1, 3, 4, 0], [0, 1, 2, 3]]
    assert similarities.tolist() == [[1, 1, 1, 0], [0, 0, 0, 0]]
    many = scipy.sparse.csr_matrix(np.arange(300)[:, None] % 3 == 0, dtype=float)
    assert find_neighbours(many[:1], many, 100)[1].tolist() == [list(range(0, 300, 3))]


def test_cosines_are_at_most_1():
    vectors = np.random.default_rng(0).normal(size=(200, 33))
    for kind in (np.asarray, scipy.sparse.csr_matrix):
        similarities, indices = find_neighbours(kind(vectors), kind(vectors), 1)
        assert indices[:, 0].tolist() == list(range(200))
        assert (similarities <= 1).all() and (similarities > 1 - 1e-6).all()


def test_row_cosines():
    first, second = np.array([[1, 0], [3, 4], [0, 0.0]]), np.array([[-2, 0], [4, 3], [1, 1.0]])
    for kind in (np.asarray, scipy.sparse.csr_matrix):
        np.testing.assert_allclose(row_cosines(kind(first), kind(second)), [-1, 0.96, 0], atol=1e-7)
    with pytest.raises(ValueError, match="3 rows in first and 2 in second"):
        row_cosines(first, second[:2])


# ---- Bad input


def changed(value):
    vectors = QUERIES.copy()
    vectors[1, 0] = value
    return vectors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((changed(np.nan), CANDIDATES, [0, 1]), "queries: found a vector that is not finite in row 1, and in 1 of 2"),
        ((QUERIES, changed(-np.inf), [0, 1]), "candidates: found a vector that is not finite in row 1"),
        ((scipy.sparse.csr_matrix(changed(np.inf)),) * 2 + ([0, 1],), "queries: found a vector that is not finite"),
        ((QUERIES, np.ones((2, 3)), [0, 1]), "Found 2 dimensions in queries and 3 in candidates"),
        ((QUERIES[:0], CANDIDATES, []), r"queries: found shape \(0, 2\), expected .* at least one row"),
        ((QUERIES, CANDIDATES[:0], [0, 1]), r"candidates: found shape \(0, 2\)"),
        ((QUERIES[0], CANDIDATES, [0, 1]), r"queries: found shape \(2,\)"),
        ((scipy.sparse.csr_matrix(QUERIES), CANDIDATES, [0, 1]), "one of queries and candidates sparse"),
        ((QUERIES, CANDIDATES, [0, 2]), "targets: found .* 0 to 2, expected .* from 0 to 1"),
        ((QUERIES, CANDIDATES, [-1, 0]), "targets: found"),
        ((QUERIES, CANDIDATES, [0]), r"targets: found \(1,\)"),
        ((QUERIES, CANDIDATES, [0, 1], "margin"), "scoring: found 'margin', expected one of cosine, ratio"),
        ((QUERIES, CANDIDATES, [0, 1], "ratio", 0), "k: found 0, expected at least 1"),
    ],
)
def test_bad_input_of_ranks(arguments, message):
    with pytest.raises(ValueError, match=message):
        target_ranks(*arguments)


# ---- Approximate search


def vectors(rows, dimensions=16, topics=20, seed=0):
    """Rows around topics, of many lengths."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(topics, dimensions)) * 2
    made = centres[rng.integers(0, topics, rows)] + rng.normal(size=(rows, dimensions))
    return made * rng.uniform(0.1, 9, size=(rows, 1))


def share_found(found, exact):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)])


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_on_a_small_set(search):
    queries, candidates = vectors(700, seed=1), vectors(900, seed=2)
    exact, numbers = find_neighbours(queries, candidates, 4)
    cosines, indices = find_neighbours(queries, candidates, 4, search)
    assert cosines.dtype == np.float32 and indices.dtype == np.int64 and cosines.shape == indices.shape == (700, 4)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert share_found(indices, numbers) >= (0.9 if search in ("ivf", "hnsw") else 1)
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, candidates)]
    true = np.einsum("id,ijd->ij", units[0], units[1][indices])
    np.testing.assert_allclose(cosines, true, atol=1e-6)  # of what is found, the cosine is right
    if search in ("exact", "auto"):
        np.testing.assert_array_equal(cosines, exact)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 400), st.integers(1, 6))
def test_all_lists_are_exact(seed, rows, others, k):
    """With nprobe = nlist an inverted file looks at everything."""
    queries, candidates = vectors(rows, seed=seed), vectors(others, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "FIRST_EFFORT", neighbours.LAST_EFFORT)
        said = []
        cosines, indices = find_neighbours(queries, candidates, k, "ivf", said.append)
    exact, numbers = find_neighbours(queries, candidates, min(k, others))
    np.testing.assert_allclose(cosines, exact, atol=1e-6)
    apart = np.diff(exact, axis=1, append=-2) < -1e-5  # equal cosines are in any order
    assert (indices == numbers)[apart & np.roll(apart, 1, axis=1)].all()
    lists = max(1, min(int(4 * others**0.5), others // 40))
    assert f"IVF (nlist = {lists}, nprobe = {lists})" in said[0] and "finds 100.0%" in said[0]


@pytest.mark.parametrize("search", ["ivf", "hnsw"])
def test_the_effort_grows_until_enough_is_found(search, monkeypatch):
    """Rows without any structure: the first effort finds less than 95 %, the one taken finds as much as it says."""
    monkeypatch.setattr(neighbours, "FIRST_EFFORT", 1)
    rng = np.random.default_rng(0)
    queries, candidates = rng.normal(size=(300, 24)), rng.normal(size=(3000, 24))
    numbers = find_neighbours(queries, candidates, 4)[1]
    said = []
    indices = find_neighbours(queries, candidates, 4, search, said.append, names=("news.de", "news.en"))[1]
    assert len(said) == 1 and said[0].startswith("news.de -> news.en, 300 x 3,000 x 24: searched by ")
    effort = int(said[0].split("nprobe = " if search == "ivf" else "efSearch = ")[1].split(")")[0].replace(",", ""))
    stated = float(said[0].split("finds ")[1].split("%")[0]) / 100
    assert effort > 1 and stated >= 0.95
    assert share_found(indices, numbers) == pytest.approx(stated, abs=0.03)  # 256 of the 300 were the sample
    monkeypatch.setattr(neighbours, "LAST_EFFORT", effort // 2)
    monkeypatch.setattr(neighbours, "FIRST_EFFORT", effort // 2)
    find_neighbours(queries, candidates, 4, search, said.append)
    assert float(said[1].split("finds ")[1].split("%")[0]) < 95, "half of the effort would have done"


def test_auto_takes_an_index_beyond_the_cost(monkeypatch):
    queries, candidates = vectors(200, seed=1), vectors(4000, seed=2)
    said = []
    monkeypatch.setattr(neighbours, "EXACT_COST", 200 * 4000 * 16)
    find_neighbours(queries, candidates, 4, "auto", said.append)
    assert said == ["queries -> candidates, 200 x 4,000 x 16: exact search"]
    monkeypatch.setattr(neighbours, "EXACT_COST", 200 * 4000 * 16 - 1)
    monkeypatch.setattr(neighbours, "WORTHWHILE", 10)
    said.clear()
    find_neighbours(queries, candidates, 4, "auto", said.append)
    assert len(said) == 1 and "searched by HNSW (M = 32, efConstruction = 40, efSearch = " in said[0]
    assert "of the exact neighbors of 200 of the rows" in said[0]


def test_auto_goes_back_where_an_index_does_not_pay(monkeypatch):
    rng = np.random.default_rng(0)
    queries, candidates = rng.normal(size=(300, 64)), rng.normal(size=(3000, 64))
    monkeypatch.setattr(neighbours, "EXACT_COST", 1)
    said = []
    cosines, indices = find_neighbours(queries, candidates, 4, "auto", said.append)
    assert "not searched by HNSW" in said[0] and said[1:] == ["queries -> candidates, 300 x 3,000 x 64: exact search"]
    np.testing.assert_array_equal(indices, find_neighbours(queries, candidates, 4)[1])


def test_rows_that_find_too_few_are_searched_again(monkeypatch):
    """One list of two is looked at, of 3 and 77 rows: k = 5 needs both."""
    candidates = np.concatenate([np.tile([0, 1.0], (77, 1)), np.tile([1.0, 0], (3, 1))])
    candidates[:, 1] += np.linspace(0, 0.01, 80)
    queries = np.tile([1.0, 0], (6, 1))
    monkeypatch.setattr(neighbours, "LAST_EFFORT", 1)
    found = find_neighbours(queries, candidates, 5, "ivf")
    exact = find_neighbours(queries, candidates, 5)
    np.testing.assert_array_equal(found[1], exact[1])
    np.testing.assert_allclose(found[0], exact[0], atol=1e-6)


@pytest.mark.parametrize("search", ["exact", "auto"])
def test_sparse_rows_are_searched_exactly(search, monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_COST", 1)
    queries, candidates = (scipy.sparse.random(n, 30, 0.3, format="csr", random_state=n) for n in (40, 50))
    said = []
    found = find_neighbours(queries, candidates, 4, search, said.append)
    for mine, theirs in zip(found, find_neighbours(queries, candidates, 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert said == ["queries -> candidates, 40 x 50 x 30: exact search"]


def test_more_neighbours_than_candidates():
    for search in SEARCHES:
        cosines, indices = find_neighbours(vectors(5), vectors(3), 10, search)
        assert cosines.shape == (5, 3) and [sorted(row) for row in indices.tolist()] == [[0, 1, 2]] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((vectors(5), vectors(5), 4, "flat"), "search: found 'flat', expected one of auto, exact, ivf, hnsw"),
        ((vectors(5), vectors(5), 0), "k: found 0, expected at least 1"),
        ((vectors(5), vectors(5) * np.nan, 1, "hnsw"), "candidates: found a vector that is not finite in row 0"),
        ((vectors(5), vectors(0), 1, "ivf"), r"candidates: found shape \(0, 16\)"),
        ((scipy.sparse.eye(3, format="csr"),) * 2 + (1, "ivf"), "found 'ivf' for sparse rows, expected exact or auto"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_neighbours(*arguments)
