"""Sentence similarity loss of paper 002: numbers by hand, a plain reference, and where it would be infinite."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.training.objectives.base import BatchSizes, EmbeddingObjective
from modeling_tmde.training.objectives.similarity_softmax import SimilaritySoftmax


def reference(embeddings: torch.Tensor) -> torch.Tensor:
    """Eq. 6, one scalar at a time in float64, over every pair of languages."""
    loss = torch.zeros((), dtype=torch.float64)

    def similarity(x, j1, j2):
        return (x[j1] * x[j2]).sum().exp() / sum((x[j1] * x[k]).sum().exp() for k in range(len(x)))

    for u, v in itertools.combinations(embeddings.double(), 2):
        for j1 in range(len(u)):
            for j2 in range(len(u)):
                difference = similarity(u, j1, j2) - similarity(v, j1, j2)
                loss = loss - (math.pi / 2 * difference).cos().log()
    return loss


def vectors(languages: int, rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(languages, rows, 6, generator=torch.Generator().manual_seed(seed)) * 0.7


def test_two_rows_by_hand():
    """u is orthogonal with u.u = ln 3: probabilities 3/4 and 1/4; all of v are alike: 1/2. All four differences are
    1/4, and cos(pi/8) = 0.92388."""
    u = torch.eye(2) * math.sqrt(math.log(3))
    output = SimilaritySoftmax()(torch.stack([u, torch.ones(2, 2)]))
    assert output.loss.item() == pytest.approx(-4 * math.log(math.cos(math.pi / 8)), rel=1e-5)
    assert output.loss.item() == pytest.approx(0.316694, abs=1e-5)
    assert output.components["loss"].item() == output.loss.item()


def test_the_diagonal_counts():
    """Of one row the only similarity is its own, 1 in either language; of two, half of the terms are."""
    assert SimilaritySoftmax()(vectors(2, 1)).loss.item() == 0
    u = torch.eye(2) * math.sqrt(math.log(3))
    halves = torch.stack([u, torch.ones(2, 2)])
    similarities = (halves @ halves.mT).softmax(dim=2)
    diagonal = (similarities[0] - similarities[1]).diagonal()
    share = -(math.pi / 2 * diagonal).cos().log().sum().item()
    assert share == pytest.approx(SimilaritySoftmax()(halves).loss.item() / 2, rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(languages=st.integers(2, 4), rows=st.integers(1, 5), seed=st.integers(0, 1000))
def test_loss_and_gradient_equal_the_plain_reference(languages, rows, seed):
    embeddings = vectors(languages, rows, seed).requires_grad_()
    output = SimilaritySoftmax(epsilon=1e-6)(embeddings)
    expected = reference(embeddings)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-4, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected, embeddings)
    (found,) = torch.autograd.grad(output.loss, embeddings)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_languages_and_rows_change_places():
    embeddings = vectors(3, 6)
    expected = SimilaritySoftmax()(embeddings).loss
    for other in (embeddings[[2, 0, 1]], embeddings[:, torch.tensor([3, 0, 5, 1, 4, 2])]):
        torch.testing.assert_close(SimilaritySoftmax()(other).loss, expected, rtol=1e-5, atol=1e-6)


def test_a_rotation_of_one_language_costs_nothing():
    """Only similarities within a language are compared, not directions."""
    u = vectors(1, 6)[0]
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1))).Q
    assert SimilaritySoftmax()(torch.stack([u, u @ rotation])).loss.item() == pytest.approx(0, abs=1e-6)
    assert SimilaritySoftmax()(torch.stack([u, u.flip(0)])).loss.item() > 0.01


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
def test_where_the_cosine_would_be_zero(epsilon):
    """Both rows of u choose themselves, both of v the second: differences of exactly 1."""
    u = torch.tensor([[30.0, 0.0], [0.0, 30.0]])
    v = torch.tensor([[1.0, 0.0], [300.0, 0.0]])
    output = SimilaritySoftmax(epsilon=epsilon)(torch.stack([u, v]))
    angle = math.pi / 2 * (1 - epsilon)
    line = -math.log(math.cos(angle)) + epsilon * math.pi / 2 * math.tan(angle)
    assert output.loss.item() == pytest.approx(2 * line, rel=1e-3)  # of the row that disagrees, both differences


def test_the_line_goes_on_smoothly_and_upwards():
    objective = SimilaritySoftmax(epsilon=0.01)
    sizes = torch.tensor([0.5, 0.98, 0.99 - 1e-6, 0.99 + 1e-6, 1.0], dtype=torch.float64)
    values, slopes = [], []
    for size in sizes:
        for sign in (1, -1):
            difference = (sign * size).clone().requires_grad_()
            loss = objective._disagreement(difference)
            (slope,) = torch.autograd.grad(loss, difference)
            if sign == 1:
                values.append(loss.item())
                slopes.append(slope.item())
            else:
                assert (loss.item(), slope.item()) == pytest.approx((values[-1], -slopes[-1]))
    assert values == sorted(values) and values[2] == pytest.approx(values[3], rel=1e-3)
    assert slopes[2] == pytest.approx(slopes[3], rel=1e-3) and slopes[4] == slopes[3]
    assert slopes[0] == pytest.approx(math.pi / 2 * math.tan(math.pi / 4))


def test_gradients_are_finite_for_long_vectors():
    """Vectors of LayerNorm, whose products are in the hundreds and whose probabilities 0 and 1."""
    embeddings = torch.randn(2, 16, 512, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with torch.no_grad():
        embeddings[0, 3] = embeddings[0, 4] * 1.2  # in one language alone, a text that another is nearest to
    output = SimilaritySoftmax()(embeddings)
    output.loss.backward()
    assert output.loss.item() > 5 and embeddings.grad.isfinite().all()


def test_count_and_settings():
    objective = SimilaritySoftmax()
    assert isinstance(objective, EmbeddingObjective) and objective.weight == 1.0
    assert objective.count(BatchSizes(rows=5, languages=2, directions=1, target_tokens=9, tokens=99)) == 5
    assert objective.count(BatchSizes(rows=5, languages=4, directions=6, target_tokens=9, tokens=99)) == 30
    for epsilon in (0, 1, -0.1):
        with pytest.raises(ValueError, match=f"similarity_softmax epsilon={epsilon} must lie between 0 and 1"):
            SimilaritySoftmax(epsilon=epsilon)


def test_float32_under_autocast():
    embeddings = vectors(2, 20)
    expected = SimilaritySoftmax()(embeddings).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = SimilaritySoftmax()(embeddings).loss
    assert loss.dtype == torch.float32 and loss.item() == expected.item()
