"""Unified generative task of paper 002: labels and losses by hand, and a reference that writes out the vocabulary."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.training.objectives.base import BatchSizes, MaskedTextObjective
from modeling_tmde.training.objectives.unified_generative import MaskedText, UnifiedGenerativeTask
from modeling_tmde.training.recipe import load_recipe
from tests.training.test_masked_lm import CONFIG, batch, train_tiny


def label(ids: list[int], other_ids: list[int], hidden: int | None, frequencies: bool) -> dict[int, float]:
    """q for a text that predicts `other_ids`, and of which `hidden` was hidden; token -> probability."""
    words = [token for token in other_ids if token not in (0, 1, 2, 4)] or [t for t in other_ids if t != 1]
    if not frequencies:
        words = sorted(set(words))
    q = {token: words.count(token) / len(words) for token in words}
    if hidden is not None:
        q = {token: value / 2 for token, value in q.items()}
        q[hidden] = q.get(hidden, 0.0) + 0.5
    return q


def reference(hidden: torch.Tensor, weight: torch.Tensor, masked: MaskedText, input_ids: torch.Tensor, frequencies):
    """`sum KL(q || p)` over every ordered pair of texts of a row, in float64, entry by entry of the vocabulary."""
    languages, rows, length = input_ids.shape
    was_hidden = {
        (place // length // rows, place // length % rows): target
        for place, target in zip(masked.places.tolist(), masked.targets.tolist(), strict=True)
    }
    loss = torch.zeros((), dtype=torch.float64)
    for row in range(rows):
        for a in range(languages):
            exponentials = [(hidden[a, row].double() * entry).sum().exp() for entry in weight.double()]
            total = sum(exponentials)
            for b in range(languages):
                if a == b:
                    continue
                ids, others = input_ids[a, row].tolist(), input_ids[b, row].tolist()
                q = label(ids, others, was_hidden.get((a, row)), frequencies)
                assert sum(q.values()) == pytest.approx(1)
                for token, value in q.items():
                    loss = loss + value * (math.log(value) - (exponentials[token] / total).log())
    return loss


def masked_at(input_ids: torch.Tensor, place: tuple[int, int, int]) -> MaskedText:
    own = (input_ids > 2) & (input_ids != 4)
    flat = torch.zeros_like(input_ids)
    flat[place] = 1
    return MaskedText(
        input_ids.masked_fill(flat.bool(), 4), flat.flatten().nonzero().squeeze(1), input_ids[place][None], own
    )


# ---- By hand


def test_one_pair_by_hand():
    """`<s> 5 6 </s>` with 5 hidden, and `<s> 7 8 </s>`, over a vocabulary of ten.

    The first predicts 7 and 8 with 1/4 each, and 5 with 1/2 (eq. 4); the second 5 and 6 with 1/2 each (eq. 3). The
    hidden states make the logits 0 for all tokens but 7, which has 2, and 0 for all but 5, which has 1.
    """
    ids = torch.tensor([[[0, 5, 6, 2]], [[0, 7, 8, 2]]])
    weight = torch.zeros(10, 2)
    weight[7, 0], weight[5, 1] = 1.0, 1.0
    hidden = torch.tensor([[[2.0, 0.0]], [[0.0, 1.0]]])
    masked = masked_at(ids, (0, 0, 1))
    assert masked.input_ids.tolist() == [[[0, 4, 6, 2]], [[0, 7, 8, 2]]] and masked.targets.tolist() == [5]
    output = UnifiedGenerativeTask()(hidden, weight, masked, ids, (ids != 1).long())
    first = -math.log(4) / 2 - math.log(2) / 2 - (2 / 4) + math.log(9 + math.exp(2))
    second = -math.log(2) - (1 / 2) + math.log(9 + math.e)
    assert output.loss.item() == pytest.approx(first + second, rel=1e-5)
    assert output.loss.item() == pytest.approx(1.256892 + 1.268004, abs=1e-5)
    assert output.components["loss"].item() == output.loss.item()
    assert not output.components["loss"].requires_grad


def test_a_hidden_token_that_the_translation_has_as_well():
    """`<s> 5 6 </s>` with 5 hidden, `<s> 5 8 </s>`: 5 gets 1/4 + 1/2, and 8 gets 1/4."""
    ids = torch.tensor([[[0, 5, 6, 2]], [[0, 5, 8, 2]]])
    output = UnifiedGenerativeTask()(
        torch.zeros(2, 1, 3), torch.zeros(10, 3), masked_at(ids, (0, 0, 1)), ids, ids > -1
    )
    first = 0.75 * math.log(0.75) + 0.25 * math.log(0.25) + math.log(10)
    second = -math.log(2) + math.log(10)  # 5 and 6
    assert output.loss.item() == pytest.approx(first + second, rel=1e-5)


@pytest.mark.parametrize(("frequencies", "shares"), [(False, (1 / 2, 1 / 2)), (True, (3 / 4, 1 / 4))])
def test_repeated_tokens(frequencies, shares):
    """A text that is to predict `<s> 7 7 7 8 </s>` from zeros, nothing of it hidden."""
    ids = torch.tensor([[[0, 5, 2, 1, 1, 1]], [[0, 7, 7, 7, 8, 2]]])
    masked = masked_at(ids, (1, 0, 2))
    output = UnifiedGenerativeTask(frequencies=frequencies)(
        torch.zeros(2, 1, 3), torch.zeros(10, 3), masked, ids, (ids != 1).long()
    )
    first = sum(share * math.log(share) for share in shares) + math.log(10)
    second = math.log(0.5) + math.log(10)  # 5 with 1/2, and 1/2 for the hidden 7
    assert output.loss.item() == pytest.approx(first + second, rel=1e-5)


def test_a_perfect_prediction_costs_nothing():
    ids = torch.tensor([[[0, 5, 6, 2]], [[0, 7, 8, 2]]])
    masked = masked_at(ids, (0, 0, 1))
    weight = torch.full((10, 2), -40.0)  # e^-40 of a chance
    weight[[5, 6], 1] = 0.0
    weight[5, 0], weight[[7, 8], 0] = math.log(2), 0.0
    hidden = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    output = UnifiedGenerativeTask()(hidden, weight, masked, ids, (ids != 1).long())
    assert output.loss.item() == pytest.approx(0, abs=1e-5)


# ---- What is hidden


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.integers(1, 4).flatmap(
        lambda rows: st.lists(st.lists(st.integers(2, 9), min_size=rows, max_size=rows), min_size=2, max_size=4)
    ),
    seed=st.integers(0, 1000),
)
def test_one_token_of_every_row_is_hidden(lengths, seed):
    ids, mask = batch(lengths, seed)
    torch.manual_seed(seed)
    masked = UnifiedGenerativeTask().mask(ids, mask, CONFIG)
    hidden = masked.input_ids != ids
    has_words = [any(row[i] > 2 for row in lengths) for i in range(len(lengths[0]))]
    assert hidden.sum(dim=(0, 2)).tolist() == [int(has) for has in has_words]
    assert (masked.input_ids[hidden] == 4).all() and (ids[hidden] >= 5).all() and mask[hidden].all()
    assert masked.places.tolist() == hidden.flatten().nonzero().squeeze(1).tolist()
    assert torch.equal(masked.targets, ids.flatten()[masked.places])
    assert torch.equal(masked.own, (ids >= 3) & mask.bool())


def test_every_text_and_every_token_of_it_is_drawn_equally_often():
    ids, mask = batch([[5] * 3000, [12] * 3000])  # 3 and 10 tokens
    torch.manual_seed(0)
    masked = UnifiedGenerativeTask().mask(ids, mask, CONFIG)
    counts = (masked.input_ids == 4).sum(dim=1)  # (languages, length)
    assert counts[0, :1].item() == counts[0, 4:].sum().item() == 0
    deviation = 5 * 3000**0.5 / 2
    assert counts.sum(dim=1).tolist() == pytest.approx([1500, 1500], abs=deviation)
    assert counts[0, 1:4].tolist() == pytest.approx([500] * 3, abs=deviation)
    assert counts[1, 1:11].tolist() == pytest.approx([150] * 10, abs=5 * 150**0.5)


def test_a_config_without_a_token_to_hide_with():
    config = type(CONFIG)(**{**CONFIG.to_dict(), "mask_token_id": None})
    with pytest.raises(ValueError, match="mask_token_id=None, expected the id"):
        UnifiedGenerativeTask().mask(*batch([[5], [5]]), config)


# ---- The reference


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.integers(1, 4).flatmap(
        lambda rows: st.lists(st.lists(st.integers(2, 9), min_size=rows, max_size=rows), min_size=2, max_size=4)
    ),
    frequencies=st.booleans(),
    vocab=st.sampled_from([9, 50]),  # few entries: texts share tokens and repeat them
    seed=st.integers(0, 1000),
)
def test_loss_and_gradients_equal_the_plain_reference(lengths, frequencies, vocab, seed):
    ids, mask = batch(lengths, seed, vocab)
    torch.manual_seed(seed)
    objective = UnifiedGenerativeTask(frequencies=frequencies)
    masked = objective.mask(ids, mask, CONFIG)
    hidden = torch.randn(*ids.shape[:2], 8, requires_grad=True)
    weight = torch.randn(50, 8, requires_grad=True)
    output = objective(hidden, weight, masked, ids, mask)
    expected = reference(hidden, weight, masked, ids, frequencies)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-4, atol=1e-4)
    wanted = torch.autograd.grad(expected, (hidden, weight))
    found = torch.autograd.grad(output.loss, (hidden, weight))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_kind_and_count():
    objective = UnifiedGenerativeTask()
    assert isinstance(objective, MaskedTextObjective) and objective.needs_all_embeddings
    assert objective.weight == 1.0 and objective.frequencies is False
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9, tokens=99)) == 5
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9, tokens=99)) == 30


def test_under_autocast():
    ids, mask = batch([[9] * 4, [7] * 4])
    torch.manual_seed(0)
    objective = UnifiedGenerativeTask()
    masked = objective.mask(ids, mask, CONFIG)
    hidden, weight = torch.randn(2, 4, 8), torch.randn(50, 8)
    expected = objective(hidden, weight, masked, ids, mask).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective(hidden, weight, masked, ids, mask).loss
        half = objective(hidden.bfloat16(), weight, masked, ids, mask).loss
    assert loss.item() == expected.item()
    assert half.dtype == torch.float32 and half.item() == pytest.approx(expected.item(), rel=0.01)


# ---- The recipe


def test_recipe_of_paper_002():
    recipe = load_recipe("light")
    config = recipe.build_config(vocab_size=50000)
    assert (config.d_model, config.encoder_layers, config.encoder_attention_heads) == (512, 2, 8)
    assert (config.encoder_ffn_dim, config.dropout, config.pooling) == (1024, 0.1, "mean")
    objectives = recipe.build_objectives()
    weights = {name: objective.weight for name, objective in objectives.items()}
    assert weights == {"unified_generative": 1.0, "alignment_softmax": 2.0, "similarity_softmax": 2.0}
    sizes = BatchSizes(rows=128, languages=2, directions=2, target_tokens=9, tokens=9999)
    assert {objective.count(sizes) for objective in objectives.values()} == {128}
    arguments = recipe.build_arguments("unused", bf16=False)
    assert (arguments.learning_rate, arguments.micro_batch_rows) == (0.001, 128)


@pytest.mark.parametrize("extra", ["distance", "infonce"])
def test_training_with_one_more_loss(extra, tmp_path):
    log, _ = train_tiny("light", tmp_path, f"objectives.{extra}={{weight: 0.5}}")
    steps = [line for line in log if "unified_generative_loss" in line]
    assert len(steps) == 6
    weights = {"unified_generative": 1, "alignment_softmax": 2, "similarity_softmax": 2, extra: 0.5}
    for line in steps:
        expected = sum(weight * line[f"{name}_loss"] for name, weight in weights.items())
        assert line["loss"] == pytest.approx(expected, rel=1e-3)
    assert steps[-1]["loss"] < steps[0]["loss"]
