"""The T-MDE architecture: shapes, sizes, what the decoder sees, and that a vector depends on its text alone."""

import pytest
import torch
from torch import nn

from modeling_tmde import (
    LaserConfig,
    LaserForConditionalGeneration,
    TmdeConfig,
    TmdeEncoderConfig,
    TmdeEncoderForMaskedLM,
    TmdeForConditionalGeneration,
)
from tests.conftest import BOTTLENECKS, jittered, tiny_model


def random_batch(*lengths: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 400, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[:, 0] = 0
    return ids.masked_fill(~mask, 1), mask.long()


# ---- Sizes


@pytest.mark.parametrize(("bottleneck", "printed"), [("first", 246e6), ("pyramid", 259e6)])
def test_parameter_counts_of_thesis_table_4_1(bottleneck, printed):
    with torch.device("meta"):
        model = TmdeForConditionalGeneration(TmdeConfig(bottleneck=bottleneck))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == pytest.approx(printed, rel=0.01)
    # The thesis keeps queries and keys for the one-slot attention, which never receive a gradient.
    queries_and_keys = (1024 + 1) * 1024 + (1024 + 32 + 1) * 1024
    assert round((count + queries_and_keys) / 1e6) == round(printed / 1e6)


@pytest.mark.parametrize(
    ("model", "config", "millions"),
    [
        # Table 4.1 prints 209 M and 241 M: with the decoder's last output as an input, 4 x 2048 x 2048 weights more.
        (LaserForConditionalGeneration, LaserConfig(encoder_layers=1), 209 - 16.8),
        (LaserForConditionalGeneration, LaserConfig(encoder_layers=6), 241 - 16.8),
        (TmdeEncoderForMaskedLM, TmdeEncoderConfig(), 30),  # paper 002, table 1
    ],
)
def test_parameter_counts_of_other_papers(model, config, millions):
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model(config).parameters())
    assert count == pytest.approx(millions * 1e6, rel=0.02)


# ---- Encoder


def plain_layer(layer, query, memory):
    """An encoder layer for one document, in float64 loops over heads: no masks, no batching, no library attention."""

    def norm(x, module):
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + module.eps).sqrt()
        return scaled * module.weight.double() + module.bias.double()

    def linear(x, module):
        product = x @ module.weight.double().T
        return product if module.bias is None else product + module.bias.double()

    attention = layer.self_attn
    q = linear(norm(query, layer.self_attn_layer_norm), attention.q_proj)
    k = linear(norm(memory, layer.self_attn_layer_norm), attention.k_proj)
    v = linear(norm(memory, layer.self_attn_layer_norm), attention.v_proj)
    heads = []
    for head in range(len(q[0]) // attention.head_dim):
        part = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
        scores = q[:, part] @ k[:, part].T / attention.head_dim**0.5
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        heads.append(weights / weights.sum(-1, keepdim=True) @ v[:, part])
    query = query + linear(torch.cat(heads, -1), attention.out_proj)
    hidden = linear(norm(query, layer.final_layer_norm), layer.fc1).clamp_min(0)
    return query + linear(hidden, layer.fc2)


@pytest.mark.parametrize("bottleneck", ["first", "pyramid"])
def test_encoder_equals_a_plain_reference(bottleneck):
    model = jittered(tiny_model(bottleneck=bottleneck, encoder_layers=4, pyramid_queries=8).model)
    ids, mask = random_batch(6, 11)
    result = model(ids, mask).pooler_output[0]
    state = (
        model.embed_tokens.weight[ids[0, :6]].double() * 32**0.5
        + model.embed_positions.weight[:6].double()
    )
    states = [state]
    for layer in model.layers:
        states.append(plain_layer(layer, states[-1], states[-1]))
    embedding = states[-1][:1]
    if bottleneck == "pyramid":
        queries = plain_layer(
            model.layers[1], model.pyramid_queries.double(), states[2]
        )  # layer 2 of 4 on H^2
        queries = plain_layer(model.layers[2], queries[:4], queries)
        queries = plain_layer(model.layers[3], queries[:2], queries)
        memory = torch.cat([*(state[:1] for state in reversed(states[1:])), queries])
        assert memory.shape == (4 + 2, 32)
        embedding = plain_layer(model.pyramid_layer, embedding, memory)
    expected = nn.functional.layer_norm(
        embedding[0], (32,), model.layer_norm.weight.double(), model.layer_norm.bias.double()
    )
    torch.testing.assert_close(result.double(), expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("bottleneck", "changes"),
    [
        *((name, {}) for name in BOTTLENECKS),
        ("first", {"encoder_layers": 1}),
        ("pyramid", {"bag_residual": True}),
    ],
)
def test_pooled_only_gives_the_same_embedding(bottleneck, changes, attention):
    """And the same gradients, whatever the padding, and with gaps in the mask."""
    model = jittered(tiny_model(bottleneck=bottleneck, **changes))
    model.set_attn_implementation(attention)
    encoder = model.model
    ids, mask = random_batch(9, 3, 17, 2)
    gaps = mask.clone()
    gaps[0, 4:6] = gaps[2, 1::2] = 0
    for inputs in ((ids, mask), (ids, gaps), (ids, None), (ids[2:3], None)):
        results = []
        for pooled_only in (False, True):
            encoder.zero_grad()
            output = encoder(*inputs, pooled_only=pooled_only)
            output.pooler_output.pow(3).sum().backward()
            gradients = {name: parameter.grad for name, parameter in encoder.named_parameters()}
            results.append(
                (
                    output,
                    {name: grad.clone() for name, grad in gradients.items() if grad is not None},
                )
            )
        (whole, wanted), (pooled, found) = results
        assert (pooled.pooler_output - whole.pooler_output).abs().max() <= 1e-6
        assert whole.last_hidden_state.shape == (*inputs[0].shape, 32)
        assert pooled.last_hidden_state.shape == (len(inputs[0]), 1, 32)
        assert torch.equal(pooled.last_hidden_state[:, 0], pooled.pooler_output)
        assert set(found) == set(wanted)
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-4, rtol=1e-4, msg=name)


def test_pooled_only_computes_one_position_of_the_last_layer():
    encoder = tiny_model().model
    states = []
    for layer in encoder.layers:
        layer.fc1.register_forward_hook(
            lambda _, inputs, output: states.append(inputs[0].shape[:-1].numel())
        )
    ids, mask = random_batch(9, 4)
    output = encoder(ids, mask, pooled_only=True, output_hidden_states=True)
    assert states == [18, 18, 2]
    assert [state.shape[1] for state in output.hidden_states] == [9, 9, 9, 1]


def test_too_long_input_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        tiny_model().model(torch.zeros(1, 129, dtype=torch.long))


# ---- Decoder


def decode(model, ids, mask, labels, **kwargs):
    return model(ids, mask, labels=labels, target_language="en", **kwargs)


@pytest.mark.parametrize("bottleneck", ["full", "dual"])
def test_full_decoder_sees_every_output_and_no_padding(bottleneck):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(4, 8)
    labels, _ = random_batch(5, 5, seed=1)
    logits = decode(model, ids, mask, labels).logits
    alone = decode(model, ids[:1, :4], None, labels[:1]).logits
    torch.testing.assert_close(logits[:1], alone, atol=1e-5, rtol=1e-5)
    outputs = model.model(ids, mask)
    outputs.last_hidden_state = outputs.last_hidden_state.clone()
    outputs.last_hidden_state[:, 2] += 1
    changed = model(
        encoder_outputs=outputs, attention_mask=mask, labels=labels, target_language="en"
    ).logits
    assert (changed - logits).abs().max() > 1e-3


def test_dual_loss_is_balanced_between_its_bands():
    model = tiny_model(bottleneck="dual", bottleneck_loss_weight=0.3)
    ids, mask = random_batch(4, 8)
    labels, _ = random_batch(5, 5, seed=1)
    total = decode(model, ids, mask, labels).loss
    alone = decode(model, ids, mask, labels, bottleneck_only=True).loss
    model.config.bottleneck_loss_weight = 0.0
    both = decode(model, ids, mask, labels).loss
    assert abs(alone - both) > 1e-4
    torch.testing.assert_close(total, 0.3 * alone + 0.7 * both)
