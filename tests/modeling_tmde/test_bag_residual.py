"""The direct path (`bag_residual`): a weighted bag of tokens under the encoder's layers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM

from modeling_tmde import BagConfig, BagModel, TmdeForConditionalGeneration, TmdeModel
from modeling_tmde.configuration_tmde import BOTTLENECKS
from modeling_tmde.layers import bag_direction
from tests.conftest import tiny_config, tiny_model


def direct_model(seed: int = 0, **changes) -> TmdeForConditionalGeneration:
    """Token weights that differ, and norms and biases that are not at their initial values."""
    model = tiny_model(seed, bag_residual=True, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        model.model.token_weights.normal_()
    return model


def without_branches(model: TmdeForConditionalGeneration) -> TmdeForConditionalGeneration:
    with torch.no_grad():
        for name, parameter in model.model.named_parameters():
            if ".out_proj." in name or ".fc2." in name:
                parameter.zero_()
    return model


def batch(*texts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """`<s> text </s>`, right-padded."""
    rows = [[0, *text, 2] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [1] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def bag_by_hand(encoder: TmdeModel, text: list[int]) -> list[float]:
    """`sum_t exp(w_t) E_t`, L2-normalised, in float64 loops."""
    width = encoder.config.d_model
    total = [0.0] * width
    for token in text:
        for column in range(width):
            weight = math.exp(encoder.token_weights[token].item())
            total[column] += weight * encoder.embed_tokens.weight[token, column].item()
    norm = math.sqrt(sum(value * value for value in total))
    return [value / norm for value in total]


def layer_norm_by_hand(values: list[float], norm: nn.LayerNorm) -> list[float]:
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values) + norm.eps)
    weight, bias = norm.weight.tolist(), norm.bias.tolist()
    return [(value - mean) / deviation * weight[i] + bias[i] for i, value in enumerate(values)]


# ---- The helper


def test_bag_direction_by_hand():
    embeddings = torch.tensor([[[9.0, 9.0], [3.0, 0.0], [0.0, 2.0], [7.0, 7.0]]])
    log_weights = torch.tensor([[5.0, 0.0, math.log(6.0), 5.0]])
    counted = torch.tensor([[False, True, True, False]])
    result = bag_direction(embeddings, log_weights, counted)  # (3, 12) / sqrt(153)
    torch.testing.assert_close(result, torch.tensor([[3.0, 12.0]]) / math.sqrt(153))
    # A common factor changes nothing, not even one that overflows float32.
    torch.testing.assert_close(bag_direction(embeddings, log_weights + 200, counted), result)
    first = bag_direction(embeddings, log_weights, torch.zeros(1, 4, dtype=torch.bool))
    torch.testing.assert_close(first, torch.tensor([[1.0, 1.0]]) / math.sqrt(2))


# ---- The encoder


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_without_branches_the_embedding_is_the_norm_of_the_bag(bottleneck):
    model = without_branches(direct_model(bottleneck=bottleneck)).model
    texts = [[7, 8, 8, 9], [30], [11, 300, 12, 13, 14]]
    ids, mask = batch(*texts)
    result = model(ids, mask).pooler_output
    for row, text in enumerate(texts):
        scaled = [math.sqrt(32) * value for value in bag_by_hand(model, text)]
        expected = torch.tensor(layer_norm_by_hand(scaled, model.layer_norm))
        torch.testing.assert_close(result[row], expected, atol=1e-5, rtol=1e-5)


def test_first_layer_input_keeps_the_other_positions():
    model = direct_model()
    plain = tiny_model()
    plain.load_state_dict(model.state_dict(), strict=False)
    ids, mask = batch([7, 8, 9], [10])
    states = model.model(ids, mask, output_hidden_states=True).hidden_states[0]
    expected = plain.model(ids, mask, output_hidden_states=True).hidden_states[0]
    assert torch.equal(states[:, 1:], expected[:, 1:])
    torch.testing.assert_close(states[0, 0], math.sqrt(32) * torch.tensor(bag_by_hand(model.model, [7, 8, 9])))
    assert (states[:, 0] - expected[:, 0]).abs().max() > 0.1


@pytest.mark.parametrize("eos", [2, [2, 4]])
def test_special_tokens_have_no_part(eos):
    model = without_branches(direct_model(eos_token_id=eos)).model
    expected = model(torch.tensor([[0, 7, 8, 2]])).pooler_output
    with torch.no_grad():
        model.token_weights[torch.tensor([0, 1, 2])] = 50.0
    torch.testing.assert_close(model(torch.tensor([[0, 7, 8, 2]])).pooler_output, expected)
    torch.testing.assert_close(model(torch.tensor([[0, 7, 8, 2, 1, 1]])).pooler_output, expected)  # no mask
    same = torch.allclose(model(torch.tensor([[0, 7, 8, 4]])).pooler_output, expected, atol=1e-5)
    assert same == (eos == [2, 4])


def test_text_without_tokens_starts_from_the_embedding_of_bos():
    model = direct_model().model
    state = model(*batch([], [7]), output_hidden_states=True).hidden_states[0][0, 0]
    expected = math.sqrt(32) * nn.functional.normalize(model.embed_tokens.weight[0], dim=0)
    torch.testing.assert_close(state, expected)
    output = model(*batch([], [7])).pooler_output
    assert torch.isfinite(output).all()
    output.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters() if parameter.grad is not None)


def test_embeddings_in_place_of_ids_are_refused():
    with pytest.raises(ValueError, match="Give input_ids: with bag_residual=True"):
        direct_model().model(inputs_embeds=torch.zeros(1, 3, 32))


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(5, 399), max_size=40), min_size=1, max_size=8),
    extra_padding=st.integers(0, 20),
)
def test_vector_does_not_depend_on_the_batch(bottleneck, texts, extra_padding):
    model = direct_model(bottleneck=bottleneck).model
    ids, mask = batch(*texts)
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([[0, *text, 2]])).pooler_output for text in texts])
        padded = nn.functional.pad(ids.flip(0), (0, extra_padding), value=1)
        together = model(padded, nn.functional.pad(mask.flip(0), (0, extra_padding))).pooler_output.flip(0)
    assert (together - alone).abs().max() <= 1e-5


def test_eager_and_sdpa_attention_agree():
    model = direct_model(bottleneck="pyramid")
    ids, mask = batch([7, 8, 9, 10], [11])
    expected = model.model(ids, mask).pooler_output
    model.set_attn_implementation("eager")
    torch.testing.assert_close(model.model(ids, mask).pooler_output, expected, atol=1e-5, rtol=1e-5)


# ---- Training, saving, sizes


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_gradient_checkpointing_changes_no_gradient(bottleneck):
    ids, mask = batch([7, 8, 9, 10], [11])
    gradients = []
    for checkpointing in (False, True):
        model = direct_model(bottleneck=bottleneck).train()
        if checkpointing:
            model.activation_checkpointing_enable()
        model(ids, mask, labels=ids, target_language="en").loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert all(gradient is not None for gradient in gradients[0].values())
    weights = gradients[0]["model.token_weights"]
    assert weights[torch.tensor([7, 8, 9, 10])].abs().min() > 0
    assert weights[torch.tensor([0, 1, 2, 50])].abs().max() == 0
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


def test_gradients_of_weights_equal_finite_differences():
    model = without_branches(direct_model()).double().model
    ids, mask = batch([7, 8, 9], [10, 11])

    def value(weights: torch.Tensor) -> torch.Tensor:
        weights = torch.cat([weights, model.token_weights[16:]])
        return torch.func.functional_call(model, {"token_weights": weights}, (ids, mask)).pooler_output

    assert torch.autograd.gradcheck(value, model.token_weights.detach()[:16].clone().requires_grad_())


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_bfloat16(bottleneck):
    ids, mask = batch([7, 8, 9, 10], [11], [])
    model = direct_model(bottleneck=bottleneck)
    exact = model.model(ids, mask).pooler_output
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model.model(ids, mask).pooler_output
    half = model.to(torch.bfloat16)
    output = half.model(ids, mask).pooler_output
    assert output.dtype == torch.bfloat16
    for vectors in (mixed, output):
        assert nn.functional.cosine_similarity(vectors.float(), exact).min() > 0.999
    half.train()(ids, mask, labels=ids, target_language="en").loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in half.parameters())


@pytest.mark.parametrize("auto_class", [AutoModel, AutoModelForSeq2SeqLM])
def test_saved_and_opened(auto_class, tmp_path):
    model = direct_model(bottleneck="pyramid")
    model.save_pretrained(tmp_path)
    loaded, report = auto_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert loaded.config.bag_residual
    ids, mask = batch([7, 8, 9], [])
    assert torch.equal(loaded.base_model(ids, mask).pooler_output, model.model(ids, mask).pooler_output)


def test_weights_missing_in_a_file_start_at_zero(tmp_path):
    """Loading builds on the meta device: a weight that no file fills must be set, not left as memory was."""
    tiny_model().save_pretrained(tmp_path)
    loaded, report = TmdeModel.from_pretrained(tmp_path, bag_residual=True, output_loading_info=True)
    assert set(report["missing_keys"]) == {"token_weights"}
    assert torch.equal(loaded.token_weights, torch.zeros(400))


def test_weights_exist_only_when_asked_for():
    plain, direct = tiny_model(), tiny_model(bag_residual=True)
    assert not tiny_config().bag_residual
    assert set(direct.state_dict()) - set(plain.state_dict()) == {"model.token_weights"}
    assert torch.equal(direct.model.token_weights, torch.zeros(400))


def test_resized_vocabulary_reaches_the_weights(tmp_path):
    model = direct_model()
    weights = model.model.token_weights.detach().clone()
    before = model.model(*batch([7, 8])).pooler_output
    model.resize_token_embeddings(410)
    assert torch.equal(model.model.token_weights[:400], weights)
    assert torch.equal(model.model.token_weights[400:], weights.median().expand(10))
    torch.testing.assert_close(model.model(*batch([7, 8])).pooler_output, before)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    vectors = model.model(*batch([7, 405])).pooler_output
    assert torch.equal(loaded.model(*batch([7, 405])).pooler_output, vectors)
    encoder = loaded.model
    encoder.resize_token_embeddings(390)
    assert torch.equal(encoder.token_weights, weights[:390])
    torch.testing.assert_close(encoder(*batch([7, 8])).pooler_output, before)


# ---- Damped counts


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_damped_counts_in_the_bag(bottleneck):
    """A token that occurs n times in its text counts as often as the square root of n says."""
    model = without_branches(direct_model(bottleneck=bottleneck, sublinear_counts=True)).model
    texts = [[7, 8, 7, 9, 7, 7], [7], [8, 8], []]
    ids, mask = batch(*texts)
    result = model(ids, mask).pooler_output
    for row, text in enumerate(texts[:3]):
        with torch.no_grad():
            undamped = model.token_weights.clone()
            for token in set(text):
                model.token_weights[token] -= math.log(text.count(token)) / 2
            expected = [math.sqrt(32) * value for value in bag_by_hand(model, text)]
            model.token_weights.copy_(undamped)
        torch.testing.assert_close(
            result[row], torch.tensor(layer_norm_by_hand(expected, model.layer_norm)), atol=1e-5, rtol=1e-5
        )
    torch.testing.assert_close(model(ids).pooler_output, result)  # without a mask: padding has no part
    assert torch.isfinite(result[3]).all()
    nothing = model(*batch([], []))  # no token to count at all
    torch.testing.assert_close(nothing.pooler_output[0], result[3])
    model.config.sublinear_counts = False
    plain = model(ids, mask).pooler_output
    assert (plain[0] - result[0]).abs().max() > 0.01
    torch.testing.assert_close(plain[1:], result[1:])  # of one token only, the direction is the same


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
def test_bag_model_and_direct_path_agree_on_damped_counts(bottleneck):
    """With the bag's tables and no branches, as a warm start begins: P is the norm of the bag model's vector."""
    model = without_branches(direct_model(bottleneck=bottleneck, sublinear_counts=True)).model
    bag = BagModel(BagConfig(vocab_size=400, d_model=32, sublinear_counts=True))
    with torch.no_grad():
        bag.embed_tokens.weight.copy_(model.embed_tokens.weight)
        bag.token_weights.copy_(model.token_weights)
        bag.token_weights[:3] = -20.0
    ids, mask = batch([7, 8, 7, 9, 7, 7], [30], [11, 300, 12, 12, 12, 13, 11, 14])
    hidden = torch.tensor([1, 0, 1])[:, None] * (ids == 7)  # some tokens hidden, as in training
    for seen in (mask, mask.masked_fill(hidden.bool(), 0).index_fill(1, torch.tensor([1]), 1)):
        expected = model.layer_norm(math.sqrt(32) * bag(ids, seen).pooler_output)
        torch.testing.assert_close(model(ids, seen).pooler_output, expected, atol=1e-5, rtol=1e-5)
        pooled = model(ids, seen, pooled_only=True).pooler_output
        torch.testing.assert_close(pooled, expected, atol=1e-5, rtol=1e-5)


def test_damped_counts_do_not_depend_on_the_batch_and_survive_half_precision():
    model = direct_model(sublinear_counts=True).model
    texts = [[7, 7, 7, 8], [7, 9], [], [30] * 9]
    ids, mask = batch(*texts)
    together = model(ids, mask).pooler_output
    alone = torch.cat([model(torch.tensor([[0, *text, 2]])).pooler_output for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    half = model.to(torch.bfloat16)(ids, mask).pooler_output
    assert half.dtype == torch.bfloat16
    assert nn.functional.cosine_similarity(half.float(), together).min() > 0.999
