"""Translation retrieval: what is in a pool, and precision at 1 by hand."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tmde.eval.retrieval import evaluate_retrieval, precision_at_1, retrieval_pool
from tmde.eval.tasks import Provenance, RetrievalData, TaskError


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
    assert (pool.source_language, pool.target_language) == ("de", "en")
    assert pool.sources == ["eins", "one", "sieben", "fünf"]
    assert pool.targets == ["one", "eins", "seven", "five"]
    assert retrieval_pool(ROWS, "de", "en", size=2).sources == ["eins", "one"]


PROVENANCE = Provenance(citation="by hand", licence="CC0")


# cosines:       e0             e1, a hub
#   d0 (1, 0)    0.6 (right)    0.8
#   d1 (0, 1)   -0.8            0.6 (right)
VECTORS = {"d0": [1, 0], "d1": [0, 1], "e0": [0.6, -0.8], "e1": [0.8, 0.6]}
HUB = RetrievalData(["r0", "r1"], {"de": ["d0", "d1"], "en": ["e0", "e1"]}, PROVENANCE)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_cells_by_hand(kind):
    # by cosine d0 takes the hub e1: ranks 2, 1; by ratio (k 4, lowered to 2) each takes its own
    # backwards: e0 to d0 0.6, d1 -0.8: rank 1; e1 to d0 0.8, d1 0.6: rank 2; the ratio is the same both ways
    cells = evaluate_retrieval(HUB, FakeSystem(VECTORS.get, kind=kind))
    assert [(cell.source, cell.target, cell.outcomes.tolist()) for cell in cells] == [
        ("de", "en", [0, 1]),
        ("en", "de", [1, 0]),
    ]
    for cell in cells:
        assert (cell.metric, cell.value, cell.chance, list(cell.ids)) == (
            "precision_at_1",
            0.5,
            0.5,
            ["r0", "r1"],
        )
        scores = {
            "mrr": (1 / 2 + 1) / 2,
            "recall_at_10": 1.0,
            "precision_at_1_margin": 1.0,
            "error_rate": 0.0,
        }
        assert cell.extra == scores | {"size": 2, "left_out": 0, "candidates": 2}
    (cell, _) = evaluate_retrieval(
        HUB, FakeSystem((VECTORS | {"e0": [1, 0], "e1": [2, 0]}).get, kind=kind)
    )
    assert cell.outcomes.tolist() == [0, 0]  # e1 ties with e0


def test_rows_without_a_language_and_repeated_texts():
    texts = {language: [row.get(language) for row in ROWS] for language in ("de", "en", "fr", "nl")}
    data = RetrievalData([f"r{number}" for number in range(len(ROWS))], texts, PROVENANCE)
    rng = np.random.default_rng(0)
    system = FakeSystem(
        {text: rng.normal(size=8) for column in texts.values() for text in column if text}.get
    )
    cells = {(cell.source, cell.target): cell for cell in evaluate_retrieval(data, system)}
    assert list(cells) == [
        ("de", "en"),
        ("de", "fr"),
        ("en", "de"),
        ("en", "fr"),
        ("fr", "de"),
        ("fr", "en"),
    ]
    assert list(cells["de", "en"].ids) == ["r0", "r6", "r7", "r8"]  # as in the pool tests above
    assert cells["de", "en"].extra["left_out"] == 2
    assert list(cells["fr", "de"].ids) == ["r0", "r1", "r2", "r5", "r6"]
    # each language is represented as one list, and fitted on the pool alone
    assert {tuple(asked) for asked, _ in system.calls} == {
        tuple(filter(None, texts[code])) for code in ("de", "en", "fr")
    }
    pool = ["eins", "one", "sieben", "fünf", "one", "eins", "seven", "five"]
    assert system.calls[0][1] == system.calls[1][1] == pool
    with pytest.raises(TaskError, match="no pair with 2 rows in common among the languages de, nl"):
        evaluate_retrieval(
            replace(data, texts={code: data.texts[code] for code in ("de", "nl")}), system
        )


def test_max_queries():
    rng = np.random.default_rng(0)
    texts = {language: [f"{language}{row}" for row in range(30)] for language in ("de", "en")}
    data = RetrievalData([f"r{row}" for row in range(30)], texts, PROVENANCE)
    system = FakeSystem(
        {text: rng.normal(size=6) for column in texts.values() for text in column}.get
    )
    options = ({}, {"max_queries": 7}, {"max_queries": 7, "seed": 1})
    whole, few, other = (evaluate_retrieval(data, system, **option)[0] for option in options)
    assert few.ids == [name for name in whole.ids if name in few.ids] and len(few.ids) == 7
    assert few.ids != whole.ids[:7] and other.ids != few.ids  # drawn from all of the file
    found = dict(zip(whole.ids, whole.outcomes, strict=True))
    assert few.outcomes.tolist() == [
        found[name] for name in few.ids
    ]  # the same candidates, by cosine
    assert (few.extra["size"], few.extra["candidates"], few.chance) == (7, 30, 1 / 30)
