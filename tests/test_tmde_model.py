"""The packaged model `tmde`: its vectors are decoded; a saved copy."""

import json

import numpy as np
import pytest

from tmde import DocumentEmbedder

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
    vectors = embedder.encode(TEXTS)
    np.testing.assert_array_equal(copied.encode(TEXTS), vectors)
    assert copied.decode(vectors, "en") == embedder.decode(vectors, "en")
