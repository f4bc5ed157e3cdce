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


def test_empty_pool_zero_vectors_and_wrong_shapes():
    assert precision_at_1(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0
    with np.errstate(all="raise"):
        assert precision_at_1(np.zeros((1, 4)), np.zeros((1, 4))) == 1.0
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(2, 4\)"):
        precision_at_1(np.zeros((3, 4)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(3, 5\)"):
        precision_at_1(np.zeros((3, 4)), np.zeros((3, 5)))


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


def circle(number, of):
    angle = 2 * np.pi * number / of
    return [np.cos(angle), np.sin(angle)]


@pytest.mark.parametrize(("nearer", "recall"), [(9, 1.0), (10, 0.5), (11, 0.5)])
def test_distractors_and_recall_at_10(nearer, recall):
    # d0 has some candidates nearer than its own e0, d1 has its own first
    vectors = {"d0": circle(0, 360), "d1": circle(180, 360), "e0": circle(20, 360), "e1": circle(181, 360)}
    distractors = [f"x{number}" for number in range(1, nearer + 1)]
    vectors |= {text: circle(number + 1, 360) for number, text in enumerate(distractors)}
    data = RetrievalData(
        ids=["r0", "r1"],
        texts={"de": ["d0", "d1"], "en": ["e0", "e1"]},
        provenance=PROVENANCE,
        distractors={"en": [*distractors, "e1", "e0"]},  # of the pool: not once more
    )
    forward, backward = evaluate_retrieval(data, Lookup(vectors), margin=None)
    assert forward.outcomes.tolist() == [0, 1]
    assert forward.extra == pytest.approx(
        {"mrr": (1 / (nearer + 1) + 1) / 2, "recall_at_10": recall, "size": 2, "candidates": nearer + 2, "left_out": 0}
    )
    assert forward.chance == pytest.approx(1 / (nearer + 2))
    assert (backward.extra["candidates"], backward.value) == (2, 1.0)  # German has no distractors


def test_equal_vectors_are_no_hit():
    vectors = VECTORS | {"e0": [1, 0], "e1": [0, 1], "copy": [2, 0]}
    data = RetrievalData(
        ids=HUB.ids, texts=HUB.texts, provenance=PROVENANCE, distractors={"en": ["copy"], "de": ["d0"]}
    )
    forward, backward = evaluate_retrieval(data, Lookup(vectors))
    assert forward.outcomes.tolist() == [0, 1]
    assert backward.outcomes.tolist() == [1, 1]


def test_rows_without_a_language_and_repeated_texts():
    texts = {language: [row.get(language) for row in ROWS] for language in ("de", "en", "fr", "nl")}
    data = RetrievalData(ids=[f"r{number}" for number in range(len(ROWS))], texts=texts, provenance=PROVENANCE)
    rng = np.random.default_rng(0)
    vectors = {text: rng.normal(size=8) for column in texts.values() for text in column if text}
    lines = []
    cells = {
        (cell.source, cell.target): cell for cell in evaluate_retrieval(data, Lookup(vectors), progress=lines.append)
    }
    assert list(cells) == [("de", "en"), ("de", "fr"), ("en", "de"), ("en", "fr"), ("fr", "de"), ("fr", "en")]
    assert list(cells["de", "en"].ids) == ["r0", "r6", "r7", "r8"]  # as in the pool tests above
    assert list(cells["fr", "de"].ids) == ["r0", "r1", "r2", "r5", "r6"]
    assert len(lines) == 6 and lines[0].startswith("de -> en")
    with pytest.raises(TaskError, match="pairs: de-nl has 0 rows .* of 9 rows in all, expected at least 2"):
        evaluate_retrieval(data, Lookup(vectors), pairs=[("de", "en"), ("de", "nl")])
    only = evaluate_retrieval(data, Lookup(vectors), pairs=[("fr", "en")])
    assert [(cell.source, cell.target) for cell in only] == [("fr", "en")]
    np.testing.assert_array_equal(only[0].outcomes, cells["fr", "en"].outcomes)


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


def test_max_size_and_max_queries():
    data, vectors = random_data()
    whole = evaluate_retrieval(data, Lookup(vectors), pairs=[("de", "en")])[0]
    system = Lookup(vectors)
    first = evaluate_retrieval(data, system, pairs=[("de", "en")], max_queries=7)[0]
    assert first.ids == [name for name in whole.ids if name in first.ids] and len(first.ids) == 7
    assert list(first.ids) != list(whole.ids)[:7]  # drawn from all of the file
    found = dict(zip(whole.ids, whole.outcomes, strict=True))
    assert first.outcomes.tolist() == [found[name] for name in first.ids]  # the same candidates, by cosine
    other = evaluate_retrieval(data, Lookup(vectors), pairs=[("de", "en")], max_queries=7, seed=1)[0]
    assert other.ids != first.ids
    assert (first.extra["size"], first.extra["candidates"], first.chance) == (7, 30, 1 / 30)
    assert sorted(len(texts) for texts, _ in system.calls) == [7, 30]  # only what is needed
    system = Lookup(vectors)
    small = evaluate_retrieval(data, system, pairs=[("de", "en")], max_size=7, max_queries=5)[0]
    assert (small.extra["size"], small.extra["candidates"]) == (5, 7)
    assert max(len(texts) for texts, _ in system.calls) == 7


def test_tfidf_is_fitted_on_the_pool():
    data = RetrievalData(
        ids=["a", "b", "c"],
        texts={
            "de": ["Kommission Europa", "Parlament Wien", "Musik"],
            "it": ["commissione Europa", "parlamento Vienna", "musica"],
        },
        provenance=PROVENANCE,
    )
    cells = evaluate_retrieval(data, CharacterTfidf(), max_size=3)
    assert [cell.value for cell in cells] == [1.0, 1.0]
