"""The packaged model `tmde`: its vectors are decoded; a saved copy."""

import json
import shutil

import numpy as np
import pytest

from modeling_tmde import TmdeError
from tmde import DocumentEmbedder
from tmde.embedding.packaged_models import PACKAGED_FOLDERS

TEXTS = ["Ich möchte ein Glas Wasser.", "Das Wasser ist sehr kalt."]


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained("tmde", device="cpu", dtype="float32")


def test_a_vector_is_decoded(embedder):
    assert embedder.decoded_languages == ["en", "es"]
    vectors = embedder.encode(TEXTS)
    for text in embedder.decode(vectors, "en"):
        assert "water" in text.lower()
    for text in embedder.decode(vectors, "es"):
        assert "agua" in text.lower()


def test_a_saved_copy_embeds_and_decodes_alike(embedder, tmp_path):
    folder = tmp_path / "saved"
    embedder.save_pretrained(folder)
    copied = DocumentEmbedder.from_pretrained(folder, device="cpu")
    vectors = embedder.encode(TEXTS)
    np.testing.assert_allclose(copied.encode(TEXTS), vectors, atol=1e-5)
    assert json.loads((folder / "config.json").read_text())["normalize"]
    assert copied.decoded_languages == ["en", "es"]
    assert copied.decode(vectors, "en") == embedder.decode(vectors, "en")


def test_a_copy_in_bfloat16_stays_in_bfloat16(tmp_path):
    embedder = DocumentEmbedder.from_pretrained("tmde", device="cpu", dtype="bfloat16")
    embedder.save_pretrained(tmp_path / "saved")
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    assert copied.arithmetic == "bfloat16"
    np.testing.assert_array_equal(copied.encode(TEXTS), embedder.encode(TEXTS))
    assert len(copied.decode(copied.encode(TEXTS), "en")) == len(TEXTS)


def test_a_decoder_that_no_longer_fits_is_left_out(tmp_path):
    embedder = DocumentEmbedder.from_pretrained("tmde", device="cpu", dtype="float32")
    # What SentenceTransformerTrainer leaves behind.
    embedder.model_card_data.tags.append("generated_from_trainer")
    embedder.save_pretrained(tmp_path / "trained")
    trained = DocumentEmbedder.from_pretrained(tmp_path / "trained", device="cpu")
    assert trained.decoded_languages == []
    with pytest.raises(TmdeError, match="decode"):
        trained.decode(trained.encode(TEXTS), "en")


def test_without_its_checkpoint_a_model_is_saved_without_the_decoder(tmp_path, caplog):
    checkpoint = shutil.copytree(PACKAGED_FOLDERS["tmde"], tmp_path / "checkpoint")
    embedder = DocumentEmbedder.from_pretrained(checkpoint, device="cpu")
    vectors = embedder.encode(TEXTS)
    shutil.rmtree(checkpoint)
    embedder.save_pretrained(tmp_path / "saved")
    assert "the model is saved without its decoder" in caplog.text
    copied = DocumentEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(copied.encode(TEXTS), vectors, atol=1e-5)
    assert copied.decoded_languages == []
