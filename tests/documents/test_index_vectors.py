"""Vectors of an index that are cut, or stored in float16, against plain loops over these."""

import json

import numpy as np
import pytest

pytest.importorskip("lancedb")

from modeling_tmde import TmdeError
from tests.documents.index_writer import DIMENSION, operate
from tests.documents.test_index import WordCounts, ids_of, scores_of
from tmde.documents import index_table
from tmde.documents.index import DocumentIndex

WIDTH = 20
PRECISIONS = ("float32", "float16")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def cone(count, seed, width=WIDTH):
    """Unit vectors, (count, width), of which most numbers have one sign in all."""
    rng = np.random.default_rng(seed)
    return unit(0.3 * rng.standard_normal((count, width)) + np.linspace(-1, 2, width))


def ids_from(start, stop):
    return [str(number) for number in range(start, stop)]


def filled(folder, precision, count=300, **options):
    """An index of `count` documents in two commits; the metadata `n` is their number modulo 3."""
    vectors = cone(count, 0)
    index = DocumentIndex.create(folder, dimension=WIDTH, precision=precision, **options)
    for start, stop in ((0, 100), (100, count)):
        ids = ids_from(start, stop)
        metadata = [{"n": int(id) % 3} for id in ids]
        index.upsert(ids, [f"text {id}" for id in ids], metadata, vectors[start:stop])
    return index, vectors


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("truncate_dim", [None, 11])
def test_stored_vectors(tmp_path, precision, truncate_dim):
    index, vectors = filled(tmp_path / "index", precision, truncate_dim=truncate_dim)
    expected = unit(vectors[:, :truncate_dim])
    # A number of float16 below 1 is off by 2^-12 at most.
    tolerance = {"float32": 1e-6, "float16": 3e-4}[precision]
    ids = ids_from(0, 300)
    for opened in (index, DocumentIndex.open(tmp_path / "index")):
        stored = opened.vectors(ids)
        assert stored.dtype == np.float32
        np.testing.assert_allclose(stored, expected, atol=tolerance, rtol=0)
        np.testing.assert_allclose(np.linalg.norm(stored, axis=1), 1, atol=1e-6)
        assert opened.precision == precision
        assert opened.stored_dimension == (truncate_dim or WIDTH)
    with pytest.raises(KeyError):
        index.vectors(["0", "no"])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("approximate_from", [20_000, 50])
@pytest.mark.parametrize("truncate_dim", [None, 11])
def test_search_compares_stored_vectors(
    tmp_path, monkeypatch, precision, approximate_from, truncate_dim
):
    """By a matrix product, by filters, and by scans: hits are those of a full sort."""
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", approximate_from)
    index, _ = filled(tmp_path / "index", precision, truncate_dim=truncate_dim)
    assert index.exact == (approximate_from == 20_000)
    queries = cone(5, 1)
    stored = index.vectors(ids_from(0, 300))
    for filter, of_filter in (({}, range(300)), ({"n": 1}, range(1, 300, 3))):
        hits_of_queries = index.search(queries, k=7, exact=True, filter=filter)
        for query, hits in zip(unit(queries[:, :truncate_dim]), hits_of_queries, strict=True):
            cosines = {str(row): float(stored[row] @ query) for row in of_filter}
            best = sorted(cosines.values(), reverse=True)[:7]
            # A scan of float16 has the lengths of rounded vectors.
            np.testing.assert_allclose(scores_of(hits), best, atol=2e-3)
            for hit in hits:
                assert hit.score == pytest.approx(cosines[hit.id], abs=2e-3)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_approximate_index_has_the_recall_it_states(tmp_path, monkeypatch, precision):
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", 1000)
    rng = np.random.default_rng(0)
    centers = 4 * rng.standard_normal((40, 64))
    numbers = centers[rng.integers(40, size=4100)] + rng.standard_normal((4100, 64)) + 3
    vectors, queries = numbers[:4000], numbers[4000:]
    ids = ids_from(0, 4000)
    index = DocumentIndex.create(tmp_path / "index", dimension=64, precision=precision)
    metadata = [{"few": int(id) % 400 == 0, "even": int(id) % 2 == 0} for id in ids]
    index.upsert(ids, ids, metadata, vectors)
    assert not index.exact
    assert index.recall >= 0.985
    opened = DocumentIndex.open(tmp_path / "index")
    for filter in ({}, {"even": True}):
        tenths = np.sort(index.vectors(ids[:: len(filter) + 1]) @ unit(queries).T, axis=0)[-10]
        count = 0
        for tenth, hits in zip(tenths, opened.search(queries, filter=filter), strict=True):
            count += sum(hit.score >= tenth - 1e-5 for hit in hits)
        assert count >= 0.97 * 1000
    few = index.search(queries[:3], k=20, filter={"few": True})
    assert list(map(len, few)) == [10, 10, 10]
    assert len(index.search(queries[0], k=150)) == 150

    # The inverted lists do not hold the new document yet.
    index.upsert(["new"], ["new"], vectors=queries[:1])
    assert "new" in ids_of(index.search(queries[:1], k=3)[0])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_new_metadata_keep_the_stored_vector(tmp_path, precision):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder, precision=precision)
    texts = ["one dog", "two cats and a dog", "three birds", "a dog"]
    index.upsert(list("abcd"), texts, [{"n": number} for number in range(4)])
    before = index.vectors(list("abcd"))
    embedder.encoded.clear()
    changes = index.upsert(list("abc"), [*texts[:2], "four birds"], [{"n": 9}, {"n": 8}, {"n": 2}])
    assert changes.updated == 3
    assert embedder.encoded == ["four birds"]
    after = index.vectors(list("abcd"))
    np.testing.assert_array_equal(after[[0, 1, 3]], before[[0, 1, 3]])
    assert not np.array_equal(after[2], before[2])
    assert [hit.metadata["n"] for hit in index.documents(list("abcd"))] == [9, 8, 2, 3]
    changes = index.upsert(["d"], ["a dog"], [{"n": 7}])
    assert changes.updated == 1
    np.testing.assert_array_equal(index.vectors(["d"]), before[3:])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
def test_texts_are_searched_in_all_modes(tmp_path, precision, mode):
    index = DocumentIndex.create(
        tmp_path / "index", WordCounts(), precision=precision, truncate_dim=60
    )
    texts = ["one dog. A sleeping cat.", "two cats", "three birds", "five fishes"]
    index.upsert(list("abcd"), texts, [{"n": 1}, {"n": 1}, {"n": 2}, {"n": 2}])
    (hit,) = index.search("sleeping cat.", k=1, mode=mode)
    assert hit.id == "a"
    assert hit.snippet == "A sleeping cat."
    (hit,) = index.search("two birds", k=1, mode=mode, filter={"n": 2})
    assert hit.id == "c"


def test_vectors_of_either_width(tmp_path):
    """A vector that was cut already finds what the whole one finds."""
    index, vectors = filled(tmp_path / "index", "float16", truncate_dim=11)
    whole = index.search(vectors[7], k=2)
    assert whole == index.search(vectors[7][:11], k=2)
    assert whole[0].id == "7"
    assert index.search_queries(vectors[:1]).query_vectors.shape == (1, 11)
    index.upsert(["cut"], ["text"], vectors=vectors[7:8, :11])
    np.testing.assert_array_equal(index.vectors(["cut"]), index.vectors(["7"]))
    with pytest.raises(TmdeError, match=r"query: found shape \(1, 12\), expected \(n, 20\)"):
        index.search(vectors[7][:12])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "uint8"}, "precision: found 'uint8', expected one of .*'float16'"),
        ({"truncate_dim": 21}, "truncate_dim: found 21, expected 1 to 20"),
        ({"truncate_dim": 0}, "truncate_dim: found 0, expected 1 to 20"),
    ],
)
def test_sizes_that_there_are_not(tmp_path, options, message):
    with pytest.raises(TmdeError, match=message):
        DocumentIndex.create(tmp_path / "index", dimension=WIDTH, **options)
    assert not (tmp_path / "index").exists()


def test_settings_without_a_size_are_of_float32(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    state = {}
    operate(index, state, 0)
    settings = json.loads((tmp_path / "index/index.json").read_text())
    del settings["precision"], settings["truncate_dim"]
    (tmp_path / "index/index.json").write_text(json.dumps(settings))
    opened = DocumentIndex.open(tmp_path / "index")
    assert (opened.precision, opened.stored_dimension) == ("float32", DIMENSION)
    operate(opened, state, 1)
    ids = sorted(state)
    np.testing.assert_array_equal(
        opened.vectors(ids), DocumentIndex.open(tmp_path / "index").vectors(ids)
    )
