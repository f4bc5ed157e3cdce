"""Minimal pairs: choices by hand and against a plain loop, ties and groups."""

import itertools
import math
import operator

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval.contrast import evaluate_contrast
from tmde.eval.results import pairs_of
from tmde.eval.tasks import ContrastData, Provenance, TaskError

PROVENANCE = Provenance(citation="by hand", license="CC0")


def contrast_data(items, groups, controls=(), languages=("de", "en")):
    """Texts are called `de0`, and their contrasts `de0'`."""
    texts = {}
    for language in languages:
        texts[language] = [(f"{language}{row}", f"{language}{row}'") for row in range(items)]
    return ContrastData(numbered("i", range(items)), texts, groups, PROVENANCE, controls)


BY_HAND = {
    # Item 0 is right all four times.
    **{"de0": [1, 0], "de0'": [0, 1], "en0": [2, 1], "en0'": [1, 3]},
    # Both German sentences of item 1 choose en1: one of two choices is right. Both English ones are
    # right: en1 chooses de1 (1 > 0.95), en1' chooses de1' (0.32 > 0).
    **{"de1": [1, 0], "de1'": [3, 1], "en1": [1, 0], "en1'": [0, 1]},
    # Item 2 is wrong.
    **{"de2": [1, 0], "de2'": [0, 1], "en2": [0, 1], "en2'": [1, 0]},
    # The German sentences of item 3 are one vector at different lengths: both choose the English
    # one that they are nearer to, and the English ones tie.
    **{"de3": [1, 2], "de3'": [3, 6], "en3": [1, 0], "en3'": [0, 1]},
}


@pytest.fixture(params=[np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])
def system(request) -> FakeSystem:
    return FakeSystem(BY_HAND.get, kind=request.param)


@pytest.fixture
def cells(system):
    """From German to English, and back; item 3 is a control."""
    return evaluate_contrast(contrast_data(4, ["a", "a", "b", "c"], ["c"]), system)


def test_outcomes_by_hand(cells):
    to_english, to_german = cells
    assert to_english.pair == ("de", "en")
    assert to_german.pair == ("en", "de")
    np.testing.assert_array_equal(to_english.outcomes, [1, 0.5, 0])
    np.testing.assert_array_equal(to_german.outcomes, [1, 1, 0])


def test_values_by_hand(cells):
    to_english, to_german = cells
    assert to_english.value == 0.5
    assert to_german.value == pytest.approx(2 / 3)


def test_controls_are_not_among_the_items(cells):
    for cell in cells:
        assert list(cell.ids) == ["i0", "i1", "i2"]
        assert cell.chance == 0.5
        assert cell.metric == "contrast_accuracy"


def test_accuracies_of_groups_by_hand(cells):
    to_english, to_german = cells
    shared = {"accuracy_of_b": 0, "control_c": 0.5, "ties": 0, "size": 3}
    assert to_english.extra == {"accuracy_of_a": 0.75, **shared}
    assert to_german.extra == {"accuracy_of_a": 1, **shared}


def test_every_pair_represents_the_same_lists(system, cells):
    """A system keeps its vectors by list of texts."""
    assert len(system.calls) == 4
    for texts, _ in system.calls:
        assert len(texts) == 8


def test_one_language_is_an_error():
    data = contrast_data(1, ["a"], languages=("de",))
    with pytest.raises(TaskError, match="expected at least two"):
        evaluate_contrast(data, FakeSystem(BY_HAND.get))


def cosine(first, second) -> float:
    """In float64, of the float32 vectors that a system gives."""
    a = np.float32(first).astype(float).tolist()
    b = np.float32(second).astype(float).tolist()
    norm = math.hypot(*a) * math.hypot(*b)
    if norm == 0:
        return 0.0
    return sum(map(operator.mul, a, b)) / norm


def choice(right: float, wrong: float) -> float:
    if abs(right - wrong) < 1e-6:
        return 0.5
    return float(right > wrong)


def outcomes_by_loop(data, vectors, source, target) -> list[float]:
    outcomes = []
    for sources, targets in zip(data.texts[source], data.texts[target], strict=True):
        sentence, contrast = map(vectors.get, sources)
        translation, contrast_translation = map(vectors.get, targets)
        first = choice(cosine(sentence, translation), cosine(sentence, contrast_translation))
        second = choice(cosine(contrast, contrast_translation), cosine(contrast, translation))
        outcomes.append((first + second) / 2)
    return outcomes


@settings(max_examples=40, deadline=None)
@given(items=st.integers(1, 6), width=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_against_a_plain_loop(items, width, seed):
    rng = np.random.default_rng(seed)
    data = contrast_data(items, ["a"] * items, languages=("de", "en", "fr"))
    # Small whole numbers, so that parallel vectors and zero vectors come up.
    vectors = {}
    for pairs in data.texts.values():
        for text in itertools.chain.from_iterable(pairs):
            vectors[text] = rng.integers(-2, 3, width)

    cells = evaluate_contrast(data, FakeSystem(vectors.get))

    assert pairs_of(cells) == list(itertools.permutations(data.languages, 2))
    for cell in cells:
        expected = outcomes_by_loop(data, vectors, cell.source, cell.target)
        np.testing.assert_array_equal(cell.outcomes, expected)
        assert cell.value == pytest.approx(np.mean(expected))
