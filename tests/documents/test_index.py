"""A document index against plain loops: what it holds, finds and embeds, and its errors."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from filelock import FileLock

pytest.importorskip("lancedb")

from modeling_tmde import BagConfig, BagModel, TmdeError
from tests.documents.index_writer import DIMENSION, check, operate
from tmde.documents import index_table
from tmde.documents.index import Changes, DocumentIndex
from tmde.documents.snippets import shortened
from tmde.embedding.document_embedder import DocumentEmbedder, EncodeOutput, EncodeReport


class WordCounts:
    """Counts of words, hashed to few columns, and a record of what was embedded."""

    dimension = 64
    pooling = "cls"
    max_length = 1000
    prompt = ""
    needs_language = False
    arithmetic = "float32"
    long_document_settings = {"long_documents": "truncate"}
    aggregation = "mean"

    def __init__(self) -> None:
        self.model = SimpleNamespace(name_or_path="/no/model")
        self.encoded = []

    def encode(self, texts, language=None, show_progress_bar=None, normalize=False):
        return self.encode_with_report(texts, language, show_progress_bar, normalize).vectors

    def encode_with_report(self, texts, language=None, show_progress_bar=None, normalize=False):
        self.encoded.extend(texts)
        report = EncodeReport(len(texts), sum(len(text.split()) for text in texts))
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.lower().split():
                vector[sum(map(ord, word)) % self.dimension] += 1
        if normalize:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return EncodeOutput(vectors, report)


class FixedVector(WordCounts):
    """Embeds every text as the same vector."""

    def __init__(self, vector) -> None:
        super().__init__()
        self.vector = np.array(vector, np.float32)

    def encode_with_report(self, texts, language=None, show_progress_bar=None, normalize=False):
        vectors = np.tile(self.vector, (len(texts), 1))
        return EncodeOutput(vectors, EncodeReport(len(texts), len(texts)))


def ids_of(hits):
    return [hit.id for hit in hits]


def scores_of(hits):
    return [hit.score for hit in hits]


@pytest.mark.parametrize("approximate_from", [20_000, 20])
def test_many_operations_against_numpy(tmp_path, monkeypatch, approximate_from):
    """In memory and by scans of the table: the hits are those of a full sort."""
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", approximate_from)
    monkeypatch.setattr(index_table, "FRAGMENTS", 3)
    index = DocumentIndex.create(tmp_path / "index", dimension=DIMENSION)
    state = {}
    for number in range(20):
        operate(index, state, number)
    for opened in (index, DocumentIndex.open(tmp_path / "index")):
        assert opened.exact == (approximate_from > len(state))
        check(opened, state)
        queries = np.random.default_rng(0).standard_normal((4, DIMENSION)).astype(np.float32)
        ids = np.array(sorted(state))
        scores = queries @ opened.vectors(ids).T / np.linalg.norm(queries, axis=1, keepdims=True)
        for row, hits in zip(scores, opened.search(queries, k=7, exact=True), strict=True):
            best = np.argsort(-row)[:7]
            assert ids_of(hits) == ids[best].tolist()
            np.testing.assert_allclose(scores_of(hits), row[best], atol=1e-5)


def test_the_approximate_index_has_the_recall_it_states(tmp_path, monkeypatch):
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", 1000)
    rng = np.random.default_rng(0)
    centers = 4 * rng.standard_normal((40, 24))
    vectors = centers[rng.integers(40, size=4000)] + rng.standard_normal((4000, 24))
    ids = list(map(str, range(4000)))
    metadata = [{"few": row % 400 == 0} for row in range(4000)]
    index = DocumentIndex.create(tmp_path / "index", dimension=24)
    index.upsert(ids, ids, metadata, vectors)
    queries = vectors[:100] + 0.5 * rng.standard_normal((100, 24))

    assert not index.exact
    assert index.recall >= 0.985
    assert DocumentIndex.open(tmp_path / "index").recall == index.recall
    exact_results = index.search(queries, exact=True)
    results = index.search(queries)
    shared = 0
    for exact_hits, hits in zip(exact_results, results, strict=True):
        shared += len(set(ids_of(exact_hits)) & set(ids_of(hits)))
    assert shared >= 0.97 * 1000
    # Ten documents are far apart, and all are found.
    few = index.search(queries[:3], k=20, filter={"few": True})
    assert list(map(len, few)) == [10, 10, 10]

    # The inverted lists do not hold the new document yet.
    index.upsert(["new"], ["new"], vectors=queries[:1])
    assert index.search(queries[:1], k=1)[0][0].id == "new"


TEXTS = ["one dog", "two cats", "three birds"]


@pytest.fixture
def embedder():
    return WordCounts()


@pytest.fixture
def index(tmp_path, embedder):
    """An index of three documents, whose embedder has forgotten what it embedded for it."""
    index = DocumentIndex.create(tmp_path / "index", embedder)
    index.upsert(["a", "b", "c"], TEXTS, [{"n": 1}, {"n": 2}, {"n": 3}])
    embedder.encoded.clear()
    return index


def test_new_documents_are_embedded(tmp_path, embedder):
    index = DocumentIndex.create(tmp_path / "index", embedder)
    embedder.encoded.clear()
    changes = index.upsert(["a", "b", "c"], TEXTS)
    assert changes == Changes(3, 0, 0, EncodeReport(3, 6))
    assert embedder.encoded == TEXTS


def test_known_documents_are_left_alone(index, embedder):
    changes = index.upsert(["c", "a"], [TEXTS[2], TEXTS[0]], [{"n": 3}, {"n": 1}])
    assert changes == Changes(0, 0, 2)
    assert embedder.encoded == []


def test_only_new_texts_are_embedded(index, embedder, tmp_path):
    """A has other metadata and keeps its vector, b another text, and d is new."""
    changes = index.upsert(
        ["a", "b", "d"], ["one dog", "two dogs", "four"], [{"n": 9}, {"n": 2}, {"n": 4}]
    )
    assert (changes.added, changes.updated, changes.unchanged) == (1, 2, 0)
    assert embedder.encoded == ["two dogs", "four"]
    a, b = index.documents(["a", "b"])
    assert a.metadata == {"n": 9}
    assert b.text == "two dogs"
    expected = embedder.encode(["one dog", "two dogs", "three birds", "four"], normalize=True)
    for opened in (index, DocumentIndex.open(tmp_path / "index", embedder)):
        np.testing.assert_allclose(opened.vectors(["a", "b", "c", "d"]), expected, atol=1e-6)


def test_known_ids(index):
    assert index.known_ids(["x", "b", "it's", "a"]) == ["b", "a"]
    assert "b" in index
    assert "x" not in index
    assert 1 not in index


def test_ids_of_a_large_index_are_looked_up_in_a_tree(index, monkeypatch):
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", 3)
    monkeypatch.setattr(index_table, "UNINDEXED_IDS", 2)
    for number in range(8):
        index.upsert([str(number), "a"], [f"text {number}", f"new {number}"])
        assert index.known_ids(["7", "c", str(number), "0"])[-1] == "0"
        tree = index._table._table.index_stats("id_idx")
        assert tree.num_unindexed_rows <= 3
    assert sorted(index) == ["0", "1", "2", "3", "4", "5", "6", "7", "a", "b", "c"]
    assert index.documents(["a"])[0].text == "new 7"


def test_a_text_finds_the_same_text(index):
    (hit,) = index.search("two cats", k=1)
    assert hit.id == "b"
    assert hit.score == pytest.approx(1)
    assert hit.snippet == "two cats"


def test_a_result_holds_vectors_and_report(index, embedder):
    result = index.search_queries(["one dog", "birds"], k=2)
    assert result.hits == [index.search("one dog", k=2), index.search("birds", k=2)]
    expected = embedder.encode(["one dog", "birds"], normalize=True)
    np.testing.assert_allclose(result.query_vectors, expected, atol=1e-6)
    assert result.report == EncodeReport(2, 3)
    assert index.search_queries(expected).report is None


# Metadata by id: values of several types, lists, missing names, and quotes in names and values.
QUOTED = 'it\'s \\ "cars"'
METADATA = {
    "a": {"topic": None, "n": 1, "tags": None},
    "b": {"topic": "pets", "n": 2, "tags": []},
    "c": {"topic": "pets", "n": 2.5, "tags": ["x", "y"], "good": True},
    "d": {"topic": QUOTED, "tags": ["y", None], "x'.topic": "pets", "n": 2.0},
    "e": {},
}
LATER_METADATA = {"f": {"tags": ["x"], "n": 7}, "g": {"tags": ["z", "x"]}}


@pytest.fixture(scope="module")
def index_of_metadata(tmp_path_factory):
    """An index whose documents differ in their metadata alone, written in two commits."""
    index = DocumentIndex.create(tmp_path_factory.mktemp("metadata") / "index", dimension=2)
    for metadata in (METADATA, LATER_METADATA):
        count = len(metadata)
        vectors = np.ones((count, 2))
        index.upsert(list(metadata), ["text"] * count, list(metadata.values()), vectors)
    return index


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"topic": "pets"}, "bc"),
        ({"topic": None}, "aefg"),
        ({"topic": [None, QUOTED]}, "adefg"),
        ({"n": 2}, "bd"),
        ({"n": ["2.5", "1"]}, "ac"),
        ({"tags": "x"}, "cfg"),
        ({"tags": ["y", "z"], "topic": ["pets", None]}, "cg"),
        ({"tags": None}, "ae"),
        ({"good": "true"}, "c"),
        ({"x'.topic": "pets"}, "d"),
        ({"topic": []}, ""),
    ],
)
def test_filters(index_of_metadata, filter, expected):
    (hits,) = index_of_metadata.search(np.ones((1, 2)), k=9, filter=filter)
    assert sorted(ids_of(hits)) == list(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("topic", {None, "pets", QUOTED}),
        ("n", {None, 1, 2, 2.5, 7}),
        ("tags", {None, "x", "y", "z"}),
        ("unknown", {None}),
    ],
)
def test_values_of_metadata(index_of_metadata, name, expected):
    assert index_of_metadata.values(name) == expected


def test_metadata_come_back_as_they_were(index_of_metadata):
    (document,) = index_of_metadata.documents(["c"])
    assert document.metadata == METADATA["c"]


def test_a_snippet_is_the_nearest_sentence(tmp_path):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder)
    middle = "The river carries brown mud to the sea."
    text = f"A cat sat there.\n{middle} Nobody knows why."
    long = "word " * 100
    index.upsert(["a", "b"], [text, f"{long}. The end."], [{"language": "en"}, {"language": None}])
    first = index.search("brown mud river", k=2)[0]
    assert first.id == "a"
    assert first.snippet == middle
    assert index.search("word", k=1, snippet_width=20)[0].snippet == "word word word word…"
    assert index.search("brown mud river", k=1, snippet_width=0)[0].snippet == ""
    several = index.search(["brown mud river", "word"], k=1)
    assert several == [index.search("brown mud river", k=1), index.search("word", k=1)]


def test_the_snippet_of_a_vector_is_the_beginning(tmp_path):
    embedder = WordCounts()
    index = DocumentIndex.create(tmp_path / "index", embedder)
    index.upsert(["a"], ["A cat sat there.\nThe river carries mud."])
    hits = index.search(embedder.encode(["river"]), k=1, snippet_width=24)[0]
    assert hits[0].snippet == "A cat sat there. The ri…"


def test_shortened():
    assert shortened(" a\n b\t c ", 5) == "a b c"
    assert shortened("a b cd", 5) == "a b…"


def test_an_empty_index(tmp_path):
    DocumentIndex.create(tmp_path / "index", WordCounts())
    index = DocumentIndex.open(tmp_path / "index", WordCounts())
    assert len(index) == 0
    assert "a" not in index
    assert list(index) == []
    assert index.exact
    assert index.search("a dog") == []
    assert index.values("language") == set()
    assert index.upsert([], []) == Changes()
    assert index.delete([]) == 0


@pytest.mark.parametrize("mode", ["meaning", "words", "both"])
def test_an_empty_index_is_searched_without_warnings(tmp_path, mode):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert index.search("a dog", mode=mode) == []
        assert index.search(["a dog", "a cat"], mode=mode) == [[], []]
    index.upsert(["a"], ["a dog"])
    index.delete("a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert index.search("a dog", mode=mode) == []


@pytest.fixture
def index_of_vectors(tmp_path):
    """An index of one document that was made without an embedder."""
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.upsert(["a"], ["text"], [{"n": 1}], np.ones((1, 2)))
    return index


def check_unchanged(index):
    assert list(index) == ["a"]
    assert list(DocumentIndex.open(index.folder)) == ["a"]


@pytest.mark.parametrize(
    ("ids", "texts", "vectors", "message"),
    [
        (["b", "b"], ["t", "t"], np.ones((2, 2)), "ids: found 'b' twice"),
        (["b", "c"], ["t", " \n"], np.ones((2, 2)), "document 'c': found text"),
        (["b"], ["t"], np.ones((2, 2)), "vectors: found 2, expected 1"),
        (["b"], ["t"], np.ones((1, 3)), r"vectors: found shape \(1, 3\), expected \(n, 2\)"),
        (["b", "c"], ["t", "t"], [[1, 1], [1, np.nan]], "vector that is not finite"),
        (["b"], ["t"], None, "this index has no embedder, expected vectors"),
    ],
)
def test_bad_documents_change_nothing(index_of_vectors, ids, texts, vectors, message):
    with pytest.raises(ValueError, match=message):
        index_of_vectors.upsert(ids, texts, None, vectors)
    check_unchanged(index_of_vectors)


def test_an_unknown_id_deletes_nothing(index_of_vectors):
    with pytest.raises(ValueError, match="found no document 'x'; nothing was deleted"):
        index_of_vectors.delete(["a", "x", "y"])
    check_unchanged(index_of_vectors)


def test_a_filter_by_an_unknown_name(index_of_vectors):
    message = r"filter: found 'm', expected a metadata name: \['n'\]"
    with pytest.raises(ValueError, match=message):
        index_of_vectors.search(np.ones((1, 2)), filter={"m": 1})


def test_a_query_of_another_dimension(index_of_vectors):
    with pytest.raises(ValueError, match=r"query: found shape \(1, 3\), expected \(n, 2\)"):
        index_of_vectors.search(np.ones((1, 3)))


def test_a_vector_of_zeros_has_cosine_0_to_all(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.upsert(["a", "z"], ["text", "zero"], vectors=[[1, 1], [0, 0]])
    (hits,) = index.search(np.ones((1, 2)), k=2)
    assert scores_of(hits) == pytest.approx([1, 0])


def test_a_model_is_opened_again_with_its_settings(tokenizer, tmp_path):
    def save_bag(seed):
        torch.manual_seed(seed)
        BagModel(BagConfig(vocab_size=400, d_model=16)).save_pretrained(tmp_path / "bag")

    save_bag(0)
    tokenizer.save_pretrained(tmp_path / "bag")
    options = {
        "max_length": 40,
        "long_documents": "chunk",
        "window": 12,
        "stride": 5,
        "prompt": "haus ",
    }
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "bag", **options)
    index = DocumentIndex.create(tmp_path / "index", embedder)
    texts = ["casa perro " * 20, "gato árbol " * 20]
    index.upsert(["a", "b"], texts)
    opened = DocumentIndex.open(tmp_path / "index")
    assert opened.embedder.long_document_settings == embedder.long_document_settings
    assert opened.search("perro", k=1)[0].id == index.search("perro", k=1)[0].id
    np.testing.assert_allclose(
        opened.vectors(["a", "b"]), embedder.encode(texts, normalize=True), atol=1e-6
    )
    same = DocumentEmbedder.from_pretrained(tmp_path / "bag", **options, dtype="bfloat16")
    DocumentIndex.open(tmp_path / "index", same)  # Its vectors are nearly the same.
    with pytest.raises(
        ValueError, match="long_documents is 'chunk', that of the embedder 'truncate'"
    ):
        truncating = DocumentEmbedder.from_pretrained(
            tmp_path / "bag", prompt="haus ", max_length=40
        )
        DocumentIndex.open(tmp_path / "index", truncating)
    save_bag(1)  # trained again
    with pytest.raises(ValueError, match="created with another model"):
        DocumentIndex.open(tmp_path / "index").search("perro")


# ---- Words

WORD_TEXTS = {
    "1": "Die Brücke ist gesperrt. Die Straße auch.",
    "2": "The bridge is closed; the river is not. A bridge is a bridge.",
    "3": "Una strada chiusa.",
    "4": "It rains. The bridge over the river was open.",
}


@pytest.fixture
def words_index(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    metadata = [{"language": code} for code in ("de", "en", "it", "en")]
    index.upsert(list(WORD_TEXTS), list(WORD_TEXTS.values()), metadata)
    return index


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("brucke", ["1"]),
        ("BRÜCKE", ["1"]),
        ("strasse", ["1"]),
        ("open river", ["4", "2"]),
        ('closed AND "', ["2"]),
        ("zebra", []),
    ],
)
def test_words_without_case_and_accents(query, expected, words_index):
    assert ids_of(words_index.search(query, mode="words")) == expected


def test_words_with_invisible_characters_are_found(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.upsert(["1"], ["The bri\u00addge is o\u200bpen."], vectors=np.eye(2)[:1])
    for query in ("bridge open", "bri\u2060dge"):
        assert ids_of(index.search(query, mode="words")) == ["1"]
    with pytest.raises(TmdeError, match="expected a nonempty text"):
        index.upsert(["2"], ["\ufeff\u200b "], vectors=np.eye(2)[:1])


LONG_WORD = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz"
TEXTS_BY_LANGUAGE = {
    "zh": "人人生而自由，在尊严和权利上一律平等。",
    "ja": "すべての人間は、生まれながらにして自由であり、尊厳について平等である。",
    "th": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน",
    "de": f"Das {LONG_WORD} gilt nicht mehr.",
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [("自由", {"zh", "ja"}), ("尊严", {"zh"}), ("อิสระ", {"th"}), (LONG_WORD.lower(), {"de"})],
)
def test_words_without_spaces_and_of_any_length(query, expected, tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=4)
    index.upsert(list(TEXTS_BY_LANGUAGE), list(TEXTS_BY_LANGUAGE.values()), vectors=np.eye(4))
    assert set(ids_of(index.search(query, mode="words"))) == expected


def test_words_after_changes_and_by_filters(words_index, tmp_path):
    assert ids_of(words_index.search("river", mode="words", filter={"language": "de"})) == []
    words_index.upsert(["1", "5"], ["Der Fluss heißt River.", "no words"])
    words_index.delete("4")
    for index in (words_index, DocumentIndex.open(tmp_path / "index", WordCounts())):
        assert set(ids_of(index.search("river", mode="words"))) == {"1", "2"}
        assert ids_of(index.search("brücke", mode="words")) == []


def test_scores_by_words_do_not_depend_on_the_order_of_writes(words_index, tmp_path):
    words_index.search("bridge", mode="words")
    other = DocumentIndex.create(tmp_path / "other", WordCounts())
    for id, text in WORD_TEXTS.items():
        other.upsert([id], [text])
        other.search("bridge", mode="words")
    for query in ("bridge", "river open", "die"):
        expected = {hit.id: hit.score for hit in words_index.search(query, mode="words")}
        scores = {hit.id: hit.score for hit in other.search(query, mode="words")}
        assert scores == pytest.approx(expected)


def test_words_need_no_embedder(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    index.upsert(["a", "b"], ["one two", "three"], vectors=np.eye(2))
    (hit,) = index.search("Three", mode="words")
    assert (hit.id, hit.snippet) == ("b", "three")


def test_words_of_a_folder_that_cannot_be_written(words_index, monkeypatch):
    def refuse(timeout):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(words_index._lock, "acquire", refuse)
    with pytest.raises(TmdeError, match="the word index is missing and can't be written"):
        words_index.search("river", mode="words")


def test_a_first_search_by_words_while_another_process_writes(words_index, tmp_path):
    with (
        FileLock(tmp_path / "index" / ".lock"),
        pytest.raises(TmdeError, match="not yet indexed by words; search by meaning"),
    ):
        words_index.search("river", mode="words")
    assert set(ids_of(words_index.search("river", mode="words"))) == {"2", "4"}


def test_words_that_are_indexed_are_searched_while_another_process_writes(words_index, tmp_path):
    words_index.index_words()
    opened = DocumentIndex.open(tmp_path / "index")
    with FileLock(tmp_path / "index" / ".lock"):
        assert set(ids_of(opened.search("river", mode="words"))) == {"2", "4"}


def test_a_first_search_by_words_leaves_upkeep_to_writers(tmp_path, monkeypatch):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    index.upsert(["a"], ["one two"])
    monkeypatch.setattr(index_table, "APPROXIMATE_FROM", 0)
    monkeypatch.setattr(index_table, "FRAGMENTS", 0)

    assert ids_of(index.search("two", mode="words")) == ["a"]

    assert DocumentIndex.open(tmp_path / "index").exact  # No inverted file was built.


def test_words_that_are_indexed_already_write_nothing(words_index, tmp_path):
    words_index.index_words()
    before = sorted(tmp_path.rglob("*"))
    opened = DocumentIndex.open(tmp_path / "index", WordCounts())
    assert set(ids_of(opened.search("river", mode="words"))) == {"2", "4"}
    assert sorted(tmp_path.rglob("*")) == before


def test_the_snippet_by_words_has_most_of_them(words_index):
    (hit,) = words_index.search("rains river open", k=1, mode="words")
    assert hit.snippet == "The bridge over the river was open."


def test_both_adds_words_to_the_standardized_cosine(words_index):
    """By a plain loop over all documents, from the scores of the two other modes."""
    query = "bridge river open"
    count = len(words_index)
    cosines = {hit.id: hit.score for hit in words_index.search(query, k=count)}
    words = {hit.id: hit.score for hit in words_index.search(query, k=count, mode="words")}
    assert 0 < len(words) < count
    mean = np.mean(list(cosines.values()))
    deviation = np.std(list(cosines.values()))
    expected = {}
    for id, cosine in cosines.items():
        expected[id] = (cosine - mean) / deviation + 0.15 * words.get(id, 0.0)
    hits = words_index.search(query, k=3, mode="both")
    assert scores_of(hits) == pytest.approx(sorted(expected.values(), reverse=True)[:3], abs=1e-4)
    for hit in hits:
        assert hit.score == pytest.approx(expected[hit.id], abs=1e-4)


def test_both_finds_a_document_that_only_words_find(tmp_path):
    """It is the last by meaning, behind more documents than are fused."""
    index = DocumentIndex.create(tmp_path / "index", dimension=2)
    angles = np.linspace(0, 1, 80)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    texts = [f"text {number}" for number in range(79)] + ["Zaragoza"]
    index.upsert([str(number) for number in range(80)], texts, vectors=vectors)
    index.embedder = FixedVector([1.0, 0.0])
    hits = index.search("Zaragoza", k=80, mode="both", snippet_width=0)
    scores = {hit.id: hit.score for hit in hits}
    assert "79" in scores
    (by_words,) = index.search("Zaragoza", k=5, mode="words", snippet_width=0)
    cosines = np.cos(angles)
    expected = (cosines[79] - cosines.mean()) / cosines.std() + 0.15 * by_words.score
    assert scores["79"] == pytest.approx(expected, abs=1e-4)


def test_both_knows_documents_that_were_added_after_a_search(words_index):
    words_index.search("bridge", mode="both")
    words_index.upsert(["new 1", "new 2"], ["bridge bridge", "bridge river"])
    fresh = DocumentIndex.open(words_index.folder, words_index.embedder)
    expected = scores_of(fresh.search("bridge", mode="both"))
    assert scores_of(words_index.search("bridge", mode="both")) == pytest.approx(expected)


def test_both_in_an_index_of_one_document(words_index, tmp_path):
    index = DocumentIndex.create(tmp_path / "one", words_index.embedder)
    index.upsert(["1"], ["The bridge is open."])
    (hit,) = index.search("bridge", mode="both")
    (by_words,) = index.search("bridge", mode="words")
    assert hit.score == pytest.approx(0.15 * by_words.score, abs=1e-4)


@pytest.mark.parametrize(
    ("query", "mode", "message"),
    [
        ("a", "fuzzy", "mode: found 'fuzzy', expected one of"),
        (np.ones((1, 64)), "both", "mode: found 'both' for vectors, which have no words"),
        (" ", "words", "query: found ' ', expected a text"),
    ],
)
def test_modes_that_make_no_sense(query, mode, message, words_index):
    with pytest.raises(ValueError, match=message):
        words_index.search(query, mode=mode)


# ---- Forms of input


def test_repr_says_what_it_holds(words_index, tmp_path):
    expected = f"DocumentIndex({str(tmp_path / 'index')!r}, documents=4, model='/no/model'"
    assert repr(words_index) == f"{expected}, dimension=64)"


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_one_vector_has_one_list_of_hits(kind, words_index):
    vector = words_index.embedder.encode(["bridge river"])[0]
    hits = words_index.search(kind(vector), k=2)
    assert ids_of(hits) == ids_of(words_index.search("bridge river", k=2))


def test_a_table_of_pandas(tmp_path):
    frame = pandas.DataFrame({"id": [1, 2], "text": ["one two", "three"], "year": [1998, None]})
    frame["day"] = pandas.to_datetime(["2020-01-31", None])
    frame["n"] = pandas.array([None, 7], "Int64")
    frame["tables"] = [np.array([np.array([1]), np.array([2, 3])], object), None]
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    metadata = frame.drop(columns=["id", "text"]).to_dict("records")
    changes = index.upsert(frame["id"].astype(str), frame["text"], metadata)
    assert changes.added == 2
    hits = index.documents(["1", "2"])
    assert [hit.text for hit in hits] == ["one two", "three"]
    assert hits[0].metadata == {
        "year": 1998.0,
        "day": "2020-01-31 00:00:00",
        "tables": ["[1]", "[2 3]"],
    }
    assert hits[1].metadata == {"n": 7}


@pytest.mark.parametrize(
    ("ids", "texts", "message"),
    [
        ([1], ["a"], r"ids: found 1 \(int\) at 0, expected strings"),
        (["1"], ["a", "b"], "texts: found 2, expected 1, one for each id"),
        ("ab", ["a", "b"], r"ids: found one id 'ab', expected a list"),
        (["a", "b"], "ab", r"texts: found one text 'ab', expected a list"),
    ],
)
def test_bad_lists(ids, texts, message, tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    with pytest.raises(ValueError, match=message):
        index.upsert(ids, texts)


def test_another_number_of_languages_than_of_documents(tmp_path):
    index = DocumentIndex.create(tmp_path / "index", WordCounts())
    with pytest.raises(TmdeError, match="language: found 1 codes, expected 2, one for each id"):
        index.upsert(["a", "b"], ["x", "y"], language=["de"])
    assert len(index) == 0
