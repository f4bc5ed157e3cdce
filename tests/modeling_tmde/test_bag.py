"""The bag model: a weighted sum of token vectors, whatever the batch."""

import itertools
import math

import accelerate
import numpy as np
import pytest
import torch
from torch import nn

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.bags import bag_direction
from tests.modeling_tmde.families import padded
from tests.tiny_embedders import TEXTS, make_tokenizer
from tmde import DocumentEmbedder

ROWS = [[0, 7, 7, 300, 2], [0, 2], [0, 9, 2], [0, *range(3, 400), 2]]
NUM_SPECIAL = 3


def bag(**changes) -> BagModel:
    """A model of random weights; those of the special tokens are as they start."""
    torch.manual_seed(0)
    settings = {"vocab_size": 400, "d_model": 16} | changes
    model = BagModel(BagConfig(**settings)).eval()
    with torch.no_grad():
        model.token_weights[NUM_SPECIAL:].normal_()
    return model


def reference(model: BagModel, ids: list[int]) -> torch.Tensor:
    """The embedding of one text in float64, token by token."""
    summed = torch.zeros(model.config.d_model, dtype=torch.float64)
    for token in ids:
        vector = model.embed_tokens.weight[token].detach().double()
        summed += math.exp(model.token_weights[token].item()) * vector
    if model.config.normalize:
        return summed / summed.norm()
    return summed / len(ids)


# ---- What it computes


@pytest.mark.parametrize("normalize", [True, False])
def test_embedding_equals_a_plain_loop(normalize):
    model = bag(normalize=normalize)
    expected = torch.stack([reference(model, row) for row in ROWS])
    outputs = model(**padded(ROWS))
    tolerance = 1e-6 if normalize else 1e-5 * float(expected.abs().max())
    vectors = outputs.pooler_output.double()
    torch.testing.assert_close(vectors, expected, atol=tolerance, rtol=1e-4)
    assert outputs.last_hidden_state.shape == (4, 1, 16)
    assert torch.equal(outputs.last_hidden_state[:, 0], outputs.pooler_output)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("sublinear_counts", [True, False])
def test_texts_without_padding_have_the_same_embedding(normalize, sublinear_counts):
    model = bag(normalize=normalize, sublinear_counts=sublinear_counts)
    expected = model(**padded(ROWS)).pooler_output
    token_ids = torch.tensor(list(itertools.chain.from_iterable(ROWS)), dtype=torch.int32)
    lengths = torch.tensor(list(map(len, ROWS)))
    torch.testing.assert_close(model.embed_ragged(token_ids, lengths), expected)


@pytest.mark.parametrize("sublinear_counts", [True, False])
def test_the_padded_and_the_ragged_form_of_a_bag_are_the_same(sublinear_counts):
    model = bag(sublinear_counts=sublinear_counts)
    rows = [row for row in ROWS if row != [0, 2]]
    batch = padded(rows)
    direction = bag_direction(
        model.config,
        batch["input_ids"],
        batch["attention_mask"],
        model.token_weights,
        model.embed_tokens(batch["input_ids"]),
    )
    # The special tokens, which `bag_direction` leaves out, weigh e^-20 in the ragged form.
    torch.testing.assert_close(direction, model(**batch).pooler_output, atol=1e-6, rtol=1e-5)


def test_sublinear_counts_by_hand():
    model = BagModel(BagConfig(vocab_size=5, d_model=2, sublinear_counts=True))
    with torch.no_grad():
        model.embed_tokens.weight[3:] = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    # Token 3 four times counts twice, and token 4 nine times three times; then once and twice.
    rows = [[0, 3, 3, 4, 4, 3, 4, 3, 4, 4, 4, 4, 4, 4, 2], [0, 3, 4, 4, 4, 4, 2]]
    vectors = model(**padded(rows)).pooler_output
    expected = torch.tensor([[2 * 3.0, 3 * 2.0], [3.0, 2 * 2.0]])
    torch.testing.assert_close(vectors, nn.functional.normalize(expected, dim=1))


# ---- Special tokens

EVERY_DTYPE = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


@EVERY_DTYPE
def test_special_tokens_do_not_count_beside_others(dtype):
    model = bag(d_model=256).to(dtype)
    bare = model(input_ids=torch.tensor([[9, 10]])).pooler_output
    framed = model(input_ids=torch.tensor([[0, 9, 10, 2]])).pooler_output
    torch.testing.assert_close(bare, framed, atol=1e-7, rtol=0)


@EVERY_DTYPE
def test_special_tokens_are_the_direction_of_an_empty_text(dtype):
    model = bag(d_model=256).to(dtype)
    vector = model(input_ids=torch.tensor([[0, 2]])).pooler_output[0]
    assert vector.dtype == dtype
    expected = (model.embed_tokens.weight[0] + model.embed_tokens.weight[2]).float()
    expected = expected / expected.norm()
    torch.testing.assert_close(vector.float(), expected, atol=2e-3, rtol=0)


@EVERY_DTYPE
def test_a_masked_text_is_zero(dtype):
    model = bag(d_model=256).to(dtype)
    outputs = model(input_ids=torch.tensor([[1, 1]]), attention_mask=torch.zeros(1, 2))
    assert not outputs.pooler_output.any()


# ---- Adapters and offloading act where the table is called as a module


class Doubled(nn.Embedding):
    def forward(self, token_ids):
        return 2 * super().forward(token_ids)


def test_adapters_reach_the_vectors():
    model = bag(normalize=False, sublinear_counts=True)
    expected = model(**padded()).pooler_output
    model.embed_tokens = Doubled.from_pretrained(model.embed_tokens.weight)
    torch.testing.assert_close(model(**padded()).pooler_output, 2 * expected)


def offloaded_bag(**changes) -> BagModel:
    model = bag(**changes)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    return model


def test_offloading_reaches_the_vectors():
    expected = bag(normalize=False, sublinear_counts=True)(**padded()).pooler_output
    model = offloaded_bag(normalize=False, sublinear_counts=True)
    torch.testing.assert_close(model(**padded()).pooler_output, expected)


def test_an_embedder_takes_an_offloaded_bag():
    expected = DocumentEmbedder(bag(), make_tokenizer()).encode(TEXTS)
    vectors = DocumentEmbedder(offloaded_bag(), make_tokenizer()).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)
