"""Vectors in a file: those of `encode`, whatever the chunks are."""

import numpy as np
import pytest

from modeling_tmde import TmdeError
from tests.tiny_embedders import TEXTS, make_tables, make_tokenizer, make_xlmr
from tmde.embedding import mapped_vectors, progress
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.embedding.mapped_vectors import encode_to_file


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder(make_xlmr(), make_tokenizer())


@pytest.mark.parametrize("chunk", [2, 1000])
@pytest.mark.parametrize(
    "options", [{}, {"precision": "int8"}, {"precision": "ubinary", "truncate_dim": 12}]
)
def test_the_file_holds_the_vectors(monkeypatch, tmp_path, embedder, chunk, options):
    monkeypatch.setattr(mapped_vectors, "_CHUNK", chunk)
    path = tmp_path / "vectors.npy"
    texts = (text for text in TEXTS)
    vectors, report = encode_to_file(embedder, texts, len(TEXTS), path, **options)
    expected = embedder.encode(TEXTS, **options)
    assert vectors.dtype == expected.dtype
    assert report.texts == len(TEXTS)
    assert not vectors.flags.writeable
    tolerance = 1e-5 if vectors.dtype == np.float32 else 0
    np.testing.assert_allclose(np.load(path), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(("chunk", "shows"), [(2, True), (1000, False)])
def test_progress_shows_in_a_log(monkeypatch, capfd, tmp_path, embedder, chunk, shows):
    """With more than one chunk; by default, the embedder shows it on a terminal only."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 1e-9)
    monkeypatch.setattr(mapped_vectors, "_CHUNK", chunk)
    encode_to_file(embedder, TEXTS, len(TEXTS), tmp_path / "vectors.npy")
    assert ("Embedding" in capfd.readouterr().err) is shows


def test_each_text_has_its_language(tmp_path):
    embedder = DocumentEmbedder(make_tables(), make_tokenizer())
    texts = ["ein Haus", "a house", "ein Haus"]
    codes = ["de", "en", "en"]
    vectors, _ = encode_to_file(embedder, texts, 3, tmp_path / "vectors.npy", language=codes)
    np.testing.assert_allclose(vectors, embedder.encode(texts, language=codes), atol=1e-6)
    assert not np.allclose(vectors[0], vectors[2])


def test_an_unknown_precision(tmp_path, embedder):
    with pytest.raises(TmdeError, match="precision: found 'int4', expected one of"):
        encode_to_file(embedder, TEXTS, len(TEXTS), tmp_path / "vectors.npy", precision="int4")
