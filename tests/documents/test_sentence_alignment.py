"""Monotone alignment: by hand, against a plain program over all cells, planted, in a band."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tmde.documents import alignment_path
from tmde.documents.sentence_alignment import align_sentences, embedded_spans


def pairs(beads):
    """The beads that align something.

    The order of sentences left alone beside each other means nothing.
    """
    return [(bead.first, bead.second) for bead in beads if bead.score is not None]


def check_cover(beads, n, m):
    assert [i for bead in beads for i in bead.first] == list(range(n))
    assert [j for bead in beads for j in bead.second] == list(range(m))


def plain_surprise(l1, l2, ratio):
    """-log of the two-sided tail of the normal distribution, 2 (1 - Phi(d)) = erfc(d / sqrt(2))."""
    delta = abs(l2 - l1 * ratio) / math.sqrt(6.8 * max((l1 + l2 / ratio) / 2, 1))
    tail = math.erfc(delta / math.sqrt(2))
    return -math.log(tail) if tail > 1e-300 else math.inf


def plain(first, second, max_size, skip, merge, lengths=None, length_weight=0.0):
    """All cells, one by one, in float64: beads that align something, and the cost of the path."""
    units = [[[v / np.linalg.norm(v) for v in spans] for spans in side] for side in (first, second)]
    means = [np.mean(side[0], axis=0) for side in units]
    n, m = len(first[0]), len(second[0])

    def cost(i, j, a, b):
        x, y = units[0][a - 1][i], units[1][b - 1][j]
        total = a * b * (1 - x @ y) / ((1 - x @ means[1] + 1 - y @ means[0]) / 2) + merge * (
            a + b - 2
        )
        if lengths is not None:
            ratio = sum(lengths[1]) / sum(lengths[0])
            characters = sum(lengths[0][i : i + a]), sum(lengths[1][j : j + b])
            total += length_weight * min(5.0, plain_surprise(*characters, ratio))
        return total

    best, last = {(0, 0): 0.0}, {}
    for i in range(n + 1):
        for j in range(m + 1):
            arrivals = [
                (best[i - a, j - b] + cost(i - a, j - b, a, b), (a, b))
                for a in range(1, min(i, max_size - 1) + 1)
                for b in range(1, min(j, max_size - a) + 1)
            ]
            arrivals += [(best[i - 1, j] + skip, (1, 0))] if i else []
            arrivals += [(best[i, j - 1] + skip, (0, 1))] if j else []
            if arrivals:
                best[i, j], last[i, j] = min(arrivals)
    beads, i, j = [], n, m
    while i or j:
        a, b = last[i, j]
        i, j = i - a, j - b
        if a and b:
            beads.append((range(i, i + a), range(j, j + b)))
    return beads[::-1], best[n, m]


def spans_of(rng, n, lengths, d=6):
    return [rng.normal(size=(max(n - size + 1, 0), d)) for size in range(1, lengths + 1)]


def test_means_of_many_documents_make_scores_of_short_ones():
    x, y = np.array([[1.0, 0]]), np.array([[0.6, 0.8]])
    assert align_sentences(x, y)[0].score == pytest.approx(0, abs=1e-6)  # 0.4 by 0.4
    # As if both had 19 more: of cosine 0 to x, and 0.6 to y; distances are (0.4 + 19) / 20 and
    # (0.4 + 19 * 0.4) / 20.
    means = np.array([1.0, 0]), np.array([0, 1.0])
    bead = align_sentences(x, y, means=means)[0]
    assert bead.score == pytest.approx(1 - 0.4 / ((0.97 + 0.4) / 2), abs=1e-6)
    assert bead.cost == align_sentences(x, y)[0].cost  # the program is the same
    first, second = np.tile(x, (20, 1)), np.tile(y, (20, 1))
    assert align_sentences(first, second, means=means) == align_sentences(first, second)


def test_three_and_two_by_hand():
    # x0 = y0, and x1 + x2 = y1. Mean of x (1/3, 1/3, 1/3), of y (.5, .3536, .3536).
    # x1 to y1: 1 - cos .2929; of x1 to all y 1 - .3536, of y1 to all x 1 - .4714:
    # .2929 / .5875 = .4985
    first = np.eye(3)
    second = np.array([[1, 0, 0], [0, 1, 1]])
    beads = align_sentences(first, second, merge=0.25)
    assert pairs(beads) == [(range(0, 1), range(0, 1)), (range(1, 3), range(1, 2))]
    assert [bead.cost for bead in beads] == pytest.approx([0, 0.25], abs=1e-6)
    assert [bead.similarity for bead in beads] == pytest.approx([1, 1])
    assert [bead.score for bead in beads] == pytest.approx([1, 1])
    # merged, they cost more than one of them alone (.3) beside .4985
    assert (range(1, 3), range(1, 2)) in pairs(align_sentences(first, second, skip=0.3, merge=0.75))
    assert (range(1, 3), range(1, 2)) not in pairs(
        align_sentences(first, second, skip=0.3, merge=0.85)
    )
    # vectors of spans of their own are believed: here the span x1 x2 is nothing like y1
    told = align_sentences([first, np.array([[1.0, 1, 0], [-1, 0, 0]])], second)
    assert (range(1, 3), range(1, 2)) not in pairs(told)


LENGTHS = st.lists(st.integers(0, 400), min_size=24, max_size=24)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    max_size=st.integers(2, 5),
    skip=st.floats(0.05, 1.5),
    merge=st.floats(0, 1),
    characters=LENGTHS,
    weight=st.floats(0, 0.5),
)
def test_equals_a_plain_program(seed, n, m, max_size, skip, merge, characters, weight):
    rng = np.random.default_rng(seed)
    first, second = (spans_of(rng, size, max_size - 1) for size in (n, m))
    lengths = [1 + characters[0], *characters[1:n]], [1 + characters[12], *characters[13 : 12 + m]]
    beads = align_sentences(first, second, max_size, skip, merge, lengths, weight)
    check_cover(beads, n, m)
    expected, cost = plain(first, second, max_size, skip, merge, lengths, weight)
    assert sum(bead.cost for bead in beads) == pytest.approx(cost, abs=1e-4)


def planted_side(parts, size, has_both):
    """The vectors of one side of a bead, whose sum is that of the other side's."""
    if size == 0:
        return []
    if size == 1:
        return [parts.sum(axis=0) if has_both else parts[0]]
    units = parts[:size] / np.linalg.norm(parts[:size], axis=1, keepdims=True)
    return list(units * np.sqrt(parts.shape[1]))


def planted(rng, kinds, d=256):
    """Two documents of these beads, (a, b) each, and the beads; with noise."""
    first = []
    second = []
    gold = []
    for a, b in kinds:
        has_both = a > 0 and b > 0
        if has_both:
            gold.append((range(len(first), len(first) + a), range(len(second), len(second) + b)))
        parts = rng.normal(size=(max(a, b), d))
        first += planted_side(parts, a, has_both)
        second += planted_side(parts, b, has_both)
    noisy_first = np.array(first) + 0.2 * rng.normal(size=(len(first), d))
    noisy_second = np.array(second) + 0.2 * rng.normal(size=(len(second), d))
    return noisy_first, noisy_second, gold


KINDS = [(1, 1), (1, 2), (2, 1), (1, 0), (0, 1)]


@pytest.mark.parametrize("seed", range(6))
def test_a_band_finds_what_all_cells_find(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    kinds = [KINDS[kind] for kind in rng.choice(5, size=70, p=[0.5, 0.1, 0.1, 0.15, 0.15])]
    kinds[20:20] = [(0, 1)] * (25 * (seed % 3))  # a part that the first document does not have
    first, second, gold = planted(rng, kinds)
    everything = align_sentences(first, second, skip=0.4)
    monkeypatch.setattr(alignment_path, "FULL", 8)
    monkeypatch.setattr(alignment_path, "ROWS", 5)
    windows = []

    def recorded_windows(*arguments):
        windows.append(alignment_path_windows(*arguments))
        return windows[-1]

    alignment_path_windows = alignment_path.windows_near
    monkeypatch.setattr(alignment_path, "windows_near", recorded_windows)
    for width in (3, 10):
        banded = align_sentences(first, second, skip=0.4, width=width)
        check_cover(banded, len(first), len(second))
        assert pairs(banded) == pairs(everything) == gold
    cells = []
    for low, high in windows:
        if len(low) == len(first) + 1:
            cells.append(int((high - low + 1).sum()))
    assert max(cells) < 0.8 * (len(first) + 1) * (len(second) + 1)  # It was a band.


def test_one_sentence():
    beads = align_sentences(np.array([[1.0, 0]]), np.array([[0, 1.0]]))
    assert pairs(beads) == [(range(1), range(1))]


def test_zero_vectors():
    check_cover(align_sentences(np.zeros((3, 4)), np.ones((2, 4)), max_size=5), 3, 2)


@pytest.mark.parametrize(("n", "m"), [(0, 0), (3, 0), (0, 2)])
def test_a_document_without_sentences(n, m):
    beads = align_sentences(np.ones((n, 4)), np.ones((m, 4)))
    check_cover(beads, n, m)
    assert pairs(beads) == []


def test_spans_of_texts():
    asked = []

    def encode(texts):
        asked.extend(texts)
        return np.array([[len(text), ord(text[0])] for text in texts], np.float32)

    documents = [["a", "b", "a"], [], ["a", "b"]]
    spans = embedded_spans(documents, encode, 2)
    assert sorted(asked) == ["a", "a b", "b", "b a"]  # each once
    assert [[some.shape for some in each] for each in spans] == [
        [(3, 2), (2, 2)],
        [(0, 2), (0, 2)],
        [(2, 2), (1, 2)],
    ]
    np.testing.assert_array_equal(spans[0][1], [[3, ord("a")], [3, ord("b")]])
    assert [some.shape[0] for some in embedded_spans([[]], encode, 2)[0]] == [0, 0]


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        (ONES, {"skip": float("nan")}, "max_size, skip: found 3, nan"),
        (ONES, {"lengths": ([1, 2], [1, 2, 3])}, "lengths: found 2 and 3, expected 2 and 2"),
        (np.ones((2, 4)), {}, "3 dimensions in first and 4 in second"),
        ([ONES, ONES], {}, r"second: found shape \(2, 3\) for spans of 2 sentences, expected"),
    ],
)
def test_bad_input(second, options, message):
    with pytest.raises(ValueError, match=message):
        align_sentences(ONES, second, **options)
