"""The benchmark of unsupervised translation: BLEU by hand, and rows that are not parallel."""

import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script

benchmark = load_script("unsupervised_translation")


@pytest.mark.parametrize(
    ("translations", "references", "expected"),
    [
        (["a b c d e"], ["a b c d e"], 100.0),
        # Precisions 4/5, 3/4, 2/3 and 1/2: their product is 1/5.
        (["a b c d e"], ["a b c d f"], 100 * 0.2**0.25),
        # All n-grams are right, but a word is missing: exp(1 - 5/4).
        (["a b c d"], ["a b c d e"], 77.8801),
        # More words than the reference cost precision alone: 5/6, 4/5, 3/4, 2/3 give 1/3.
        (["a b c d e f"], ["a b c d e"], 100 * (1 / 3) ** 0.25),
        # A word counts as often as the reference has it: 2/4, and no pair of words.
        (["a a a a"], ["a b a c"], 0.0),
        # Counts of all texts are summed: 8/9, 6/7, 4/5 and 2/3.
        (["a b c d", "a b c d e"], ["a b c d", "a b c d f"], 100 * (8 * 6 * 4 * 2 / 945) ** 0.25),
        # A mark is a word of its own.
        (["a b c."], ["a b c ."], 100.0),
    ],
)
def test_bleu_by_hand(translations, references, expected):
    assert benchmark.corpus_bleu(translations, references) == pytest.approx(expected, abs=1e-3)


def test_no_sentence_is_read_in_both_languages():
    pairs = [{"en": f"sentence {number // 2}", "de": f"Satz {number}"} for number in range(400)]
    rows = benchmark.one_language_each(pairs)
    english = {row["en"] for row in rows if "en" in row}
    german = {row["de"] for row in rows if "de" in row}
    assert all(len(row) == 1 and set(row) < set(benchmark.LANGUAGES) for row in rows)
    assert len(rows) == len(english) + len(german)
    for pair in pairs:
        assert (pair["en"] in english) != (pair["de"] in german)
        assert (pair["de"] in german) == benchmark.in_first_half(pair["en"])
    # About half of the 200 English sentences, each once; both translations of the others.
    assert 70 < len(english) < 130
    assert len(german) == 2 * (200 - len(english))
