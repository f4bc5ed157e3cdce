"""Sentence alignment loss of paper 002: numbers by hand and a plain float64 reference."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.training.objectives.alignment_softmax import AlignmentSoftmax
from modeling_tmde.training.objectives.base import BatchSizes, EmbeddingObjective


def reference(embeddings: torch.Tensor) -> torch.Tensor:
    """Eq. 5 as it is printed, one scalar at a time in float64, over every pair of languages."""
    loss = torch.zeros((), dtype=torch.float64)
    for u, v in itertools.combinations(embeddings.double(), 2):
        for j in range(len(u)):
            own = (u[j] * v[j]).sum().exp()
            forth = sum((u[j] * v[k]).sum().exp() for k in range(len(v)))
            back = sum((u[k] * v[j]).sum().exp() for k in range(len(u)))
            loss = loss - (own / forth).log() - (own / back).log()
    return loss


def test_two_rows_by_hand():
    """Products u1v1 = 2, u1v2 = 1, u2v1 = 0, u2v2 = 3."""
    embeddings = torch.tensor([[[1.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [1.0, 1.0]]])
    output = AlignmentSoftmax()(embeddings)
    forth = math.log(1 + math.exp(1 - 2)) + math.log(1 + math.exp(0 - 3))
    back = math.log(1 + math.exp(0 - 2)) + math.log(1 + math.exp(1 - 3))
    assert output.loss.item() == pytest.approx(forth + back, rel=1e-6)
    assert output.loss.item() == pytest.approx(0.313262 + 0.048587 + 0.126928 + 0.126928, abs=1e-5)
    assert output.components["loss"].item() == output.loss.item()
    assert output.components["accuracy"].item() == 2  # of two rows


def test_accuracy_is_of_both_directions():
    # u1 and u2 both have their largest product with v1; v1 is nearest to u2, and v2 to u2.
    embeddings = torch.tensor([[[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], requires_grad=True)
    output = AlignmentSoftmax()(embeddings)
    assert output.components["accuracy"].item() == 1.0  # u1 forth, v2 back: 2 of 4 places, 1 of 2 rows
    assert not output.components["loss"].requires_grad


def test_length_counts():
    """No cosine and no temperature: longer vectors are surer."""
    embeddings = torch.eye(4).repeat(2, 1, 1)
    for factor in (0.5, 1.0, 2.0):
        expected = 2 * 4 * math.log(1 + 3 * math.exp(-(factor**2)))
        assert AlignmentSoftmax()(embeddings * factor).loss.item() == pytest.approx(expected, rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(languages=st.integers(2, 4), rows=st.integers(1, 5), seed=st.integers(0, 1000))
def test_loss_and_gradient_equal_the_plain_reference(languages, rows, seed):
    embeddings = torch.randn(languages, rows, 6, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    output = AlignmentSoftmax()(embeddings)
    expected = reference(embeddings)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-5, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected, embeddings)
    (found,) = torch.autograd.grad(output.loss, embeddings)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_order_of_rows_and_languages_plays_no_part():
    embeddings = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
    expected = AlignmentSoftmax()(embeddings).loss
    for other in (embeddings[:, torch.tensor([3, 0, 5, 1, 4, 2])], embeddings[[2, 0, 1]]):
        torch.testing.assert_close(AlignmentSoftmax()(other).loss, expected, rtol=1e-5, atol=1e-5)


def test_count():
    objective = AlignmentSoftmax()
    assert isinstance(objective, EmbeddingObjective) and objective.weight == 1.0
    # One term a row and pair of languages: the mean over the batch is the sum of both directions of eq. 5.
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9, tokens=99)) == 5
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9, tokens=99)) == 30


def test_large_products_in_half_precision():
    """Products of hundreds, as vectors of LayerNorm have them; bf16 would round them to whole numbers."""
    embeddings = torch.randn(2, 10, 512, generator=torch.Generator().manual_seed(0))
    expected = AlignmentSoftmax()(embeddings).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = AlignmentSoftmax()(embeddings).loss
    assert loss.item() == expected.item() and loss.dtype == torch.float32
    half = embeddings.bfloat16()
    assert AlignmentSoftmax()(half).loss.item() == AlignmentSoftmax()(half.float()).loss.item()
