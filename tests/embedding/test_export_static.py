"""A bag as a static embedding of sentence-transformers gives the vectors of the bag."""

import numpy as np
import pytest

from modeling_tmde import BagConfig, BagModel
from tests.conftest import tiny_model
from tests.embedding.export_texts import TEXTS
from tests.tiny_embedders import make_bag
from tmde import DocumentEmbedder
from tmde.embedding import export_static as export_module
from tmde.embedding.export_static import export_static_embedding, static_encoder

sentence_transformers = pytest.importorskip("sentence_transformers")


def test_a_static_embedding_gives_the_vectors_of_the_bag(tokenizer, tmp_path):
    model = make_bag()

    difference = export_static_embedding(model, tokenizer, tmp_path / "static")

    assert difference < 1e-4
    static = sentence_transformers.SentenceTransformer(str(tmp_path / "static"), device="cpu")
    assert [type(module).__name__ for module in static] == ["StaticEmbedding", "Normalize"]
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)


def test_model2vec_opens_the_same_folder(tokenizer, tmp_path):
    model2vec = pytest.importorskip("model2vec")
    model = make_bag()

    export_static_embedding(model, tokenizer, tmp_path / "static")

    static = model2vec.StaticModel.from_pretrained(tmp_path / "static")
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)


def test_model2vec_opens_a_table_with_more_rows_than_tokens(tokenizer, tmp_path):
    model2vec = pytest.importorskip("model2vec")
    model = BagModel(BagConfig(vocab_size=410, d_model=24)).eval()

    export_static_embedding(model, tokenizer, tmp_path / "static")

    static = model2vec.StaticModel.from_pretrained(tmp_path / "static")
    expected = DocumentEmbedder(model, tokenizer).encode(TEXTS)
    np.testing.assert_allclose(static.encode(TEXTS), expected, rtol=0, atol=1e-5)


def test_texts_without_a_repeated_token_keep_the_vectors_of_a_damped_bag(tokenizer, tmp_path):
    model = make_bag(sublinear_counts=True)

    export_static_embedding(model, tokenizer, tmp_path / "static")

    texts = ["haus hund katze", "haus haus haus hund"]
    ids = tokenizer(texts[0]).input_ids
    assert len(set(ids)) == len(ids)
    vectors = static_encoder(tmp_path / "static")(texts)
    expected = DocumentEmbedder(model, tokenizer).encode(texts)
    np.testing.assert_allclose(vectors[0], expected[0], rtol=0, atol=1e-5)
    counted_as_often = DocumentEmbedder(make_bag(), tokenizer).encode(texts[1])
    np.testing.assert_allclose(vectors[1], counted_as_often, rtol=0, atol=1e-5)
    assert np.abs(vectors[1] - expected[1]).max() > 1e-3


def test_a_bag_that_does_not_normalize_keeps_the_directions(tokenizer, tmp_path):
    model = make_bag(normalize=False)

    export_static_embedding(model, tokenizer, tmp_path / "static")

    vectors = static_encoder(tmp_path / "static")(["haus hund katze"])
    expected = DocumentEmbedder(model, tokenizer).encode(["haus hund katze"])
    num_tokens = len(tokenizer("haus hund katze").input_ids)
    # The bag divides by the number of all tokens, two of which are `<s>` and `</s>`.
    scale = num_tokens / (num_tokens - 2)
    np.testing.assert_allclose(vectors, expected * scale, rtol=0, atol=1e-5)


def test_an_empty_text_gets_zeros(tokenizer, tmp_path):
    export_static_embedding(make_bag(), tokenizer, tmp_path / "static")
    vectors = static_encoder(tmp_path / "static")(["", "haus"])
    np.testing.assert_array_equal(vectors[0], np.zeros(24))
    assert np.linalg.norm(vectors[1]) == pytest.approx(1)


def test_a_prompt_is_put_before_every_text(tokenizer, tmp_path):
    model = make_bag()

    export_static_embedding(model, tokenizer, tmp_path / "static", prompt="agua ")

    expected = DocumentEmbedder(model, tokenizer, prompt="agua ").encode(["haus"])
    vectors = static_encoder(tmp_path / "static")(["haus"])
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_a_table_of_another_model_is_not_written(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "TOLERANCE", -1)
    with pytest.raises(ValueError, match="the table's vectors differ from the model's by"):
        export_static_embedding(make_bag(), tokenizer, tmp_path / "static")
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_no_bag_is_refused(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="found TmdeModel, expected a BagModel"):
        export_static_embedding(tiny_model().model, tokenizer, tmp_path / "static")
    assert not (tmp_path / "static").exists()
