"""Vectors of a system, their cache, and the TF-IDF baseline against scikit-learn."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.conftest import tiny_model
from tmde.data.sample import sample_documents
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.document_embedder import logger as embedding_logger
from tmde.embedding.sentence_density import SentenceDensity
from tmde.eval.model_fingerprint import model_fingerprint
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem

TEXTS = ["The market rose.", "Die Börse stieg.", "", "La Bolsa subió mucho ayer por la tarde."]


@pytest.fixture
def embedder(tokenizer):
    torch.manual_seed(0)
    return DocumentEmbedder(tiny_model().model.eval(), tokenizer, max_length=12)


def forbid_encoding(embedder, monkeypatch):
    def fail(*args, **kwargs):
        pytest.fail("encoded again")

    monkeypatch.setattr(embedder, "encode_with_report", fail)


# ---- Vectors and their cache


def test_vectors_are_the_embedders(embedder):
    vectors = EmbeddingSystem("ours", embedder).represent(TEXTS)

    np.testing.assert_array_equal(vectors, embedder.encode(TEXTS))


def test_truncated_texts_are_counted(embedder):
    system = EmbeddingSystem("ours", embedder)

    system.represent(TEXTS)

    report = embedder.encode_with_report(TEXTS).report
    assert system.texts == 4
    assert system.truncated == report.truncated
    assert system.truncated > 0


def test_a_system_logs_no_warning_of_the_texts_that_it_counts(embedder, caplog):
    EmbeddingSystem("ours", embedder).represent(TEXTS)

    assert "truncated" not in caplog.text


def test_an_embedder_warns_of_truncated_texts_after_a_system_used_it(embedder, caplog):
    EmbeddingSystem("ours", embedder).represent(TEXTS)

    embedder.encode(TEXTS)

    assert "were truncated" in caplog.text


def test_other_messages_of_the_embedder_are_logged_while_a_system_encodes(
    embedder, caplog, monkeypatch
):
    encode = embedder.encode_with_report

    def encode_and_log(*args, **options):
        embedding_logger.warning("the disk is full")
        return encode(*args, **options)

    monkeypatch.setattr(embedder, "encode_with_report", encode_and_log)

    EmbeddingSystem("ours", embedder).represent(TEXTS)

    assert "the disk is full" in caplog.text


def test_vectors_come_from_the_cache(embedder, tmp_path, monkeypatch):
    vectors = EmbeddingSystem("ours", embedder, tmp_path).represent(TEXTS)
    forbid_encoding(embedder, monkeypatch)

    cached = EmbeddingSystem("renamed", embedder, tmp_path).represent(TEXTS)

    np.testing.assert_array_equal(cached, vectors)


def test_other_texts_are_not_in_the_cache(embedder, tmp_path, monkeypatch):
    EmbeddingSystem("ours", embedder, tmp_path).represent(TEXTS)
    forbid_encoding(embedder, monkeypatch)

    with pytest.raises(pytest.fail.Exception, match="encoded again"):
        EmbeddingSystem("ours", embedder, tmp_path).represent(TEXTS[::-1])


def test_texts_count_once_a_task_even_from_the_cache(embedder, tmp_path):
    first = EmbeddingSystem("ours", embedder, tmp_path)
    first.represent(TEXTS)
    second = EmbeddingSystem("ours", embedder, tmp_path)

    second.represent(TEXTS)
    second.represent(TEXTS)

    assert second.texts == 4
    assert second.truncated == first.truncated


def test_counts_begin_anew_with_a_task(embedder):
    system = EmbeddingSystem("ours", embedder)
    system.represent(TEXTS)

    system.begin()

    assert system.texts == 0
    assert system.truncated == 0


def test_cpu_seconds_are_those_of_encoding_alone(embedder, tmp_path, monkeypatch):
    """The clock goes on by 1.5 seconds from one look at it to the next."""
    clock = itertools.count(10.0, 1.5)
    monkeypatch.setattr("tmde.eval.systems.time.process_time", lambda: next(clock))
    system = EmbeddingSystem("ours", embedder, tmp_path)
    assert system.cpu_seconds == 0
    system.represent(TEXTS)
    system.represent(TEXTS)  # from memory
    assert system.cpu_seconds == 1.5
    system.begin()
    system.represent(TEXTS)  # from the cache
    assert system.cpu_seconds == 0


def test_only_so_many_vectors_stay_in_memory(embedder, tmp_path, monkeypatch):
    monkeypatch.setattr(EmbeddingSystem, "MAX_BYTES_IN_MEMORY", 4 * 4 * embedder.dimension)
    system = EmbeddingSystem("ours", embedder, tmp_path)

    system.represent(TEXTS)
    system.represent(TEXTS[:1])

    (only_vectors,) = system._vectors_in_memory.values()
    assert len(only_vectors) == 1


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half a file"])
def test_a_damaged_cache_file_is_computed_again(embedder, tmp_path, damage):
    vectors = EmbeddingSystem("a", embedder, tmp_path).represent(TEXTS)
    (path,) = tmp_path.rglob("*.npz")
    path.write_bytes(damage)

    again = EmbeddingSystem("a", embedder, tmp_path).represent(TEXTS)

    np.testing.assert_array_equal(again, vectors)
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["vectors"], vectors)


def test_the_cache_holds_no_temporary_files(embedder, tmp_path):
    EmbeddingSystem("a", embedder, tmp_path).represent(TEXTS)

    (path,) = tmp_path.rglob("*.npz")
    assert list(path.parent.iterdir()) == [path]


def test_sentences_of_another_language_are_not_taken_from_the_cache(embedder, tokenizer, tmp_path):
    """The abbreviation ends a sentence where the language does not know it."""
    texts = ["haus bzw. Hund katze. Nacht"]
    by_sentences = DocumentEmbedder(
        embedder.model, tokenizer, max_length=12, long_documents="sentences", window=1
    )
    system = EmbeddingSystem("one", by_sentences, tmp_path)

    german = system.represent(texts, language="de")
    english = system.represent(texts, language=["en"])
    german_again = system.represent(texts, language=["de"])

    assert np.abs(german - english).max() > 1e-3
    np.testing.assert_array_equal(german_again, german)


# ---- Prompts of queries and documents


@pytest.fixture
def embedder_with_prompts(embedder, tokenizer):
    prompts = {"query": "haus ", "passage": "hund "}
    return DocumentEmbedder(embedder.model, tokenizer, max_length=12, prompts=prompts)


@pytest.mark.parametrize("has_cache", [False, True])
def test_queries_and_documents_have_their_prompts(embedder_with_prompts, has_cache, tmp_path):
    embedder = embedder_with_prompts
    system = EmbeddingSystem("ours", embedder, tmp_path if has_cache else None)
    for _ in range(2):
        system.begin()
        queries = system.represent(TEXTS, role="query")
        documents = system.represent(TEXTS, role="document")
        plain = system.represent(TEXTS)
        np.testing.assert_array_equal(queries, embedder.encode_query(TEXTS))
        np.testing.assert_array_equal(documents, embedder.encode_document(TEXTS))
        np.testing.assert_array_equal(plain, embedder.encode(TEXTS))
        assert np.abs(queries - documents).max() > 1e-3


def test_a_model_without_prompts_reads_queries_as_it_reads_all_texts(embedder, monkeypatch):
    system = EmbeddingSystem("ours", embedder)
    vectors = system.represent(TEXTS)
    forbid_encoding(embedder, monkeypatch)
    np.testing.assert_array_equal(system.represent(TEXTS, role="query"), vectors)
    assert set(system.describe()) == {"pooling", "max_length", "dtype"}


def test_prompts_of_roles_are_described_where_they_were_used(embedder_with_prompts):
    system = EmbeddingSystem("ours", embedder_with_prompts)
    system.represent(TEXTS)
    assert "query_prompt" not in system.describe()
    system.represent(TEXTS, role="query")
    system.represent(TEXTS, role="document")
    assert system.describe()["query_prompt"] == "haus "
    assert system.describe()["document_prompt"] == "hund "
    system.begin()
    assert "query_prompt" not in system.describe()


def test_prompts_of_roles_have_their_fingerprint(embedder, embedder_with_prompts):
    """The results of a task with queries are kept by this fingerprint."""
    assert model_fingerprint(embedder) != model_fingerprint(embedder_with_prompts)


def test_vectors_that_are_not_finite_are_refused(embedder, tmp_path):
    with torch.no_grad():
        for parameter in embedder.model.parameters():
            parameter.fill_(float("nan"))

    message = "broken: found a vector that is not finite for text 0, one of 4 such texts out of 4"
    with pytest.raises(ValueError, match=message):
        EmbeddingSystem("broken", embedder, tmp_path).represent(TEXTS)
    assert not list(tmp_path.rglob("*.npz"))


# ---- Fingerprints


def test_the_fingerprint_does_not_depend_on_earlier_calls(embedder):
    before = model_fingerprint(embedder)

    # The call leaves its truncation in the tokenizer.
    embedder.encode(TEXTS)

    assert model_fingerprint(embedder) == before


def test_the_fingerprint_depends_on_the_weights(embedder):
    before = model_fingerprint(embedder)

    with torch.no_grad():
        next(embedder.model.parameters()).view(-1)[0] += 1e-3

    assert model_fingerprint(embedder) != before


def make_density(seed: int) -> SentenceDensity:
    rows = np.random.default_rng(seed).normal(size=(30, 32))
    return SentenceDensity(components=2).fit(rows)


@pytest.fixture
def embedders(embedder, tokenizer) -> list[DocumentEmbedder]:
    """Embedders of one model, each with another option."""
    options = [
        {},
        {"max_length": 11},
        {"prompt": "query: "},
        {"pooling": "mean"},
        {"long_documents": "chunk", "window": 9},
        {"long_documents": "chunk", "window": 9, "stride": 2},
        {"long_documents": "chunk", "window": 9, "aggregation": "max"},
        {"long_documents": "chunk", "window": 9, "aggregation": make_density(seed=0)},
        {"long_documents": "chunk", "window": 9, "aggregation": make_density(seed=1)},
        {"long_documents": "sentences", "window": 9},
    ]
    embedders = []
    for changes in options:
        settings = {"max_length": 12} | changes
        embedders.append(DocumentEmbedder(embedder.model, tokenizer, **settings))
    return embedders


def test_every_option_that_decides_vectors_has_its_fingerprint(embedders):
    fingerprints = set(map(model_fingerprint, embedders))

    assert len(fingerprints) == len(embedders)


def test_every_option_that_decides_vectors_is_described(embedders):
    descriptions = [EmbeddingSystem("one", embedder).describe() for embedder in embedders]

    assert descriptions[0] == {"pooling": "cls", "max_length": 12, "dtype": "float32"}
    different = {tuple(description.items()) for description in descriptions}
    assert len(different) == len(embedders)


# ---- TF-IDF


def test_tfidf_equals_scikit_learn():
    documents = sample_documents(30, "train", seed=1).to_pandas()
    train = documents[documents["language"] == "en"]["text"].tolist()
    test = documents[documents["language"].isin(["en", "fr"])]["text"].tolist()
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2
    )

    ours = CharacterTfidf().represent(test, train)

    expected = vectorizer.fit(train).transform(test)
    # Columns are in another order, and a few of thousands of n-grams share one.
    assert abs(ours.shape[1] - expected.shape[1]) <= 0.002 * expected.shape[1]
    cosines = (ours @ ours.T).toarray()
    expected_cosines = (expected @ expected.T).toarray()
    np.testing.assert_allclose(cosines, expected_cosines, atol=0.01)


def test_tfidf_of_texts_without_common_ngrams():
    with pytest.raises(ValueError, match="found no n-gram in two of the 2 texts to fit on"):
        CharacterTfidf().represent(["ab"], ["ab", "xy"])
