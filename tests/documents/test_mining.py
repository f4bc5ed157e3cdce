"""Bitext mining: margins by hand and against loops, retrieval, texts, and gold lists."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.documents.plain import plain_scores
from tmde.documents.mining import (
    ScoredPairs,
    best_threshold,
    mine_bitext,
    read_gold_pairs,
    retrieved_pairs,
    scored_pairs,
)
from tmde.documents.neighbors import SCORINGS
from tmde.documents.quality import pair_quality

# cosines (products of unit rows):
#              y0 (1, 0, 0)  y1 (0, 1, 0)  y2 (0.6, 0.8, 0)
#  x0 (1,0,0)      1             0              0.6
#  x1 (.8,.6,0)    0.8           0.6            0.96
#  x2 (0,0,1)      0             0              0
FIRST = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1.0]])
SECOND = np.array([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0]])
# k 2: a(x0) 0.8, a(x1) 0.88, a(x2) 0; a(y0) 0.9, a(y1) 0.3, a(y2) 0.78
# The cosine and m(x, y) of each pair of a vector and one of its two nearest.
BY_HAND = {
    (0, 0): (1, 0.85),
    (0, 1): (0, 0.55),
    (0, 2): (0.6, 0.79),
    (1, 0): (0.8, 0.89),
    (1, 1): (0.6, 0.59),
    (1, 2): (0.96, 0.83),
    (2, 0): (0, 0.45),
    (2, 1): (0, 0.15),
}


def as_dict(pairs):
    return dict(zip(pairs.rows(), pairs.scores, strict=True))


def score_by_hand(scoring, cosine, mean):
    if scoring == "cosine":
        return cosine
    if scoring == "distance":
        return cosine - mean
    return cosine / mean


# Listed with k 2: x0: y0, y2; x1: y2, y0; x2: y0, y1 (equal cosines, in order); y1: x1, x0; the
# rest again.
@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
@pytest.mark.parametrize("scoring", SCORINGS)
def test_by_hand(kind, scoring):
    expected = {}
    for pair, (cosine, mean) in BY_HAND.items():
        expected[pair] = score_by_hand(scoring, cosine, mean)
    pairs = scored_pairs(kind(FIRST), kind(SECOND), scoring, k=2)
    assert pairs.first.dtype == np.int64
    assert pairs.second.dtype == np.int64
    assert pairs.scores.dtype == np.float32
    assert len(pairs) == len(expected)
    assert as_dict(pairs) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_lengths_of_vectors_do_not_matter(scoring):
    expected = as_dict(scored_pairs(FIRST, SECOND, scoring, k=2))
    scaled = scored_pairs(FIRST * [[7], [0.1], [3]], SECOND * 1e-3, scoring, k=2)
    assert as_dict(scaled) == pytest.approx(expected, abs=1e-6)


# Cosines: x0-y0 1, x0-y1 -0.8, x1-y0 -0.8, x1-y1 0.28; k 2: a(x0) = a(y0) = 0.1,
# a(x1) = a(y1) = -0.26.
RIGHT_ANGLES = np.array([[1, 0], [-0.8, 0.6]]), np.array([[1, 0], [-0.8, -0.6]])


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_pairs_without_a_ratio_come_last(kind, caplog):
    """Neighbors at a right angle or more.

    0.28 over a floor would be the best ratio of all, -0.6 / -0.6 the next.
    """
    first, second = RIGHT_ANGLES
    pairs = scored_pairs(kind(first), kind(second), "ratio", k=2).best_first()
    assert pairs.rows() == [(0, 0), (1, 1), (0, 1), (1, 0)]
    assert pairs.scores == pytest.approx([1 / 0.1, -2.72e6, -3.8e6, -3.8e6], rel=1e-6)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("3 of 4 pairs have no ratio, because")


@pytest.mark.parametrize(
    ("first", "second", "scoring"),
    [(*RIGHT_ANGLES, "distance"), (*RIGHT_ANGLES, "cosine"), (FIRST, SECOND, "ratio")],
)
def test_only_pairs_without_a_ratio_are_logged(first, second, scoring, caplog):
    scored_pairs(first, second, scoring, k=2)
    assert caplog.messages == []


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    k=st.integers(1, 6),
    scoring=st.sampled_from(SCORINGS),
    sparse=st.booleans(),
)
def test_equals_float64_loops(seed, sizes, k, scoring, sparse):
    rng = np.random.default_rng(seed)
    center = rng.normal(size=6) * 1.5  # Means away from 0, where a ratio is well-conditioned.
    first = rng.normal(size=(sizes[0], 6)) + center
    second = rng.normal(size=(sizes[1], 6)) + center
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    pairs = as_dict(scored_pairs(kind(first), kind(second), scoring, k))
    cosines, _, scores = plain_scores(first, second, scoring, k)
    expected = {}
    for i, row in enumerate(cosines):
        for j in np.argsort(-row)[:k]:
            expected[i, j] = scores[i, j]
    for j, column in enumerate(cosines.T):
        for i in np.argsort(-column)[:k]:
            expected[i, j] = scores[i, j]
    assert pairs == pytest.approx(expected, abs=1e-4, rel=1e-4)


# ---- Retrieval


def pairs_of(cells):
    """The pairs of cells, which are scores by row and column."""
    numbers = np.array(list(cells), np.int64).reshape(-1, 2)
    scores = np.array(list(cells.values()), np.float32)
    return ScoredPairs(numbers[:, 0], numbers[:, 1], scores, scores, np.ones_like(scores))


def best_ranks(cells, side):
    """The rank (-score, row, column) of the best cell of each row (side 0) or column (side 1)."""
    best = {}
    for cell, score in cells.items():
        rank = (-score, *cell)
        number = cell[side]
        best[number] = min(rank, best.get(number, rank))
    return set(best.values())


def greedy_ranks(ranks):
    """The best rank, then the best of those left, no row and no column twice."""
    chosen = []
    rows = set()
    columns = set()
    for rank in sorted(ranks):
        _, row, column = rank
        if row not in rows and column not in columns:
            chosen.append(rank)
            rows.add(row)
            columns.add(column)
    return chosen


def cells_of(ranks):
    return [(row, column) for _, row, column in sorted(ranks)]


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(0, 4)))
def test_retrieval_equals_plain_loops(cells):
    """Few different scores: with ties. Of equal pairs the one of lower row numbers is better."""
    forward = best_ranks(cells, side=0)
    backward = best_ranks(cells, side=1)
    pairs = pairs_of(cells)
    assert retrieved_pairs(pairs, "forward").rows() == cells_of(forward)
    assert retrieved_pairs(pairs, "backward").rows() == cells_of(backward)
    assert retrieved_pairs(pairs, "intersection").rows() == cells_of(forward & backward)
    assert retrieved_pairs(pairs, "max").rows() == cells_of(greedy_ranks(forward | backward))


def test_repeated_and_empty_texts_take_no_part():
    """Without them the neighbors, and so the margins, are those of the rows that are left."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 48)) + rng.normal(size=48)
    second = first + 0.5 * rng.normal(size=(40, 48))
    first_texts = list(map("Satz {}".format, range(40)))
    first_texts[3] = "Caf\u00e9 3"
    first_texts[5] = " Cafe\u0301 \u00a0 3 "
    first_texts[7] = "\t"
    second_texts = list(map("sentence {}".format, range(40)))
    second_texts[0] = ""
    first_rows = np.delete(np.arange(40), [5, 7])
    second_rows = np.arange(1, 40)
    mined = mine_bitext(first, second, first_texts, second_texts)
    expected = mine_bitext(first[first_rows], second[second_rows])
    np.testing.assert_array_equal(mined.first, first_rows[expected.first])
    np.testing.assert_array_equal(mined.second, second_rows[expected.second])
    np.testing.assert_array_equal(mined.scores, expected.scores)


def test_identical_texts_are_dropped():
    texts = ["2026", "Haus", "Hund"]
    mined = mine_bitext(np.eye(3), np.eye(3), texts, ["2026", "house", "dog"], drop_identical=True)
    assert sorted(mined.rows()) == [(1, 1), (2, 2)]


def test_bad_arguments():
    with pytest.raises(ValueError, match="first: found 1 texts, expected 3, one for each row"):
        mine_bitext(np.eye(3), np.eye(3), first_texts=["a"])
    with pytest.raises(ValueError, match="drop_identical: the texts of both sides are missing"):
        mine_bitext(np.eye(3), np.eye(3), first_texts=["a", "b", "c"], drop_identical=True)


# ---- Gold lists

FIRST_IDS = ["de-1", "de-2", "de-3"]
SECOND_IDS = ["en-1", "en-2"]


def pairs_with_scores(*rows):
    first, second, scores = np.array(rows, np.float64).T
    scores = scores.astype(np.float32)
    rows = first.astype(np.int64), second.astype(np.int64)
    return ScoredPairs(*rows, scores, scores, np.ones_like(scores))


MINED = pairs_with_scores((0, 0, 1.5), (1, 1, 1.25), (4, 2, 1.0), (2, 2, 0.75), (5, 5, 0.5))
GOLD = {(0, 0), (1, 1), (2, 2), (3, 3)}


def test_quality_by_hand():
    quality = pair_quality(MINED.rows(), GOLD)
    assert (quality.correct, quality.found, quality.gold) == (3, 5, 4)
    assert quality.precision == 3 / 5
    assert quality.recall == 3 / 4
    assert quality.f1 == pytest.approx(2 / (5 / 3 + 4 / 3))  # harmonic mean


def test_quality_of_no_pairs():
    nothing = pair_quality([], GOLD)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)


def test_quality_over_two_collections():
    quality = pair_quality(MINED.rows(), GOLD) + pair_quality([(0, 0)], [(0, 0), (1, 1)])
    assert (quality.correct, quality.found, quality.gold) == (4, 6, 6)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=12),
    st.integers(0, 3),
)
def test_no_other_threshold_is_better(rows, missed):
    scored_rows = []
    gold = set()
    for number, (score, is_right) in enumerate(rows):
        scored_rows.append((number, number, score / 7))
        if is_right:
            gold.add((number, number))
    assume(gold)
    for number in range(missed):
        gold.add((100 + number, 0))
    pairs = pairs_with_scores(*scored_rows)
    threshold, quality = best_threshold(pairs, gold)
    # Each row has one pair: all of them, above the threshold.
    chosen = retrieved_pairs(pairs, "forward", threshold)
    assert pair_quality(chosen.rows(), gold) == quality
    best_f1 = 0.0
    for score in pairs.scores:
        above = pairs[pairs.scores >= score]
        best_f1 = max(best_f1, pair_quality(above.rows(), gold).f1)
    assert quality.f1 == pytest.approx(best_f1)


def test_a_gold_list_with_a_header(tmp_path):
    path = tmp_path / "gold"
    path.write_bytes(b"score\tid_a\tid_b\n0.9\tde-3\ten-1\n")
    assert read_gold_pairs(path, FIRST_IDS, SECOND_IDS) == [(2, 0)]


def test_a_gold_list_with_blank_and_repeated_lines(tmp_path):
    path = tmp_path / "gold"
    path.write_bytes("\ufeffde-3\ten-1\r\n\r\nde-1\ten-2\r\nde-1\ten-2".encode())
    assert read_gold_pairs(path, FIRST_IDS, SECOND_IDS) == [(2, 0), (0, 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"de-1\ten-1\nde-1 en-2", r"gold, row 2: found 1 field\(s\), expected 2 \(id_a, id_b\)"),
        (
            b"de-1\ten-1\nen-2\tde-2",
            "row 2: found id 'en-2', which no text of the first side has, .* as 'de-1'",
        ),
        (b"\n", "gold: found no pair, expected one per line"),
    ],
)
def test_bad_gold_lists(content, message, tmp_path):
    path = tmp_path / "gold"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_gold_pairs(path, FIRST_IDS, SECOND_IDS)
