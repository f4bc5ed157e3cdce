"""Vectors back to text: what `decode` returns, and what it refuses."""

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from modeling_tmde import TmdeError
from tests.conftest import jittered, save, tiny_model
from tests.tiny_embedders import make_tokenizer, make_xlmr
from tmde.embedding.document_embedder import DocumentEmbedder


@pytest.fixture
def folder(tmp_path, tokenizer):
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


# ---- Saving

TEXTS = ["haus hund", "katze"]


def decoded(embedder, vectors):
    return embedder.decode(vectors, "en", max_new_tokens=8, num_beams=1)


def test_a_saved_copy_keeps_the_decoder_and_its_settings(folder, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.generation_config.max_length = 77
    model.save_pretrained(folder)
    embedder = DocumentEmbedder.from_pretrained(folder)
    embedder.model.config.note = "mine"
    for name in ("first", "second"):  # Saving changes nothing in the open model.
        embedder.save_pretrained(tmp_path / name)
    copied = DocumentEmbedder.from_pretrained(tmp_path / "second")
    vectors = embedder.encode(TEXTS)
    np.testing.assert_array_equal(copied.encode(TEXTS), vectors)
    assert copied.decoded_languages == embedder.decoded_languages == ["en", "es"]
    assert decoded(copied, vectors) == decoded(embedder, vectors)
    assert copied.model.config.note == "mine"
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "second")
    assert saved.generation_config.max_length == 77


def test_saving_to_the_folder_of_the_checkpoint_loses_nothing(folder):
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    model.generation_config.max_length = 77
    model.save_pretrained(folder)
    embedder = DocumentEmbedder.from_pretrained(folder)
    vectors = embedder.encode(TEXTS)
    expected = decoded(embedder, vectors)
    embedder.save_pretrained(folder)
    reopened = DocumentEmbedder.from_pretrained(folder)
    np.testing.assert_array_equal(reopened.encode(TEXTS), vectors)
    assert decoded(reopened, vectors) == expected
    saved = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert saved.generation_config.max_length == 77


def changed(embedder):
    with torch.no_grad():
        next(embedder.model.parameters()).mul_(1.5)


def resized(embedder):
    embedder.model.resize_token_embeddings(embedder.model.config.vocab_size + 8)


@pytest.mark.parametrize("change", [changed, resized])
def test_an_encoder_that_has_changed_is_saved_alone(folder, tmp_path, change, caplog):
    DocumentEmbedder.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    embedder = DocumentEmbedder.from_pretrained(folder)
    change(embedder)
    embedder.save_pretrained(tmp_path / "saved")
    assert f"the encoder differs from that of {folder}" in caplog.text
    assert not (tmp_path / "saved" / "generation_config.json").exists()
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(copied.encode(TEXTS), embedder.encode(TEXTS))
    assert copied.decoded_languages == []


def test_an_adapter_is_saved_as_before(folder, tmp_path):
    peft = pytest.importorskip("peft")
    embedder = DocumentEmbedder.from_pretrained(folder)
    settings = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    embedder.model.add_adapter(settings)
    assert embedder.decoded_languages == []
    embedder.save_pretrained(tmp_path / "saved")
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(copied.encode(TEXTS), embedder.encode(TEXTS), atol=1e-6)
    copied.save_pretrained(tmp_path / "again")


def test_a_model_whose_checkpoint_is_gone_is_saved_alone(folder, tmp_path, caplog):
    embedder = DocumentEmbedder.from_pretrained(folder)
    vectors = embedder.encode(TEXTS)
    shutil.rmtree(folder)
    embedder.save_pretrained(tmp_path / "saved")
    assert f"its checkpoint {folder} no longer exists" in caplog.text
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(copied.encode(TEXTS), vectors)
    assert copied.decoded_languages == []


def test_a_model_whose_checkpoint_is_damaged_is_saved_alone(folder, tmp_path, caplog):
    embedder = DocumentEmbedder.from_pretrained(folder)
    weights = folder / "model.safetensors"
    weights.unlink()  # The open model maps the old file.
    weights.write_bytes(b"damaged")
    embedder.save_pretrained(tmp_path / "saved")
    assert f"{folder} can't be loaded" in caplog.text
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(copied.encode(TEXTS), embedder.encode(TEXTS))


def test_a_checkpoint_that_was_replaced_is_read_again(folder, tokenizer):
    embedder = DocumentEmbedder.from_pretrained(folder)
    vectors = embedder.encode(TEXTS)
    before = decoded(embedder, vectors)
    save(folder, jittered(tiny_model(pivot_languages=["en", "es"]), size=0.5), tokenizer)
    assert decoded(embedder, vectors) != before
