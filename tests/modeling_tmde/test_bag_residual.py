"""The direct path (`bag_residual`): a weighted bag of tokens under the encoder's layers."""

import math

import pytest
import torch
from torch import nn

from modeling_tmde import BagConfig, BagModel, TmdeModel
from tests.conftest import BOTTLENECKS, jittered, tiny_model
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
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_without_branches_the_embedding_is_the_norm_of_the_bag(bottleneck):
    """With the bag's tables and no branches, as a warm start begins: P is the norm of the bag model's vector."""
    model = direct_model(bottleneck=bottleneck, sublinear_counts=True)
    bag = BagModel(BagConfig(vocab_size=400, d_model=32, sublinear_counts=True))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".out_proj." in name or ".fc2." in name:
                parameter.zero_()
        bag.embed_tokens.weight.copy_(model.embed_tokens.weight)
        bag.token_weights.copy_(model.token_weights)
        bag.token_weights[:3] = -20.0
    texts = [[0, 7, 8, 7, 9, 7, 7, 2], [0, 30, 2], [0, 11, 300, 12, 12, 12, 13, 11, 14, 2]]
    ids, mask = padded(texts).values()
    hidden = torch.tensor([1, 0, 1])[:, None] * (ids == 7)  # some tokens hidden, as in training
    for seen in (mask, mask.masked_fill(hidden.bool(), 0).index_fill(1, torch.tensor([1]), 1)):
        expected = model.layer_norm(math.sqrt(32) * bag(ids, seen).pooler_output)
        torch.testing.assert_close(model(ids, seen).pooler_output, expected, atol=1e-5, rtol=1e-5)
        pooled = model(ids, seen, pooled_only=True).pooler_output
        torch.testing.assert_close(pooled, expected, atol=1e-5, rtol=1e-5)
