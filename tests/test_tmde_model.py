"""The packaged model `tmde`: opened by name, by other libraries, and decoded."""

import hashlib
import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

from modeling_tmde import AdaptedModel, TmdeError
from tests.conftest import LANGUAGES
from tmde import DocumentEmbedder
from tmde.data.sample import sample_sentences
from tmde.embedding import TMDE_MODEL
from tmde.embedding.packaged_models import PACKAGED_FOLDERS, packaged_name

FOLDER = PACKAGED_FOLDERS[TMDE_MODEL]
TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law.", "", "Ja!"]
SEAL = "03e4a350d09767ef4db5062623c85ff086f27d0f0d8192ba7b13243105cac122"


@pytest.fixture(scope="module")
def embedder():
    return DocumentEmbedder.from_pretrained("tmde", device="cpu", dtype="float32")


def test_the_weights_are_those_that_were_measured():
    """Every figure of this model in the documentation is of these bytes."""
    weights = (FOLDER / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == SEAL


def test_the_package_is_small_and_complete(embedder):
    size = 0
    for path in FOLDER.rglob("*"):
        size += path.stat().st_size
    assert size < 30e6
    assert not list(FOLDER.rglob("*.py"))  # AutoModel knows the class.
    assert (FOLDER / "README.md").is_file()
    assert packaged_name(FOLDER) == "tmde"
    assert isinstance(embedder.model, AdaptedModel)
    assert embedder.model.config.encoder_config.num_hidden_layers == 4
    assert tuple(embedder.languages) == LANGUAGES
    assert "model='tmde'" in repr(embedder)


def test_no_path_of_a_machine_is_in_it():
    for path in FOLDER.rglob("*.json"):
        assert "/tmp/" not in path.read_text()
        assert "/work/" not in path.read_text()


def test_the_tokenizer_is_that_of_accurate():
    names = ("tokenizer.json", "tokenizer_config.json")
    for name in names:
        assert (FOLDER / name).read_bytes() == (PACKAGED_FOLDERS["accurate"] / name).read_bytes()


def test_every_weight_of_the_file_is_one_of_the_model():
    for auto_class in (AutoModel, AutoModelForSeq2SeqLM):
        _, report = auto_class.from_pretrained(FOLDER, output_loading_info=True)
        assert not report["unexpected_keys"]
        assert not report["missing_keys"]


def test_vectors_have_length_1_and_do_not_depend_on_the_batch(embedder):
    together = embedder.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(embedder.encode([text])[0], together[row], atol=1e-5)


def test_bfloat16_vectors_are_nearly_those_of_float32(embedder):
    in_bfloat16 = DocumentEmbedder.from_pretrained("tmde", device="cpu", dtype="bfloat16")
    vectors = in_bfloat16.encode(TEXTS)
    assert (vectors * embedder.encode(TEXTS)).sum(1).min() > 0.999


def test_it_opens_in_the_type_that_the_cpu_multiplies_fast(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    embedder = DocumentEmbedder.from_pretrained("tmde", device="cpu")
    assert embedder.arithmetic == "bfloat16"


def test_sentence_transformers_gives_the_same_vectors(embedder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(FOLDER), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), embedder.encode(TEXTS), atol=1e-5)


def test_translations_are_found(embedder):
    rows = sample_sentences(200, "test")["translation"]
    english_vectors = embedder.encode([row["en"] for row in rows])
    for code in set(LANGUAGES) - {"en"}:
        vectors = embedder.encode([row[code] for row in rows])
        nearest = (english_vectors @ vectors.T).argmax(axis=1)
        assert (nearest == np.arange(200)).mean() > 0.97, code


def test_a_vector_is_decoded(embedder):
    assert embedder.decoded_languages == ["en", "es"]
    vectors = embedder.encode(["Ich möchte ein Glas Wasser.", "Das Wasser ist sehr kalt."])
    for text in embedder.decode(vectors, "en"):
        assert "water" in text.lower()
    for text in embedder.decode(vectors, "es"):
        assert "agua" in text.lower()


def test_the_folder_that_is_saved_opens_without_the_package_name(embedder, tmp_path):
    embedder.save_pretrained(tmp_path / "saved")
    reopened = DocumentEmbedder.from_pretrained(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(reopened.encode(TEXTS), embedder.encode(TEXTS), atol=1e-5)
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["normalize"]
    assert reopened.decoded_languages == []
    with pytest.raises(TmdeError, match="decode"):
        reopened.decode(reopened.encode(TEXTS), "en")
