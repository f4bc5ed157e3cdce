"""Minimal pairs: choices by hand and against a plain loop, ties, groups; and the way through runner and reports."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.eval.fake_system import FakeSystem
from tmde.eval.contrast import evaluate_contrast
from tmde.eval.tasks import ContrastData, Provenance

PROVENANCE = Provenance(citation="by hand", licence="CC0")


def contrast_data(items, groups, controls=(), languages=("de", "en")):
    """Texts are called `de0`, and their contrasts `de0'`."""
    texts = {
        code: [(f"{code}{row}", f"{code}{row}'") for row in range(items)] for code in languages
    }
    return ContrastData([f"i{row}" for row in range(items)], texts, groups, PROVENANCE, controls)


# Item 0 is right all four times; both German sentences of item 1 choose the same English one, so that one of two
# choices is right; item 2 is wrong; the German sentences of item 3 are one vector at different lengths.
BY_HAND = {"de0": [1, 0], "de0'": [0, 1], "en0": [2, 1], "en0'": [1, 3]}
BY_HAND |= {"de1": [1, 0], "de1'": [3, 1], "en1": [1, 0], "en1'": [0, 1]}
BY_HAND |= {"de2": [1, 0], "de2'": [0, 1], "en2": [0, 1], "en2'": [1, 0]}
BY_HAND |= {"de3": [1, 2], "de3'": [3, 6], "en3": [1, 0], "en3'": [0, 1]}


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_by_hand(kind):
    system = FakeSystem(BY_HAND.get, kind=kind)
    to_english, to_german = evaluate_contrast(contrast_data(4, ["a", "a", "b", "c"], ["c"]), system)
    assert (to_english.source, to_english.target) == ("de", "en") and to_german.source == "en"
    # de1 and de1' both choose en1: half. en1 chooses de1 (1 > 0.95), en1' chooses de1' (0.32 > 0): all.
    np.testing.assert_array_equal(to_english.outcomes, [1, 0.5, 0])
    np.testing.assert_array_equal(to_german.outcomes, [1, 1, 0])
    assert to_english.value == 0.5 and to_german.value == pytest.approx(2 / 3)
    assert list(to_english.ids) == ["i0", "i1", "i2"] and to_english.chance == 0.5
    assert to_english.metric == "contrast_accuracy"
    # item 3: both German vectors choose the English one that they are nearer to; the English ones tie
    assert to_english.extra == {
        "accuracy_of_a": 0.75,
        "accuracy_of_b": 0,
        "control_c": 0.5,
        "ties": 0,
        "size": 3,
    }
    assert to_german.extra == {
        "accuracy_of_a": 1,
        "accuracy_of_b": 0,
        "control_c": 0.5,
        "ties": 0,
        "size": 3,
    }
    assert [len(texts) for texts, _ in system.calls] == [
        8
    ] * 4  # the same list for every pair, for the cache


def by_loop(data, vectors, source, target):
    """Outcomes of the items in float64, one cosine at a time."""

    def cosine(first, second):
        a, b = (np.float32(vectors[text]).astype(float).tolist() for text in (first, second))
        norm = math.hypot(*a) * math.hypot(*b)
        return sum(x * y for x, y in zip(a, b, strict=True)) / norm if norm else 0.0

    outcomes = []
    for sources, targets in zip(data.texts[source], data.texts[target], strict=True):
        margins = [
            cosine(sources[x], targets[x]) - cosine(sources[x], targets[1 - x]) for x in (0, 1)
        ]
        outcomes.append(
            sum(0.5 if abs(margin) < 1e-6 else float(margin > 0) for margin in margins) / 2
        )
    return outcomes


@settings(max_examples=40, deadline=None)
@given(items=st.integers(1, 6), width=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_against_a_plain_loop(items, width, seed):
    rng = np.random.default_rng(seed)
    data = contrast_data(items, ["a"] * items, languages=("de", "en", "fr"))
    # Small whole numbers, so that parallel vectors and zero vectors come up.
    vectors = {
        text: rng.integers(-2, 3, width)
        for pairs in data.texts.values()
        for pair in pairs
        for text in pair
    }
    cells = evaluate_contrast(data, FakeSystem(vectors.get))
    assert [(cell.source, cell.target) for cell in cells] == list(
        itertools.permutations(data.languages, 2)
    )
    for cell in cells:
        expected = by_loop(data, vectors, cell.source, cell.target)
        np.testing.assert_array_equal(cell.outcomes, expected)
        assert cell.value == pytest.approx(np.mean(expected))
