"""Prompts: those that a model carries, as sentence-transformers reads them."""

import json

import numpy as np
import pytest

from tests import hub_encoders
from tmde.embedding.document_embedder import DocumentEmbedder

sentence_transformers = pytest.importorskip("sentence_transformers")
st_models = pytest.importorskip("sentence_transformers.models")

TEXTS = ["house dog", "", "haus hund katze baum " * 40]


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompts") / "encoder"
    return hub_encoders.save_encoder(folder, "xlm-roberta")


@pytest.fixture(scope="module")
def peer(encoder_folder):
    """A model of sentence-transformers with a prompt."""
    modules = [st_models.Transformer(str(encoder_folder)), st_models.Pooling(32)]
    return sentence_transformers.SentenceTransformer(
        modules=modules,
        device="cpu",
        prompts={"query": "haus: "},
        default_prompt_name="query",
    )


@pytest.fixture
def peer_folder(peer, tmp_path):
    peer.save(str(tmp_path / "peer"))
    return tmp_path / "peer"


@pytest.mark.parametrize(
    ("prompt", "expected", "options"),
    [
        (None, "haus: ", {}),
        ("cat. ", "cat. ", {"prompt": "cat. "}),
        ("", "", {"prompt": ""}),
    ],
)
def test_prompts_as_in_sentence_transformers(prompt, expected, options, peer, peer_folder):
    embedder = DocumentEmbedder.from_pretrained(peer_folder, device="cpu", prompt=prompt)
    assert embedder.prompt == expected
    vectors = embedder.encode(TEXTS)
    np.testing.assert_allclose(vectors, peer.encode(TEXTS, **options), rtol=0, atol=1e-5)


def test_a_prompt_changes_the_vectors(peer_folder):
    prompted = DocumentEmbedder.from_pretrained(peer_folder, device="cpu")
    plain = DocumentEmbedder.from_pretrained(peer_folder, device="cpu", prompt="")
    assert abs(prompted.encode(TEXTS) - plain.encode(TEXTS)).max() > 1e-2


def test_a_model_without_prompts_has_none(encoder_folder):
    assert DocumentEmbedder.from_pretrained(encoder_folder).prompt == ""


def test_a_prompt_longer_than_an_input_is_refused(peer_folder):
    with pytest.raises(ValueError, match="max_length: found 5, expected more than"):
        DocumentEmbedder.from_pretrained(peer_folder, max_length=5, prompt="haus hund katze baum")


def test_a_default_prompt_that_is_missing_is_named(peer_folder):
    path = peer_folder / "config_sentence_transformers.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"default_prompt_name": "other"}))
    with pytest.raises(
        ValueError, match=r"default_prompt_name is 'other', expected one of \[.*'query'"
    ):
        DocumentEmbedder.from_pretrained(peer_folder)
