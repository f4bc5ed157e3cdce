"""The direct path (`bag_residual`): a weighted bag of tokens under the encoder's layers."""

import math

import torch
from torch import nn

from modeling_tmde import TmdeModel
from tests.conftest import jittered, tiny_model
from tests.modeling_tmde.families import padded

ONLY_SPECIAL_TOKENS = [0, 2]


def direct_model() -> TmdeModel:
    """Token weights that differ, and norms and biases that are not at their initial values."""
    model = jittered(tiny_model(bag_residual=True).model)
    with torch.no_grad():
        model.token_weights.normal_()
    return model


def test_text_without_tokens_starts_from_the_embedding_of_bos():
    model = direct_model()
    batch = padded([ONLY_SPECIAL_TOKENS, [0, 7, 2]])
    state = model(**batch, output_hidden_states=True).hidden_states[0][0, 0]
    direction = nn.functional.normalize(model.embed_tokens.weight[0], dim=0)
    torch.testing.assert_close(state, math.sqrt(model.config.d_model) * direction)


def test_text_without_tokens_has_finite_gradients():
    model = direct_model()
    output = model(**padded([ONLY_SPECIAL_TOKENS, [0, 7, 2]])).pooler_output
    output.sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert parameter.grad.isfinite().all(), name
