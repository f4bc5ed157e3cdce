"""Alignment of sentences: F1 by hand, its interval, and differences of systems."""

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tmde.documents.bead_quality import BeadCounts
from tmde.eval import statistics
from tmde.eval.planning import LoadedTask
from tmde.eval.report import markdown_report
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.sentence_alignment import evaluate_sentence_alignment
from tmde.eval.statistics import compare
from tmde.eval.tasks import (
    TASKS,
    Provenance,
    SentenceAlignmentData,
    TaskError,
    TranslatedText,
    data_fingerprint,
)

PROVENANCE = Provenance(citation="by hand", license="CC0")
SENTENCES = 30


def translated_text(languages, shift=0):
    """A text whose sentences are aligned one to one; the gold alignment may be shifted."""
    first, second = languages
    beads = [((place,), (place + shift,)) for place in range(SENTENCES - shift)]
    return TranslatedText(
        languages,
        [f"{first} {place:02}" for place in range(SENTENCES)],
        [f"{second} {place:02}" for place in range(SENTENCES)],
        beads,
    )


DATA = SentenceAlignmentData(
    {
        "right": translated_text(("de", "en")),
        "shifted": translated_text(("de", "en"), shift=3),
        "french": translated_text(("de", "fr")),
    },
    PROVENANCE,
)


def vector(text):
    """Sentences of one number are translations."""
    return np.random.default_rng(int(text[3:])).normal(size=32)


def noisy_vector(text):
    rng = np.random.default_rng(list(text.encode()))
    return vector(text) + 2.5 * rng.normal(size=32)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_f1_by_hand(kind):
    """30 of 30 pairs are right in one text and 0 of 30 in the other, which has 27 right ones."""
    cells = evaluate_sentence_alignment(DATA, FakeSystem(vector, kind=kind))
    english, french = cells
    assert english.pair == ("de", "en")
    assert english.extra["precision"] == 30 / 60
    assert english.extra["recall"] == 30 / 57
    assert english.value == pytest.approx(2 * 30 / (60 + 57))
    assert english.extra["lax_f1"] == english.value
    assert english.extra["size"] == 57
    assert french.value == 1


def test_intervals_and_report():
    task = LoadedTask("bleualign", TASKS["sentence_alignment"](), DATA, data_fingerprint(DATA))
    (result,) = evaluate([task], [FakeSystem(vector)], EvaluationOptions(samples=200))
    english = result.cells[0]
    low, high = english.interval
    assert low < english.value < high
    # The text is all right or all wrong, so its places are like draws from a coin.
    assert high - low == pytest.approx(4 * 0.5 / np.sqrt(62), rel=0.2)
    report = markdown_report([result])
    assert "Strict F1" in report and "Lax F1" in report


def test_f1_of_the_intervals_is_that_of_the_counts():
    """Six predicted pairs, of which two are right, and four right ones, of which one is found."""
    counts = BeadCounts(
        predicted=np.array([2, 4]),
        right=np.array([1, 1]),
        gold=np.array([3, 1]),
        found=np.array([1, 0]),
    )
    summed = np.array([6.0, 2.0, 4.0, 1.0])
    assert statistics._f1_of(summed) == pytest.approx(counts.f1)
    assert counts.f1 == pytest.approx(2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4))
    assert np.isnan(statistics._f1_of(np.zeros(4)))


def test_difference_of_two_systems():
    task = LoadedTask("bleualign", TASKS["sentence_alignment"](), DATA, data_fingerprint(DATA))
    good, bad = FakeSystem(vector), FakeSystem(noisy_vector)
    good.name, bad.name = "good", "bad"
    a, b = evaluate([task], [bad, good], EvaluationOptions(samples=200))
    differences = compare(a, b, samples=200, permutations=199)
    assert differences[0].difference > 0.1
    assert differences[0].p < 0.05
    (same, *_) = compare(a, a, samples=200, permutations=199)
    assert same.difference == 0
    assert same.p == 1


def test_no_pair_of_sentences():
    text = TranslatedText(("de", "en"), ["de 01"], ["en 02"], [])
    with pytest.raises(TaskError, match="Found no sentence pairs"):
        evaluate_sentence_alignment(
            SentenceAlignmentData({"a": text}, PROVENANCE), FakeSystem(vector)
        )
