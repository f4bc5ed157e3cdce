"""Translation retrieval: what is in a pool, and precision at 1 by hand."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.eval.retrieval import evaluate_retrieval, precision_at_1, retrieval_pool
from modeling_tmde.eval.systems import CharacterTfidf
from modeling_tmde.eval.tasks import Provenance, RetrievalData, TaskError


def test_precision_of_both_directions_by_hand():
    # cosines:        t0    t1    t2
    #   s0 (1, 0)     1     0.8   0.6      nearest t0: right
    #   s1 (0, 1)     0     0.6   0.8      nearest t2: wrong
    #   s2 (0.6, 0.8) 0.6   0.96  1        nearest t2: right
    # nearest sources: t0 s0 right, t1 s2 wrong, t2 s2 right
    sources = np.array([[1, 0], [0, 1], [0.6, 0.8]])
    targets = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8]])
    assert precision_at_1(sources, targets) == pytest.approx((2 / 3 + 2 / 3) / 2)
    # t0 turned round: s0 takes t1 (0.8 > -1) and t0 takes s1 (0 > -0.6 > -1), so that s2 and t2 alone are right
    targets[0] = [-1, 0]
    assert precision_at_1(sources, targets) == pytest.approx((1 / 3 + 1 / 3) / 2)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 12), width=st.integers(1, 5), seed=st.integers(0, 999))
def test_equals_a_plain_search(rows, width, seed):
    rng = np.random.default_rng(seed)
    sources = rng.normal(size=(rows, width))
    targets = sources + rng.normal(size=(rows, width))

    def cosine(x, y):
        return sum(p * q for p, q in zip(x, y, strict=True)) / (sum(p * p for p in x) * sum(q * q for q in y)) ** 0.5

    if width == 1:  # cosines are 1 and -1 alone: all ties
        return
    right = 0
    for queries, pool in ((sources, targets), (targets, sources)):
        for row, query in enumerate(queries):
            right += max(range(rows), key=lambda other: cosine(query, pool[other])) == row  # noqa: B023
    assert precision_at_1(sources, targets) == pytest.approx(right / (2 * rows))
    assert precision_at_1(targets, sources) == pytest.approx(right / (2 * rows))


def test_empty_pool_and_zero_vectors():
    assert precision_at_1(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0
    with np.errstate(all="raise"):
        assert precision_at_1(np.zeros((1, 4)), np.zeros((1, 4))) == 1.0


# ---- Pool

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
    pool = retrieval_pool(ROWS, "de", "en")
    assert (pool.source_language, pool.target_language) == ("de", "en")
    assert pool.sources == ["eins", "one", "sieben", "fünf"]
    assert pool.targets == ["one", "eins", "seven", "five"]


# ---- Evaluation

PROVENANCE = Provenance(citation="by hand", licence="CC0")


class Lookup:
    """A system whose vectors are given by text; it notes what it was asked."""

    name, fingerprint, truncated, texts = "lookup", "0", 0, 0

    def __init__(self, vectors, kind=np.asarray):
        self.vectors, self.kind, self.calls = vectors, kind, []

    def represent(self, texts, fit_on=(), language=None):
        self.calls.append((list(texts), list(fit_on)))
        return self.kind(np.array([self.vectors[text] for text in texts], dtype=np.float32))


# cosines:       e0             e1, a hub
#   d0 (1, 0)    0.6 (right)    0.8
#   d1 (0, 1)   -0.8            0.6 (right)
VECTORS = {"d0": [1, 0], "d1": [0, 1], "e0": [0.6, -0.8], "e1": [0.8, 0.6]}
HUB = RetrievalData(ids=["r0", "r1"], texts={"de": ["d0", "d1"], "en": ["e0", "e1"]}, provenance=PROVENANCE)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_cells_by_hand(kind):
    # by cosine d0 takes the hub e1: ranks 2, 1; by ratio (k 4, lowered to 2) each takes its own, see test_nearest.py
    # backwards: e0 to d0 0.6, d1 -0.8: rank 1; e1 to d0 0.8, d1 0.6: rank 2; the ratio is the same both ways
    cells = evaluate_retrieval(HUB, Lookup(VECTORS, kind))
    assert [(cell.source, cell.target, cell.metric) for cell in cells] == [
        ("de", "en", "precision_at_1"),
        ("en", "de", "precision_at_1"),
    ]
    assert [cell.outcomes.tolist() for cell in cells] == [[0, 1], [1, 0]]
    for cell in cells:
        assert (cell.value, cell.chance, list(cell.ids)) == (0.5, 0.5, ["r0", "r1"])
        assert cell.extra == {
            "mrr": (1 / 2 + 1) / 2,
            "recall_at_10": 1.0,
            "precision_at_1_margin": 1.0,
            "error_rate": 0.0,
            "size": 2,
            "left_out": 0,
            "candidates": 2,
        }


def test_equal_vectors_are_no_hit():
    data = RetrievalData(HUB.ids, HUB.texts, PROVENANCE)
    (cell, _) = evaluate_retrieval(data, Lookup(VECTORS | {"e0": [1, 0], "e1": [2, 0]}))
    assert cell.outcomes.tolist() == [0, 0]  # e1 ties with e0


def test_rows_without_a_language_and_repeated_texts():
    texts = {language: [row.get(language) for row in ROWS] for language in ("de", "en", "fr", "nl")}
    data = RetrievalData([f"r{number}" for number in range(len(ROWS))], texts, PROVENANCE)
    rng = np.random.default_rng(0)
    vectors = {text: rng.normal(size=8) for column in texts.values() for text in column if text}
    cells = {(cell.source, cell.target): cell for cell in evaluate_retrieval(data, Lookup(vectors))}
    assert list(cells) == [("de", "en"), ("de", "fr"), ("en", "de"), ("en", "fr"), ("fr", "de"), ("fr", "en")]
    assert list(cells["de", "en"].ids) == ["r0", "r6", "r7", "r8"]  # as in the pool tests above
    assert cells["de", "en"].extra["left_out"] == 2
    assert list(cells["fr", "de"].ids) == ["r0", "r1", "r2", "r5", "r6"]
    with pytest.raises(TaskError, match="no pair with 2 rows in common among the languages de, nl"):
        evaluate_retrieval(data.restrict(["de", "nl"]), Lookup(vectors))


def random_data(rows=30, languages=("de", "en", "fr"), seed=0):
    rng = np.random.default_rng(seed)
    texts = {language: [f"{language}{row}" for row in range(rows)] for language in languages}
    vectors = {text: rng.normal(size=6) for column in texts.values() for text in column}
    return RetrievalData([f"r{row}" for row in range(rows)], texts, PROVENANCE), vectors


def test_each_language_is_represented_as_one_list():
    data, vectors = random_data()
    data.texts["fr"][3] = None
    system = Lookup(vectors)
    evaluate_retrieval(data, system)
    expected = [[text for text in column if text] for column in data.texts.values()]
    assert {tuple(texts) for texts, _ in system.calls} == {tuple(texts) for texts in expected}
    # German to French: row 3 is in the German list, but in no pool, and nothing is fitted on it
    fitted = {tuple(fit_on) for texts, fit_on in system.calls if texts == expected[2]}
    rows = [row for row in range(30) if row != 3]
    assert tuple([f"de{row}" for row in rows] + [f"fr{row}" for row in rows]) in fitted


def test_max_queries():
    data, vectors = random_data(languages=("de", "en"))
    whole, few, other = (
        evaluate_retrieval(data, Lookup(vectors), **options)[0]
        for options in ({}, {"max_queries": 7}, {"max_queries": 7, "seed": 1})
    )
    assert few.ids == [name for name in whole.ids if name in few.ids] and len(few.ids) == 7
    assert few.ids != whole.ids[:7] and other.ids != few.ids  # drawn from all of the file
    found = dict(zip(whole.ids, whole.outcomes, strict=True))
    assert few.outcomes.tolist() == [found[name] for name in few.ids]  # the same candidates, by cosine
    assert (few.extra["size"], few.extra["candidates"], few.chance) == (7, 30, 1 / 30)


def test_tfidf_is_fitted_on_the_pool():
    data = RetrievalData(
        ids=["a", "b", "c"],
        texts={
            "de": ["Kommission Europa", "Parlament Wien", "Musik"],
            "it": ["commissione Europa", "parlamento Vienna", "musica"],
        },
        provenance=PROVENANCE,
    )
    cells = evaluate_retrieval(data, CharacterTfidf())
    assert [cell.value for cell in cells] == [1.0, 1.0]
