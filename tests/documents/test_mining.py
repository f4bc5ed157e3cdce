"""Bitext mining: retrieval by hand and against plain loops, planted translations, repeated and identical texts."""

import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.documents.margins import ScoredPairs, scored_pairs
from modeling_tmde.documents.mining import (
    RETRIEVALS,
    first_occurrences,
    mine_bitext,
    plain_text,
    retrieved_pairs,
)
from modeling_tmde.documents.mining import mine_bitext as exported

# scores:   y0    y1    y2
#   x0      0.9   0.8   0.1
#   x1      0.7   0.3
#   x2      0.6   0.75
CELLS = {(0, 0): 0.9, (0, 1): 0.8, (0, 2): 0.1, (1, 0): 0.7, (1, 1): 0.3, (2, 0): 0.6, (2, 1): 0.75}


def pairs_of(cells):
    first, second = (np.array([cell[side] for cell in cells], np.int64) for side in (0, 1))
    return ScoredPairs(first, second, np.array(list(cells.values()), np.float32))


def listed(pairs):
    return list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))


@pytest.mark.parametrize(
    ("retrieval", "expected"),
    [
        ("forward", [(0, 0), (2, 1), (1, 0)]),  # of x0, x2, x1, best first
        ("backward", [(0, 0), (0, 1), (0, 2)]),
        ("intersection", [(0, 0)]),
        ("max", [(0, 0), (2, 1)]),  # (0, 1), (1, 0) and (0, 2) come later and share a row with these
    ],
)
def test_retrieval_by_hand(retrieval, expected):
    cells = dict(sorted(CELLS.items(), key=lambda item: -item[0][1]))  # the order of pairs does not matter
    found = retrieved_pairs(pairs_of(cells), retrieval)
    assert listed(found) == expected
    assert found.scores.tolist() == pytest.approx([CELLS[pair] for pair in expected])


def test_threshold_and_number():
    pairs = pairs_of(CELLS)
    assert listed(retrieved_pairs(pairs, "forward", threshold=0.75)) == [(0, 0), (2, 1)]
    assert listed(retrieved_pairs(pairs, "forward", max_pairs=2)) == [(0, 0), (2, 1)]
    assert listed(retrieved_pairs(pairs, "forward", threshold=0.8, max_pairs=2)) == [(0, 0)]
    assert len(retrieved_pairs(pairs, "max", threshold=2)) == len(retrieved_pairs(pairs, "max", max_pairs=0)) == 0
    score = np.float32(0.1)
    above = float(score) + float(np.spacing(score)) / 4  # is equal to `score` in float32
    assert listed(retrieved_pairs(pairs, "backward", threshold=above)) == [(0, 0), (0, 1)]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.tuples(st.integers(0, 7), st.integers(0, 7)), st.integers(0, 4)))
def test_retrieval_equals_plain_loops(cells):
    """Few different scores: with ties. Of equal pairs the one of lower row numbers is better."""

    def better(cell):
        return -cells[cell], *cell

    forward = {min((cell for cell in cells if cell[0] == row), key=better) for row, _ in cells}
    backward = {min((cell for cell in cells if cell[1] == row), key=better) for _, row in cells}
    greedy = []
    for cell in sorted(forward | backward, key=better):
        if not any(cell[0] == other[0] or cell[1] == other[1] for other in greedy):
            greedy.append(cell)
    found = {name: listed(retrieved_pairs(pairs_of(cells), name)) for name in RETRIEVALS}
    assert found["forward"] == sorted(forward, key=better)
    assert found["backward"] == sorted(backward, key=better)
    assert found["intersection"] == sorted(forward & backward, key=better)
    assert found["max"] == greedy


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30), st.sampled_from(["cosine", "ratio", "distance"]))
def test_properties_of_retrieval(seed, rows, others, scoring):
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(rows, 5)), rng.normal(size=(others, 5))
    mined = {name: mine_bitext(first, second, scoring=scoring, retrieval=name) for name in RETRIEVALS}
    sets = {name: set(listed(pairs)) for name, pairs in mined.items()}
    assert sets["intersection"] == sets["forward"] & sets["backward"]
    assert sets["intersection"] <= sets["max"] <= sets["forward"] | sets["backward"]
    assert sorted(row for row, _ in sets["forward"]) == list(range(rows))  # each row once, and none without a partner
    assert sorted(row for _, row in sets["backward"]) == list(range(others))
    for side in zip(*sets["max"], strict=True):
        assert len(set(side)) == len(side)
    for pairs in mined.values():
        assert (np.diff(pairs.scores) <= 0).all()
    turned = mine_bitext(second, first, scoring=scoring, retrieval="forward")
    assert {(j, i) for i, j in listed(turned)} == sets["backward"]


def planted(rows=400, translated=250, seed=0):
    """Two sides around a few topics, so that many rows are near to each other; `right` are the translations."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(8, 48))
    first, second = (topics[rng.integers(0, 8, rows)] + 0.6 * rng.normal(size=(rows, 48)) for _ in range(2))
    places = rng.permutation(rows)[:translated]
    second[places] = first[:translated] + 0.2 * rng.normal(size=(translated, 48))
    return first, second, set(zip(range(translated), places.tolist(), strict=True))


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("retrieval", RETRIEVALS)
def test_planted_translations_are_found(kind, retrieval):
    first, second, right = planted()
    mined = exported(kind(first), kind(second), retrieval=retrieval, max_pairs=len(right))
    assert set(listed(mined)) == right
    assert len(mine_bitext(kind(first), kind(second), retrieval=retrieval)) > len(
        right
    )  # with wrong pairs after these


@pytest.mark.parametrize("search", ["ivf", "hnsw"])
def test_planted_translations_are_found_by_an_index(search):
    first, second, right = planted(3000, 2000)
    said = []
    mined = mine_bitext(first, second, search=search, max_pairs=len(right), say=said.append, names=("A", "B"))
    assert len(set(listed(mined)) & right) >= 0.98 * len(right)
    assert [line.split(", ")[0] for line in said] == ["A -> B", "B -> A"] and all(
        "searched by" in line for line in said
    )


def test_repeated_and_empty_texts_take_no_part():
    """Without them the neighbours, and so the margins, are those of the rows that are left."""
    first, second, _ = planted(40, 30)
    first_texts, second_texts = [f"Satz {row}" for row in range(40)], [f"sentence {row}" for row in range(40)]
    first_texts[5], first_texts[7], second_texts[0] = " Satz \u00a0 3 ", "\t", ""
    rows, others = [row for row in range(40) if row not in (5, 7)], list(range(1, 40))
    mined = mine_bitext(first, second, first_texts, second_texts)
    expected = mine_bitext(first[rows], second[others])
    assert listed(mined) == [(rows[i], others[j]) for i, j in listed(expected)]
    np.testing.assert_array_equal(mined.scores, expected.scores)


def test_identical_texts_are_dropped_after_the_choice():
    """x0 and y0 are the same text, and each other's best: neither gets another partner."""
    first = np.array([[1.0, 0], [0.6, 0.8]])
    second = np.array([[1.0, 0], [0.8, 0.6]])
    texts = ["Microsoft  Excel", "Das Haus"], ["Microsoft Excel ", "The house"]
    assert listed(mine_bitext(first, second, *texts, scoring="cosine", k=2)) == [(0, 0), (1, 1)]
    dropped = mine_bitext(first, second, *texts, scoring="cosine", k=2, drop_identical=True, max_pairs=1)
    assert listed(dropped) == [(1, 1)]  # and the number counts what is left


def test_lists_are_matrices():
    first, second, _ = planted(20, 10)
    texts = [str(row) for row in range(len(first))]
    texts[3] = ""
    found, expected = (mine_bitext(*each, texts) for each in ((first.tolist(), second.tolist()), (first, second)))
    assert len(found) and listed(found) == listed(expected)


def test_a_threshold_is_not_rounded_to_float32():
    pairs = pairs_of({(0, 0): 1.0, (1, 1): 1 + 2**-23})  # a float32 and the next
    assert listed(retrieved_pairs(pairs, threshold=1 + 2**-30)) == [(1, 1)]
    assert listed(retrieved_pairs(pairs, threshold=1.0)) == [(1, 1), (0, 0)]


def test_plain_text_and_first_occurrences():
    assert plain_text(" Caf\u0065\u0301\u00a0 du\u2028 Nord\n") == "Caf\u00e9 du Nord"
    texts = ["a b", "", "A b", "a  b", " ", "c", "c\n", "a b"]
    occurrences, kept = first_occurrences(texts)
    assert occurrences.tolist() == [0, 1, 2, 0, 1, 5, 5, 0]
    assert kept.tolist() == [0, 2, 5]
    for few in ([], ["", " "]):
        assert first_occurrences(few)[1].tolist() == []


def test_the_options_reach_the_scores():
    first, second, _ = planted(60, 40)
    for scoring, k in (("cosine", 4), ("distance", 2), ("ratio", 7)):
        mined = mine_bitext(first, second, scoring=scoring, k=k, retrieval="forward")
        expected = retrieved_pairs(scored_pairs(first, second, scoring, k), "forward")
        assert listed(mined) == listed(expected)
        np.testing.assert_array_equal(mined.scores, expected.scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retrieval": "both"}, "retrieval: found 'both', expected one of forward, backward, intersection, max"),
        ({"max_pairs": -1}, "max_pairs: found -1, expected at least 0"),
        ({"threshold": math.nan}, "threshold: found nan, expected a number, or None for all pairs"),
        ({"scoring": "margin"}, "scoring: found 'margin'"),
        ({"search": "flat"}, "search: found 'flat'"),
        ({"first_texts": ["a"]}, "first: found 1 texts, expected 3, one for each row"),
        ({"second_texts": ["", " ", "\n"]}, "second: found 3 texts, all of them empty"),
        ({"drop_identical": True, "first_texts": ["a", "b", "c"]}, "drop_identical: found no texts of both sides"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        mine_bitext(np.eye(3), np.eye(3), **options)
