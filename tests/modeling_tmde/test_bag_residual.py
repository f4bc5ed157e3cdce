"""The direct path (`bag_residual`): a weighted bag of tokens under the encoder's layers."""

import math

import pytest
import torch
from torch import nn

from modeling_tmde import TmdeModel
from tests.conftest import jittered, tiny_model
from tests.modeling_tmde.families import padded

BOS_ALONE = [0, 2]


@pytest.fixture
def model() -> TmdeModel:
    """A model whose token weights differ, and whose parameters are not at their initial values."""
    model = jittered(tiny_model(bag_residual=True).model)
    with torch.no_grad():
        model.token_weights.normal_()
    return model


def test_a_text_without_tokens_starts_from_the_embedding_of_bos(model):
    batch = padded([BOS_ALONE, [0, 7, 2]])
    hidden_states = model(**batch, output_hidden_states=True).hidden_states
    bos_direction = nn.functional.normalize(model.embed_tokens.weight[0], dim=0)
    torch.testing.assert_close(hidden_states[0][0, 0], math.sqrt(32) * bos_direction)


def test_a_text_without_tokens_has_a_finite_vector_and_gradient(model):
    output = model(**padded([BOS_ALONE, [0, 7, 2]])).pooler_output
    output.sum().backward()
    assert torch.isfinite(output).all()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.isfinite(parameter.grad).all(), name


def test_vectors_in_place_of_ids_are_refused(model):
    with pytest.raises(ValueError, match="expected input_ids, because bag_residual=True"):
        model(inputs_embeds=torch.zeros(1, 3, 32))
