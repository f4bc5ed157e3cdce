"""Semantic similarity: correlations by hand, and what cannot be correlated."""

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered
from tmde.eval.similarity import evaluate_similarity
from tmde.eval.statistics import with_interval
from tmde.eval.tasks import Provenance, SimilarityData, SimilarityPairs, TaskError

PROVENANCE = Provenance(citation="by hand", license="CC0")
VECTORS = {"a": [1, 0], "p": [3, 4], "q": [0.8, 0.6], "r": [-1, 0], "b": [0, 2], "zero": [0, 0]}


def similarity_data(first, second, scores):
    ids = numbered("r", range(len(scores)))
    pairs = SimilarityPairs(ids, list(first), list(second), scores)
    return SimilarityData({("de", "en"): pairs}, PROVENANCE)


# Cosines: a-a 1, a-p 0.6, a-q 0.8, a-r -1, by rank 4, 2, 3, 1; gold by rank 4, 3, 2, 1.
FOUR_PAIRS = similarity_data("aaaa", "apqr", [5, 4, 3, 0])

every_kind = pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])


@every_kind
def test_correlations_by_hand(kind):
    (cell,) = evaluate_similarity(FOUR_PAIRS, FakeSystem(VECTORS.get, kind=kind))
    # Spearman: 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15) = 0.8
    assert cell.value == pytest.approx(0.8)
    # Pearson: gold - 3 = 2, 1, 0, -3; cosine - 0.35 = 0.65, 0.25, 0.45, -1.35
    assert cell.extra["pearson"] == pytest.approx(5.6 / (14 * 2.51) ** 0.5, abs=1e-6)


@every_kind
def test_a_cell_holds_gold_and_cosines(kind):
    (cell,) = evaluate_similarity(FOUR_PAIRS, FakeSystem(VECTORS.get, kind=kind))
    assert cell.pair == ("de", "en")
    assert cell.metric == "spearman"
    assert cell.chance == 0.0
    assert cell.extra["size"] == 4
    assert list(cell.ids) == ["r0", "r1", "r2", "r3"]
    np.testing.assert_allclose(cell.outcomes, [[5, 1], [4, 0.6], [3, 0.8], [0, -1]], atol=1e-6)


def test_a_system_may_be_fitted_on_all_texts():
    system = FakeSystem(VECTORS.get)
    evaluate_similarity(FOUR_PAIRS, system)
    assert [fit_on for _, fit_on in system.calls] == [list("aaaaapqr")] * 2


def test_ties_get_their_mean_rank():
    """Cosines 1, 0, 0 (a zero vector): ranks 3, 1.5, 1.5; gold 3, 2, 1."""
    data = similarity_data("aaa", ["a", "b", "zero"], [3, 2, 1])
    (cell,) = evaluate_similarity(data, FakeSystem(VECTORS.get))
    # Pearson of the ranks: (1, -0.5, -0.5) with (1, 0, -1): 1.5 / sqrt(1.5 * 2)
    assert cell.value == pytest.approx(1.5 / 3**0.5)


@pytest.mark.parametrize(("second", "scores"), [("ap", [1, 2]), ("apq", [2, 2, 2])])
def test_what_cannot_be_correlated(second, scores):
    data = similarity_data("a" * len(second), second, scores)
    message = "de-en: found . pairs with . different gold scores, expected at least 3"
    with pytest.raises(TaskError, match=message):
        evaluate_similarity(data, FakeSystem(VECTORS.get))


def test_equal_cosines_are_no_correlation():
    data = similarity_data("aaa", "ppp", [1, 2, 3])
    (cell,) = evaluate_similarity(data, FakeSystem(VECTORS.get))
    assert cell.value == 0.0
    assert cell.extra == {"size": 3, "constant": 1.0}
    assert with_interval(cell, samples=50).interval == (0.0, 0.0)
