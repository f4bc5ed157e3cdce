"""Vectors of a system, their cache, and the TF-IDF baseline against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.conftest import tiny_model
from tmde.data.sample import sample_documents
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.long_documents import SentenceDensity
from tmde.eval.systems import CharacterTfidf, EmbeddingSystem, model_fingerprint

TEXTS = ["The market rose.", "Die Börse stieg.", "", "La Bolsa subió mucho ayer por la tarde."]


@pytest.fixture
def embedder(tokenizer):
    torch.manual_seed(0)
    return DocumentEmbedder(tiny_model().model.eval(), tokenizer, max_length=12)


def test_vectors_come_from_the_cache(embedder, tmp_path, monkeypatch):
    first = EmbeddingSystem("ours", embedder, tmp_path)
    vectors = first.represent(TEXTS)
    expected, report = embedder.encode_with_report(TEXTS)
    np.testing.assert_array_equal(vectors, expected)
    truncated = report.truncated
    assert (first.texts, first.truncated) == (4, truncated) and truncated > 0

    monkeypatch.setattr(
        embedder, "encode_with_report", lambda *args, **kwargs: pytest.fail("encoded again")
    )
    second = EmbeddingSystem("renamed", embedder, tmp_path)
    np.testing.assert_array_equal(second.represent(TEXTS), vectors)
    np.testing.assert_array_equal(second.represent(TEXTS), vectors)
    assert (second.texts, second.truncated) == (
        4,
        truncated,
    )  # a text set counts once a task, cached or not
    second.begin()
    assert (second.texts, second.truncated) == (0, 0)
    with pytest.raises(pytest.fail.Exception, match="encoded again"):
        second.represent(TEXTS[::-1])


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half a file"])
def test_a_damaged_cache_file_is_computed_again(embedder, tmp_path, damage):
    vectors = EmbeddingSystem("a", embedder, tmp_path).represent(TEXTS)
    (path,) = tmp_path.rglob("*.npz")
    path.write_bytes(damage)
    np.testing.assert_array_equal(
        EmbeddingSystem("a", embedder, tmp_path).represent(TEXTS), vectors
    )
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["vectors"], vectors)
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # no temporary file is left


def test_fingerprint_is_of_everything_that_decides_a_vector(embedder, tokenizer):
    before = model_fingerprint(embedder)
    embedder.encode(TEXTS)  # leaves its truncation in the tokenizer
    assert model_fingerprint(embedder) == before
    rng = np.random.default_rng(0)
    densities = [SentenceDensity(components=2).fit(rng.normal(size=(30, 32))) for _ in range(2)]
    options = [
        {"max_length": 11},
        {"prompt": "query: "},
        {"pooling": "mean"},
        {"long_documents": "chunk", "window": 9},
        {"long_documents": "chunk", "window": 9, "stride": 2},
        {"long_documents": "chunk", "window": 9, "aggregation": "max"},
        *(
            {"long_documents": "chunk", "window": 9, "aggregation": density}
            for density in densities
        ),
        {"long_documents": "sentences", "window": 9},
    ]
    embedders = [
        DocumentEmbedder(embedder.model, tokenizer, **{"max_length": 12} | one) for one in options
    ]
    assert len({before, *map(model_fingerprint, embedders)}) == 1 + len(options)
    described = [EmbeddingSystem("one", one).describe() for one in (embedder, *embedders)]
    assert described[0] == {"pooling": "cls", "max_length": 12, "dtype": "float32"}
    assert len({tuple(one.items()) for one in described}) == 1 + len(options)
    with torch.no_grad():
        next(embedder.model.parameters()).view(-1)[0] += 1e-3
    assert model_fingerprint(embedder) != before


def test_sentences_of_another_language_are_not_taken_from_the_cache(embedder, tokenizer, tmp_path):
    """The abbreviation ends a sentence where the language does not know it."""
    texts = ["haus bzw. Hund katze. Nacht"]
    options = {"max_length": 12, "long_documents": "sentences", "window": 1}
    system = EmbeddingSystem(
        "one", DocumentEmbedder(embedder.model, tokenizer, **options), tmp_path
    )
    german, english = (
        system.represent(texts, language="de"),
        system.represent(texts, language=["en"]),
    )
    assert np.abs(german - english).max() > 1e-3
    np.testing.assert_array_equal(system.represent(texts, language=["de"]), german)


def test_vectors_that_are_not_finite_are_refused(embedder, tmp_path):
    with torch.no_grad():
        for parameter in embedder.model.parameters():
            parameter.fill_(float("nan"))
    with pytest.raises(
        ValueError, match="broken: found a vector that is not finite for text 0, .*4 of 4 texts"
    ):
        EmbeddingSystem("broken", embedder, tmp_path).represent(TEXTS)
    assert not list(tmp_path.rglob("*.npz"))


def test_tfidf_equals_scikit_learn():
    documents = sample_documents(30, "train", seed=1)
    train = [row["text"] for row in documents if row["language"] == "en"]
    test = [row["text"] for row in documents if row["language"] in ("en", "fr")]
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, min_df=2
    ).fit(train)
    ours = CharacterTfidf().represent(test, train)
    expected = vectorizer.transform(test)
    # Columns are in another order, and a few of thousands of n-grams share one.
    assert abs(ours.shape[1] - expected.shape[1]) <= 0.002 * expected.shape[1]
    np.testing.assert_allclose(
        (ours @ ours.T).toarray(), (expected @ expected.T).toarray(), atol=0.01
    )
