"""Scored pairs: by hand on 3 x 3, against float64 loops, and competitive matching against plain greed."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.documents import margins, neighbours
from modeling_tmde.documents.margins import SCORINGS, ScoredPairs, matched_pairs, scored_pairs
from modeling_tmde.documents.nearest import nearest_neighbours

# cosines (products of unit rows):
#              y0 (1, 0, 0)  y1 (0, 1, 0)  y2 (0.6, 0.8, 0)
#  x0 (1,0,0)      1             0              0.6
#  x1 (.8,.6,0)    0.8           0.6            0.96
#  x2 (0,0,1)      0             0              0
FIRST = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1.0]])
SECOND = np.array([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0]])
# k 2: a(x0) 0.8, a(x1) 0.88, a(x2) 0; a(y0) 0.9, a(y1) 0.3, a(y2) 0.78
BY_HAND = {
    "cosine": {(0, 0): 1, (0, 2): 0.6, (1, 0): 0.8, (1, 1): 0.6, (1, 2): 0.96, (0, 1): 0, (2, 0): 0, (2, 1): 0},
    "distance": {
        (0, 0): 1 - 0.85,
        (0, 1): 0 - 0.55,
        (0, 2): 0.6 - 0.79,
        (1, 0): 0.8 - 0.89,
        (1, 1): 0.6 - 0.59,
        (1, 2): 0.96 - 0.83,
        (2, 0): 0 - 0.45,
        (2, 1): 0 - 0.15,
    },
    "ratio": {
        (0, 0): 1 / 0.85,
        (0, 1): 0 / 0.55,
        (0, 2): 0.6 / 0.79,
        (1, 0): 0.8 / 0.89,
        (1, 1): 0.6 / 0.59,
        (1, 2): 0.96 / 0.83,
        (2, 0): 0,
        (2, 1): 0,
    },
}


def as_dict(pairs):
    return {(i, j): s for i, j, s in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.scores, strict=True)}


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
@pytest.mark.parametrize("scoring", SCORINGS)
def test_by_hand(kind, scoring):
    """Listed with k 2: x0: y0, y2; x1: y2, y0; x2: y0, y1 (equal cosines, in order); y1: x1, x0; the rest again."""
    pairs = scored_pairs(kind(FIRST), kind(SECOND), scoring, k=2)
    assert pairs.first.dtype == pairs.second.dtype == np.int64 and pairs.scores.dtype == np.float32
    found = as_dict(pairs)
    assert len(found) == len(pairs), "a pair is listed twice"
    assert found == pytest.approx(BY_HAND[scoring], abs=1e-6)
    lengths = as_dict(scored_pairs(kind(FIRST * [[7], [0.1], [3]]), kind(SECOND * 1e-3), scoring, k=2))
    assert lengths == pytest.approx(BY_HAND[scoring], abs=1e-6)


def test_candidates_and_k_are_apart():
    wide = as_dict(scored_pairs(FIRST, SECOND, "ratio", k=2, candidates=3))
    assert len(wide) == 9 and wide[2, 2] == 0
    assert {pair: wide[pair] for pair in BY_HAND["ratio"]} == pytest.approx(BY_HAND["ratio"], abs=1e-6)
    narrow = as_dict(scored_pairs(FIRST, SECOND, "ratio", k=2, candidates=1))
    # x0: y0, x1: y2, x2: y0; y0: x0, y1: x1, y2: x1
    assert narrow == pytest.approx({p: BY_HAND["ratio"][p] for p in [(0, 0), (1, 2), (2, 0), (1, 1)]}, abs=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_pairs_without_a_ratio_come_last(kind):
    """Neighbours at a right angle or more: 0.28 over a floor would be the best ratio of all, -0.6 / -0.6 the next."""
    # cosines: x0-y0 1, x0-y1 -0.8, x1-y0 -0.8, x1-y1 0.28; k 2: a(x0) = a(y0) = 0.1, a(x1) = a(y1) = -0.26
    first, second = kind(np.array([[1, 0], [-0.8, 0.6]])), kind(np.array([[1, 0], [-0.8, -0.6]]))
    said = []
    pairs = scored_pairs(first, second, "ratio", k=2, say=said.append).best_first()
    assert list(zip(pairs.first, pairs.second, strict=True)) == [(0, 0), (1, 1), (0, 1), (1, 0)]
    assert pairs.scores == pytest.approx([1 / 0.1, -2.72e6, -3.8e6, -3.8e6], rel=1e-6)
    assert said[-1].startswith("3 of 4 candidate pairs of first and second have no ratio: the mean")
    pairs = scored_pairs(first[:1], second[1:], "ratio", k=1)
    assert pairs.scores[0] == pytest.approx(-3.8e6)
    for scoring in ("distance", "cosine"):
        scored_pairs(first, second, scoring, k=2, say=said.append)
    scored_pairs(kind(FIRST), kind(SECOND), "ratio", k=2, say=said.append)
    assert sum("no ratio" in line for line in said) == 1


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 4))
def test_no_ratio_is_below_any(seed, k):
    """Whatever the vectors: pairs with m(x, y) above 1e-6 come first, the others by cosine."""
    first, second = np.random.default_rng(seed).normal(size=(2, 6, 2))
    pairs = scored_pairs(first, second, "ratio", k, candidates=6).best_first()
    assert len(pairs) == 36
    first, second = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second))
    cosines = first @ second.T
    of_first, of_second = (-np.sort(-each, axis=1)[:, :k].mean(axis=1) for each in (cosines, cosines.T))
    means = ((of_first[:, None] + of_second) / 2)[pairs.first, pairs.second]
    unknown = np.flatnonzero(means <= 1e-6)
    assert unknown.tolist() == list(range(36 - len(unknown), 36))
    assert (np.diff(cosines[pairs.first, pairs.second][unknown]) <= 1e-6).all()


def plain_pairs(first, second, scoring, k, listed):
    """By loops over Python floats."""

    def unit(rows):
        return [[x / (sum(y * y for y in row) ** 0.5 or 1.0) for x in row] for row in rows.tolist()]

    first, second = unit(first), unit(second)
    cosines = {
        (i, j): sum(p * q for p, q in zip(x, y, strict=True))
        for i, x in enumerate(first)
        for j, y in enumerate(second)
    }
    nearest_of_first = [sorted(range(len(second)), key=lambda j: (-cosines[i, j], j)) for i in range(len(first))]
    nearest_of_second = [sorted(range(len(first)), key=lambda i: (-cosines[i, j], i)) for j in range(len(second))]
    a = [sum(cosines[i, j] for j in order[:k]) / len(order[:k]) for i, order in enumerate(nearest_of_first)]
    b = [sum(cosines[i, j] for i in order[:k]) / len(order[:k]) for j, order in enumerate(nearest_of_second)]
    pairs = {(i, j) for i, order in enumerate(nearest_of_first) for j in order[:listed]}
    pairs |= {(i, j) for j, order in enumerate(nearest_of_second) for i in order[:listed]}
    scores = {}
    for i, j in pairs:
        mean = (a[i] + b[j]) / 2
        ratio = cosines[i, j] / mean if mean > 1e-6 else (cosines[i, j] - 3) / 1e-6
        ways = {"cosine": cosines[i, j], "distance": cosines[i, j] - mean, "ratio": ratio}
        scores[i, j] = ways[scoring]
    return scores


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    k=st.integers(1, 6),
    listed=st.integers(1, 6),
    scoring=st.sampled_from(SCORINGS),
    sparse=st.booleans(),
)
def test_equals_float64_loops(seed, sizes, k, listed, scoring, sparse):
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=6) * 1.5  # means away from 0, where a ratio is well-conditioned
    first, second = (rng.normal(size=(size, 6)) + centre for size in sizes)
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    found = as_dict(scored_pairs(kind(first), kind(second), scoring, k, listed))
    expected = plain_pairs(first, second, scoring, k, listed)
    assert found.keys() == expected.keys()
    for pair, score in expected.items():
        assert found[pair] == pytest.approx(score, abs=1e-4, rel=1e-4)


def test_translations_come_first():
    """80 planted pairs among 150 rows a side: every one has a ratio above 1, and all others are below theirs."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(150, 64)), rng.normal(size=(150, 64))
    order = rng.permutation(150)[:80]
    second[order] = first[:80] + 0.5 * rng.normal(size=(80, 64))
    best = scored_pairs(first, second).best_first()
    planted = set(zip(range(80), order.tolist(), strict=True))
    assert set(zip(best.first[:80].tolist(), best.second[:80].tolist(), strict=True)) == planted


def test_both_directions_are_searched_as_asked(monkeypatch):
    calls = []

    def find(queries, candidates, k, **options):
        calls.append((queries.shape, candidates.shape, k, options))
        return nearest_neighbours(queries, candidates, min(k, candidates.shape[0]))

    monkeypatch.setattr(margins, "find_neighbours", find)
    said = []
    scored_pairs(FIRST, SECOND[:2], k=2, candidates=4, search="hnsw", say=said.append)
    options = {"search": "hnsw", "say": said.append, "show_progress_bar": False}
    assert calls == [
        ((3, 3), (2, 3), 4, options | {"names": ("first", "second")}),
        ((2, 3), (3, 3), 4, options | {"names": ("second", "first")}),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FIRST, SECOND, "absolut"), "scoring: found 'absolut', expected one of cosine, ratio, distance"),
        ((FIRST, SECOND, "ratio", 0), "k: found 0, expected at least 1"),
        ((FIRST, SECOND, "ratio", 2, 0), "candidates: found 0"),
        ((FIRST, SECOND[:0]), r"second: found shape \(0, 3\)"),
        ((FIRST, SECOND[:, :2]), "Found 3 dimensions in first and 2 in second"),
        ((FIRST, SECOND * [1, np.nan, 1]), "second: found a vector that is not finite in row 0"),
        ((FIRST, scipy.sparse.csr_matrix(SECOND)), "one of first and second sparse"),
        ((FIRST, SECOND, "ratio", 4, None, "flat"), "search: found 'flat', expected one of " + neighbours.SEARCHES[0]),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        scored_pairs(*arguments)


def test_best_first_and_choice():
    pairs = ScoredPairs(np.array([0, 1, 2, 0]), np.array([3, 1, 1, 0]), np.array([0.5, 0.9, 0.5, 0.5], np.float32))
    ordered = pairs.best_first()
    assert ordered.first.tolist() == [1, 0, 0, 2] and ordered.second.tolist() == [1, 0, 3, 1]
    assert len(ordered[:2]) == 2 and ordered[:2].first.tolist() == [1, 0]


def test_matching_by_hand():
    """(1, 1) 0.9 takes both its rows, so that (1, 0) 0.8 and (0, 1) 0.7 fall, and (0, 0) 0.1 is left."""
    pairs = ScoredPairs(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.1, 0.7, 0.8, 0.9], np.float32))
    matched = matched_pairs(pairs)
    assert list(zip(matched.first.tolist(), matched.second.tolist(), strict=True)) == [(1, 1), (0, 0)]
    assert len(matched_pairs(pairs[:0])) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 5)), unique_by=lambda pair: pair[:2]))
def test_matching_takes_the_best_that_is_left(rows):
    """Plain greed: again and again the best of all pairs, without those that share a row with it."""
    columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 3
    matched = matched_pairs(ScoredPairs(columns[0], columns[1], columns[2].astype(np.float32)))
    left, expected = list(rows), []
    while left:
        best = min(left, key=lambda row: (-row[2], row[0], row[1]))
        expected.append(best)
        left = [row for row in left if row[0] != best[0] and row[1] != best[1]]
    assert list(zip(matched.first, matched.second, matched.scores, strict=True)) == expected
