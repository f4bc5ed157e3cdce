"""Translation retrieval: what is in a pool, and precision at 1 by hand."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered, numbered_by_language
from tmde.eval.results import pairs_of
from tmde.eval.retrieval import evaluate_retrieval, precision_at_1, retrieval_pool
from tmde.eval.tasks import Provenance, RetrievalData, TaskError

PROVENANCE = Provenance(citation="by hand", license="CC0")

# cosines:        t0    t1    t2
#   s0 (1, 0)     1     0.8   0.6      nearest t0: right
#   s1 (0, 1)     0     0.6   0.8      nearest t2: wrong
#   s2 (0.6, 0.8) 0.6   0.96  1        nearest t2: right
# nearest sources: t0 s0 right, t1 s2 wrong, t2 s2 right
SOURCES = np.array([[1, 0], [0, 1], [0.6, 0.8]])
TARGETS = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8]])


def test_precision_is_the_mean_of_both_directions():
    assert precision_at_1(SOURCES, TARGETS) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_precision_with_a_vector_that_points_away():
    """s0 takes t1 (0.8 > -1) and t0 takes s1 (0 > -0.6 > -1): s2 and t2 alone are right."""
    targets = np.array([[-1, 0], *TARGETS[1:]])
    assert precision_at_1(SOURCES, targets) == pytest.approx((1 / 3 + 1 / 3) / 2)


def test_precision_of_an_empty_pool_is_zero():
    assert precision_at_1(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


ROWS = [
    {"de": "eins", "en": "one", "fr": "un"},
    {"de": "zwei", "en": None, "fr": "deux"},  # no English
    {"de": "drei", "fr": "trois"},  # no English either
    {"de": "", "en": "four", "fr": "quatre"},  # empty German
    {"de": "eins", "en": "ONE", "fr": "une"},  # German seen
    {"de": "fünf", "en": "one", "fr": "cinq"},  # English seen
    {"de": "one", "en": "eins", "fr": "six"},  # the same words, but of the other language
    {"de": "sieben", "en": "seven", "fr": None},
    {"de": "fünf", "en": "five", "fr": "cinq"},  # its German was seen in a row that was left out
]


def test_pool_leaves_out_missing_and_repeated_texts():
    pool = retrieval_pool(ROWS, "de", "en", size=4)
    assert pool.source_language == "de"
    assert pool.target_language == "en"
    assert pool.sources == ["eins", "one", "sieben", "fünf"]
    assert pool.targets == ["one", "eins", "seven", "five"]


def test_pool_has_at_most_the_requested_size():
    assert retrieval_pool(ROWS, "de", "en", size=2).sources == ["eins", "one"]


# cosines:       e0             e1, a hub
#   d0 (1, 0)    0.6 (right)    0.8
#   d1 (0, 1)   -0.8            0.6 (right)
# By cosine d0 takes the hub e1: ranks 2, 1; by ratio (k 4, lowered to 2) each takes its own.
# Backwards: e0 to d0 0.6, d1 -0.8: rank 1; e1 to d0 0.8, d1 0.6: rank 2; ratios are the same.
VECTORS = {"d0": [1, 0], "d1": [0, 1], "e0": [0.6, -0.8], "e1": [0.8, 0.6]}
HUB = RetrievalData(["r0", "r1"], {"de": ["d0", "d1"], "en": ["e0", "e1"]}, PROVENANCE)
HUB_EXTRA = {
    "mrr": (1 / 2 + 1) / 2,
    "recall_at_10": 1.0,
    "precision_at_1_margin": 1.0,
    "error_rate": 0.0,
    "size": 2,
    "left_out": 0,
    "candidates": 2,
}

every_kind = pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])


@every_kind
def test_outcomes_by_hand(kind):
    to_english, to_german = evaluate_retrieval(HUB, FakeSystem(VECTORS.get, kind=kind))
    assert (to_english.source, to_english.target) == ("de", "en")
    assert to_english.outcomes.tolist() == [0, 1]
    assert (to_german.source, to_german.target) == ("en", "de")
    assert to_german.outcomes.tolist() == [1, 0]


@every_kind
def test_scores_by_hand(kind):
    for cell in evaluate_retrieval(HUB, FakeSystem(VECTORS.get, kind=kind)):
        assert cell.metric == "precision_at_1"
        assert cell.value == 0.5
        assert cell.chance == 0.5
        assert list(cell.ids) == ["r0", "r1"]
        assert cell.extra == HUB_EXTRA


@every_kind
def test_texts_that_tie_share_the_first_place(kind):
    tied = VECTORS | {"e0": [1, 0], "e1": [2, 0]}
    to_english, _ = evaluate_retrieval(HUB, FakeSystem(tied.get, kind=kind))
    # Both are nearest to d0 = (1, 0), and at a right angle to d1.
    assert to_english.outcomes.tolist() == [0.5, 0.5]


def column_of_rows(language: str) -> list[str | None]:
    return [row.get(language) for row in ROWS]


TEXTS = {
    "de": column_of_rows("de"),
    "en": column_of_rows("en"),
    "fr": column_of_rows("fr"),
    "nl": column_of_rows("nl"),
}
INCOMPLETE = RetrievalData(numbered("r", range(len(ROWS))), TEXTS, PROVENANCE)


@pytest.fixture
def random_system() -> FakeSystem:
    rng = np.random.default_rng(0)
    vectors = {}
    for column in TEXTS.values():
        for text in filter(None, column):
            vectors[text] = rng.normal(size=8)
    return FakeSystem(vectors.get)


def test_pairs_without_two_rows_have_no_cell(random_system):
    cells = evaluate_retrieval(INCOMPLETE, random_system)
    assert pairs_of(cells) == [
        ("de", "en"),
        ("de", "fr"),
        ("en", "de"),
        ("en", "fr"),
        ("fr", "de"),
        ("fr", "en"),
    ]


def test_rows_without_a_language_and_repeated_texts_are_left_out(random_system):
    """The rows are those of the pools above."""
    cells = {cell.pair: cell for cell in evaluate_retrieval(INCOMPLETE, random_system)}
    assert list(cells["de", "en"].ids) == ["r0", "r6", "r7", "r8"]
    assert cells["de", "en"].extra["left_out"] == 2
    assert list(cells["fr", "de"].ids) == ["r0", "r1", "r2", "r5", "r6"]


def test_each_language_is_represented_as_one_list(random_system):
    evaluate_retrieval(INCOMPLETE, random_system)
    all_texts = []
    for language in ("de", "en", "fr"):
        all_texts.append(list(filter(None, TEXTS[language])))
    represented = []
    for texts, _ in random_system.calls:
        assert texts in all_texts
        represented.append(texts)
    for texts in all_texts:
        assert texts in represented


def test_a_system_is_fitted_on_the_pool_alone(random_system):
    evaluate_retrieval(INCOMPLETE, random_system)
    pool = ["eins", "one", "sieben", "fünf", "one", "eins", "seven", "five"]
    for _, fit_on in random_system.calls[:2]:
        assert fit_on == pool


def test_languages_without_rows_in_common_are_an_error(random_system):
    data = replace(INCOMPLETE, texts={"de": TEXTS["de"], "nl": TEXTS["nl"]})
    message = "no language pair with 2 common rows among de, nl"
    with pytest.raises(TaskError, match=message):
        evaluate_retrieval(data, random_system)


@pytest.fixture
def first_cell():
    """`first_cell(**options)`: the cell of 30 random rows."""
    rng = np.random.default_rng(0)
    texts = numbered_by_language(("de", "en"), "", 30)
    vectors = {text: rng.normal(size=6) for text in texts["de"] + texts["en"]}
    data = RetrievalData(numbered("r", range(30)), texts, PROVENANCE)
    return lambda **options: evaluate_retrieval(data, FakeSystem(vectors.get), **options)[0]


def test_max_queries_are_drawn_from_all_rows(first_cell):
    all_ids = first_cell().ids
    few = first_cell(max_queries=7)
    assert len(few.ids) == 7
    assert few.ids == [row_id for row_id in all_ids if row_id in few.ids]
    assert few.ids != all_ids[:7]


def test_another_seed_draws_other_queries(first_cell):
    assert first_cell(max_queries=7, seed=1).ids != first_cell(max_queries=7).ids


def test_drawn_queries_are_searched_among_all_candidates(first_cell):
    whole = first_cell()
    few = first_cell(max_queries=7)
    outcome_of = dict(zip(whole.ids, whole.outcomes, strict=True))
    assert few.outcomes.tolist() == [outcome_of[row_id] for row_id in few.ids]
    assert few.extra["size"] == 7
    assert few.extra["candidates"] == 30
    assert few.chance == 1 / 30
