"""The direct path (`bag_residual`): a weighted bag of tokens under the encoder's layers."""

import math

import torch
from torch import nn

from modeling_tmde import TmdeModel
from tests.conftest import jittered, tiny_model
from tests.modeling_tmde.families import padded


def direct_model(**changes) -> TmdeModel:
    """Token weights that differ, and norms and biases that are not at their initial values."""
    model = jittered(tiny_model(bag_residual=True, **changes).model)
    with torch.no_grad():
        model.token_weights.normal_()
    return model


def test_text_without_tokens_starts_from_the_embedding_of_bos():
    model = direct_model()
    batch = padded([[0, 2], [0, 7, 2]])
    state = model(**batch, output_hidden_states=True).hidden_states[0][0, 0]
    expected = math.sqrt(32) * nn.functional.normalize(model.embed_tokens.weight[0], dim=0)
    torch.testing.assert_close(state, expected)
    output = model(**batch).pooler_output
    assert torch.isfinite(output).all()
    output.sum().backward()
    assert all(
        torch.isfinite(parameter.grad).all()
        for parameter in model.parameters()
        if parameter.grad is not None
    )
