"""The benchmark of unsupervised translation: scores by hand, and rows that are not parallel."""

import pytest

from tests.benchmarks.test_alignment_benchmarks import load_script

pytest.importorskip("sacrebleu", reason="sacrebleu is not installed (extra dev)")

benchmark = load_script("unsupervised_translation")


def test_scores_by_hand():
    """BLEU: precisions 4/5, 3/4, 2/3 and 1/2, whose product is 1/5."""
    scores = benchmark.scores(["a b c d e"], ["a b c d f"])
    assert scores["BLEU"] == pytest.approx(100 * 0.2**0.25)
    # chrF: four of five characters, and likewise as above with spaces left out.
    assert scores["chrF"] == pytest.approx(100 * (4 / 5 + 3 / 4 + 2 / 3 + 1 / 2 + 0) / 5)


def test_chrf_tells_poor_translations_apart():
    """One character of two is right, and no pair of them: (1/2 + 0) / 2."""
    assert benchmark.scores(["ab"], ["ac"])["chrF"] == pytest.approx(25)
    assert benchmark.scores(["xy"], ["ac"])["chrF"] == 0


def test_copies_are_scored_against_the_other_language():
    pairs = [{"de": "Tom mag Wasser .", "en": "Tom mag Wasser ."}, {"de": "nein", "en": "no ."}]
    row = benchmark.measure("copy", pairs, None, None)
    assert list(row) == ["system", "de-en BLEU", "de-en chrF", "en-de BLEU", "en-de chrF"]
    assert (
        row["de-en BLEU"]
        == benchmark.scores(["Tom mag Wasser .", "nein"], ["Tom mag Wasser .", "no ."])["BLEU"]
    )
    assert (
        row["en-de BLEU"]
        == benchmark.scores(["Tom mag Wasser .", "no ."], ["Tom mag Wasser .", "nein"])["BLEU"]
    )
    assert row["de-en BLEU"] != row["en-de BLEU"]


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
