"""Damped counts against plain loops, in the function, the bag and the direct path."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modeling_tmde import BagConfig, BagModel
from modeling_tmde.token_counts import occurrences, sublinear_log_weights


def by_hand(log_weights: list[float], token_ids: list[int], texts: list[int]) -> list[float]:
    counts = Counter(zip(texts, token_ids, strict=True))
    return [
        weight - math.log(counts[text, token]) / 2
        for weight, token, text in zip(log_weights, token_ids, texts, strict=True)
    ]


def test_three_occurrences_count_the_square_root_of_three():
    weights = sublinear_log_weights(
        torch.tensor([0.5, 0.5, 0.5, 2.0, 0.5]), torch.tensor([7, 7, 7, 8, 7]), torch.tensor([0, 0, 0, 0, 1]), 9
    )
    assert weights[:3].exp().sum().item() == pytest.approx(math.sqrt(3) * math.exp(0.5))
    assert weights[3:].tolist() == [2.0, 0.5]  # once in its text, as token 7 in the second


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.floats(-5, 5, width=32)), max_size=40),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    offset=st.sampled_from([0, 2**31 - 10]),
)
def test_weights_equal_a_plain_loop(tokens, dtype, offset):
    """In any order, and for ids whose product with the number of texts does not fit 32 bits."""
    ids, texts, weights = [token[0] + offset for token in tokens], [t[1] for t in tokens], [t[2] for t in tokens]
    found = sublinear_log_weights(
        torch.tensor(weights), torch.tensor(ids, dtype=dtype), torch.tensor(texts, dtype=torch.long), offset + 6
    )
    torch.testing.assert_close(found, torch.tensor(by_hand(weights, ids, texts)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_type_and_gradient_are_those_of_the_weights(dtype):
    weights = torch.zeros(4, dtype=dtype, requires_grad=True)
    found = sublinear_log_weights(weights, torch.tensor([3, 3, 4, 3]), torch.zeros(4, dtype=torch.long), 5)
    assert found.dtype == dtype
    found.sum().backward()
    assert weights.grad.tolist() == [1.0] * 4


@pytest.mark.parametrize("normalize", [True, False])
def test_a_bag_of_damped_counts_equals_a_plain_loop(normalize):
    torch.manual_seed(0)
    model = BagModel(BagConfig(vocab_size=30, d_model=6, sublinear_counts=True, normalize=normalize))
    with torch.no_grad():
        model.token_weights.normal_()
    texts = [[7, 8, 7, 7, 9, 8], [7], [11, 11, 11, 11]]
    longest = max(map(len, texts))
    ids = torch.tensor([text + [1] * (longest - len(text)) for text in texts])
    found = model(ids, (ids != 1).long()).pooler_output
    for row, text in enumerate(texts):
        total = torch.zeros(6, dtype=torch.double)
        for token, number in Counter(text).items():
            weight = math.exp(model.token_weights[token].item())
            total += math.sqrt(number) * weight * model.embed_tokens.weight[token].double()
        expected = nn.functional.normalize(total, dim=0) if normalize else total / len(text)
        torch.testing.assert_close(found[row].double(), expected, atol=1e-5, rtol=1e-5)


def test_occurrences_are_those_of_a_loop():
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 6, (7, 12), generator=generator)
    counted = torch.rand(7, 12, generator=generator) < 0.7
    found = occurrences(ids, counted)
    for row, (tokens, marks) in enumerate(zip(ids.tolist(), counted.tolist(), strict=True)):
        for column, (token, mark) in enumerate(zip(tokens, marks, strict=True)):
            if mark:
                expected = sum(other == token and there for other, there in zip(tokens, marks, strict=True))
                assert found[row, column] == expected
    assert found.min() >= 1
