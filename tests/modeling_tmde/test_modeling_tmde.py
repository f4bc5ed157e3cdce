"""The T-MDE architecture: sizes, the encoder by hand, and what the decoder sees."""

import pytest
import torch

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
    """Return ids and mask, both (texts, longest), of random texts of these lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 400, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[:, 0] = 0
    return ids.masked_fill(~mask, 1), mask.long()


# ---- Sizes


def count_parameters(model_class, config) -> int:
    with torch.device("meta"):
        model = model_class(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("bottleneck", "printed"), [("first", 246e6), ("pyramid", 259e6)])
def test_parameter_counts_of_thesis_table_4_1(bottleneck, printed):
    count = count_parameters(TmdeForConditionalGeneration, TmdeConfig(bottleneck=bottleneck))
    assert count == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize(("bottleneck", "printed"), [("first", 246), ("pyramid", 259)])
def test_the_difference_to_the_thesis_is_attention_over_one_key(bottleneck, printed):
    """The thesis keeps queries and keys for the slot, which never receive a gradient."""
    count = count_parameters(TmdeForConditionalGeneration, TmdeConfig(bottleneck=bottleneck))
    queries_and_keys = (1024 + 1) * 1024 + (1024 + 32 + 1) * 1024
    assert round((count + queries_and_keys) / 1e6) == printed


@pytest.mark.parametrize(
    ("model_class", "config", "millions"),
    [
        # Table 4.1 prints 209 M and 241 M: with the decoder's last output as an input, 4 x 2048 x
        # 2048 weights more.
        (LaserForConditionalGeneration, LaserConfig(encoder_layers=1), 209 - 16.8),
        (LaserForConditionalGeneration, LaserConfig(encoder_layers=6), 241 - 16.8),
        (TmdeEncoderForMaskedLM, TmdeEncoderConfig(), 30),  # Mao et al. (2021), table 1
    ],
)
def test_parameter_counts_of_other_papers(model_class, config, millions):
    assert count_parameters(model_class, config) == pytest.approx(millions * 1e6, rel=0.02)


# ---- Encoder


def norm_by_hand(states, module):
    centered = states - states.mean(-1, keepdim=True)
    scaled = centered / (centered.pow(2).mean(-1, keepdim=True) + module.eps).sqrt()
    return scaled * module.weight.double() + module.bias.double()


def linear_by_hand(states, module):
    product = states @ module.weight.double().T
    return product if module.bias is None else product + module.bias.double()


def layer_by_hand(layer, query, memory):
    """An encoder layer for one text in float64: no masks, no batches, a loop over heads.

    Args:
        layer: A `TmdeEncoderLayer`.
        query: (length, d_model).
        memory: (memory_length, d_model).
    """
    attention = layer.self_attn
    query_input = norm_by_hand(query, layer.self_attn_layer_norm)
    memory_input = norm_by_hand(memory, layer.self_attn_layer_norm)
    q = linear_by_hand(query_input, attention.q_proj)
    k = linear_by_hand(memory_input, attention.k_proj)
    v = linear_by_hand(memory_input, attention.v_proj)
    heads = []
    for head in range(q.shape[1] // attention.head_dim):
        columns = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
        scores = q[:, columns] @ k[:, columns].T / attention.head_dim**0.5
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        heads.append(weights / weights.sum(-1, keepdim=True) @ v[:, columns])
    query = query + linear_by_hand(torch.cat(heads, -1), attention.out_proj)
    expanded = linear_by_hand(norm_by_hand(query, layer.final_layer_norm), layer.fc1).clamp_min(0)
    return query + linear_by_hand(expanded, layer.fc2)


def states_by_hand(model, ids):
    """Return H^0 ... H^L of one text, (length, d_model) each."""
    positions = model.embed_positions.weight[: len(ids)].double()
    states = [model.embed_tokens.weight[ids].double() * 32**0.5 + positions]
    for layer in model.layers:
        states.append(layer_by_hand(layer, states[-1], states[-1]))
    return states


def assert_is_embedding(model, pooled, expected):
    """Assert that a text has the vector that is `expected` (1, d_model) after the final norm."""
    embedding = norm_by_hand(expected[0], model.layer_norm)
    torch.testing.assert_close(pooled.double(), embedding, atol=2e-5, rtol=2e-5)


def test_the_encoder_equals_a_plain_reference():
    model = jittered(tiny_model(encoder_layers=4).model)
    ids, mask = random_batch(6, 11)
    states = states_by_hand(model, ids[0, :6])
    assert_is_embedding(model, model(ids, mask).pooler_output[0], states[-1][:1])


def test_the_pyramid_equals_a_plain_reference():
    model = jittered(tiny_model(bottleneck="pyramid", encoder_layers=4, pyramid_queries=8).model)
    ids, mask = random_batch(6, 11)
    states = states_by_hand(model, ids[0, :6])
    # Layer 2 of 4 on H^2.
    queries = layer_by_hand(model.layers[1], model.pyramid_queries.double(), states[2])
    queries = layer_by_hand(model.layers[2], queries[:4], queries)
    queries = layer_by_hand(model.layers[3], queries[:2], queries)
    first_states = [state[:1] for state in reversed(states[1:])]
    memory = torch.cat([*first_states, queries])  # (4 + 2, d_model)
    expected = layer_by_hand(model.pyramid_layer, states[-1][:1], memory)
    assert_is_embedding(model, model(ids, mask).pooler_output[0], expected)


# ---- The embedding alone


def inputs_with_gaps():
    """Texts of several lengths with and without a mask, and with gaps in it."""
    ids, mask = random_batch(9, 3, 17, 2)
    gaps = mask.clone()
    gaps[0, 4:6] = 0
    gaps[2, 1::2] = 0
    return [(ids, mask), (ids, gaps), (ids, None), (ids[2:3], None)]


POOLED_VARIANTS = pytest.mark.parametrize(
    ("bottleneck", "changes"),
    [
        *[(name, {}) for name in BOTTLENECKS],
        ("first", {"encoder_layers": 1}),
        ("pyramid", {"bag_residual": True}),
    ],
)
EVERY_ATTENTION = pytest.mark.parametrize("attention", ["sdpa", "eager"])


def make_encoder(bottleneck, changes, attention):
    model = jittered(tiny_model(bottleneck=bottleneck, **changes))
    model.set_attn_implementation(attention)
    return model.model


@EVERY_ATTENTION
@POOLED_VARIANTS
def test_pooled_only_gives_the_same_embedding(bottleneck, changes, attention):
    encoder = make_encoder(bottleneck, changes, attention)
    for inputs in inputs_with_gaps():
        whole = encoder(*inputs)
        pooled = encoder(*inputs, pooled_only=True)
        assert (pooled.pooler_output - whole.pooler_output).abs().max() <= 1e-6
        assert whole.last_hidden_state.shape == (*inputs[0].shape, 32)
        assert pooled.last_hidden_state.shape == (len(inputs[0]), 1, 32)
        assert torch.equal(pooled.last_hidden_state[:, 0], pooled.pooler_output)


def gradients_of(encoder, inputs, pooled_only):
    """Return the gradient of each parameter that has one, by name."""
    encoder.zero_grad()
    output = encoder(*inputs, pooled_only=pooled_only)
    output.pooler_output.pow(3).sum().backward()
    gradients = {}
    for name, parameter in encoder.named_parameters():
        if parameter.grad is not None:
            gradients[name] = parameter.grad.clone()
    return gradients


@EVERY_ATTENTION
@POOLED_VARIANTS
def test_pooled_only_gives_the_same_gradients(bottleneck, changes, attention):
    encoder = make_encoder(bottleneck, changes, attention)
    for inputs in inputs_with_gaps():
        expected = gradients_of(encoder, inputs, pooled_only=False)
        gradients = gradients_of(encoder, inputs, pooled_only=True)
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, expected[name], atol=1e-4, rtol=1e-4, msg=name)


def test_pooled_only_computes_one_position_of_the_last_layer():
    encoder = tiny_model().model
    num_computed = []

    def count(module, inputs, output):
        num_computed.append(inputs[0].shape[:-1].numel())

    for layer in encoder.layers:
        layer.fc1.register_forward_hook(count)
    ids, mask = random_batch(9, 4)

    output = encoder(ids, mask, pooled_only=True, output_hidden_states=True)

    lengths = [state.shape[1] for state in output.hidden_states]
    assert num_computed == [18, 18, 2]
    assert lengths == [9, 9, 9, 1]


def test_a_hook_on_a_projection_is_called_in_the_last_layer_too():
    """The shortcut for one query reads weights, so it must not be taken around adapters."""
    encoder = tiny_model().model
    ids, mask = random_batch(9, 4)
    expected = encoder(ids, mask, pooled_only=True).pooler_output
    encoder.layers[-1].self_attn.v_proj.register_forward_hook(lambda *args: args[2] + 1)
    changed = encoder(ids, mask, pooled_only=True).pooler_output
    assert (changed - expected).abs().max() > 1e-3


def test_too_long_input_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        tiny_model().model(torch.zeros(1, 129, dtype=torch.long))


# ---- Decoder


@pytest.fixture
def labels():
    ids, _ = random_batch(5, 5, seed=1)
    return ids


def decode(model, ids, mask, labels, **kwargs):
    return model(ids, mask, labels=labels, target_language="en", **kwargs)


@pytest.mark.parametrize("bottleneck", ["full", "dual"])
def test_the_full_decoder_sees_no_padding(bottleneck, labels):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(4, 8)
    logits = decode(model, ids, mask, labels).logits
    alone = decode(model, ids[:1, :4], None, labels[:1]).logits
    torch.testing.assert_close(logits[:1], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bottleneck", ["full", "dual"])
def test_the_full_decoder_sees_every_output(bottleneck, labels):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(4, 8)
    logits = decode(model, ids, mask, labels).logits
    outputs = model.model(ids, mask)
    outputs.last_hidden_state = outputs.last_hidden_state.clone()
    outputs.last_hidden_state[:, 2] += 1
    source = {"encoder_outputs": outputs, "attention_mask": mask}
    changed = model(**source, labels=labels, target_language="en").logits
    assert (changed - logits).abs().max() > 1e-3


def test_the_dual_loss_is_balanced_between_its_bands(labels):
    model = tiny_model(bottleneck="dual", bottleneck_loss_weight=0.3)
    ids, mask = random_batch(4, 8)
    total = decode(model, ids, mask, labels).loss
    alone = decode(model, ids, mask, labels, bottleneck_only=True).loss
    model.config.bottleneck_loss_weight = 0.0
    both = decode(model, ids, mask, labels).loss
    assert abs(alone - both) > 1e-4
    torch.testing.assert_close(total, 0.3 * alone + 0.7 * both)
