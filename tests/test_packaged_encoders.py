"""The packaged encoders `accurate` and `tmde`: their files, vectors and arithmetic."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

from modeling_tmde import AdaptedModel
from tests.conftest import LANGUAGES, nightly_except
from tmde import DocumentEmbedder
from tmde.data.sample import sample_sentences
from tmde.embedding.packaged_models import PACKAGED_FOLDERS, packaged_name

TEXTS = ["Das Parlament hat das Gesetz abgelehnt.", "Parliament rejected the law.", "", "Ja!"]
TOKENIZER_SEAL = "1972e9ec75d6c07c30aa12067a6b301a1a1dbe5960902c734233c16463db8b95"


@dataclass(frozen=True)
class PackagedEncoder:
    """What is expected of a packaged encoder.

    Attributes:
        name: Its name.
        seal: The SHA-256 of its weights.
        megabytes: The size that its folder stays under.
        layers: The number of its layers.
        found: The share of translations in the sample that it finds at least.
        auto_classes: The classes that use every weight.
    """

    name: str
    seal: str
    megabytes: int
    layers: int
    found: float
    auto_classes: tuple[type, ...]

    @property
    def folder(self) -> Path:
        return PACKAGED_FOLDERS[self.name]


ACCURATE = PackagedEncoder(
    "accurate",
    "fa5aab72aa8ca417eb076b5ea0897c5357c35a3221228bc1dd81950dc9d00acc",
    megabytes=40,
    layers=12,
    found=0.98,
    auto_classes=(AutoModel,),
)
TMDE = PackagedEncoder(
    "tmde",
    "03e4a350d09767ef4db5062623c85ff086f27d0f0d8192ba7b13243105cac122",
    megabytes=30,
    layers=4,
    found=0.97,
    auto_classes=(AutoModel, AutoModelForSeq2SeqLM),
)
ENCODERS = (ACCURATE, TMDE)


@pytest.fixture(scope="module", params=ENCODERS, ids=lambda encoder: encoder.name)
def encoder(request):
    return request.param


@pytest.fixture(scope="module")
def embedder(encoder):
    return DocumentEmbedder.from_pretrained(encoder.name, device="cpu", dtype="float32")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_files_are_those_that_were_measured(encoder):
    """Every figure of this model in the documentation is of these bytes."""
    assert digest(encoder.folder / "model.safetensors") == encoder.seal
    assert digest(encoder.folder / "tokenizer.json") == TOKENIZER_SEAL
    settings = (encoder.folder / "tokenizer_config.json").read_bytes()
    assert settings == (ACCURATE.folder / "tokenizer_config.json").read_bytes()


def test_the_package_is_small_and_complete(encoder, embedder):
    size = 0
    for path in encoder.folder.rglob("*"):
        size += path.stat().st_size
    assert size < 1e6 * encoder.megabytes
    assert not list(encoder.folder.rglob("*.py"))  # AutoModel knows the class.
    assert (encoder.folder / "README.md").is_file()
    assert isinstance(embedder.model, AdaptedModel)
    assert tuple(embedder.languages) == LANGUAGES
    assert embedder.model.config.encoder_config.num_hidden_layers == encoder.layers
    assert embedder.max_length == 509  # The prompt of `accurate` takes three of 512.


def test_no_path_of_a_machine_is_in_it(encoder):
    for path in encoder.folder.rglob("*.json"):
        text = path.read_text()
        for folder in ("/tmp/", "/home/", "/work/"):
            assert folder not in text, path


def test_a_packaged_folder_has_its_name(encoder, embedder):
    assert packaged_name(encoder.folder) == encoder.name
    assert packaged_name(encoder.folder.parent) is None
    assert f"model='{encoder.name}'" in repr(embedder)


def test_every_weight_of_the_file_is_one_of_the_model(encoder):
    for auto_class in encoder.auto_classes:
        _, report = auto_class.from_pretrained(encoder.folder, output_loading_info=True)
        assert not report["unexpected_keys"]
        assert not report["missing_keys"]


def test_vectors_have_length_1_and_do_not_depend_on_the_batch(embedder):
    together = embedder.encode(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(embedder.encode([text])[0], together[row], atol=1e-5)


def test_bfloat16_vectors_are_nearly_those_of_float32(encoder, embedder):
    in_bfloat16 = DocumentEmbedder.from_pretrained(encoder.name, device="cpu", dtype="bfloat16")
    expected = embedder.encode(TEXTS)
    together = in_bfloat16.encode(TEXTS)
    alone = np.concatenate([in_bfloat16.encode([text]) for text in TEXTS])
    for vectors in (together, alone):
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        assert (vectors * expected).sum(1).min() > 0.999


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_f": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_it_opens_in_the_type_that_the_cpu_multiplies_fast(
    encoder, capabilities, dtype, monkeypatch
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    embedder = DocumentEmbedder.from_pretrained(encoder.name, device="cpu")
    assert embedder.model.dtype == dtype
    assert f"torch.{embedder.arithmetic}" == str(dtype)
    assert f"dtype='{embedder.arithmetic}'" in repr(embedder)


def test_sentence_transformers_gives_the_same_vectors(encoder, embedder):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(encoder.folder), device="cpu")
    np.testing.assert_allclose(model.encode(TEXTS), embedder.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("encoder", nightly_except([TMDE], ENCODERS), indirect=True)
def test_translations_are_found(encoder, embedder):
    rows = sample_sentences(200, "test")["translation"]
    english_vectors = embedder.encode([row["en"] for row in rows])
    for code in set(LANGUAGES) - {"en"}:
        vectors = embedder.encode([row[code] for row in rows])
        nearest = (english_vectors @ vectors.T).argmax(axis=1)
        assert (nearest == np.arange(200)).mean() > encoder.found, code
