"""A document index against plain loops: what it holds, what it finds, what it embeds, what it says to bad input."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("faiss")

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.documents import index_files
from modeling_tmde.documents.index import DocumentIndex
from modeling_tmde.documents.index_documents import Changes
from modeling_tmde.documents.index_embedding import shortened
from modeling_tmde.documents.index_files import segments_to_merge
from modeling_tmde.documents.index_metadata import DocumentIndexError
from modeling_tmde.embedding import DocumentEmbedder, EncodeReport
from tests.documents.index_helpers import DIMENSION, check, operate, vector_of


class WordCounts:
    """Counts of words, hashed to few columns: vectors that can be worked out, and a record of what was embedded."""

    dimension, pooling, max_length, needs_language = 64, "cls", 1000, False
    long_document_settings = {"long_documents": "truncate"}

    def __init__(self, shift: int = 0) -> None:
        self.model = SimpleNamespace(name_or_path="/no/model")
        self.shift, self.encoded = shift, []

    def encode(self, texts, language=None, show_progress_bar=None, normalize=False):
        self.encoded.extend(texts)
        self.last_report = EncodeReport(len(texts), sum(len(text.split()) for text in texts))
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                vector[(sum(map(ord, word)) + self.shift) % self.dimension] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalize else vectors


def cosines(query, vectors):
    """float64, one by one."""
    return [
        sum(float(a) * float(b) for a, b in zip(query, vector, strict=True))
        / math.sqrt(sum(float(a) ** 2 for a in query) * sum(float(b) ** 2 for b in vector))
        for vector in vectors
    ]


@pytest.mark.parametrize("approximate_from", [10**9, 20])
def test_many_operations_against_plain_loops(tmp_path, monkeypatch, approximate_from):
    """With segments of inverted lists as well, all of which are looked at."""
    monkeypatch.setattr(index_files, "MERGED", 3)
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION, approximate_from=approximate_from)
    state = {}
    for number in range(30):
        operate(index, state, number)
        assert sorted(index) == sorted(state)
    assert index.exact == (approximate_from > len(state))
    assert {len(segment) < len(segment.live) for segment in index._store.segments} == {True, False}  # deleted, and not
    for opened in (index, DocumentIndex.open(tmp_path / "index")):
        if approximate_from > len(state):
            check(opened, state)
        queries = np.random.default_rng(0).standard_normal((4, DIMENSION))
        for query, hits in zip(queries, opened.search(queries, k=7, exact=True), strict=True):
            scores = dict(zip(state, cosines(query, map(vector_of, state.values())), strict=True))
            best = sorted(state, key=lambda id: -scores[id])[:7]
            assert [hit.id for hit in hits] == best and [hit.text for hit in hits] == [state[id] for id in best]
            np.testing.assert_allclose([hit.score for hit in hits], [scores[id] for id in best], atol=1e-5)


def test_inverted_lists_find_what_is_near(tmp_path):
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((40, 24))
    vectors = centres[rng.integers(40, size=4000)] + rng.standard_normal((4000, 24))
    texts = [f"text {row}" for row in range(4000)]
    index = DocumentIndex.create(tmp_path / "index", dimension=24, approximate_from=1000)
    index.add(texts, texts, [{"few": row % 400 == 0} for row in range(4000)], vectors=vectors)
    assert not index.exact
    queries = vectors[:50] + 0.5 * rng.standard_normal((50, 24))
    exact = index.search(queries, k=5, exact=True)
    found = index.search(queries, k=5)
    shared = [len({hit.id for hit in a} & {hit.id for hit in b}) for a, b in zip(exact, found, strict=True)]
    assert sum(shared) >= 0.9 * 5 * 50
    few = index.search(queries[:3], k=20, filter={"few": True})  # ten documents: more lists are looked at to find them
    assert [len(hits) for hits in few] == [10, 10, 10]


def test_texts_of_any_size_come_back(tmp_path):
    """Rows are found in row groups, whose size depends on that of the texts."""
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    rng = random.Random(0)
    state = {str(number): f"{number} " * rng.choice([1, 5, 20_000]) for number in range(700)}
    for start in (0, 100):
        ids = list(state)[start : 100 if start == 0 else None]
        texts = [state[id] for id in ids]
        index.add(ids, texts, vectors=np.stack([vector_of(text) for text in texts]))
    check(index, state)
    assert all(index.document(id).text == state[id] for id in rng.sample(sorted(state), 200))
    groups = [pq.ParquetFile(path).num_row_groups for path in (tmp_path / "index").glob("*.parquet")]
    assert min(groups) > 1


def test_what_is_embedded(tmp_path):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder)
    texts = ["one dog", "two cats", "three birds"]
    embedder.encoded.clear()
    assert index.add(["a", "b", "c"], texts, [{"n": 1}, {"n": 2}, {"n": 3}]) == Changes(3, 0, 0, EncodeReport(3, 6))
    assert index.upsert(["c", "a"], [texts[2], texts[0]], [{"n": 3}, {"n": 1}]) == Changes(0, 0, 2)
    assert embedder.encoded == texts
    generation = index._store.manifest.generation
    # other metadata: the vector is kept; another text: a new one; and a new document
    changes = index.upsert(["a", "b", "d"], ["one dog", "two dogs", "four"], [{"n": 9}, {"n": 2}, {"n": 4}])
    assert (changes.added, changes.updated, changes.unchanged) == (1, 2, 0)
    assert embedder.encoded == [*texts, "two dogs", "four"] and index._store.manifest.generation == generation + 1
    assert index.document("a").metadata == {"n": 9} and index.document("b").text == "two dogs"
    for opened in (index, DocumentIndex.open(tmp_path / "index", embedder)):
        expected = embedder.encode(["one dog", "two dogs", "three birds", "four"])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(opened.vectors(["a", "b", "c", "d"]), expected, atol=1e-6)
        (hit,) = opened.search("two dogs", k=1)
        assert hit.id == "b" and hit.score == pytest.approx(1) and hit.snippet == "two dogs"


def test_reports_add_up():
    total = sum(
        [Changes(1, 2, 3), Changes(1, report=EncodeReport(1, 5)), Changes(report=EncodeReport(2, 7))], Changes()
    )
    assert total == Changes(2, 2, 3, EncodeReport(3, 12))


def test_a_snippet_is_the_nearest_sentence(tmp_path):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder)
    middle = "The river carries brown mud to the sea."
    text = f"A cat sat there.\n{middle} Nobody knows why."
    long = "word " * 100
    index.add(["a", "b"], [text, f"{long}. The end."], [{"language": "en"}, {"language": None}])
    first, second = index.search("brown mud river", k=2)
    assert (first.id, first.snippet) == ("a", middle)
    assert index.search("word", k=1, snippet_width=20)[0].snippet == "word word word word…"
    assert index.search("brown mud river", k=1, snippet_width=0)[0].snippet == ""
    # a vector has no words: the beginning
    vector = embedder.encode(["brown mud river"])
    assert index.search(vector, k=1, snippet_width=24)[0][0].snippet == "A cat sat there. The riv…"[:23] + "…"
    assert shortened(" a\n b\t c ", 5) == "a b c" and shortened("a b cd", 5) == "a b…"


def test_several_queries_and_vectors_are_the_same(tmp_path):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder)
    index.add(["a", "b", "c"], ["one dog", "two cats", "three birds"])
    queries = ["a dog", "cats", "birds and cats"]
    together = index.search(queries, k=2)
    np.testing.assert_allclose(index.query_vectors, embedder.encode(queries, normalize=True), atol=1e-6)
    assert together == [index.search(query, k=2) for query in queries]
    by_vectors = index.search(embedder.encode(queries), k=2)
    assert [[hit.id for hit in hits] for hits in by_vectors] == [[hit.id for hit in hits] for hits in together]
    assert [len(hits) for hits in index.search(queries, k=50)] == [3, 3, 3]  # no more than there are


def test_an_empty_index(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    for opened in (index, DocumentIndex.open(tmp_path / "index", WordCounts())):
        assert len(opened) == 0 and "a" not in opened and list(opened) == [] and opened.exact
        assert opened.search("a dog") == [] and opened.search(["a dog"], filter={"language": "de"}) == [[]]
    assert index.add([], []) == Changes() and index.delete([]) is None
    index.add(["a"], ["one dog"])
    index.delete("a")
    assert len(index) == 0 and index.search("dog") == [] and index._store.segments == []


def test_bad_documents_change_nothing(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.add(["a"], ["text"], [{"n": 1}], vectors=np.ones((1, 2)))
    for arguments, message in [
        ((["b", "a"], ["t", "t"], None, np.ones((2, 2))), "found 'a', one of 1 .of 2. that are in .* already; use"),
        ((["b", "b"], ["t", "t"], None, np.ones((2, 2))), "ids: found 'b' twice"),
        ((["b", ""], ["t", "t"], None, np.ones((2, 2))), "ids: found '', expected a string that is not empty"),
        ((["b", 3], ["t", "t"], None, np.ones((2, 2))), "ids: found 3"),
        ((["b", "c"], ["t", " \n"], None, np.ones((2, 2))), "text of document 'c': found ' .n'"),
        ((["b", "c"], ["t"], None, np.ones((2, 2))), "'ids': 2, 'texts': 1"),
        ((["b"], ["t"], [{}, {}], np.ones((1, 2))), "'metadata': 2"),
        ((["b"], ["t"], None, np.ones((2, 2))), "vectors: found 2, expected 1"),
        ((["b"], ["t"], None, np.ones((1, 3))), r"vectors: found shape \(1, 3\), expected \(n, 2\)"),
        ((["b", "c"], ["t", "t"], None, [[1, 1], [1, np.nan]]), "vectors: found a vector that is not finite for row"),
        ((["b"], ["t"], [{"n": "one"}], np.ones((1, 2))), "metadata: found string in 'n', expected int64"),
        ((["b", "c"], ["t", "t"], [{"m": 1}, {"m": "one"}], np.ones((2, 2))), "metadata: 'm' is not one type"),
        ((["b"], ["t"], [{"y": {}}], np.ones((1, 2))), "metadata: cannot be written .*nothing was changed"),
        ((["b"], ["t"], [{3: "x"}], np.ones((1, 2))), "metadata: found the name 3, expected a string"),
        ((["b"], ["t"], [{"": "x"}], np.ones((1, 2))), "metadata: found the name '', expected a string"),
        ((["b"], ["t"], [{"y": "\ud800"}], np.ones((1, 2))), "metadata: 'y' is not one type.*surrogates"),
        ((["b\udfff"], ["t"], None, np.ones((1, 2))), "ids: found a lone surrogate, '.udfff'"),
        ((["b"], ["t\ud800"], None, np.ones((1, 2))), "text of document 'b': found a lone surrogate"),
        ((["b", "c"], ["t", "t"], None, np.ones((2, 2)), ["de"]), "language: found 1 codes, expected one, or 2"),
        ((["b"], ["t"]), "made without an embedder, expected vectors"),
    ]:  # fmt: skip
        with pytest.raises(DocumentIndexError, match=message):
            index.add(*arguments)
    with pytest.raises(DocumentIndexError, match="found 'x', one of 2 .of 3.*nothing was deleted"):
        index.delete(["a", "x", "y"])
    assert list(DocumentIndex.open(tmp_path / "index")) == ["a"] == list(index)
    index.add(["z"], ["zero"], vectors=np.zeros((1, 2)))  # a vector of zeros has cosine 0 to all
    assert [hit.score for hit in index.search(np.ones((1, 2)), k=2)[0]] == pytest.approx([1, 0])


def test_bad_queries(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    index.add(["a"], ["text"], [{"n": 1, "s": {"p": 1}}])
    for arguments, options, message in [
        (("",), {}, "query 1: found ''"),
        ((["fine", " "],), {}, "query 2: found ' '"),
        (("text", 0), {}, "k: found 0"),
        (("text",), {"filter": {"m": 1}}, r"filter: found 'm', expected a name of the metadata: \['n', 's'\]"),
        (("text",), {"filter": {"n": "one"}}, "filter: found .'one'. for 'n', expected values of type int64"),
        (("text",), {"filter": {"s": "one"}}, "filter: 's' holds struct<p: int64>; expected a column of values"),
        ((np.ones((1, 3)),), {}, r"query: found shape \(1, 3\), expected \(n, 64\)"),
    ]:
        with pytest.raises(DocumentIndexError, match=message):
            index.search(*arguments, **options)


def test_an_embedder_with_other_vectors_is_refused(tmp_path):
    DocumentIndex.create(tmp_path / "index", WordCounts()).add(["a"], ["text"])
    with pytest.raises(DocumentIndexError, match="was made with another model, /no/model"):
        DocumentIndex.open(tmp_path / "index", WordCounts(shift=1))
    other = WordCounts()
    other.max_length = 7
    with pytest.raises(DocumentIndexError, match="max_length of the embedder is 7, that of the index 1000"):
        DocumentIndex.open(tmp_path / "index", other)
    with pytest.raises(DocumentIndexError, match="its model /no/model cannot be loaded"):
        DocumentIndex.open(tmp_path / "index").search("text")


@pytest.fixture
def bag(tokenizer, tmp_path):
    path = tmp_path / "bag"
    torch.manual_seed(0)
    BagModel(BagConfig(vocab_size=400, d_model=16)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_model_is_opened_again_with_its_settings(bag, tokenizer, tmp_path):
    embedder = DocumentEmbedder.from_pretrained(bag, max_length=40, long_documents="chunk", window=12, stride=5)
    index = DocumentIndex.create(tmp_path / "index", embedder)
    texts = ["casa perro " * 20, "gato árbol " * 20]
    index.add(["a", "b"], texts)
    opened = DocumentIndex.open(tmp_path / "index")
    assert opened.embedder.long_document_settings == embedder.long_document_settings
    assert opened.search("perro", k=1)[0].id == index.search("perro", k=1)[0].id
    expected = embedder.encode(texts, normalize=True)
    np.testing.assert_allclose(opened.vectors(["a", "b"]), expected, atol=1e-6)
    same = DocumentEmbedder.from_pretrained(
        bag, max_length=40, long_documents="chunk", window=12, stride=5, dtype="bfloat16"
    )
    DocumentIndex.open(tmp_path / "index", same)  # nearly the same vectors
    with pytest.raises(
        DocumentIndexError, match="long_documents of the embedder is 'truncate', that of the index 'chunk'"
    ):
        DocumentIndex.open(tmp_path / "index", DocumentEmbedder.from_pretrained(bag, max_length=40))
    torch.manual_seed(1)
    BagModel(BagConfig(vocab_size=400, d_model=16)).save_pretrained(bag)  # trained again
    with pytest.raises(DocumentIndexError, match="was made with another model"):
        DocumentIndex.open(tmp_path / "index").search("perro")


def test_folders_that_are_no_index(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("text")
    for folder in ("file", "full"):
        with pytest.raises(DocumentIndexError, match="exists and is not an empty folder"):
            DocumentIndex.create(tmp_path / folder, dimension=2)
        with pytest.raises(DocumentIndexError, match="found no index.json"):
            DocumentIndex.open(tmp_path / folder)
    (tmp_path / "empty").mkdir()
    DocumentIndex.create(tmp_path / "empty", dimension=2)
    with pytest.raises(DocumentIndexError, match="exists"):
        DocumentIndex.create(tmp_path / "empty", dimension=2)
    with pytest.raises(DocumentIndexError, match="dimension: found None"):
        DocumentIndex.create(tmp_path / "new")


def test_without_faiss(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ImportError, match=r"tmde\[eval\]"):
        DocumentIndex.create(tmp_path / "index", dimension=2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=150), st.integers(2, 8))
def test_segments_stay_few_and_rows_are_rewritten_a_few_times(added, merged):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_files, "MERGED", merged)
        patch.setattr(index_files, "LARGEST", 500)
        sizes, written = [], 0
        for rows in added:
            sizes.append(rows)
            while chosen := segments_to_merge(sizes, sizes):
                assert len(chosen) > 1
                total = sum(sizes[number] for number in chosen)
                assert total <= 500
                sizes = [size for number, size in enumerate(sizes) if number not in chosen] + [total]
                written += total
    levels = math.ceil(math.log(500, merged)) + 1
    assert sum(sizes) == sum(added)
    assert len([size for size in sizes if 2 * size <= 500]) <= merged * levels
    assert written <= sum(added) * (levels + 1)


def test_a_segment_that_is_mostly_deleted_is_rewritten():
    assert segments_to_merge([10, 4], [10, 9]) == [1]
    assert segments_to_merge([10, 0], [10, 9]) == [1]
    assert segments_to_merge([10, 5], [10, 10]) == []
