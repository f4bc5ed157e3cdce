"""An encoder with fewer tokens gives the same vectors."""

import json
import re

import datasets
import numpy as np
import pytest
import torch
from transformers import XLMRobertaConfig, XLMRobertaModel

from modeling_tmde import AdaptedConfig, AdaptedModel, BagConfig, BagModel
from tests.conftest import WORDS, make_rows
from tests.hub_encoders import make_tokenizer
from tmde import DocumentEmbedder
from tmde.embedding.export_vocabulary import export_vocabulary

TEXTS = [" ".join(WORDS["de"][:4])] * 3
TOKEN_PARAMETER = re.compile("embed_tokens|word_embeddings|bag_tokens|token_weights")


@pytest.fixture(scope="module")
def unigram_tokenizer():
    texts = []
    for row in make_rows(100):
        texts += row.values()
    return make_tokenizer("unigram", texts)


def as_wide_as_its_vocabulary(kind, size):
    """Return a model in which other parameters have as many rows as the table of tokens."""
    torch.manual_seed(0)
    if kind == "bag":
        return BagModel(BagConfig(vocab_size=size, d_model=size)).eval()
    config = XLMRobertaConfig(
        vocab_size=size,
        pad_token_id=1,
        num_hidden_layers=1,
        num_attention_heads=1,
        hidden_size=size,
        intermediate_size=size,
        max_position_embeddings=size,
    )
    if kind == "xlm-roberta":
        return XLMRobertaModel(config).eval()
    return AdaptedModel(AdaptedConfig(encoder_config=config, bag_residual=2)).eval()


@pytest.mark.parametrize("kind", ["xlm-roberta", "adapted", "bag"])
def test_only_rows_of_tokens_are_cut(kind, unigram_tokenizer, tmp_path):
    model = as_wide_as_its_vocabulary(kind, len(unigram_tokenizer))
    embedder = DocumentEmbedder(model, unigram_tokenizer)

    size, _ = export_vocabulary(embedder, TEXTS, tmp_path, min_count=2)

    cut = DocumentEmbedder.from_pretrained(tmp_path, embedder.pooling, device="cpu")
    assert len(cut.tokenizer) == size
    assert size < len(unigram_tokenizer)
    np.testing.assert_allclose(cut.encode(TEXTS), embedder.encode(TEXTS), rtol=0, atol=1e-5)
    before = embedder.model.state_dict()
    after = cut.model.state_dict()
    smaller = {name for name in before if before[name].shape != after[name].shape}
    assert smaller == set(filter(TOKEN_PARAMETER.search, before))


def test_pooling_and_prompt_are_written_without_a_warning(unigram_tokenizer, tmp_path, caplog):
    model = as_wide_as_its_vocabulary("adapted", len(unigram_tokenizer))
    embedder = DocumentEmbedder(model, unigram_tokenizer, pooling="mean", prompt="hund ")

    export_vocabulary(embedder, TEXTS, tmp_path)

    pooling = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_mean_tokens"]
    assert "edited" not in caplog.text
    opened = DocumentEmbedder.from_pretrained(tmp_path, "mean", device="cpu")
    assert opened.prompt == "hund "


def test_the_tokenizer_of_the_embedder_stays_as_it_is(unigram_tokenizer, tmp_path):
    model = as_wide_as_its_vocabulary("bag", len(unigram_tokenizer))
    embedder = DocumentEmbedder(model, unigram_tokenizer)
    backend = unigram_tokenizer.backend_tokenizer
    backend.enable_truncation(3)
    backend.enable_padding(length=30)
    before = datasets.fingerprint.Hasher.hash(backend.to_str())

    export_vocabulary(embedder, TEXTS, tmp_path)

    after = datasets.fingerprint.Hasher.hash(backend.to_str())
    backend.no_truncation()
    backend.no_padding()
    assert after == before
