"""Distinctness of pairs, by hand."""

import numpy as np
import pytest

from tmde.documents.distinct_pairs import distinct_pairs


def unit(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_by_hand():
    """The third text of the second side is nearest to the first, which is nearer to another."""
    first = unit(0, 90)
    second = unit(60, 0, 10)
    pairs = distinct_pairs(first, second)
    assert pairs.first.tolist() == [0, 1]
    assert pairs.second.tolist() == [1, 0]
    # 90 is at 30 degrees from 60, which is at 60 degrees from 0: cosines 0.866 and 0.5.
    expected = 1 - (1 - np.cos(np.radians(30))) / (1 - np.cos(np.radians(60)))
    assert pairs.distinctness == pytest.approx([1, expected], abs=1e-5)


def test_a_copy_of_the_translation_leaves_nothing_distinct():
    pairs = distinct_pairs(unit(0, 90), unit(1, 1, 90))
    assert pairs.distinctness == pytest.approx([0, 1], abs=1e-3)


def test_two_texts_alone_are_compared_with_unrelated_ones():
    pairs = distinct_pairs(unit(0), unit(60))
    assert pairs.distinctness == pytest.approx([0.5], abs=1e-5)
