"""InfoNCE: numbers by hand and a plain float64 reference. Several processes: `test_gather.py`."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, InfoNCE


def vectors(languages: int, rows: int, width: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(languages, rows, width, generator=torch.Generator().manual_seed(seed))


def reference(batches: list[torch.Tensor], temperature: float, margin: float = 0.0) -> tuple[torch.Tensor, int]:
    """Loss and right first places of embeddings (languages, rows, d) by process, one scalar at a time in float64.

    Texts at the same place among the languages of any process are candidates.
    """
    batches = [batch.double() for batch in batches]
    loss, right = torch.zeros((), dtype=torch.float64), 0

    def cosine(x, y):
        return (x * y).sum() / (x.pow(2).sum().sqrt() * y.pow(2).sum().sqrt())

    for process, batch in enumerate(batches):
        for a, b in itertools.permutations(range(len(batch)), 2):
            for row in range(batch.shape[1]):
                positive = cosine(batch[a, row], batch[b, row])
                negatives = [
                    cosine(batch[a, row], other[b, j])
                    for number, other in enumerate(batches)
                    if b < len(other)
                    for j in range(other.shape[1])
                    if (number, j) != (process, row)
                ]
                exponentials = [
                    ((positive - margin) / temperature).exp(),
                    *((n / temperature).exp() for n in negatives),
                ]
                loss = loss - (exponentials[0] / sum(exponentials)).log()
                right += all(positive > negative for negative in negatives)
    return loss, right


# ---- By hand


def test_two_rows_by_hand():
    """Cosines A1B1 = 1, A1B2 = 0.6, A2B1 = 0, A2B2 = 0.8; with temperature 0.5 the logits are 2, 1.2, 0, 1.6."""
    embeddings = torch.tensor([[[1.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [0.3, 0.4]]])
    output = InfoNCE(temperature=0.5)(embeddings)
    forth = math.log(1 + math.exp(1.2 - 2)) + math.log(1 + math.exp(0 - 1.6))
    back = math.log(1 + math.exp(0 - 2)) + math.log(1 + math.exp(1.2 - 1.6))
    assert output.loss.item() == pytest.approx(forth + back, rel=1e-6)
    assert output.loss.item() == pytest.approx(0.371101 + 0.183901 + 0.126928 + 0.513015, abs=1e-6)
    assert output.components["loss"].item() == output.loss.item()
    assert output.components["accuracy"].item() == 4
    # A margin of 0.5 takes 1 from the logits of the right pairs; who is first stays as it was.
    output = InfoNCE(temperature=0.5, margin=0.5)(embeddings)
    differences = [1.2 - 1, 0 - 0.6, 0 - 1, 1.2 - 0.6]
    assert output.loss.item() == pytest.approx(sum(math.log(1 + math.exp(x)) for x in differences), rel=1e-6)
    assert output.components["accuracy"].item() == 4


def test_accuracy_counts_right_first_places():
    # A1 and A2 are both nearest to B1; B1 is nearest to A1, and B2 to A2.
    embeddings = torch.tensor([[[1.0, 0.0], [1.0, 0.2]], [[1.0, 0.0], [0.0, 1.0]]])
    output = InfoNCE()(embeddings.requires_grad_())
    assert output.components["accuracy"].item() == 3
    assert not output.components["accuracy"].requires_grad and not output.components["loss"].requires_grad


@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_equal_vectors_cost_the_logarithm_of_the_rows(margin):
    output = InfoNCE(temperature=0.1, margin=margin)(torch.ones(2, 7, 4))
    # 7 candidates, of which the right one has e^(-margin / temperature) of the weight of the others
    weight = math.exp(-margin / 0.1)
    assert output.loss.item() == pytest.approx(14 * math.log((6 + weight) / weight), rel=1e-6)
    assert output.components["accuracy"].item() < 14  # a collapse is no success


def test_one_row_costs_nothing():
    embeddings = vectors(3, 1).requires_grad_()
    output = InfoNCE(margin=0.3)(embeddings)
    output.loss.backward()
    assert output.loss.item() == 0
    assert output.components["accuracy"].item() == 6
    assert embeddings.grad.abs().max() == 0


def test_count_and_name():
    objective = OBJECTIVES["infonce"]()
    assert isinstance(objective, InfoNCE)
    assert (objective.weight, objective.temperature, objective.margin, objective.gather) == (1.0, 0.05, 0.0, True)
    assert objective.needs_all_embeddings and not objective.needs_decoder
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9, tokens=20)) == 10
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9, tokens=20)) == 60


@pytest.mark.parametrize("temperature", [0, -0.1, float("nan")])
def test_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match=f"infonce temperature={temperature} must be above 0"):
        InfoNCE(temperature=temperature)


# ---- Reference and properties


@settings(max_examples=20, deadline=None)
@given(
    languages=st.integers(2, 4),
    rows=st.integers(1, 5),
    temperature=st.sampled_from([0.05, 0.5, 2.0]),
    margin=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_loss_and_gradient_equal_the_plain_reference(languages, rows, temperature, margin, seed):
    embeddings = vectors(languages, rows, seed=seed).requires_grad_()
    output = InfoNCE(temperature=temperature, margin=margin)(embeddings)
    expected, right = reference([embeddings], temperature, margin)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    assert output.components["accuracy"].item() == right
    (wanted,) = torch.autograd.grad(expected, embeddings)
    (found,) = torch.autograd.grad(output.loss, embeddings)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_length_of_vectors_plays_no_part():
    embeddings = vectors(3, 6)
    scales = torch.rand(3, 6, 1, generator=torch.Generator().manual_seed(1)) * 10 + 0.01
    expected = InfoNCE(margin=0.1)(embeddings).loss
    torch.testing.assert_close(InfoNCE(margin=0.1)(embeddings * scales).loss, expected, rtol=1e-5, atol=1e-5)


def test_order_of_rows_and_languages_plays_no_part():
    embeddings = vectors(3, 6)
    expected = InfoNCE()(embeddings).loss
    for other in (embeddings[:, torch.tensor([3, 0, 5, 1, 4, 2])], embeddings[[2, 0, 1]]):
        torch.testing.assert_close(InfoNCE()(other).loss, expected, rtol=1e-5, atol=1e-5)


def test_float32_under_autocast():
    embeddings = vectors(2, 20, width=64)
    expected = InfoNCE()(embeddings)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = InfoNCE()(embeddings)
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == expected.loss.item()
    half = InfoNCE()(embeddings.bfloat16())
    assert half.loss.dtype == torch.float32
    assert half.loss.item() == InfoNCE()(embeddings.bfloat16().float()).loss.item()
