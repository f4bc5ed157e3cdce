"""Monotone alignment: by hand, against a plain program over all cells, planted, in a band."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tmde.documents import alignment_path
from tmde.documents import beads as beads_module
from tmde.documents.sentence_alignment import align_sentences


def pairs(beads):
    """The beads that align something.

    The order of sentences left alone beside each other means nothing.
    """
    return [(bead.first, bead.second) for bead in beads if bead.score is not None]


def check_cover(beads, n, m):
    """Every sentence of both documents is in one bead, in order."""
    first = []
    second = []
    for bead in beads:
        first += bead.first
        second += bead.second
    assert first == list(range(n))
    assert second == list(range(m))


def plain_surprise(l1, l2, ratio):
    """-log of the two-sided tail of the normal distribution, 2 (1 - Phi(d)) = erfc(d / sqrt(2))."""
    delta = abs(l2 - l1 * ratio) / math.sqrt(6.8 * max((l1 + l2 / ratio) / 2, 1))
    tail = math.erfc(delta / math.sqrt(2))
    return -math.log(tail) if tail > 1e-300 else math.inf


def unit(vector):
    return vector / np.linalg.norm(vector)


def shrunken_mean(sentences):
    """The mean of the unit vectors, if a document of fewer than 20 has zeros in place of others."""
    total = np.zeros(sentences.shape[1])
    for sentence in sentences:
        total += unit(sentence)
    return total / max(len(sentences), 20)


def span_vectors(sentences, lengths, longest):
    """The unit vectors of spans by size: sums of sentences weighted by the 4th root of lengths."""
    spans = [[unit(sentence) for sentence in sentences]]
    for size in range(2, longest + 1):
        row = []
        for start in range(len(sentences) - size + 1):
            total = np.zeros(sentences.shape[1])
            for place in range(start, start + size):
                total += max(lengths[place], 1) ** 0.25 * unit(sentences[place])
            row.append(unit(total))
        spans.append(row)
    return spans


def distance_to(x, others):
    """The mean of the distances to all of the others, and to the 3rd to 7th nearest of them."""
    distances = sorted(1 - x @ other for other in others)
    near = distances[2:7] or distances[-1:]
    return (np.mean(distances) + np.mean(near)) / 2


class PlainCosts:
    """The costs of single beads, in float64."""

    def __init__(self, first, second, max_size, merge, lengths, length_weight):
        self.first_lengths, self.second_lengths = lengths
        center = (shrunken_mean(first) + shrunken_mean(second)) / 2
        first = np.array([unit(sentence) - center for sentence in first])
        second = np.array([unit(sentence) - center for sentence in second])
        self.first = span_vectors(first, self.first_lengths, max_size - 1)
        self.second = span_vectors(second, self.second_lengths, max_size - 1)
        self.merge = merge
        self.length_weight = length_weight

    def of_bead(self, i, j, a, b):
        """The cost of a and b sentences that begin at sentence i of one side and j of the other."""
        x = self.first[a - 1][i]
        y = self.second[b - 1][j]
        mean_distance = (distance_to(x, self.second[0]) + distance_to(y, self.first[0])) / 2
        cost_of_vectors = (a + b) / 2 * (1 - x @ y) / mean_distance
        surprise = plain_surprise(
            sum(self.first_lengths[i : i + a]),
            sum(self.second_lengths[j : j + b]),
            ratio=sum(self.second_lengths) / sum(self.first_lengths),
        )
        cost_of_lengths = self.length_weight * min(5.0, surprise)
        return cost_of_vectors + self.merge * (a + b - 2) + cost_of_lengths


def cheapest_total(costs, n, m, max_size, skip):
    """The cost of the cheapest path, by a program over all cells, one by one."""
    totals = {(0, 0): 0.0}
    for i, j in np.ndindex(n + 1, m + 1):
        arrivals = []
        if i:
            arrivals.append(totals[i - 1, j] + skip)
        if j:
            arrivals.append(totals[i, j - 1] + skip)
        for a in range(1, min(i, max_size - 1) + 1):
            for b in range(1, min(j, max_size - a) + 1):
                arrivals.append(totals[i - a, j - b] + costs.of_bead(i - a, j - b, a, b))
        if arrivals:
            totals[i, j] = min(arrivals)
    return totals[n, m]


def test_means_of_many_documents_make_scores_of_short_ones():
    x = np.array([[1.0, 0]])
    y = np.array([[0.6, 0.8]])
    # As if both had 19 more: of cosine 0 to x, and 0.6 to y; distances are (0.4 + 19) / 20 and
    # (0.4 + 19 * 0.4) / 20.
    means = np.array([1.0, 0]), np.array([0, 1.0])
    (bead,) = align_sentences(x, y)
    (bead_by_means,) = align_sentences(x, y, means=means)
    assert bead.score == pytest.approx(0, abs=1e-6)  # The cost is 0.4 / 0.4.
    assert bead_by_means.score == pytest.approx(1 - 0.4 / ((0.97 + 0.4) / 2), abs=1e-6)


def test_means_of_many_documents_do_not_matter_to_long_ones():
    first = np.tile([[1.0, 0]], (20, 1))
    second = np.tile([[0.6, 0.8]], (20, 1))
    means = np.array([1.0, 0]), np.array([0, 1.0])
    assert align_sentences(first, second, means=means) == align_sentences(first, second)


THREE = np.eye(3)
TWO = np.array([[1, 0, 0], [0, 1, 1]])
TWO_TO_ONE = (range(1, 3), range(1, 2))


def test_costs_by_hand():
    """x0 = y0, and x1 + x2 = y1.

    Of x1, the distances to y0 and y1 are 1 and 1 - cos = .2929: their mean is .6464, the farthest
    1, and so the distance to the document .8232. Of y1, the distances to x are 1, .2929, .2929:
    .5286, 1, .7643.
    """
    units = TWO / np.linalg.norm(TWO, axis=1, keepdims=True)
    spans = [beads_module.unit_spans(side, np.ones((len(side), 1)), 2) for side in (THREE, units)]
    costs = beads_module.BeadCosts(spans, merge=0.25)
    place = slice(1, 2)
    assert costs(1, 1, place, place).item() == pytest.approx(0.29289 / 0.79377, abs=1e-4)
    assert costs(2, 1, place, place).item() == pytest.approx(0.25, abs=1e-6)


def test_three_and_two():
    beads = align_sentences(THREE, TWO, merge=0.25)
    assert pairs(beads) == [(range(0, 1), range(0, 1)), TWO_TO_ONE]
    table = pd.DataFrame(beads)
    assert table["similarity"].tolist() == pytest.approx([1, 1])
    assert table["score"].tolist() == pytest.approx([1, 1])


def test_sentences_are_merged_if_that_costs_less():
    assert TWO_TO_ONE in pairs(align_sentences(THREE, TWO, skip=0.3, merge=0.6))
    assert TWO_TO_ONE not in pairs(align_sentences(THREE, TWO, skip=0.3, merge=0.8))


def test_the_score_of_a_pair_by_hand():
    """x1 left alone; of the bead x2, y1 the mean distances are .6464 and .5286."""
    beads = align_sentences(THREE, TWO, skip=0.3, merge=0.8)
    score = next(bead.score for bead in beads if bead.second == range(1, 2))
    assert score == pytest.approx(1 - 0.29289 / 0.58750, abs=1e-4)


def test_neighbors_of_a_long_document_are_those_of_a_sample(monkeypatch):
    rng = np.random.default_rng(0)
    units = np.array([unit(row) for row in rng.normal(size=(20, 5))])
    others = np.array([unit(row) for row in rng.normal(size=(9, 5))])
    monkeypatch.setattr(beads_module, "LARGEST_SAMPLE", 5)
    costs = beads_module.BeadCosts([[units], [others]])
    for x, distance in zip(units, costs.first_distances[0], strict=True):
        to_all = np.mean([1 - x @ other for other in others])
        to_sample = sorted(1 - x @ other for other in others[[0, 2, 4, 6, 8]])
        assert distance == pytest.approx((to_all + np.mean(to_sample[2:])) / 2, abs=1e-6)


LENGTHS = st.lists(st.integers(0, 400), min_size=24, max_size=24)


@settings(max_examples=25, deadline=None)
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
    first = rng.normal(size=(n, 6))
    second = rng.normal(size=(m, 6))
    lengths = [1 + characters[0], *characters[1:n]], [1 + characters[12], *characters[13 : 12 + m]]
    beads = align_sentences(first, second, max_size, skip, merge, lengths, weight)
    check_cover(beads, n, m)
    costs = PlainCosts(first, second, max_size, merge, lengths, weight)
    expected = cheapest_total(costs, n, m, max_size, skip)
    assert sum(bead.cost for bead in beads) == pytest.approx(expected, abs=1e-4)


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


ONES = np.ones((2, 3))


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        (ONES, {"skip": float("nan")}, "max_size, skip: found 6, nan"),
        (ONES, {"merge": -0.1}, "merge, length_weight: found -0.1, 0.08, expected numbers of 0"),
        (ONES, {"length_weight": float("nan")}, "merge, length_weight: found 0.28, nan"),
        (ONES, {"lengths": ([1, 2], [1, 2, 3])}, "lengths: found 2 and 3, expected 2 and 2"),
        (np.ones((2, 4)), {}, r"vectors of shape \(3,\) in first and \(4,\) in second"),
        (np.full((2, 3), np.nan), {}, "second: found a vector that is not finite"),
    ],
)
def test_bad_input(second, options, message):
    with pytest.raises(ValueError, match=message):
        align_sentences(ONES, second, **options)
