"""The distance constraint: numbers by hand, a plain float64 reference, and which sentences are negatives."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tmde.training.objectives import OBJECTIVES, BatchSizes, DistanceConstraint
from modeling_tmde.training.objectives.distance import NORMALIZERS

# Three rows whose distances are whole numbers.
#   A1 = (0, 0)   A2 = (3, 0)   A3 = (0, 4)        B1 = (0, 0)   B2 = (3, 4)   B3 = (3, 0)
#             B1  B2  B3
#   A1         0   5   3
#   A2         3   4   0
#   A3         4   3   5           positives 0, 4, 5; all nine together 27
POINTS = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])


def hinge(margin: float, positive: float, *negatives: float) -> float:
    return sum(max(0.0, margin - (negative - positive)) for negative in negatives) / len(negatives)


def test_defaults_are_those_of_the_thesis():
    constraint = OBJECTIVES["distance"]()
    assert isinstance(constraint, DistanceConstraint)
    settings_4_3 = (constraint.weight, constraint.margin, constraint.hinge_weight, constraint.negatives)
    assert settings_4_3 == (0.25, 0.5, 1.0, 40)
    assert (constraint.normalizer, constraint.normalizer_gradient) == ("pairwise", True)


@pytest.mark.parametrize(
    ("normalizer", "v"),
    [
        ("none", 1.0),
        ("pairwise", 27 / 9),
        # the mean of the six vectors is ((0+3+0+0+3+3) / 6, (0+0+4+0+4+0) / 6)
        ("batch_mean_norm", math.hypot(9 / 6, 8 / 6)),
    ],
)
@pytest.mark.parametrize(("margin", "hinge_weight"), [(0.5, 1.0), (1.25, 2.0)])
def test_three_rows_by_hand(normalizer, v, margin, hinge_weight):
    constraint = DistanceConstraint(
        normalizer=normalizer, margin=margin, hinge_weight=hinge_weight, epsilon=0.0, negatives=2
    )
    output = constraint(POINTS)
    a_to_b = (
        hinge(margin, 0 / v, 5 / v, 3 / v)  # A1 against B2, B3
        + hinge(margin, 4 / v, 3 / v, 0 / v)  # A2 against B1, B3
        + hinge(margin, 5 / v, 4 / v, 3 / v)  # A3 against B1, B2
    )
    b_to_a = (
        hinge(margin, 0 / v, 3 / v, 4 / v)  # B1 against A2, A3
        + hinge(margin, 4 / v, 5 / v, 3 / v)  # B2 against A1, A3
        + hinge(margin, 5 / v, 3 / v, 0 / v)  # B3 against A1, A2
    )
    positive = 2 * (0 + 4 + 5) / v
    assert a_to_b != pytest.approx(b_to_a)
    assert output.components["positive"].item() == pytest.approx(positive)
    assert output.components["hinge"].item() == pytest.approx(a_to_b + b_to_a)
    negative = (5 + 3) / 2 + (3 + 0) / 2 + (4 + 3) / 2 + (3 + 4) / 2 + (5 + 3) / 2 + (3 + 0) / 2
    assert output.components["negative"].item() == pytest.approx(negative / v)
    assert output.loss.item() == pytest.approx(positive + hinge_weight * (a_to_b + b_to_a))
    assert output.components["loss"].item() == output.loss.item()


def test_the_same_three_rows_as_printed_numbers():
    """No helper at all: with v = 3 the loss is 6 + 9/2, with v = 1 it is 18 + 39/4."""
    assert DistanceConstraint(normalizer="pairwise", epsilon=0.0)(POINTS).loss.item() == pytest.approx(10.5)
    assert DistanceConstraint(normalizer="none")(POINTS).loss.item() == pytest.approx(27.75)


# ---- Reference


def reference(embeddings: torch.Tensor, constraint: DistanceConstraint) -> torch.Tensor:
    """Eq. 4.18-4.20, one scalar at a time, every other row a negative; embeddings (languages, rows, d) in float64."""

    def distance(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return sum((p - q) ** 2 for p, q in zip(x, y, strict=True)) ** 0.5

    languages, rows, _ = embeddings.shape
    loss = torch.zeros((), dtype=torch.float64)
    for a in range(languages):
        for b in range(languages):
            if a == b:
                continue
            matrix = [[distance(embeddings[a, i], embeddings[b, j]) for j in range(rows)] for i in range(rows)]
            v = torch.ones((), dtype=torch.float64)
            if constraint.normalizer == "pairwise":
                v = sum(sum(row) for row in matrix) / rows**2 + constraint.epsilon
            elif constraint.normalizer == "batch_mean_norm":
                mean = sum(embeddings[a, i] + embeddings[b, i] for i in range(rows)) / (2 * rows)
                v = distance(mean, torch.zeros_like(mean)) + constraint.epsilon
            if not constraint.normalizer_gradient:
                v = v.detach()
            for i in range(rows):
                positive = matrix[i][i] / v
                loss = loss + positive
                for j in range(rows):
                    if j != i:
                        delta = constraint.margin - (matrix[i][j] / v - positive)
                        if delta > 0:
                            loss = loss + constraint.hinge_weight * delta / (rows - 1)
    return loss


def random_rows(languages: int, rows: int, width: int, seed: int) -> torch.Tensor:
    """Translations near each other, but not so near that no hinge is active."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(1, rows, width, generator=generator, dtype=torch.float64)
    return centres + 0.6 * torch.randn(languages, rows, width, generator=generator, dtype=torch.float64) + 0.2


def value_and_gradient(function, embeddings: torch.Tensor) -> tuple[float, torch.Tensor]:
    leaf = embeddings.clone().requires_grad_()
    value = function(leaf)
    value.backward()
    return value.item(), leaf.grad


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("normalizer_gradient", [True, False])
def test_value_and_gradient_equal_the_reference(normalizer, normalizer_gradient):
    constraint = DistanceConstraint(
        normalizer=normalizer, normalizer_gradient=normalizer_gradient, margin=0.3, hinge_weight=0.7, negatives=4
    )
    embeddings = random_rows(3, 5, 4, seed=1)
    expected, expected_gradient = value_and_gradient(lambda x: reference(x, constraint), embeddings)
    value, gradient = value_and_gradient(lambda x: constraint(x).loss, embeddings.float())
    assert value == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradient.double(), expected_gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("normalizer", ["pairwise", "batch_mean_norm"])
def test_gradient_through_the_normaliser_makes_a_difference(normalizer):
    embeddings = random_rows(2, 6, 4, seed=2).float()
    results = []
    for on in (True, False):
        constraint = DistanceConstraint(normalizer=normalizer, normalizer_gradient=on)
        results.append(value_and_gradient(lambda x, constraint=constraint: constraint(x).loss, embeddings))
    assert results[0][0] == pytest.approx(results[1][0])
    assert (results[0][1] - results[1][1]).abs().max() > 0.01


@settings(max_examples=25, deadline=None)
@given(
    languages=st.integers(2, 3),
    rows=st.integers(2, 5),
    width=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    extra_negatives=st.integers(0, 40),
    normalizer=st.sampled_from(["pairwise", "none"]),
)
def test_value_equals_the_reference_on_any_shape(languages, rows, width, seed, extra_negatives, normalizer):
    constraint = DistanceConstraint(negatives=rows - 1 + extra_negatives, normalizer=normalizer)
    embeddings = random_rows(languages, rows, width, seed)
    expected = reference(embeddings, constraint).item()
    assert constraint(embeddings.float()).loss.item() == pytest.approx(expected, rel=1e-4)


def test_many_rows_equal_the_reference():
    # Above 25 rows cdist computes by a matrix product.
    constraint = DistanceConstraint(negatives=40)
    embeddings = random_rows(2, 30, 3, seed=3)
    expected, expected_gradient = value_and_gradient(lambda x: reference(x, constraint), embeddings)
    value, gradient = value_and_gradient(lambda x: constraint(x).loss, embeddings.float())
    assert value == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(gradient.double(), expected_gradient, atol=1e-4, rtol=1e-3)


def test_small_distances_of_good_translations_are_exact():
    """Vectors of norm 100 and 64 rows, translations 0.001 apart: a matrix product would see 0 or 0.03."""
    centres = torch.zeros(64, 64)
    centres.fill_diagonal_(100.0)
    shifted = torch.cat([centres, torch.full((64, 1), 0.001)], 1)
    embeddings = torch.stack([torch.nn.functional.pad(centres, (0, 1)), shifted])
    output = DistanceConstraint(normalizer="none")(embeddings)
    assert output.components["positive"].item() == pytest.approx(2 * 64 * 0.001, rel=1e-5)


# ---- Negatives


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(2, 12), negatives=st.integers(1, 14), seed=st.integers(0, 1000))
def test_as_many_distinct_negatives_as_asked_and_never_oneself(rows, negatives, seed):
    """Distance 2^j to sentence j: the sum over the chosen ones, in binary, says which they were."""
    torch.manual_seed(seed)
    chosen = min(negatives, rows - 1)
    distances = (2.0 ** torch.arange(rows)).expand(rows, rows)
    mean, hinges = DistanceConstraint(negatives=negatives, margin=0.0)._negatives(distances, torch.full((rows,), 1e4))
    for row, (value, row_hinge) in enumerate(zip(mean.tolist(), hinges.tolist(), strict=True)):
        bits = round(value * chosen)
        assert value * chosen == pytest.approx(bits, abs=1e-2)
        assert bits.bit_count() == chosen
        assert bits < 2**rows
        assert not bits >> row & 1
        assert row_hinge == pytest.approx(1e4 - value, rel=1e-5)  # the hinge is over the same ones


def test_negatives_are_drawn_anew_and_evenly():
    torch.manual_seed(0)
    constraint = DistanceConstraint(negatives=2)
    distances = (2.0 ** torch.arange(5)).expand(5, 5)
    counts = torch.zeros(5, 5)
    for _ in range(400):
        means, _ = constraint._negatives(distances, torch.zeros(5))
        for row, value in enumerate(means.tolist()):
            counts[row] += torch.tensor([round(value * 2) >> other & 1 for other in range(5)])
    others = counts[~torch.eye(5, dtype=torch.bool)]
    assert (others - 200).abs().max() < 50  # 400 draws at 2 of 4: 200, standard deviation 10
    assert counts.diagonal().sum() == 0


def test_a_translation_is_never_its_own_negative():
    """Translations at distance 0, all others beyond the margin: oneself as a negative would cost the margin."""
    embeddings = (10 * torch.eye(9)).expand(2, 9, 9)
    for negatives in (3, 8, 40):
        for seed in range(20):
            torch.manual_seed(seed)
            output = DistanceConstraint(normalizer="none", negatives=negatives)(embeddings)
            assert output.loss.item() == 0
            assert output.components["negative"].item() == pytest.approx(2 * 9 * 10 * 2**0.5)


def test_drawn_negatives_enter_both_directions(monkeypatch):
    """With the random numbers known, one negative of the two others: the largest number off the diagonal."""
    numbers = iter(
        [
            torch.tensor([[0.9, 0.2, 0.1], [0.3, 0.9, 0.4], [0.6, 0.5, 0.9]]),  # a -> b: A1 B2, A2 B3, A3 B1
            torch.tensor([[0.9, 0.1, 0.2], [0.3, 0.9, 0.1], [0.6, 0.7, 0.9]]),  # b -> a: B1 A3, B2 A1, B3 A2
        ]
    )
    monkeypatch.setattr(torch, "rand", lambda *size, **kwargs: next(numbers))
    output = DistanceConstraint(normalizer="none", negatives=1)(POINTS)
    a_to_b = max(0, 0.5 - (5 - 0)) + max(0, 0.5 - (0 - 4)) + max(0, 0.5 - (4 - 5))  # 0 + 4.5 + 1.5
    b_to_a = max(0, 0.5 - (4 - 0)) + max(0, 0.5 - (5 - 4)) + max(0, 0.5 - (0 - 5))  # 0 + 0 + 5.5
    assert output.components["hinge"].item() == pytest.approx(a_to_b + b_to_a)
    assert output.components["negative"].item() == pytest.approx((5 + 0 + 4) + (4 + 5 + 0))


# ---- Edges


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("rows", [1, 4, 30])
@pytest.mark.parametrize("collapsed", [True, False])
def test_zero_distances_give_finite_gradients(normalizer, rows, collapsed):
    """Identical translations, and the collapse of the whole space into one point (the origin, too)."""
    vectors = torch.zeros(rows, 5) if collapsed else torch.randn(rows, 5, generator=torch.Generator().manual_seed(0))
    embeddings = vectors.expand(3, rows, 5).clone().requires_grad_()
    loss = DistanceConstraint(normalizer=normalizer)(embeddings).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(embeddings.grad).all()


def test_one_row_has_no_negatives():
    output = DistanceConstraint(normalizer="none")(torch.tensor([[[0.0, 0.0]], [[3.0, 4.0]]]))
    assert output.loss.item() == pytest.approx(2 * 5)
    assert output.components["hinge"].item() == output.components["negative"].item() == 0


def test_bfloat16_is_computed_in_float32():
    embeddings = random_rows(2, 6, 8, seed=4).bfloat16()
    constraint = DistanceConstraint()
    assert constraint(embeddings).loss.dtype == torch.float32
    assert constraint(embeddings).loss.item() == constraint(embeddings.float()).loss.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert constraint(embeddings).loss.item() == pytest.approx(constraint(embeddings.float()).loss.item())


def test_count_is_the_number_of_terms():
    """Translations one apart, other rows far away: every term costs 1, so that the sum is the count."""
    offsets = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 0.75**0.5]])  # an equilateral triangle
    rows = 100 * torch.eye(7)
    embeddings = torch.stack([torch.cat([rows, offset.expand(7, 2)], 1) for offset in offsets])
    constraint = DistanceConstraint(normalizer="none")
    count = constraint.count(BatchSizes(rows=7, languages=3, directions=4, target_tokens=99, tokens=200))
    assert count == 7 * 3 * 2
    assert constraint(embeddings).loss.item() == pytest.approx(count)


def test_errors():
    with pytest.raises(ValueError, match="'mean' is unknown; choose one of pairwise, batch_mean_norm, none"):
        DistanceConstraint(normalizer="mean")
    with pytest.raises(ValueError, match="negatives=0 must be at least 1"):
        DistanceConstraint(negatives=0)
