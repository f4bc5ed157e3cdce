"""The T-MDE architecture: shapes, sizes, what the decoder sees, and that a vector depends on its text alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration, TmdeModel
from modeling_tmde.configuration_tmde import BOTTLENECKS
from modeling_tmde.layers import TmdeSlotAttention
from tests.conftest import tiny_config, tiny_model


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


def test_pyramid_adds_one_layer_and_its_queries():
    counts = {}
    for bottleneck in ("first", "pyramid"):
        model = tiny_model(bottleneck=bottleneck)
        counts[bottleneck] = sum(parameter.numel() for parameter in model.parameters())
    layer = sum(parameter.numel() for parameter in tiny_model().model.layers[0].parameters())
    assert counts["pyramid"] - counts["first"] == layer + 32 * 32


def test_shared_embeddings_are_one_table(tmp_path):
    model = tiny_model(share_embeddings=True)
    assert model.lm_head.weight is model.model.embed_tokens.weight is model.decoder.embed_tokens.weight
    model.save_pretrained(tmp_path)
    loaded = TmdeForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight is loaded.decoder.embed_tokens.weight
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)


# ---- Encoder


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_first_output_is_the_embedding(bottleneck):
    ids, mask = random_batch(7, 12)
    output = tiny_model(bottleneck=bottleneck).model(ids, mask, output_hidden_states=True)
    assert output.pooler_output.shape == (2, 32)
    assert output.last_hidden_state.shape == (2, 12, 32)
    assert torch.equal(output.last_hidden_state[:, 0], output.pooler_output)
    assert len(output.hidden_states) == 4


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
    for head in range(attention.num_heads):
        part = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
        scores = q[:, part] @ k[:, part].T / attention.head_dim**0.5
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        heads.append(weights / weights.sum(-1, keepdim=True) @ v[:, part])
    query = query + linear(torch.cat(heads, -1), attention.out_proj)
    hidden = linear(norm(query, layer.final_layer_norm), layer.fc1).clamp_min(0)
    return query + linear(hidden, layer.fc2)


@pytest.mark.parametrize("bottleneck", ["first", "pyramid"])
def test_encoder_equals_a_plain_reference(bottleneck):
    model = tiny_model(bottleneck=bottleneck, encoder_layers=4, pyramid_queries=8).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)  # biases and norms too
    ids, mask = random_batch(6, 11)
    result = model(ids, mask).pooler_output[0]
    state = model.embed_tokens.weight[ids[0, :6]].double() * 32**0.5 + model.embed_positions.weight[:6].double()
    states = [state]
    for layer in model.layers:
        states.append(plain_layer(layer, states[-1], states[-1]))
    embedding = states[-1][:1]
    if bottleneck == "pyramid":
        queries = plain_layer(model.layers[1], model.pyramid_queries.double(), states[2])  # layer 2 of 4 on H^2
        queries = plain_layer(model.layers[2], queries[:4], queries)
        queries = plain_layer(model.layers[3], queries[:2], queries)
        memory = torch.cat([*(state[:1] for state in reversed(states[1:])), queries])
        assert memory.shape == (4 + 2, 32)
        embedding = plain_layer(model.pyramid_layer, embedding, memory)
    expected = nn.functional.layer_norm(
        embedding[0], (32,), model.layer_norm.weight.double(), model.layer_norm.bias.double()
    )
    torch.testing.assert_close(result.double(), expected, atol=2e-5, rtol=2e-5)


def test_pyramid_shares_the_weights_of_the_last_three_layers():
    model = tiny_model(bottleneck="pyramid", encoder_layers=4).model
    seen = []
    for index, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda _, inputs, output, index=index: seen.append((index, output[0].shape[1])))
    model(*random_batch(9))
    assert seen == [(0, 9), (1, 9), (2, 9), (3, 9), (1, 32), (2, 16), (3, 8)]


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 40), min_size=1, max_size=8),
    extra_padding=st.integers(0, 20),
    order=st.randoms(use_true_random=False),
)
def test_vector_does_not_depend_on_the_batch(bottleneck, lengths, extra_padding, order):
    model = tiny_model(bottleneck=bottleneck).model
    ids, mask = random_batch(*lengths)
    alone = torch.cat(
        [model(ids[i : i + 1, :length]).pooler_output for i, length in enumerate(lengths)]
    )  # without mask and padding
    permutation = list(range(len(lengths)))
    order.shuffle(permutation)
    padded_ids = nn.functional.pad(ids[permutation], (0, extra_padding), value=1)
    padded_mask = nn.functional.pad(mask[permutation], (0, extra_padding))
    together = model(padded_ids, padded_mask).pooler_output
    assert (together - alone[permutation]).abs().max() <= 1e-5


def test_eager_and_sdpa_attention_agree():
    model = tiny_model(bottleneck="pyramid")
    assert model.config._attn_implementation == "sdpa"
    ids, mask = random_batch(5, 9)
    expected = model.model(ids, mask).pooler_output
    model.set_attn_implementation("eager")
    output = model.model(ids, mask, output_attentions=True)
    torch.testing.assert_close(output.pooler_output, expected, atol=1e-5, rtol=1e-5)
    assert [attention.shape for attention in output.attentions] == [(2, 4, 9, 9)] * 3
    torch.testing.assert_close(output.attentions[0].sum(-1), torch.ones(2, 4, 9))
    assert output.attentions[0][0, :, :, 5:].abs().max() == 0  # padding is not attended


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("bottleneck", "changes"),
    [*((name, {}) for name in BOTTLENECKS), ("first", {"encoder_layers": 1}), ("pyramid", {"bag_residual": True})],
)
def test_pooled_only_gives_the_same_embedding(bottleneck, changes, attention):
    """And the same gradients, whatever the padding, and with gaps in the mask."""
    model = tiny_model(bottleneck=bottleneck, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.set_attn_implementation(attention)
    encoder = model.model
    ids, mask = random_batch(9, 3, 17, 2)
    gaps = mask.clone()
    gaps[0, 4:6] = gaps[2, 1::2] = 0
    wider = (nn.functional.pad(ids, (0, 6), value=1), nn.functional.pad(mask, (0, 6)))
    for inputs in ((ids, mask), (ids, gaps), wider, (ids, None), (ids[2:3], None)):
        results = []
        for pooled_only in (False, True):
            encoder.zero_grad()
            output = encoder(*inputs, pooled_only=pooled_only)
            output.pooler_output.pow(3).sum().backward()
            gradients = {name: parameter.grad for name, parameter in encoder.named_parameters()}
            results.append((output, {name: grad.clone() for name, grad in gradients.items() if grad is not None}))
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
        layer.fc1.register_forward_hook(lambda _, inputs, output: states.append(inputs[0].shape[:-1].numel()))
    ids, mask = random_batch(9, 4)
    output = encoder(ids, mask, pooled_only=True, output_hidden_states=True)
    real = int(mask.sum())  # the rest of the batch is padding
    assert real < mask.numel() and states == [real, real, len(ids)]
    assert [state.shape[1] for state in output.hidden_states] == [9, 9, 9, 1]


def test_too_long_input_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match=r"129 tokens .* max_position_embeddings=128"):
        tiny_model().model(torch.zeros(1, 129, dtype=torch.long))


def test_language_is_not_an_input_of_the_encoder():
    ids, mask = random_batch(5)
    model = tiny_model()
    plain = model.model(ids, mask).pooler_output
    assert torch.equal(plain, model.model(ids, mask, target_language="en").pooler_output)


# ---- Decoder


def test_slot_attention_equals_full_attention_over_one_key():
    config = tiny_config()
    torch.manual_seed(0)
    slot_attention = TmdeSlotAttention(config)
    full = nn.MultiheadAttention(32, num_heads=4, kdim=40, vdim=40, batch_first=True)
    with torch.no_grad():
        full.v_proj_weight.copy_(slot_attention.v_proj.weight)
        full.in_proj_bias[64:].copy_(slot_attention.v_proj.bias)
        full.out_proj.load_state_dict(slot_attention.out_proj.state_dict())
    queries, slot = torch.randn(3, 7, 32), torch.randn(3, 40)
    expected, weights = full(queries, slot[:, None], slot[:, None])
    assert torch.equal(weights, torch.ones_like(weights))
    torch.testing.assert_close(slot_attention(slot).expand(-1, 7, -1), expected, atol=1e-6, rtol=1e-5)


def decode(model, ids, mask, labels, **kwargs):
    return model(ids, mask, labels=labels, target_language="en", **kwargs)


@pytest.mark.parametrize("bottleneck", ["first", "pyramid"])
def test_bottleneck_decoder_sees_only_the_embedding(bottleneck):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(8, 8)
    labels, _ = random_batch(5, 5, seed=1)
    outputs = model.model(ids, mask)
    expected = model(encoder_outputs=outputs, labels=labels, target_language="en").logits
    outputs.last_hidden_state = torch.randn_like(outputs.last_hidden_state)
    torch.testing.assert_close(model(encoder_outputs=outputs, labels=labels, target_language="en").logits, expected)
    other = model(encoder_outputs=outputs.pooler_output + 1, labels=labels, target_language="en").logits
    assert (other - expected).abs().max() > 1e-3


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
    changed = model(encoder_outputs=outputs, attention_mask=mask, labels=labels, target_language="en").logits
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


def test_loss_shifts_labels_and_ignores_padding():
    model = tiny_model()
    ids, mask = random_batch(6, 6)
    labels = torch.tensor([[0, 17, 23, 2, -100, -100], [0, 9, 2, 1, 1, 1]])  # either kind of padding
    output = decode(model, ids, mask, labels)
    log_probabilities = output.logits.double().log_softmax(-1)
    expected = [(0, 0, 17), (0, 1, 23), (0, 2, 2), (1, 0, 9), (1, 1, 2)]
    by_hand = -sum(log_probabilities[row, position, token] for row, position, token in expected)
    assert output.loss.item() == pytest.approx(by_hand.item() / 5, rel=1e-5)
    assert decode(model, ids, mask, labels, num_items_in_batch=10).loss.item() == pytest.approx(
        by_hand.item() / 10, rel=1e-5
    )


def test_decoder_is_causal():
    model = tiny_model()
    ids, mask = random_batch(6)
    labels, _ = random_batch(7, seed=1)
    changed = labels.clone()
    changed[0, 4:] = 9
    before, after = (decode(model, ids, mask, target).logits for target in (labels, changed))
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().max() > 1e-3


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_generate_with_cache_equals_without(bottleneck):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(5, 9)
    options = {"target_language": ["en", "es"], "max_new_tokens": 12, "do_sample": False}
    cached = model.generate(input_ids=ids, attention_mask=mask, use_cache=True, **options)
    assert torch.equal(cached, model.generate(input_ids=ids, attention_mask=mask, use_cache=False, **options))
    assert (cached[:, 0] == 0).all()
    beams = model.generate(input_ids=ids, attention_mask=mask, num_beams=3, **options)
    assert beams.shape[0] == 2


@pytest.mark.parametrize("bottleneck", ["first", "pyramid"])
def test_generate_from_an_embedding_equals_generate_from_text(bottleneck):
    model = tiny_model(bottleneck=bottleneck)
    ids, mask = random_batch(5, 9)
    options = {"target_language": "es", "max_new_tokens": 12, "do_sample": False}
    embedding = model.get_encoder()(ids, mask).pooler_output
    expected = model.generate(input_ids=ids, attention_mask=mask, **options)
    assert torch.equal(model.generate(encoder_outputs=embedding, **options), expected)


def test_dual_decodes_a_bare_embedding_through_the_bottleneck_alone():
    model = tiny_model(bottleneck="dual")
    ids, mask = random_batch(5, 9)
    options = {"target_language": "es", "max_new_tokens": 12, "do_sample": False}
    embedding = model.get_encoder()(ids, mask).pooler_output
    expected = model.generate(input_ids=ids, attention_mask=mask, bottleneck_only=True, **options)
    assert torch.equal(model.generate(encoder_outputs=embedding, **options), expected)


def test_target_language_changes_the_output_and_bad_ones_are_named():
    model = tiny_model()
    ids, mask = random_batch(5, 9)
    labels, _ = random_batch(4, 4, seed=1)
    english = model(ids, mask, labels=labels, target_language="en").logits
    assert (english - model(ids, mask, labels=labels, target_language="es").logits).abs().max() > 1e-4
    mixed = model(ids, mask, labels=labels, target_language=["es", "en"]).logits
    torch.testing.assert_close(mixed[1], english[1])
    for target_language, message in (
        (None, "target_language is missing"),
        ("nl", r"'nl' is unknown .*'de', 'en'"),
        (["en"], "1 languages for 2 texts"),
    ):
        with pytest.raises(ValueError, match=message):
            model(ids, mask, labels=labels, target_language=target_language)


def test_generate_without_input_says_what_to_give():
    with pytest.raises(ValueError, match="Give input_ids to translate, or encoder_outputs"):
        tiny_model().generate(target_language="en")


def test_return_dict_false_in_the_config_gives_tuples():
    model = tiny_model(return_dict=False)
    ids, mask = random_batch(5)
    labels, _ = random_batch(4, seed=1)
    outputs = decode(model, ids, mask, labels)
    assert isinstance(outputs, tuple) and outputs[1].shape == (1, 4, 400)


# ---- Training features


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_gradient_checkpointing_changes_no_gradient(bottleneck):
    ids, mask = random_batch(5, 9)
    labels, _ = random_batch(4, 4, seed=1)
    gradients = []
    for checkpointing in (False, True):
        model = tiny_model(bottleneck=bottleneck).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        decode(model, ids, mask, labels).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert all(gradient is not None for gradient in gradients[0].values())
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_bfloat16(bottleneck):
    ids, mask = random_batch(5, 9)
    model = tiny_model(bottleneck=bottleneck)
    exact = model.model(ids, mask).pooler_output
    half = model.to(torch.bfloat16)
    output = half.model(ids, mask).pooler_output
    assert output.dtype == torch.bfloat16
    assert nn.functional.cosine_similarity(output.float(), exact).min() > 0.999
    labels, _ = random_batch(4, 4, seed=1)
    loss = decode(half.train(), ids, mask, labels).loss
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in half.parameters())


def test_single_encoder_and_whole_model_have_the_same_keys():
    whole = {name.removeprefix("model.") for name in tiny_model().state_dict() if name.startswith("model.")}
    assert whole == set(TmdeModel(tiny_config()).state_dict())
