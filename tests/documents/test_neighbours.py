"""The search for neighbours: indexes against exact search, what `auto` takes, and what is said of it."""

import faiss
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.documents import neighbours
from modeling_tmde.documents.nearest import nearest_neighbours
from modeling_tmde.documents.neighbours import SEARCHES, find_neighbours


def vectors(rows, dimensions=16, topics=20, seed=0):
    """Rows around topics, of many lengths."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(topics, dimensions)) * 2
    made = centres[rng.integers(0, topics, rows)] + rng.normal(size=(rows, dimensions))
    return made * rng.uniform(0.1, 9, size=(rows, 1))


def share_found(found, exact):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)])


@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_on_a_small_set(search):
    queries, candidates = vectors(700, seed=1), vectors(900, seed=2)
    exact, numbers = nearest_neighbours(queries, candidates, 4)
    cosines, indices = find_neighbours(queries, candidates, 4, search)
    assert cosines.dtype == np.float32 and indices.dtype == np.int64 and cosines.shape == indices.shape == (700, 4)
    assert (np.diff(cosines, axis=1) <= 0).all()
    assert share_found(indices, numbers) >= (0.9 if search in ("ivf", "hnsw") else 1)
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, candidates)]
    true = np.einsum("id,ijd->ij", units[0], units[1][indices])
    np.testing.assert_allclose(cosines, true, atol=1e-6)  # of what is found, the cosine is right
    if search in ("exact", "auto"):
        np.testing.assert_array_equal(cosines, exact)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 400), st.integers(1, 6))
def test_all_lists_are_exact(seed, rows, others, k):
    """With nprobe = nlist an inverted file looks at everything."""
    queries, candidates = vectors(rows, seed=seed), vectors(others, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "FIRST_EFFORT", neighbours.LAST_EFFORT)
        said = []
        cosines, indices = find_neighbours(queries, candidates, k, "ivf", said.append)
    exact, numbers = nearest_neighbours(queries, candidates, min(k, others))
    np.testing.assert_allclose(cosines, exact, atol=1e-6)
    apart = np.diff(exact, axis=1, append=-2) < -1e-5  # equal cosines are in any order
    assert (indices == numbers)[apart & np.roll(apart, 1, axis=1)].all()
    lists = max(1, min(int(4 * others**0.5), others // neighbours.LIST_ROWS))
    assert f"IVF (nlist = {lists}, nprobe = {lists})" in said[0] and "finds 100.0%" in said[0]


@pytest.mark.parametrize("search", ["ivf", "hnsw"])
def test_the_effort_grows_until_enough_is_found(search, monkeypatch):
    """Rows without any structure: the first effort finds less than 95 %, the one taken finds as much as it says."""
    monkeypatch.setattr(neighbours, "FIRST_EFFORT", 1)
    rng = np.random.default_rng(0)
    queries, candidates = rng.normal(size=(300, 24)), rng.normal(size=(3000, 24))
    numbers = nearest_neighbours(queries, candidates, 4)[1]
    said = []
    indices = find_neighbours(queries, candidates, 4, search, said.append, names=("news.de", "news.en"))[1]
    assert len(said) == 1 and said[0].startswith("news.de -> news.en, 300 x 3,000 x 24: searched by ")
    effort = int(said[0].split("nprobe = " if search == "ivf" else "efSearch = ")[1].split(")")[0].replace(",", ""))
    stated = float(said[0].split("finds ")[1].split("%")[0]) / 100
    assert effort > 1 and stated >= 0.95
    assert share_found(indices, numbers) == pytest.approx(stated, abs=0.03)  # 256 of the 300 were the sample
    monkeypatch.setattr(neighbours, "LAST_EFFORT", effort // 2)
    monkeypatch.setattr(neighbours, "FIRST_EFFORT", effort // 2)
    find_neighbours(queries, candidates, 4, search, said.append)
    assert float(said[1].split("finds ")[1].split("%")[0]) < 95, "half of the effort would have done"


def test_auto_takes_an_index_beyond_the_cost(monkeypatch):
    queries, candidates = vectors(200, seed=1), vectors(4000, seed=2)
    said = []
    monkeypatch.setattr(neighbours, "EXACT_COST", 200 * 4000 * 16)
    find_neighbours(queries, candidates, 4, "auto", said.append)
    assert said == ["queries -> candidates, 200 x 4,000 x 16: exact search"]
    monkeypatch.setattr(neighbours, "EXACT_COST", 200 * 4000 * 16 - 1)
    monkeypatch.setattr(neighbours, "WORTHWHILE", 10)
    said.clear()
    find_neighbours(queries, candidates, 4, "auto", said.append)
    assert len(said) == 1 and "searched by HNSW (M = 32, efConstruction = 40, efSearch = " in said[0]
    assert "of the exact neighbours of 200 of the rows" in said[0]


def test_auto_goes_back_where_an_index_does_not_pay(monkeypatch):
    rng = np.random.default_rng(0)
    queries, candidates = rng.normal(size=(300, 64)), rng.normal(size=(3000, 64))
    monkeypatch.setattr(neighbours, "EXACT_COST", 1)
    said = []
    cosines, indices = find_neighbours(queries, candidates, 4, "auto", said.append)
    assert "not searched by HNSW" in said[0] and said[1:] == ["queries -> candidates, 300 x 3,000 x 64: exact search"]
    np.testing.assert_array_equal(indices, nearest_neighbours(queries, candidates, 4)[1])


def test_rows_that_find_too_few_are_searched_again(monkeypatch):
    """One list of two is looked at, of 3 and 77 rows: k = 5 needs both."""
    candidates = np.concatenate([np.tile([0, 1.0], (77, 1)), np.tile([1.0, 0], (3, 1))])
    candidates[:, 1] += np.linspace(0, 0.01, 80)
    queries = np.tile([1.0, 0], (6, 1))
    monkeypatch.setattr(neighbours, "LAST_EFFORT", 1)
    found = find_neighbours(queries, candidates, 5, "ivf")
    exact = nearest_neighbours(queries, candidates, 5)
    np.testing.assert_array_equal(found[1], exact[1])
    np.testing.assert_allclose(found[0], exact[0], atol=1e-6)


@pytest.mark.parametrize("search", ["exact", "auto"])
def test_sparse_rows_are_searched_exactly(search, monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_COST", 1)
    queries, candidates = (scipy.sparse.random(n, 30, 0.3, format="csr", random_state=n) for n in (40, 50))
    said = []
    found = find_neighbours(queries, candidates, 4, search, said.append)
    for mine, theirs in zip(found, nearest_neighbours(queries, candidates, 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert said == ["queries -> candidates, 40 x 50 x 30: exact search"]


@pytest.fixture
def one_thread():
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def test_two_runs_agree(one_thread):
    queries, candidates = vectors(300, seed=1), vectors(2000, seed=2)
    for search in ("ivf", "hnsw"):
        first, second = (find_neighbours(queries, candidates, 4, search) for _ in range(2))
        np.testing.assert_array_equal(first[1], second[1])


def test_more_neighbours_than_candidates():
    for search in SEARCHES:
        cosines, indices = find_neighbours(vectors(5), vectors(3), 10, search)
        assert cosines.shape == (5, 3) and [sorted(row) for row in indices.tolist()] == [[0, 1, 2]] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((vectors(5), vectors(5), 4, "flat"), "search: found 'flat', expected one of auto, exact, ivf, hnsw"),
        ((vectors(5), vectors(5), 0), "k: found 0, expected at least 1"),
        ((vectors(5), vectors(5) * np.nan, 1, "hnsw"), "candidates: found a vector that is not finite in row 0"),
        ((vectors(5), vectors(0), 1, "ivf"), r"candidates: found shape \(0, 16\)"),
        ((scipy.sparse.eye(3, format="csr"),) * 2 + (1, "ivf"), "found 'ivf' for sparse rows, expected exact or auto"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_neighbours(*arguments)
