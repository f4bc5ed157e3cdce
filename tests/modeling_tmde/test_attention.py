"""Which function computes attention, and that all compute the same."""

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from modeling_tmde import TmdeConfig
from modeling_tmde.transformer import (
    PLAIN_ATTENTION_KEYS,
    TmdeAttention,
    attention_function,
    plain_attention_forward,
)

SCALING = 0.25


def tensors(dtype=torch.float64, length=7, requires_grad=True):
    torch.manual_seed(0)
    made = []
    for _ in range(3):
        tensor = torch.randn(2, 3, length, 4, dtype=dtype, requires_grad=requires_grad)
        made.append(tensor)
    return made


def config():
    made = TmdeConfig(
        vocab_size=11, d_model=12, encoder_attention_heads=3, decoder_attention_heads=3
    )
    made._attn_implementation = "sdpa"
    return made


def module(is_causal=False):
    return TmdeAttention(config(), num_heads=3, is_causal=is_causal)


def masks():
    padding = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    padding[1, :, :, 5:] = False
    summand = torch.zeros(2, 1, 7, 7, dtype=torch.float64).masked_fill(~padding, -1e9)
    return {"none": None, "boolean": padding, "summand": summand}


@pytest.mark.parametrize("mask", ["none", "boolean", "summand"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_plain_operations_compute_what_the_fused_kernel_computes(mask, is_causal):
    outputs = []
    gradients = []
    for function in (sdpa_attention_forward, plain_attention_forward):
        query, key, value = tensors()
        output, probabilities = function(
            module(is_causal), query, key, value, masks()[mask], scaling=SCALING, dropout=0.0
        )
        output.pow(2).sum().backward()
        assert probabilities is None
        outputs.append(output)
        gradients.append((query.grad, key.grad, value.grad))
    torch.testing.assert_close(outputs[1], outputs[0])
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("length", [40, PLAIN_ATTENTION_KEYS])
def test_plain_operations_are_about_as_exact_as_the_fused_kernel_in_bfloat16(length):
    """The gradients of queries against those in float64."""
    errors = []
    for function in (sdpa_attention_forward, plain_attention_forward):
        query, key, value = tensors(torch.bfloat16, length)
        exact = []
        for tensor in (query, key, value):
            exact.append(tensor.detach().double().requires_grad_())
        for tensors_read in ((query, key, value), exact):
            output, _ = function(module(), *tensors_read, None, scaling=0.5, dropout=0.0)
            output.double().sin().sum().backward()
        difference = (query.grad.double() - exact[0].grad).norm() / exact[0].grad.norm()
        errors.append(float(difference))
    fused, plain = errors
    assert plain < 3 * fused
    assert plain < 0.02


def test_gradients_of_bfloat16_on_a_cpu_take_plain_operations():
    query, key, _ = tensors(torch.bfloat16)
    assert attention_function("sdpa", query, key) is plain_attention_forward


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": torch.float32},
        {"requires_grad": False},
        {"length": PLAIN_ATTENTION_KEYS + 1},
    ],
)
def test_everything_else_takes_the_fused_kernel(changed):
    query, key, _ = tensors(**{"dtype": torch.bfloat16, **changed})
    assert attention_function("sdpa", query, key) is sdpa_attention_forward


def test_an_implementation_that_the_user_chose_is_kept():
    query, key, _ = tensors(torch.bfloat16)
    assert attention_function("flex_attention", query, key) is not plain_attention_forward
