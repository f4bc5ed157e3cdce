"""Vectors back to text: what `decode` returns, and what it refuses."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from modeling_tmde import TmdeError
from tests.conftest import jittered, save, tiny_model
from tests.tiny_embedders import make_tokenizer, make_xlmr
from tmde.embedding.decoding import open_decoder
from tmde.embedding.document_embedder import DocumentEmbedder


@pytest.fixture
def folder(tmp_path, tokenizer):
    open_decoder.cache_clear()
    return save(tmp_path / "model", jittered(tiny_model(pivot_languages=["en", "es"])), tokenizer)


def test_the_text_is_that_of_generate(folder):
    embedder = DocumentEmbedder.from_pretrained(folder)
    vectors = embedder.encode(["haus hund", "katze", "baum fluss stadt"])

    texts = embedder.decode(vectors, "en", max_new_tokens=8, num_beams=1, batch_size=2)

    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    for vector, text in zip(vectors, texts, strict=True):
        token_ids = model.generate(encoder_outputs=vector, target_language="en", max_new_tokens=8)
        assert text == embedder.tokenizer.decode(token_ids[0], skip_special_tokens=True)
    assert any(texts)


def test_the_languages_that_a_model_writes(folder, tmp_path):
    assert DocumentEmbedder.from_pretrained(folder).decoded_languages == ["en", "es"]
    make_xlmr().save_pretrained(tmp_path / "encoder")
    make_tokenizer().save_pretrained(tmp_path / "encoder")
    for name in ("default", "accurate", str(tmp_path / "encoder")):
        assert DocumentEmbedder.from_pretrained(name, pooling="cls").decoded_languages == []


def test_one_vector_gives_a_list_of_one_text(folder):
    embedder = DocumentEmbedder.from_pretrained(folder)

    texts = embedder.decode(embedder.encode("haus"), "es", max_new_tokens=3)

    assert len(texts) == 1


def test_tensors_and_lists_of_vectors_are_taken(folder):
    embedder = DocumentEmbedder.from_pretrained(folder)
    vectors = embedder.encode(["haus", "katze"])
    options = {"language": "en", "max_new_tokens": 5}

    texts = embedder.decode(vectors, **options)

    assert embedder.decode(torch.tensor(vectors), **options) == texts
    assert embedder.decode(list(vectors), **options) == texts


@pytest.mark.parametrize(
    ("vectors", "language", "message"),
    [
        (np.zeros((1, 31), np.float32), "en", "expected floats"),
        (np.zeros((1, 32), np.int8), "en", "expected floats"),
        (np.zeros((1, 32), np.float32), "de", "not a pivot language"),
        (np.zeros((1, 32), np.float32), None, "target_language is missing"),
    ],
)
def test_what_cannot_be_decoded_is_refused(folder, vectors, language, message):
    embedder = DocumentEmbedder.from_pretrained(folder)

    with pytest.raises(TmdeError, match=message):
        embedder.decode(vectors, language)


def test_a_model_without_a_decoder_is_named(tmp_path, tokenizer):
    encoder = save(tmp_path / "xlmr", make_xlmr(), tokenizer)
    embedder = DocumentEmbedder.from_pretrained(encoder)

    with pytest.raises(TmdeError, match=r"xlmr: found a model of type 'xlm-roberta'"):
        embedder.decode(np.zeros(32, np.float32))


def test_the_encoder_alone_is_named(tmp_path, tokenizer):
    encoder = save(tmp_path / "encoder", tiny_model().get_encoder(), tokenizer)
    embedder = DocumentEmbedder.from_pretrained(encoder)

    with pytest.raises(TmdeError, match=r"encoder: found only the encoder"):
        embedder.decode(np.zeros(32, np.float32), "en")


def test_a_model_without_a_folder_is_told_what_to_do(tokenizer):
    embedder = DocumentEmbedder(tiny_model(), tokenizer)

    with pytest.raises(TmdeError, match="from_pretrained"):
        embedder.decode(np.zeros(32, np.float32), "en")


def test_default_has_no_decoder():
    embedder = DocumentEmbedder.from_pretrained()

    with pytest.raises(TmdeError, match="no decoder"):
        embedder.decode(embedder.encode("house"))
