"""The BUCC protocol: F1 by hand, the best threshold against all thresholds, gold lists and what is wrong with them."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from modeling_tmde.documents.gold_pairs import best_threshold, mining_quality, read_gold_pairs
from modeling_tmde.documents.margins import ScoredPairs
from modeling_tmde.documents.mining import retrieved_pairs

FIRST, SECOND = ["de-1", "de-2", "de-3"], ["en-1", "en-2"]


def mined(*rows):
    columns = list(zip(*rows, strict=True)) or [[], [], []]
    return ScoredPairs(
        np.array(columns[0], np.int64), np.array(columns[1], np.int64), np.array(columns[2], np.float32)
    )


# right: (0, 0), (1, 1), (2, 2), (3, 3)
PAIRS = mined((0, 0, 1.5), (1, 1, 1.25), (4, 2, 1.0), (2, 2, 0.75), (5, 5, 0.5))
GOLD = {(0, 0), (1, 1), (2, 2), (3, 3)}


def test_quality_by_hand():
    quality = mining_quality(PAIRS, GOLD)
    assert (quality.correct, quality.found, quality.gold) == (3, 5, 4)
    assert quality.precision == 3 / 5 and quality.recall == 3 / 4
    assert quality.f1 == pytest.approx(2 / (5 / 3 + 4 / 3))  # harmonic mean
    nothing = mining_quality(mined(), GOLD)
    assert (nothing.precision, nothing.recall, nothing.f1) == (0, 0, 0)


def test_best_threshold_by_hand():
    """F1 of the best 1, 2, ...: 2/5, 4/6, 4/7, 6/8, 6/9: the first four, cut half-way to the fifth."""
    threshold, quality = best_threshold(PAIRS, GOLD)
    assert threshold == 0.625 and quality.f1 == pytest.approx(0.75) and quality.found == 4
    turned = best_threshold(PAIRS[::-1], GOLD)
    assert turned == (threshold, quality)
    assert best_threshold(PAIRS, {(0, 0), (1, 1)}) == (1.125, mining_quality(PAIRS[:2], {(0, 0), (1, 1)}))
    # the last score where all pairs are kept
    assert best_threshold(PAIRS[:2], GOLD)[0] == 1.25


def test_no_threshold_parts_equal_scores():
    """The right one of two equal pairs cannot be had without the wrong one."""
    pairs = mined((0, 0, 0.5), (1, 0, 0.5), (2, 0, 0.25))
    threshold, quality = best_threshold(pairs, {(0, 0)})
    assert threshold == 0.375 and (quality.correct, quality.found) == (1, 2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=12), st.integers(0, 3))
def test_no_other_threshold_is_better(rows, missed):
    assume(any(right for _, right in rows))
    pairs = mined(*((number, number, score / 7) for number, (score, _) in enumerate(rows)))
    gold = {(number, number) for number, (_, right) in enumerate(rows) if right}
    gold |= {(100 + number, 0) for number in range(missed)}
    threshold, quality = best_threshold(pairs, gold)
    kept = retrieved_pairs(pairs, "forward", threshold)  # each row has one pair: all of them, above the threshold
    assert mining_quality(kept, gold) == quality
    best = max(mining_quality(pairs[pairs.scores >= score], gold).f1 for score in pairs.scores)
    assert quality.f1 == pytest.approx(best)


def test_neighbouring_float32_scores_are_parted():
    low = np.float32(1.1)
    pairs = mined((0, 0, np.nextafter(low, np.float32(2))), (1, 0, low))
    threshold, quality = best_threshold(pairs, {(0, 0)})
    assert quality.found == 1 and len(retrieved_pairs(pairs, "forward", threshold)) == 1


def test_nothing_to_optimise():
    for pairs in (mined(), PAIRS):
        with pytest.raises(ValueError, match=rf"none of the 1 gold pairs among {len(pairs)} mined ones, expected"):
            best_threshold(pairs, {(9, 9)})


def test_reads_a_list(tmp_path):
    path = tmp_path / "gold"
    path.write_bytes("\ufeffde-3\ten-1\r\n\r\nde-1\ten-2\r\nde-1\ten-2".encode())
    assert read_gold_pairs(path, FIRST, SECOND) == {(2, 0), (0, 1)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"de-1\ten-1\nde-1 en-2", r"gold, line 2: found 1 field\(s\), 'de-1 en-2', expected two ids"),
        (b"de-1\ten-1\t0.3", r"line 1: found 3 field\(s\)"),
        (b"de-1\ten-1\nen-2\tde-2", "line 2: found id 'en-2', which no text of the first side has, .* such as 'de-1'"),
        (b"\nde-2\tde-2", "line 2: found id 'de-2', which no text of the second side has, .* such as 'en-1'"),
        (b"de-1\ten-\xff", "line 1: found 0xff at byte 9, expected UTF-8"),
        (b"\n", "gold: found no pair, expected one a line"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, content, message):
    path = tmp_path / "gold"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_gold_pairs(path, FIRST, SECOND)
