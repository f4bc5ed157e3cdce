"""Question retrieval: ranks by hand, ties, missing paragraphs, and intervals by paragraph."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tmde.eval.planning import LoadedTask
from tmde.eval.questions import evaluate_questions
from tmde.eval.report import markdown_report
from tmde.eval.results import summarize
from tmde.eval.runner import EvaluationOptions, evaluate
from tmde.eval.statistics import with_interval
from tmde.eval.systems import CharacterTfidf
from tmde.eval.tasks import TASKS, Provenance, QuestionData, Questions, TaskError, data_fingerprint

PROVENANCE = Provenance(citation="by hand", license="CC0")


def questions_of(language: str) -> Questions:
    """Two questions about paragraph `a`, and one about `b`."""
    return Questions(
        ids=["q0", "q1", "q2"],
        texts=[f"{language} q0", f"{language} q1", f"{language} q2"],
        paragraph_ids=["a", "a", "b"],
        paragraphs={"a": f"{language} a", "b": f"{language} b", "c": f"{language} c"},
    )


DATA = QuestionData({"de": questions_of("de"), "en": questions_of("en")}, PROVENANCE)

# Cosines of the German questions:
#               de a   de b   de c     en a   en b   en c
#   q0 (1, 0)    1      0      0.6      0.8    0      1       ranks 1 and 2
#   q1 (0, 1)    0      1      0.8      0.6    1      0       ranks 3 and 2
#   q2 (0, 1)    0      1      0.8      0.6    1      0       ranks 1 and 1
# The English questions point to their paragraphs, q2 in English alone.
VECTORS = {
    **{"de q0": [1, 0], "de q1": [0, 1], "de q2": [0, 1]},
    **{"de a": [1, 0], "de b": [0, 1], "de c": [0.6, 0.8]},
    **{"en q0": [0.8, 0.6], "en q1": [0.8, 0.6], "en q2": [0, 1]},
    **{"en a": [0.8, 0.6], "en b": [0, 2], "en c": [3, 0]},
}

every_kind = pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])


@every_kind
def test_outcomes_by_hand(kind):
    cells = {
        cell.pair: cell for cell in evaluate_questions(DATA, FakeSystem(VECTORS.get, kind=kind))
    }
    assert list(cells) == [("de", "de"), ("de", "en"), ("en", "de"), ("en", "en")]
    german = cells["de", "de"]
    assert german.outcomes.tolist() == [1, 0, 1]
    assert german.value == pytest.approx(2 / 3)
    assert german.extra["mrr"] == pytest.approx((1 + 1 / 3 + 1) / 3)
    across = cells["de", "en"]
    assert across.outcomes.tolist() == [0, 0, 1]
    assert across.extra["mrr"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)


def test_a_cell_describes_its_search():
    for cell in evaluate_questions(DATA, FakeSystem(VECTORS.get)):
        assert list(cell.ids) == ["a", "a", "b"]
        assert cell.chance == pytest.approx(1 / 3)
        assert cell.metric == "question_precision_at_1"
        assert (cell.extra["size"], cell.extra["candidates"]) == (3, 3)
        assert cell.extra["unanswered"] == 0


def test_same_is_the_mean_in_the_language_and_cross_that_across():
    cells = evaluate_questions(DATA, FakeSystem(VECTORS.get))
    means = summarize(cells)
    value = {cell.pair: cell.value for cell in cells}
    assert means["Same"] == pytest.approx((value["de", "de"] + value["en", "en"]) / 2)
    assert means["Cross"] == pytest.approx((value["de", "en"] + value["en", "de"]) / 2)


@every_kind
def test_equal_vectors_find_no_more_than_chance(kind):
    """A system gains nothing by candidates in the order of the questions."""
    system = FakeSystem(lambda text: [1.0, 1.0], kind=kind)
    for cell in evaluate_questions(DATA, system):
        assert cell.value == pytest.approx(cell.chance)
        reciprocals = [1 / rank for rank in range(1, round(1 / cell.chance) + 1)]
        assert cell.extra["mrr"] == pytest.approx(np.mean(reciprocals))


def test_paragraphs_of_the_same_text_are_one_candidate():
    """Otherwise each would tie with the other, and no question could be more than half right."""
    questions = Questions(
        ids=["q0", "q1"],
        texts=["de q0", "de q2"],
        paragraph_ids=["a", "copy of a"],
        paragraphs={"a": "de a", "copy of a": "de a", "b": "de b"},
    )
    (cell,) = evaluate_questions(
        QuestionData({"de": questions}, PROVENANCE), FakeSystem(VECTORS.get)
    )
    assert cell.extra["candidates"] == 2
    assert cell.outcomes.tolist() == [1, 0]


def test_questions_whose_paragraph_the_other_language_lacks_are_left_out():
    english = questions_of("en")
    without_b = Questions(
        english.ids[:2], english.texts[:2], english.paragraph_ids[:2], {"a": "en a", "c": "en c"}
    )
    data = QuestionData({"de": questions_of("de"), "en": without_b}, PROVENANCE)
    system = FakeSystem(VECTORS.get)
    cells = {cell.pair: cell for cell in evaluate_questions(data, system)}
    assert list(cells["de", "en"].ids) == ["a", "a"]
    assert cells["de", "en"].extra["unanswered"] == 1
    assert cells["en", "de"].extra["unanswered"] == 0
    task = LoadedTask("mine", TASKS["question_retrieval"](), data, data_fingerprint(data))
    report = markdown_report(list(evaluate([task], [system], EvaluationOptions())))
    assert "lacks their paragraph: up to 1 questions per pair" in report


def test_questions_are_queries_and_paragraphs_are_documents():
    system = FakeSystem(VECTORS.get)
    evaluate_questions(DATA, system)
    for (texts, fit_on), (_, language), role in zip(
        system.calls, system.languages, system.roles, strict=True
    ):
        assert role == ("query" if " q" in texts[0] else "document")
        assert texts[0].startswith(language)
        assert len(fit_on) == 6


def test_queries_are_drawn():
    (cell, *_) = evaluate_questions(DATA, FakeSystem(VECTORS.get), max_queries=2, seed=0)
    assert cell.extra["size"] == 2
    drawn = set()
    for seed in range(10):
        (cell, *_) = evaluate_questions(DATA, FakeSystem(VECTORS.get), max_queries=1, seed=seed)
        drawn.add(cell.ids[0])
    assert drawn == {"a", "b"}


def test_a_margin_is_used():
    """By cosine, `q0` takes the hub `b` (0.8) before `a` (0.6); by ratio each takes its own."""
    vectors = {"q0": [1, 0], "q1": [0, 1], "a": [0.6, -0.8], "b": [0.8, 0.6]}
    questions = Questions(["0", "1"], ["q0", "q1"], ["a", "b"], {"a": "a", "b": "b"})
    data = QuestionData({"de": questions}, PROVENANCE)
    (by_cosine,) = evaluate_questions(data, FakeSystem(vectors.get))
    (by_ratio,) = evaluate_questions(data, FakeSystem(vectors.get), scoring="ratio")
    assert by_cosine.outcomes.tolist() == [0, 1]
    assert by_ratio.outcomes.tolist() == [1, 1]


def test_one_paragraph_alone_is_an_error():
    questions = Questions(["q0"], ["de q0"], ["a"], {"a": "de a"})
    with pytest.raises(TaskError, match="no question with its paragraph and a second paragraph"):
        evaluate_questions(QuestionData({"de": questions}, PROVENANCE), FakeSystem(VECTORS.get))


def test_questions_about_one_paragraph_are_resampled_together():
    """Of four paragraphs, all questions are right, or all are wrong: as wide as 4 questions."""
    texts = [f"de q{number}" for number in range(80)]
    paragraphs = {name: f"de {name}" for name in "abcd"}
    paragraph_ids = list(itertools.chain.from_iterable([name] * 20 for name in "abcd"))
    questions = Questions(texts, texts, paragraph_ids, paragraphs)
    vectors = {f"de {name}": np.eye(5)[row] for row, name in enumerate("abcd")}
    for row, text in enumerate(texts):
        # Questions about c and d point to a and b.
        vectors[text] = np.eye(5)[row // 20 % 2]
    data = QuestionData({"de": questions}, PROVENANCE)
    (cell,) = evaluate_questions(data, FakeSystem(vectors.get))
    assert cell.value == 0.5
    low, high = with_interval(cell).interval
    assert high - low > 0.7


def test_tfidf_is_a_baseline():
    languages = {
        "de": ("Warum ist die Brücke gesperrt?", "Die Brücke ist gesperrt.", "Kuchen mit Eiern."),
        "en": ("Why is the bridge closed?", "The bridge is closed.", "A cake with eggs."),
    }
    questions = {}
    for language, (question, answer, other) in languages.items():
        questions[language] = Questions(["q"], [question], ["a"], {"a": answer, "b": other})
    data = QuestionData(questions, PROVENANCE)
    cells = {cell.pair: cell.value for cell in evaluate_questions(data, CharacterTfidf())}
    assert cells["de", "de"] == cells["en", "en"] == 1
