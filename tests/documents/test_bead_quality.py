"""Strict and lax measures of beads: by hand, and beside a plain rebuild of vecalign's counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tmde.documents.bead_quality import BeadCounts, count_beads

# Sentences 0 to 4 and 0 to 3. Sentence 4 of the first document is alone.
GOLD = [((0,), (0,)), ((1, 2), (1,)), ((3,), (2, 3))]
PREDICTED = [((0,), (0,)), ((1,), (1,)), ((2,), ()), ((3, 4), (2, 3))]


def test_strict_measures_by_hand():
    """Of four beads, the first is right; sentence 2 is not alone."""
    counts = count_beads(PREDICTED, GOLD, 5, 4)
    assert counts.precision == 1 / 4
    assert counts.recall == 1 / 3
    assert counts.f1 == pytest.approx(2 / 7)


def test_lax_measures_by_hand():
    """Three beads share a pair of sentences with a right one, and all right beads are touched."""
    counts = count_beads(PREDICTED, GOLD, 5, 4, lax=True)
    assert counts.precision == 3 / 4
    assert counts.recall == 1
    assert counts.f1 == pytest.approx(6 / 7)


def test_a_sentence_that_is_rightly_alone_counts_in_precision_only():
    counts = count_beads([((0,), (0,)), ((1,), ()), ((), (1,))], [((0,), (0,))], 2, 2)
    assert counts.predicted.sum() == counts.right.sum() == 3
    assert counts.gold.sum() == counts.found.sum() == 1


def test_sentences_that_an_alignment_leaves_out_are_alone():
    assert count_beads([((0,), (0,))], [((0,), (0,))], 3, 1).predicted.sum() == 3


def test_beads_stand_where_they_begin_in_the_first_document():
    counts = count_beads([((0,), (1,)), ((1, 2), (2,))], [((0,), (1,))], 3, 4)
    # Sentence 0 of the second document has none before it, 3 follows the bead of sentence 1.
    assert counts.predicted.tolist() == [2, 2, 0, 0]
    assert counts.gold.tolist() == [1, 0, 0, 0]
    # Sentences 0 and 3 of the second document are alone in both, so they are right, too.
    assert counts.columns().tolist() == [[2, 2, 1, 1], [2, 1, 0, 0], [0] * 4, [0] * 4]


def test_counts_of_documents_are_joined():
    counts = count_beads(PREDICTED, GOLD, 5, 4)
    joined = BeadCounts.joined([counts, counts])
    assert joined.f1 == counts.f1
    assert len(joined.gold) == 12


def test_nothing_predicted_and_nothing_right():
    counts = count_beads([], [], 0, 0)
    assert counts.precision == counts.recall == counts.f1 == 0


def plain_counts(gold, test, lax):
    """What `score.py` of vecalign counts for precision: right beads, and all."""
    right = 0
    for first, second in test:
        partners = set()
        for gold_first, gold_second in gold:
            if set(first) & set(gold_first):
                partners |= set(gold_second)
        right += (first, second) in gold or (lax and bool(partners & set(second)))
    return right, len(test)


def random_beads(seed, n, m):
    """A monotone alignment of all sentences."""
    rng = np.random.default_rng(seed)
    beads = []
    i = j = 0
    while i < n or j < m:
        a = min(int(rng.integers(0, 3)), n - i)
        b = min(int(rng.integers(0, 3)), m - j)
        if a + b == 0:
            continue
        first = tuple(range(i, i + a))
        second = tuple(range(j, j + b))
        i += a
        j += b
        if first and second:
            beads.append((first, second))
        else:
            beads += [((sentence,), ()) for sentence in first]
            beads += [((), (sentence,)) for sentence in second]
    return beads


def is_aligned(bead):
    return bool(bead[0]) and bool(bead[1])


@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(1, 8), lax=st.booleans())
def test_equals_the_counts_of_vecalign(seed, n, m, lax):
    gold = random_beads(seed, n, m)
    predicted = random_beads(seed + 1, n, m)
    counts = count_beads(predicted, gold, n, m, lax=lax)
    assert (counts.right.sum(), counts.predicted.sum()) == plain_counts(gold, predicted, lax)
    aligned_gold = list(filter(is_aligned, gold))
    aligned_predicted = list(filter(is_aligned, predicted))
    # Recall is the precision of the gold alignment by the other one.
    found, total = plain_counts(aligned_predicted, aligned_gold, lax)
    assert (counts.found.sum(), counts.gold.sum()) == (found, total)
