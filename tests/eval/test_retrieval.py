"""Translation retrieval: what is in a pool, and precision at 1 by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.eval.retrieval import precision_at_1, retrieval_pool


def test_precision_of_both_directions_by_hand():
    # cosines:        t0    t1    t2
    #   s0 (1, 0)     1     0.8   0.6      nearest t0: right
    #   s1 (0, 1)     0     0.6   0.8      nearest t2: wrong
    #   s2 (0.6, 0.8) 0.6   0.96  1        nearest t2: right
    # nearest sources: t0 s0 right, t1 s2 wrong, t2 s2 right
    sources = np.array([[1, 0], [0, 1], [0.6, 0.8]])
    targets = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8]])
    assert precision_at_1(sources, targets) == pytest.approx((2 / 3 + 2 / 3) / 2)
    # t0 turned round: s0 takes t1 (0.8 > -1) and t0 takes s1 (0 > -0.6 > -1), so that s2 and t2 alone are right
    targets[0] = [-1, 0]
    assert precision_at_1(sources, targets) == pytest.approx((1 / 3 + 1 / 3) / 2)


def test_directions_that_differ_are_averaged():
    # cosines:      t0    t1
    #   s0 (1, 0)   0.96  0.8     forward: s0 takes t0, s1 takes t1, both right
    #   s1 (0, 1)   0.28  0.6     backward: t0 takes s0, right; t1 takes s0, wrong
    sources, targets = np.array([[1, 0], [0, 1]]), np.array([[0.96, 0.28], [0.8, 0.6]])
    assert precision_at_1(sources, targets) == pytest.approx((2 / 2 + 1 / 2) / 2)
    assert precision_at_1(targets, sources) == pytest.approx((1 / 2 + 2 / 2) / 2)


def test_length_of_a_vector_does_not_count():
    sources, targets = np.array([[1.0, 0], [0, 1.0]]), np.array([[0.1, 0], [90, 100.0]])
    assert precision_at_1(sources, targets) == 1  # by dot product, 90 > 0.1 would take s0 to t1
    assert precision_at_1(targets, sources) == 1


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 12), width=st.integers(1, 5), seed=st.integers(0, 999))
def test_equals_a_plain_search(rows, width, seed):
    rng = np.random.default_rng(seed)
    sources = rng.normal(size=(rows, width))
    targets = sources + rng.normal(size=(rows, width))

    def cosine(x, y):
        return sum(p * q for p, q in zip(x, y, strict=True)) / (sum(p * p for p in x) * sum(q * q for q in y)) ** 0.5

    if width == 1:  # cosines are 1 and -1 alone: all ties
        return
    right = 0
    for queries, pool in ((sources, targets), (targets, sources)):
        for row, query in enumerate(queries):
            right += max(range(rows), key=lambda other: cosine(query, pool[other])) == row  # noqa: B023
    assert precision_at_1(sources, targets) == pytest.approx(right / (2 * rows))
    assert precision_at_1(targets, sources) == pytest.approx(right / (2 * rows))


def test_empty_pool_zero_vectors_and_wrong_shapes():
    assert precision_at_1(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0
    with np.errstate(all="raise"):
        assert precision_at_1(np.zeros((1, 4)), np.zeros((1, 4))) == 1.0
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(2, 4\)"):
        precision_at_1(np.zeros((3, 4)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(3, 5\)"):
        precision_at_1(np.zeros((3, 4)), np.zeros((3, 5)))


# ---- Pool

ROWS = [
    {"de": "eins", "en": "one", "fr": "un"},
    {"de": "zwei", "en": None, "fr": "deux"},  # no English
    {"de": "drei", "fr": "trois"},  # no English either
    {"de": "", "en": "four", "fr": "quatre"},  # empty German
    {"de": "eins", "en": "ONE", "fr": "une"},  # German seen
    {"de": "fünf", "en": "one", "fr": "cinq"},  # English seen
    {"de": "one", "en": "eins", "fr": "six"},  # the same words, but of the other language
    {"de": "sieben", "en": "seven", "fr": None},
    {"de": "fünf", "en": "five", "fr": "cinq"},  # its German was seen in a row that was left out
]


def test_pool_leaves_out_missing_and_repeated_texts():
    pool = retrieval_pool(ROWS, "de", "en")
    assert (pool.source_language, pool.target_language) == ("de", "en")
    assert pool.sources == ["eins", "one", "sieben", "fünf"]
    assert pool.targets == ["one", "eins", "seven", "five"]


def test_pool_follows_its_languages():
    pool = retrieval_pool(ROWS, "en", "de")
    assert pool.sources == ["one", "eins", "seven", "five"]
    assert retrieval_pool(ROWS, "fr", "de").targets == ["eins", "zwei", "drei", "fünf", "one"]
    assert retrieval_pool(ROWS, "de", "nl").sources == []


@pytest.mark.parametrize("size", [1, 2, 4, 99])
def test_pool_size(size):
    assert retrieval_pool(ROWS, "de", "en", size).sources == ["eins", "one", "sieben", "fünf"][:size]
