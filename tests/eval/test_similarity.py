"""Semantic similarity: correlations by hand, and what cannot be correlated."""

import numpy as np
import pytest
import scipy.sparse

from tests.eval.fake_system import FakeSystem
from tmde.eval.similarity import evaluate_similarity
from tmde.eval.statistics import with_interval
from tmde.eval.tasks import Provenance, SimilarityData, SimilarityPairs, TaskError

PROVENANCE = Provenance(citation="by hand", licence="CC0")
VECTORS = {"a": [1, 0], "p": [3, 4], "q": [0.8, 0.6], "r": [-1, 0], "b": [0, 2], "zero": [0, 0]}


def similarity_data(first, second, scores):
    ids = [f"r{row}" for row in range(len(scores))]
    return SimilarityData({("de", "en"): SimilarityPairs(ids, first, second, scores)}, PROVENANCE)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_correlation_by_hand(kind):
    # cosines: a-a 1, a-p 0.6, a-q 0.8, a-r -1, by rank 4, 2, 3, 1; gold by rank 4, 3, 2, 1
    # Spearman 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15) = 0.8
    system = FakeSystem(VECTORS.get, kind=kind)
    (cell,) = evaluate_similarity(similarity_data(list("aaaa"), list("apqr"), [5, 4, 3, 0]), system)
    assert (cell.source, cell.target, cell.metric, cell.chance) == ("de", "en", "spearman", 0.0)
    assert cell.value == pytest.approx(0.8)
    assert list(cell.ids) == ["r0", "r1", "r2", "r3"]
    np.testing.assert_allclose(cell.outcomes, [[5, 1], [4, 0.6], [3, 0.8], [0, -1]], atol=1e-6)
    # Pearson: gold - 3 = 2, 1, 0, -3; cosine - 0.35 = 0.65, 0.25, 0.45, -1.35: 5.6 / sqrt(14 * 2.51)
    assert cell.extra["pearson"] == pytest.approx(5.6 / (14 * 2.51) ** 0.5, abs=1e-6)
    assert cell.extra["size"] == 4
    assert [fit_on for _, fit_on in system.calls] == [list("aaaaapqr")] * 2


def test_ties_get_their_mean_rank():
    # cosines 1, 0, 0 (a zero vector): ranks 3, 1.5, 1.5; gold 3, 2, 1
    # Pearson of the ranks: (1, -0.5, -0.5) with (1, 0, -1): 1.5 / sqrt(1.5 * 2)
    (cell,) = evaluate_similarity(
        similarity_data(list("aaa"), ["a", "b", "zero"], [3, 2, 1]), FakeSystem(VECTORS.get)
    )
    assert cell.value == pytest.approx(1.5 / 3**0.5)


@pytest.mark.parametrize(("second", "scores"), [("ap", [1, 2]), ("apq", [2, 2, 2])])
def test_what_cannot_be_correlated(second, scores):
    with pytest.raises(
        TaskError, match="de-en: found . pairs with . different gold scores, expected at least 3"
    ):
        evaluate_similarity(
            similarity_data(["a"] * len(second), list(second), scores), FakeSystem(VECTORS.get)
        )


def test_equal_cosines_are_no_correlation():
    (cell,) = evaluate_similarity(
        similarity_data(list("aaa"), list("ppp"), [1, 2, 3]), FakeSystem(VECTORS.get)
    )
    assert (cell.value, cell.extra) == (0.0, {"size": 3, "constant": 1.0})
    assert with_interval(cell, samples=50).interval == (0.0, 0.0)
