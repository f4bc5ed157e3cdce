"""Leaving padding out changes no vector, no loss and no gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration
from modeling_tmde.layers import TmdeAttention
from modeling_tmde.linear import Linear
from modeling_tmde.packing import Packing

MODELS = [("first", False), ("pyramid", False), ("full", False), ("dual", False), ("first", True), ("pyramid", True)]


def tiny_model(bottleneck: str, bag_residual: bool = False) -> TmdeForConditionalGeneration:
    torch.manual_seed(0)
    config = TmdeConfig(
        vocab_size=30, d_model=16, encoder_layers=3, encoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32, dropout=0.0, max_position_embeddings=32,
        bottleneck=bottleneck, pyramid_queries=8, bag_residual=bag_residual, sublinear_counts=bag_residual,
    )  # fmt: skip
    model = TmdeForConditionalGeneration(config)
    if bag_residual:
        torch.nn.init.normal_(model.model.token_weights)
    return model


def batch(lengths: list[int], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, 12, (len(lengths), width), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = 0
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    return ids.masked_fill(mask == 0, 1), mask


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_pad_puts_back_what_pack_took(rows):
    mask = torch.tensor(rows).long()
    packing = Packing.of(mask)
    expected = mask.bool() | (torch.arange(6) == 0)
    if (mask == 0).sum() <= 0.04 * mask.numel():
        assert packing is None
        return
    states = torch.randn(*mask.shape, 3)
    packed = packing.pack(states)
    assert torch.equal(packed, states[expected])
    assert torch.equal(packing.pad(packed), states * expected[..., None])
    assert torch.equal(packed[packing.firsts], states[:, 0])
    assert torch.equal(torch.stack([packing.rows, packing.columns], dim=1), expected.nonzero())


def test_little_padding_is_left_where_it_is():
    assert Packing.of(torch.ones(4, 25)) is None
    mask = torch.ones(4, 25)
    mask[0, -4:] = 0
    assert Packing.of(mask) is None  # 4 of 100
    mask[1, -1] = 0
    assert len(Packing.of(mask).indices) == 95
    assert Packing.of(None) is None


@pytest.mark.parametrize(("bottleneck", "bag_residual"), MODELS)
@pytest.mark.parametrize("pooled_only", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_encoder_gives_the_same_vectors_and_gradients(
    bottleneck, bag_residual, pooled_only, attention, monkeypatch
):
    model = tiny_model(bottleneck, bag_residual).model
    model.set_attn_implementation(attention)
    ids, mask = batch([9, 4, 2, 7], 9)
    mask[0, 3] = mask[3, 2] = 0  # hidden by token dropout

    def run(token_indices):
        model.zero_grad()
        options = {"output_hidden_states": True, "pooled_only": pooled_only}
        output = model(ids, mask, token_indices=token_indices, **options)
        (output.pooler_output * torch.arange(16)).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        return output, gradients

    with monkeypatch.context() as patched:
        patched.setattr(Packing, "of", lambda mask: None)
        plain, plain_gradients = run(None)
    for indices in (None, mask.flatten().nonzero().squeeze(1)):
        packed, gradients = run(indices)
        torch.testing.assert_close(packed.pooler_output, plain.pooler_output, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(packed.last_hidden_state[:, 0], packed.pooler_output)
        assert packed.last_hidden_state.shape == plain.last_hidden_state.shape
        for found, expected in zip(packed.hidden_states, plain.hidden_states, strict=True):
            assert found.shape == expected.shape
            if found.shape[1] > 1:  # the last of `pooled_only` has position 0 alone
                torch.testing.assert_close(found[mask == 1], expected[mask == 1], atol=1e-6, rtol=1e-6)
        assert gradients.keys() == plain_gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, plain_gradients[name], atol=1e-5, rtol=1e-4, msg=name)


def test_padding_costs_the_layers_nothing():
    model = tiny_model("first").model
    shapes = []
    model.layers[0].fc1.register_forward_hook(lambda _, inputs, output: shapes.append(tuple(inputs[0].shape)))
    ids, mask = batch([9, 4, 2], 9)
    model(ids, mask)
    model(ids[:1], mask[:1])  # no padding
    assert shapes == [(15, 16), (1, 9, 16)]


@pytest.mark.parametrize("bottleneck", ["first", "pyramid", "full", "dual"])
def test_the_decoder_gives_the_same_states(bottleneck):
    model = tiny_model(bottleneck).eval()
    ids, mask = batch([9, 4, 2], 9)
    source, source_mask = batch([5, 6, 3], 6)
    encoded = model.model(source, source_mask)
    inputs = {
        "input_ids": ids,
        "embedding": encoded.pooler_output,
        "language_ids": torch.tensor([0, 1, 2]),
        "encoder_hidden_states": encoded.last_hidden_state,
        "encoder_attention_mask": source_mask,
    }
    padded = model.decoder(**inputs).last_hidden_state
    packed = model.decoder(**inputs, token_indices=mask.flatten().nonzero().squeeze(1)).last_hidden_state
    assert packed.shape == (15, 16)
    torch.testing.assert_close(packed, padded[mask == 1], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("memory_dim", [16, 20])
def test_one_query_attends_as_any_number_of_queries_does(attention, masked, memory_dim):
    torch.manual_seed(0)
    config = TmdeConfig(vocab_size=30, d_model=16, encoder_attention_heads=2, decoder_attention_heads=2)
    config._attn_implementation = attention
    layer = TmdeAttention(config, 2, memory_dim=memory_dim)
    query, memory = torch.randn(3, 1, 16), torch.randn(3, 7, memory_dim)
    seen = torch.arange(7) < torch.tensor([7, 3, 1])[:, None]
    mask = seen[:, None, None] if masked else None
    if masked and attention == "eager":
        mask = torch.zeros(3, 1, 1, 7).masked_fill(~mask, torch.finfo(torch.float32).min)

    def run(queries: torch.Tensor):
        layer.zero_grad()
        output, probabilities = layer(queries, memory, mask)
        (output[:, 0] * torch.arange(16)).sum().backward()
        return output[:, 0], probabilities, {name: p.grad.clone() for name, p in layer.named_parameters()}

    once, probabilities, gradients = run(query)
    # Two queries take the usual way; of the second nothing is asked.
    usual, usual_probabilities, usual_gradients = run(torch.cat([query, query], dim=1))
    torch.testing.assert_close(once, usual, atol=1e-6, rtol=1e-5)
    if attention == "eager":
        torch.testing.assert_close(probabilities, usual_probabilities[:, :, :1], atol=1e-6, rtol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, usual_gradients[name], atol=1e-4, rtol=1e-4, msg=name)


def test_a_projection_with_an_adapter_is_called_and_not_folded():
    model = tiny_model("first").model.eval()
    ids, mask = batch([9, 4], 9)
    plain = model(ids, mask, pooled_only=True).pooler_output

    class Adapted(Linear):
        def forward(self, tensor):
            return super().forward(tensor) * 2

    model.layers[-1].self_attn.v_proj.__class__ = Adapted
    adapted = model(ids, mask, pooled_only=True).pooler_output
    torch.testing.assert_close(adapted, model(ids, mask).pooler_output, atol=1e-6, rtol=1e-6)
    assert (adapted - plain).abs().max() > 1e-3


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_text_of_which_nothing_is_seen_is_finite(attention):
    model = tiny_model("first").model.eval()
    model.set_attn_implementation(attention)
    ids, mask = batch([5, 4], 5)
    assert model(ids, mask * torch.tensor([[1], [0]]), pooled_only=True).pooler_output.isfinite().all()


def test_hooks_of_the_projections_run():
    model = tiny_model("first").model.eval()
    ids, mask = batch([9, 4], 9)
    calls = []
    model.layers[-1].self_attn.k_proj.register_forward_pre_hook(lambda *_: calls.append(1))
    model(ids, mask, pooled_only=True)
    assert calls
