"""Aligned encoders: each text is read by the encoder of its language alone."""

import pytest
import torch
from transformers import PreTrainedModel

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserModel,
)
from tests.modeling_tmde.families import padded

LANGUAGES = ["de", "en", "fr"]
ENCODER_CONFIGS = {"bilstm": {"embedding_dim": 5, "d_model": 6}, "bag": {"d_model": 6}}
KINDS = pytest.mark.parametrize("kind", ENCODER_CONFIGS)
TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = [0, 1, 2, 1]


def aligned(kind: str) -> AlignedModel:
    torch.manual_seed(0)
    config = AlignedConfig(
        vocab_size=40, encoder=kind, encoder_config=ENCODER_CONFIGS[kind], languages=LANGUAGES
    )
    return AlignedModel(config).eval()


def monolingual(model: AlignedModel, language: str) -> PreTrainedModel:
    """The model of the family that the encoder of a language is one of."""
    config = model.config.settings_of_encoder
    config.vocab_size = 40
    encoder = BagModel(config) if isinstance(config, BagConfig) else LaserModel(config)
    encoder.load_state_dict(model.encoders[language].state_dict())
    return encoder.eval()


@KINDS
def test_every_language_has_an_encoder(kind):
    model = aligned(kind)
    assert list(model.encoders) == LANGUAGES


@KINDS
def test_embedding_is_in_the_place_of_cls(kind):
    model = aligned(kind)
    outputs = model(**padded(TEXTS), language_ids=torch.tensor(TEXT_LANGUAGES))
    assert outputs.pooler_output.shape == (4, model.config.hidden_size)
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])


@KINDS
def test_each_text_is_read_by_the_encoder_of_its_language(kind):
    model = aligned(kind)
    vectors = model(**padded(TEXTS), language_ids=torch.tensor(TEXT_LANGUAGES)).pooler_output
    for row, ids in enumerate(TEXTS):
        encoder = monolingual(model, LANGUAGES[TEXT_LANGUAGES[row]])
        expected = encoder(torch.tensor([ids])).pooler_output[0]
        torch.testing.assert_close(vectors[row], expected, atol=1e-6, rtol=0)


@KINDS
def test_the_encoders_of_two_languages_differ(kind):
    model = aligned(kind)
    ids = torch.tensor([TEXTS[0]] * len(LANGUAGES))
    german, english, french = model(ids, language_ids=torch.arange(3)).pooler_output
    assert (german - english).abs().max() > 1e-3
    assert (german - french).abs().max() > 1e-3
    assert (english - french).abs().max() > 1e-3
