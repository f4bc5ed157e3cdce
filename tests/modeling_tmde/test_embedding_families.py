"""DocumentEmbedder on every family of this package: the body that embeds, how long a text may be, any batch."""

import numpy as np
import pytest
import torch

from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.long_documents import NO_LIMIT
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM, TmdeEncoderModel
from modeling_tmde.modeling_laser import LaserForConditionalGeneration, LaserModel
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration, NtdvModel
from tests.modeling_tmde.test_embedding import make_tokenizer

TEXTS = ["a", "open open x", "", "sesión; gracias", "Sitzung " * 20, "The sitting is open."]
CODES = ["de", "en", "fr", "en", "de", "fr"]
COMMON = {"vocab_size": 400, "languages": ["de", "en", "fr"], "pivot_languages": ["en"]}


def laser():
    return LaserConfig(d_model=16, embedding_dim=8, encoder_layers=1, decoder_hidden_size=8, **COMMON)


def ntdv():
    return NtdvConfig(embedding_dim=8, d_model=8, attention_heads=2, vector="concat", **COMMON)


def encoder(pooling):
    sizes = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8}
    return TmdeEncoderConfig(pooling=pooling, max_position_embeddings=40, **sizes, **COMMON)


def aligned(kind):
    small = {"bilstm": {"embedding_dim": 8, "d_model": 16}, "bag": {"d_model": 16}}[kind]
    return AlignedConfig(encoder=kind, encoder_config=small, source_language="en", **COMMON)


MODELS = [
    (LaserForConditionalGeneration, laser, LaserModel, NO_LIMIT, False),
    (LaserModel, laser, LaserModel, NO_LIMIT, False),
    (NtdvForConditionalGeneration, ntdv, NtdvModel, NO_LIMIT, True),
    (NtdvModel, ntdv, NtdvModel, NO_LIMIT, True),
    (TmdeEncoderForMaskedLM, lambda: encoder("mean"), TmdeEncoderModel, 40, False),
    (TmdeEncoderModel, lambda: encoder("first"), TmdeEncoderModel, 40, False),
    (AlignedModel, lambda: aligned("bilstm"), AlignedModel, NO_LIMIT, True),
    (AlignedModel, lambda: aligned("bag"), AlignedModel, NO_LIMIT, True),
]


@pytest.mark.parametrize(("given", "config", "body", "limit", "needs_language"), MODELS)
def test_every_family_embeds(given, config, body, limit, needs_language):
    torch.manual_seed(0)
    embedder = DocumentEmbedder(given(config()).eval(), make_tokenizer())
    assert type(embedder.model) is body and embedder.pooling == "cls"
    assert (embedder.max_length, embedder.dimension, embedder.needs_language) == (limit, 16, needs_language)
    vectors = embedder.encode(TEXTS, language=CODES)
    for text, code, vector in zip(TEXTS, CODES, vectors, strict=True):
        ids = torch.tensor([embedder.tokenizer(text)["input_ids"][:limit]])
        if ids.shape[1] == limit:
            ids[0, -1] = embedder.tokenizer.eos_token_id  # a text that is cut keeps its last special token
        language = {"language_ids": torch.tensor([COMMON["languages"].index(code)])} if needs_language else {}
        with torch.no_grad():
            alone = embedder.model(input_ids=ids, attention_mask=torch.ones_like(ids), **language).pooler_output[0]
        np.testing.assert_allclose(vector, alone.numpy(), rtol=0, atol=1e-5)
        assert text == "" or np.abs(vector).max() > 1e-3  # an average of special tokens may be next to nothing
    for batch_tokens in (1, 50):
        again = embedder.encode(TEXTS, language=CODES, batch_tokens=batch_tokens)
        np.testing.assert_allclose(again, vectors, rtol=0, atol=1e-5)
