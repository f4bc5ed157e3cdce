"""`linear` is `torch.nn.functional.linear`, whichever library multiplies."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration
from modeling_tmde.linear import Linear, linear, uses_onednn


def fast_here() -> bool:
    return uses_onednn(torch.zeros(2, 2), torch.zeros(2, 2))


needs_onednn = pytest.mark.skipif(not fast_here(), reason="needs a CPU with AVX-512 and a torch with oneDNN")


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    with_bias=st.booleans(),
    transposed=st.booleans(),
)
def test_values_and_gradients_are_those_of_float64(shape, sizes, with_bias, transposed):
    inner, columns = sizes
    generator = torch.Generator().manual_seed(sum(shape) + inner)
    tensor = torch.randn(*shape[:-1], inner, shape[-1], generator=generator).transpose(-1, -2)  # not contiguous
    if not transposed:
        tensor = tensor.contiguous()
    weight = torch.randn(columns, inner, generator=generator)
    bias = torch.randn(columns, generator=generator) if with_bias else None
    upstream = torch.randn(*shape, columns, generator=generator)
    given_values = [value for value in (tensor, weight, bias) if value is not None]
    leaves = [value.clone().requires_grad_() for value in given_values]
    exact = [value.double().requires_grad_() for value in given_values]
    found = linear(*leaves)
    expected = exact[0] @ exact[1].T + (exact[2] if with_bias else 0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    torch.autograd.backward(found, upstream)
    torch.autograd.backward(expected, upstream.double())
    for leaf, reference in zip(leaves, exact, strict=True):
        torch.testing.assert_close(leaf.grad.double(), reference.grad, atol=1e-5, rtol=1e-5)


@needs_onednn
def test_onednn_is_taken_in_float32_alone_and_can_be_switched_off():
    tensor, weight = torch.randn(4, 8), torch.randn(6, 8, requires_grad=True)
    assert "OneDnn" in type(linear(tensor, weight).grad_fn).__name__
    with torch.backends.mkldnn.flags(enabled=False):
        assert "OneDnn" not in type(linear(tensor, weight).grad_fn).__name__
    assert not uses_onednn(tensor.double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(tensor, weight).dtype == torch.bfloat16


def test_frozen_parts_get_no_gradient_and_no_text_is_no_error():
    layer = Linear(8, 6)
    layer.weight.requires_grad_(False)
    tensor = torch.randn(3, 8, requires_grad=True)
    layer(tensor).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(tensor.grad, layer.weight.sum(0).expand(3, -1))
    torch.testing.assert_close(layer.bias.grad, torch.full((6,), 3.0))
    assert layer(torch.zeros(0, 8)).shape == (0, 6)
    assert layer(torch.zeros(8)).shape == (6,)


@needs_onednn
@pytest.mark.parametrize("bottleneck", ["first", "pyramid", "full", "dual"])
def test_a_training_step_is_the_same_with_and_without(bottleneck):
    torch.manual_seed(0)
    config = TmdeConfig(
        vocab_size=40, d_model=16, encoder_layers=3, encoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_attention_heads=2, decoder_ffn_dim=32, dropout=0.0, max_position_embeddings=32, bottleneck=bottleneck,
    )  # fmt: skip
    model = TmdeForConditionalGeneration(config)
    inputs = {"input_ids": torch.randint(3, 40, (5, 9)), "labels": torch.randint(3, 40, (5, 7))}

    def loss_and_gradients() -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        loss = model(**inputs, target_language="en").loss
        loss.backward()
        return loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]

    loss, gradients = loss_and_gradients()
    with torch.backends.mkldnn.flags(enabled=False):
        plain_loss, plain_gradients = loss_and_gradients()
    torch.testing.assert_close(loss, plain_loss, atol=1e-6, rtol=1e-6)
    for found, expected in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_a_bias_alone_learns():
    layer = Linear(8, 6)
    layer.weight.requires_grad_(False)
    layer(torch.randn(3, 8)).sum().backward()
    torch.testing.assert_close(layer.bias.grad, torch.full((6,), 3.0))


def test_is_a_linear_layer_of_torch():
    assert isinstance(Linear(2, 3), nn.Linear)
