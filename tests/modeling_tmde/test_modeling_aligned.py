"""Aligned encoders: each text is read by its language's encoder alone, and the source's stays as it is."""

from dataclasses import asdict

import pytest
import torch

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagConfig,
    BagModel,
    LaserConfig,
    LaserModel,
)
from tests.modeling_tmde.families import padded

LANGUAGES = ["de", "en", "fr"]
SMALL = {"bilstm": {"embedding_dim": 5, "d_model": 6}, "bag": {"d_model": 6}}
KINDS = sorted(SMALL)
TEXTS = [[0, 7, 12, 30, 2], [0, 5, 2], [0, 9, 9, 33, 21, 8, 2], [0, 39, 2]]
TEXT_LANGUAGES = torch.tensor([0, 1, 2, 1])


def aligned(kind: str, seed: int = 0, **changes) -> AlignedModel:
    torch.manual_seed(seed)
    options = {
        "vocab_size": 40,
        "encoder": kind,
        "encoder_config": SMALL[kind],
        "languages": LANGUAGES,
    } | changes
    return AlignedModel(AlignedConfig(**options)).eval()


# ---- What it computes


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_read_by_the_encoder_of_its_language(kind):
    model = aligned(kind)
    assert list(model.encoders) == LANGUAGES
    config = {"bilstm": LaserConfig, "bag": BagConfig}[kind](
        vocab_size=40, **asdict(model.config.encoder_settings)
    )
    own_model = {"bilstm": LaserModel, "bag": BagModel}[kind](config).eval()
    outputs = model(**padded(TEXTS), language_ids=TEXT_LANGUAGES)
    assert outputs.pooler_output.shape == (4, 6) and model.config.hidden_size == 6
    assert torch.equal(outputs.last_hidden_state, outputs.pooler_output[:, None])
    for row, ids in enumerate(TEXTS):
        vectors = {}
        for code, encoder in model.encoders.items():  # the family that this is an encoder of
            own_model.load_state_dict(encoder.state_dict())
            vectors[code] = own_model(torch.tensor([ids])).pooler_output[0]
        own = vectors.pop(LANGUAGES[TEXT_LANGUAGES[row]])
        torch.testing.assert_close(outputs.pooler_output[row], own, atol=1e-6, rtol=0)
        assert all((own - other).abs().max() > 1e-3 for other in vectors.values())
