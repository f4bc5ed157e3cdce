"""The bag model: a weighted sum whatever the batch, small on disk, and opened without this package."""

import math

import accelerate
import numpy as np
import pytest
import torch
from torch import nn

from modeling_tmde import BagConfig, BagModel
from tests.modeling_tmde.families import padded
from tests.tiny_embedders import TEXTS, make_tokenizer
from tmde import DocumentEmbedder


def bag(seed: int = 0, **changes) -> BagModel:
    """A model none of whose weights are as they start, those of the special tokens apart."""
    torch.manual_seed(seed)
    model = BagModel(BagConfig(**({"vocab_size": 400, "d_model": 16} | changes))).eval()
    with torch.no_grad():
        model.token_weights[3:] = torch.randn(len(model.token_weights) - 3)
    return model


def reference(model: BagModel, ids: list[int]) -> torch.Tensor:
    """One text in float64, token by token."""
    summed = torch.zeros(model.config.d_model, dtype=torch.float64)
    for token in ids:
        vector = model.embed_tokens.weight[token].detach().double()
        summed += math.exp(model.token_weights[token].item()) * vector
    return summed / summed.norm() if model.config.normalize else summed / len(ids)


@pytest.mark.parametrize("normalize", [True, False])
def test_equals_a_plain_loop(normalize):
    model = bag(normalize=normalize)
    rows = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(3, 400), 2]]
    outputs = model(**padded(rows))
    expected = torch.stack([reference(model, row) for row in rows])
    atol = 1e-6 if normalize else 1e-5 * expected.abs().max()
    torch.testing.assert_close(
        outputs.pooler_output.double(), expected, atol=float(atol), rtol=1e-4
    )
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)
    ragged = torch.tensor([token for row in rows for token in row], dtype=torch.int32)
    without_padding = model.embed_ragged(ragged, torch.tensor([len(row) for row in rows]))
    torch.testing.assert_close(without_padding, outputs.pooler_output)


def test_sublinear_counts_by_hand():
    model = BagModel(BagConfig(vocab_size=5, d_model=2, sublinear_counts=True))
    with torch.no_grad():
        model.embed_tokens.weight[3:] = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    # Token 3 four times counts twice; in the text beside it, once, it counts once.
    rows = torch.tensor(
        [[0, 3, 3, 4, 4, 3, 4, 3, 4, 4, 4, 4, 4, 4, 2], [0, 3, 4, 4, 4, 4, *[1] * 8, 2]]
    )
    vectors = model(input_ids=rows, attention_mask=(rows != 1).long()).pooler_output
    expected = torch.tensor([[6.0, 2 * 9**0.5], [3.0, 4.0]])
    torch.testing.assert_close(vectors, expected / expected.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_special_tokens_count_only_where_nothing_else_is(dtype):
    model = bag(d_model=256).to(dtype)
    bare, framed = (
        model(input_ids=torch.tensor([row])).pooler_output for row in ([9, 10], [0, 9, 10, 2])
    )
    torch.testing.assert_close(bare, framed, atol=1e-7, rtol=0)
    empty = model(input_ids=torch.tensor([[0, 2]])).pooler_output
    assert empty.dtype == dtype and empty.isfinite().all()
    assert empty.float().norm().item() == pytest.approx(1, abs=0.01)
    both = (model.embed_tokens.weight[0] + model.embed_tokens.weight[2]).float()
    torch.testing.assert_close(empty[0].float(), both / both.norm(), atol=2e-3, rtol=0)
    masked = model(input_ids=torch.tensor([[1, 1]]), attention_mask=torch.zeros(1, 2)).pooler_output
    assert not masked.any()


def test_adapters_and_offloading_reach_the_vectors():
    """Both act where the table is called as a module."""

    class Doubled(nn.Embedding):
        def forward(self, token_ids):
            return 2 * super().forward(token_ids)

    model, adapted, offloaded = (bag(normalize=False, sublinear_counts=True) for _ in range(3))
    adapted.embed_tokens = Doubled.from_pretrained(adapted.embed_tokens.weight)
    accelerate.cpu_offload(offloaded, execution_device=torch.device("cpu"))
    expected = model(**padded()).pooler_output
    torch.testing.assert_close(adapted(**padded()).pooler_output, 2 * expected)
    torch.testing.assert_close(offloaded(**padded()).pooler_output, expected)
    vectors = [
        DocumentEmbedder(each, make_tokenizer()).encode(TEXTS) for each in (model, offloaded)
    ]
    np.testing.assert_allclose(*vectors, rtol=0, atol=1e-6)
