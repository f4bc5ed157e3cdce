"""The geometry of vectors: numbers by hand, and plain numpy and scipy beside it."""

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist

from tests.eval.fake_system import FakeSystem
from tests.eval.numbered import numbered, numbered_by_language
from tmde.eval.geometry import (
    euclidean_precision_at_1,
    evaluate_geometry,
    principal_components,
    raw_and_debiased,
)
from tmde.eval.retrieval import precision_at_1
from tmde.eval.tasks import TASKS, GeometryData, Provenance, TaskError

PROVENANCE = Provenance(citation="by hand", license="CC0")


# ---- The spectrum


def test_components_by_hand():
    """Variances 90, 8 and 2 of 100: one component holds 90%, two 95%, three all."""
    axes = np.diag(np.sqrt([90.0, 8.0, 2.0]))
    vectors = np.vstack([axes, -axes]) + [5.0, -3.0, 1.0]  # The mean does not count.
    assert principal_components(vectors) == 1
    assert principal_components(vectors, 0.95) == 2
    assert principal_components(vectors, 1.0) == 3


def test_components_of_collapsed_vectors():
    direction = np.random.default_rng(0).normal(size=(1, 16))
    lengths = np.linspace(-1, 1, 40)[:, None]
    assert principal_components(lengths * direction) == 1
    assert principal_components(np.ones((10, 4))) == 0


def test_components_are_those_of_the_covariance():
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(200, 12)) * generator.uniform(0.1, 3, 12)
    variances = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    count = principal_components(vectors)
    assert variances[:count].sum() >= 0.9 * variances.sum()
    assert variances[: count - 1].sum() < 0.9 * variances.sum()


# ---- Euclidean distances


def test_euclidean_precision_by_hand():
    """A long translation is found by cosine, and not by distance.

    s0 (1, 0) lies 3 from its t0 (4, 0), and sqrt(2) from t1 (0, 1): wrong. s1 (0, 1.5) lies 0.5
    from t1: right. t0 lies 3 from s0 and 4.27 from s1: right. t1 lies 1.41 from s0 and 0.5 from s1:
    right.
    """
    sources = np.array([[1.0, 0.0], [0.0, 1.5]])
    targets = np.array([[4.0, 0.0], [0.0, 1.0]])
    assert euclidean_precision_at_1(sources, targets) == 0.75


def test_euclidean_precision_is_that_of_all_distances():
    generator = np.random.default_rng(2)
    sources = generator.normal(size=(60, 5))
    targets = sources + generator.normal(size=(60, 5))
    distances = cdist(sources, targets)
    rows = np.arange(60)
    hits = [distances.argmin(axis=1) == rows, distances.argmin(axis=0) == rows]
    assert 0.1 < np.mean(hits) < 0.9
    assert euclidean_precision_at_1(sources, targets) == np.mean(hits)


def test_equal_distances_are_misses():
    assert euclidean_precision_at_1(np.ones((3, 2)), np.ones((3, 2))) == pytest.approx(1 / 3)


# ---- The task


def geometry_data(count: int = 40, max_rows: int = 1000) -> GeometryData:
    texts = numbered_by_language(("de", "en"), " ", count)
    return GeometryData(numbered("r", range(count)), texts, PROVENANCE, max_rows)


def vector_of(text: str) -> np.ndarray:
    """A vector of the number, and an offset of German."""
    language, number = text.split()
    vector = np.random.default_rng(int(number)).normal(size=6)
    if language == "de":
        vector[0] += 10.0
    return vector


def test_cells():
    (cell,) = evaluate_geometry(geometry_data(), FakeSystem(vector_of))
    assert (cell.source, cell.target, cell.metric) == ("de", "en", "language_accuracy")
    assert cell.value == 1.0
    assert cell.value == cell.outcomes.mean()
    # Every other row is tested, in both languages.
    assert list(cell.ids) == [*numbered("r", range(1, 40, 2))] * 2
    assert cell.extra["size"] == 40
    german = np.array([vector_of(text) for text in numbered("de ", range(40))])
    english = np.array([vector_of(text) for text in numbered("en ", range(40))])
    assert cell.extra["precision_at_1_euclidean"] == euclidean_precision_at_1(
        german[1::2], english[1::2]
    )
    assert cell.extra["components_90"] == principal_components(np.vstack([german, english]))


def test_debiased_vectors_are_those_that_were_measured():
    """The languages of 4,000 texts are told by one direction."""
    data = geometry_data(count=4000, max_rows=4000)
    system = FakeSystem(vector_of)
    (cell,) = evaluate_geometry(data, system)
    rank = cell.extra["debiased_rank"]
    assert rank == 1
    raw, debiased = raw_and_debiased(data, system, "de", "en", rank)
    german = np.array([vector_of(text) for text in numbered("de ", range(4000))])
    np.testing.assert_allclose(raw[0], german[1::2], rtol=1e-6)
    # Directions are those of the other half.
    direction = np.linalg.svd(german[0::2])[2][0]
    expected = german[1::2] - np.outer(german[1::2] @ direction, direction)
    np.testing.assert_allclose(debiased[0], expected, atol=1e-5)
    assert precision_at_1(*debiased) == cell.extra["precision_at_1_debiased"]


def test_tested_rows_do_not_choose_the_rank():
    """Other vectors in the tested rows leave the rank as it is, and change the accuracy."""

    def vector_with_tested_offset(text: str) -> np.ndarray:
        language, number = text.split()
        vector = vector_of(text)
        if int(number) % 2 == 1 and language == "de":
            vector[1] += 20.0
        return vector

    data = geometry_data(count=4000, max_rows=4000)
    (cell,) = evaluate_geometry(data, FakeSystem(vector_of))
    (changed,) = evaluate_geometry(data, FakeSystem(vector_with_tested_offset))
    assert changed.extra["debiased_rank"] == cell.extra["debiased_rank"]
    name = "precision_at_1_debiased"
    assert changed.extra[name] != cell.extra[name]


def test_rows_are_limited():
    (cell,) = evaluate_geometry(geometry_data(max_rows=30), FakeSystem(vector_of))
    assert cell.extra["size"] == 30


def test_sparse_vectors_are_measured_like_dense_ones():
    def sparse_vector(text: str) -> np.ndarray:
        return np.concatenate([np.zeros(500), vector_of(text)])

    (dense,) = evaluate_geometry(geometry_data(), FakeSystem(sparse_vector))
    sparse_system = FakeSystem(sparse_vector, kind=scipy.sparse.csr_matrix)
    (sparse,) = evaluate_geometry(geometry_data(), sparse_system)
    for name in ("precision_at_1_cosine", "precision_at_1_euclidean", "components_90"):
        assert sparse.extra[name] == dense.extra[name]


def test_too_few_rows():
    with pytest.raises(TaskError, match="no pair of languages with 20 rows in common among de, en"):
        evaluate_geometry(geometry_data(19), FakeSystem(vector_of))


def test_the_task_reads_what_retrieval_reads(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("pair,sentence1,sentence2\nde-en,Hallo,hello\nfr-en,Bonjour,hello\n")
    task = TASKS["vector_geometry"]()
    data = task.load(str(path), texts="tatoeba", max_rows=7)
    assert data.languages == ["de", "fr", "en"]
    assert data.texts["de"] == ["Hallo", None]
    assert data.max_rows == 7
    task.languages = ("de", "en")  # those of a model
    assert task.load(str(path), texts="tatoeba").languages == ["de", "en"]
    with pytest.raises(TaskError, match="texts: found 'tatoebo', expected one of"):
        task.load(str(path), texts="tatoebo")
