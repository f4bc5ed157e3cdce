"""Losses on embeddings: numbers by hand, float64 loops, negatives, and precision."""

import math
from functools import partial
from statistics import fmean

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from modeling_tmde import BagConfig, TmdeError
from tests.training import references
from tmde.training.objectives import (
    OBJECTIVES,
    AlignmentSoftmax,
    BatchSizes,
    DistanceConstraint,
    Distillation,
    InfoNCE,
    NtdvDistance,
    SimilarityLoss,
    SimilaritySoftmax,
    WeightRegularization,
    XnliAlignment,
)

# Three rows whose distances are whole numbers.
#   A1 = (0, 0)   A2 = (3, 0)   A3 = (0, 4)        B1 = (0, 0)   B2 = (3, 4)   B3 = (3, 0)
#             B1  B2  B3
#   A1         0   5   3
#   A2         3   4   0
#   A3         4   3   5           positives 0, 4, 5; all nine together 27
POINTS = torch.tensor([[[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]], [[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.cosine_similarity(a, b, dim=0).item()


def translations(languages: int, rows: int, seed: int, width: int = 4) -> torch.Tensor:
    """Translations near each other, but not so near that no hinge is active."""
    return (
        drawn(1, rows, width, seed=seed) + 0.6 * drawn(languages, rows, width, seed=seed + 1) + 0.2
    )


# ---- Numbers by hand


@pytest.mark.parametrize(
    ("normalizer", "v"),
    [
        ("none", 1.0),
        ("pairwise", 27 / 9),
        # the mean of A is (1, 4/3) with norm 5/3, of B (2, 4/3) with norm sqrt(52)/3
        ("batch_mean_norm", (5 / 3 + math.sqrt(52) / 3) / 2),
    ],
)
def test_distance_constraint(normalizer, v):
    def hinge(positive: float, first_negative: float, second_negative: float) -> float:
        first = max(0.0, 1.25 - (first_negative - positive) / v)
        second = max(0.0, 1.25 - (second_negative - positive) / v)
        return (first + second) / 2

    objective = DistanceConstraint(
        normalizer=normalizer, margin=1.25, hinge_weight=2.0, negatives=2
    )
    output = objective(POINTS)
    hinges = (
        hinge(0, 5, 3)
        + hinge(4, 3, 0)
        + hinge(5, 4, 3)
        + hinge(0, 3, 4)
        + hinge(4, 5, 3)
        + hinge(5, 3, 0)
    )
    assert output.components["positive"].item() == pytest.approx(2 * 9 / v)
    assert output.components["hinge"].item() == pytest.approx(hinges)
    assert output.components["negative"].item() == pytest.approx((8 + 3 + 7 + 7 + 8 + 3) / 2 / v)
    assert output.loss.item() == pytest.approx(2 * 9 / v + 2 * hinges)


def test_ntdv_distance():
    """Sum margin * max(0, 1 + k / 6) over the k of every row and negative.

    The mean norm is 15/6, so 2 v + 1 = 6.
    """
    a_to_b = [0 - 25, 0 - 9, 16 - 9, 16 - 0, 25 - 16, 25 - 9]
    b_to_a = [0 - 9, 0 - 16, 16 - 25, 16 - 9, 25 - 9, 25 - 0]
    k = np.array(a_to_b + b_to_a)
    expected = 1.5 * np.maximum(0.0, 1 + k / 6).sum()
    assert expected == pytest.approx(34.5)
    assert NtdvDistance(margin=1.5, negatives=2)(POINTS).loss.item() == pytest.approx(34.5)
    # With ten negatives where there are two, each counts five times.
    assert NtdvDistance(margin=1.5, negatives=10)(POINTS).loss.item() == pytest.approx(5 * 34.5)


def test_infonce():
    """Cosines a1b1 = 1, a2b2 = 0.8, a1b2 = 0.6, a2b1 = 0 at temperature 0.5 and margin 0.2."""
    embeddings = torch.tensor([[[2.0, 0.0], [0.0, 1.0]], [[3.0, 0.0], [0.6, 0.8]]])
    # The cosines of a1, a2, b1 and b2 with the right and the wrong candidate.
    right = np.array([1.0, 0.8, 1.0, 0.8])
    wrong = np.array([0.6, 0.0, 0.0, 0.6])
    expected = np.log1p(np.exp((wrong - right + 0.2) / 0.5)).sum()
    output = InfoNCE(temperature=0.5, margin=0.2)(embeddings)
    assert output.loss.item() == pytest.approx(expected, rel=1e-5)
    assert output.components["accuracy"].item() == 4
    equal = InfoNCE(temperature=0.1)(torch.ones(2, 7, 4))
    assert equal.loss.item() == pytest.approx(14 * math.log(7), rel=1e-6)
    assert equal.components["accuracy"].item() < 14  # a collapse is no success


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
def test_similarity_softmax_is_finite_where_the_cosine_is_zero(epsilon):
    """Both rows of u choose themselves, both of v the second: two differences of exactly 1."""
    u = torch.tensor([[30.0, 0.0], [0.0, 30.0]])
    v = torch.tensor([[1.0, 0.0], [300.0, 0.0]])
    angle = math.pi / 2 * (1 - epsilon)
    line = -math.log(math.cos(angle)) + epsilon * math.pi / 2 * math.tan(angle)
    assert SimilaritySoftmax(epsilon=epsilon)(torch.stack([u, v])).loss.item() == pytest.approx(
        2 * line, rel=1e-3
    )


# X1X2 = 3, X1Y1 = X2Y2 = 4, X1Y2 = X2Y1 = 5; with two rows the negative of each is the other.
X = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
Y = torch.tensor([[0.0, 4.0], [3.0, 4.0]])


def test_xnli_alignment():
    assert XnliAlignment()(torch.stack([X, Y]), ("en", "de")).loss.item() == pytest.approx(
        2 * (4 - 0.25 * 10)
    )
    # A third language at X itself: its rows cost 0 - 0.25 * (3 + 3). Y and Z are no pair.
    for order in (("de", "en", "fr"), ("fr", "de", "en")):
        rows = torch.stack([Y if language == "de" else X for language in order])
        assert XnliAlignment()(rows, order).loss.item() == pytest.approx(3.0 - 3.0)
    assert XnliAlignment()(torch.stack([X, Y])[:, :1], ("en", "de")).loss.item() == pytest.approx(
        4.0
    )
    # The ranking loss: translations are 4 apart and others 5, so that a margin of 3 costs 2 each.
    for margin, expected in ((3.0, 2 * (2 + 2)), (0.5, 0.0)):
        ranking = XnliAlignment(margin=margin)
        assert ranking(torch.stack([X, Y]), ("en", "de")).loss.item() == pytest.approx(expected)
        assert ranking(torch.stack([X, X]), ("en", "fr")).loss.item() == 0
        assert ranking(torch.stack([X, Y])[:, :1], ("en", "de")).loss.item() == 0
    with pytest.raises(ValueError, match="source_language='en', and a batch of de, fr lacks it"):
        XnliAlignment()(torch.stack([X, Y]), ("de", "fr"))


def test_distillation():
    """Row 0: (3, 4) to (0, 0) and to (3, 0), 25 and 16; row 1: (1, 1) to (1, 1) and to (1, -1),
    0 and 4.
    """
    embeddings = torch.tensor(
        [[[0.0, 0.0], [1.0, 1.0]], [[3.0, 0.0], [1.0, -1.0]]], requires_grad=True
    )
    vectors = torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    output = Distillation("teacher")(embeddings, vectors, torch.tensor([True, True]))
    assert output.loss.item() == 25 + 16 + 0 + 4
    assert output.components["cosine"].item() == pytest.approx(0 + 3 / 5 + 1 + 0)
    output.loss.backward()
    assert embeddings.grad.tolist() == [[[-6.0, -8.0], [0.0, 0.0]], [[0.0, -8.0], [0.0, -4.0]]]


def test_distillation_of_centered_vectors():
    """The means of the taught rows, (1, 1) and (2, 1), are removed, and both sides are scaled to
    length 1.
    """
    embeddings = torch.tensor(
        [[[4.0, 1.0], [9.0, 9.0], [-2.0, 1.0]], [[1.0, 4.0], [9.0, 9.0], [1.0, -2.0]]]
    )
    # The taught ones are (3, 0) and (-3, 0) from their mean.
    vectors = torch.tensor([[5.0, 1.0], [100.0, 100.0], [-1.0, 1.0]])
    output = Distillation("teacher", center=True)(
        embeddings, vectors, torch.tensor([True, False, True])
    )
    assert output.loss.item() == pytest.approx(0 + 0 + 2 + 2)
    assert output.components["cosine"].item() == pytest.approx(1 + 1 + 0 + 0)


def test_distillation_of_similarities():
    """Each text compares its similarities to those of its teacher, over all texts of other rows."""
    embeddings = drawn(2, 4, 3)
    vectors = drawn(4, 3, seed=1)
    taught = torch.tensor([True, True, False, True])
    objective = Distillation("teacher", similarity_weight=2.0, similarity_temperature=0.5)
    output = objective(embeddings, vectors, taught)

    texts = [(language, row) for language in range(2) for row in (0, 1, 3)]
    divergence = 0.0
    for language, row in texts:
        others = [text for text in texts if text[1] != row]
        teacher = [cosine(vectors[row], vectors[other]) / 0.5 for _, other in others]
        student = [cosine(embeddings[language, row], embeddings[text]) / 0.5 for text in others]
        divergence += scipy.stats.entropy(softmax(teacher), softmax(student))
    assert output.components["divergence"].item() == pytest.approx(divergence, rel=1e-4)
    plain = Distillation("teacher")(embeddings, vectors, taught)
    expected = plain.loss.item() + 2.0 * divergence
    assert output.loss.item() == pytest.approx(expected, rel=1e-5)


def test_distillation_of_similarities_of_a_row_alone():
    """There is no other row, and the gradient is that of the squared distance."""
    embeddings = drawn(2, 3, 4).requires_grad_()
    objective = Distillation("teacher", similarity_weight=1.0)
    output = objective(embeddings, drawn(3, 4, seed=1), torch.tensor([False, True, False]))
    output.loss.backward()
    assert output.components["divergence"].item() == 0
    assert embeddings.grad.isfinite().all()


def test_infonce_of_centered_vectors():
    embeddings = drawn(2, 3, 4)
    centered = InfoNCE(center=True)(embeddings + 100).loss
    torch.testing.assert_close(
        centered, InfoNCE()(embeddings - embeddings.mean(dim=(0, 1))).loss, rtol=1e-3, atol=0
    )


def test_infonce_of_nested_dimensions_is_the_mean_over_the_prefixes():
    """Cut to one number, the cosines of right and wrong pairs are 1 and 1; whole, 0.8 and 0.6."""
    embeddings = torch.tensor([[[2.0, 0.0], [0.6, 0.8]], [[0.8, 0.6], [0.3, 0.4]]])
    right = np.array([0.8, 1.0, 0.8, 1.0])
    wrong = np.array([0.6, 0.96, 0.96, 0.6])
    whole = np.log1p(np.exp((wrong - right) / 0.5)).sum()
    output = InfoNCE(temperature=0.5, dims=[1, 2])(embeddings)
    assert output.loss.item() == pytest.approx((4 * math.log(2) + whole) / 2, rel=1e-5)
    # The second number alone tells the rows apart, and b1 still chooses the wrong one.
    assert output.components["accuracy"].item() == 3


def test_infonce_of_the_whole_width_as_the_only_prefix_changes_nothing():
    embeddings = translations(3, 5, seed=0)
    whole = InfoNCE(margin=0.1, center=True)(embeddings)
    listed = InfoNCE(margin=0.1, center=True, dims=[4])(embeddings)
    assert torch.equal(listed.loss, whole.loss)


def test_every_prefix_is_centered_and_scaled_by_itself():
    embeddings = translations(2, 5, seed=0) + 100
    nested = InfoNCE(center=True, dims=[2, 4])(embeddings).loss
    losses = [InfoNCE(center=True)(embeddings[..., :dim]).loss for dim in (2, 4)]
    torch.testing.assert_close(nested, sum(losses) / 2)
    assert not torch.isclose(losses[0], losses[1], rtol=0.05)


def test_a_step_draws_some_of_the_prefixes_and_evaluation_takes_all():
    embeddings = translations(2, 5, seed=0)
    losses = {dim: InfoNCE()(embeddings[..., :dim]).loss.item() for dim in (1, 2, 4)}
    pairs = [(losses[1] + losses[2]) / 2, (losses[1] + losses[4]) / 2, (losses[2] + losses[4]) / 2]
    objective = InfoNCE(dims=[1, 2, 4], dims_per_step=2)
    torch.manual_seed(0)
    drawn_losses = [objective(embeddings).loss.item() for _ in range(60)]
    counts = [sum(loss == pytest.approx(pair, rel=1e-5) for loss in drawn_losses) for pair in pairs]
    # Each pair of prefixes is expected 20 times.
    assert sum(counts) == 60
    assert min(counts) >= 8
    whole = objective.eval()(embeddings).loss.item()
    assert whole == pytest.approx(sum(losses.values()) / 3, rel=1e-5)


def test_the_accuracy_of_a_step_is_that_of_its_longest_prefix():
    embeddings = translations(2, 5, seed=0)
    shortest = InfoNCE()(embeddings[..., :2]).components["accuracy"]
    longest = InfoNCE()(embeddings).components["accuracy"]
    assert shortest != longest
    objective = InfoNCE(dims=[2, 4], dims_per_step=2)
    for _ in range(8):
        assert objective(embeddings).components["accuracy"] == longest


def test_numbers_behind_the_longest_prefix_are_not_trained():
    embeddings = translations(2, 5, seed=0).requires_grad_()
    InfoNCE(dims=[1, 3])(embeddings).loss.backward()
    assert embeddings.grad[..., 3].eq(0).all()
    assert embeddings.grad[..., :3].ne(0).any(dim=(0, 1)).all()


def test_prefixes_are_no_longer_than_the_vectors():
    objective = InfoNCE(dims=[8, 16])
    objective.check_config(BagConfig(d_model=16))
    message = "infonce dims: found 16, expected at most 12, the width of the model's vectors"
    with pytest.raises(ValueError, match=message):
        objective.check_config(BagConfig(d_model=12))


def test_distillation_skips_rows_without_a_vector():
    embeddings = drawn(2, 3, 4).requires_grad_()
    vectors = drawn(3, 4, seed=1)
    vectors[1] = torch.nan
    output = Distillation("teacher")(embeddings, vectors, torch.tensor([True, False, True]))
    alone = Distillation("teacher")(
        embeddings[:, ::2], vectors[::2], torch.ones(2, dtype=torch.bool)
    )
    torch.testing.assert_close(output.loss, alone.loss)
    output.loss.backward()
    assert embeddings.grad[:, 1].eq(0).all()
    assert embeddings.grad[:, ::2].ne(0).all()


def test_weight_regularization():
    """1 + 4 + 9 + 16 and 4; the bias does not count."""
    matrix = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    output = WeightRegularization()([matrix, torch.tensor([100.0]), torch.tensor([[2.0]])])
    output.loss.backward()
    assert output.loss.item() == 34
    assert torch.equal(matrix.grad, 2 * matrix)
    with pytest.raises(TmdeError, match="weight_regularization: found no trained matrix"):
        WeightRegularization()([torch.tensor([100.0])])


# ---- Float64 loops


def assert_equals_reference(objective, reference, embeddings: torch.Tensor) -> None:
    leaf = embeddings.clone().requires_grad_()
    exact = embeddings.double().requires_grad_()
    output = objective(leaf)
    expected = reference(exact)
    torch.testing.assert_close(output.loss.double(), expected, rtol=1e-4, atol=1e-4)
    assert output.components["loss"].item() == output.loss.item()
    (found,) = torch.autograd.grad(output.loss, leaf)
    (wanted,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-3)


def distance_case(normalizer: str):
    """Return a distance constraint and what computes its loss by hand."""
    objective = DistanceConstraint(normalizer=normalizer, margin=0.3, hinge_weight=0.7)
    return objective, partial(references.distance, constraint=objective)


CASES = {
    "distance pairwise": distance_case("pairwise"),
    "distance batch_mean_norm": distance_case("batch_mean_norm"),
    "distance none": distance_case("none"),
    "infonce": (InfoNCE(temperature=0.5, margin=0.3), lambda x: references.infonce([x], 0.5, 0.3)),
    "infonce nested": (
        InfoNCE(temperature=0.5, margin=0.3, dims=[2, 3, 4]),
        lambda x: sum(references.infonce([x[..., :dim]], 0.5, 0.3) for dim in (2, 3, 4)) / 3,
    ),
    "alignment_softmax": (AlignmentSoftmax(), references.alignment_softmax),
    "similarity_softmax": (SimilaritySoftmax(epsilon=1e-6), references.similarity_softmax),
    "similarity": (SimilarityLoss(), references.similarity),
}


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=8, deadline=None)
@given(languages=st.integers(2, 4), rows=st.integers(2, 5), seed=st.integers(0, 1000))
def test_losses_and_gradients_equal_plain_loops(case, languages, rows, seed):
    assert_equals_reference(*CASES[case], translations(languages, rows, seed))


@pytest.mark.parametrize("rows", [2, 5])
def test_ntdv_distance_equals_a_plain_loop(rows):
    objective = NtdvDistance(margin=0.5, negatives=rows - 1)
    assert_equals_reference(
        objective, lambda x: references.ntdv_distance(x, objective), translations(3, rows, 1)
    )


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_xnli_alignment_equals_a_plain_loop(weight):
    objective = XnliAlignment(negative_weight=weight)
    codes = ("en", "de", "fr")
    assert_equals_reference(
        lambda x: objective(x, codes),
        lambda x: references.xnli_alignment(x, weight),
        drawn(3, 2, 5),
    )


def test_many_rows_and_small_distances_are_exact():
    """Above 25 rows cdist computes by a matrix product, which would see 0 or 0.03 for
    translations 0.001 apart.
    """
    constraint = DistanceConstraint()
    assert_equals_reference(
        constraint, lambda x: references.distance(x, constraint), translations(2, 30, 3)
    )
    centres = torch.nn.functional.pad(100 * torch.eye(64), (0, 1))
    shifted = centres.clone()
    shifted[:, -1] = 0.001
    output = DistanceConstraint(normalizer="none")(torch.stack([centres, shifted]))
    assert output.components["positive"].item() == pytest.approx(2 * 64 * 0.001, rel=1e-5)


# ---- Negatives


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(2, 12), negatives=st.integers(1, 14), seed=st.integers(0, 1000))
def test_distinct_negatives_and_never_oneself(rows, negatives, seed):
    """Distance 2^j to sentence j: the sum over the drawn ones, in binary, says which they are."""
    torch.manual_seed(seed)
    number = min(negatives, rows - 1)
    distances = (2.0 ** torch.arange(rows)).expand(rows, rows)
    means, hinges = DistanceConstraint(negatives=negatives, margin=0.0)._negatives(
        distances, torch.full((rows,), 1e4)
    )
    for row, (value, hinge) in enumerate(zip(means.tolist(), hinges.tolist(), strict=True)):
        bits = round(value * number)
        assert bits.bit_count() == number
        assert bits < 2**rows
        assert not bits >> row & 1
        assert hinge == pytest.approx(1e4 - value, rel=1e-5)  # The hinge is over the same ones.


@pytest.mark.parametrize("objective", [DistanceConstraint(negatives=2), NtdvDistance(negatives=2)])
def test_negatives_are_drawn_anew_and_evenly(objective):
    """B5 is where every A is: each of the other rows draws it with a chance of 2 in 5."""
    torch.manual_seed(0)
    near = torch.stack([torch.zeros(6, 6), 100.0 * torch.eye(6)])
    near[1, 5] = 0
    if isinstance(objective, DistanceConstraint):
        objective.normalizer = "none"
    sums = [objective(near).components["negative"].item() for _ in range(400)]
    far = 1e4 if isinstance(objective, NtdvDistance) else 100.0
    # A1 to A5 meet B5 in 1/5 of their draws, A6 never; B1 to B5 are far from every A, and B6 is at
    # all of them.
    assert fmean(sums) == pytest.approx(5 * far * 4 / 5 + far + 5 * far, rel=0.02)
    assert min(sums) < max(sums)


def test_xnli_negatives_are_other_rows_drawn_evenly():
    torch.manual_seed(0)
    x = drawn(6, 4)
    y = 3 * drawn(6, 4, seed=1)
    distances = torch.cdist(x.double(), y.double())
    positives = distances.diagonal().sum().item()
    mean_negatives = (distances.sum().item() - positives) / 5
    texts = torch.stack([x, y])
    losses = [XnliAlignment()(texts, ("en", "de")).loss.item() for _ in range(2000)]
    assert fmean(losses) == pytest.approx(positives - 0.5 * mean_negatives, abs=0.06)


# ---- Edges


@pytest.mark.parametrize("normalizer", ["pairwise", "batch_mean_norm", "none"])
@pytest.mark.parametrize("rows", [1, 4, 30])
@pytest.mark.parametrize("collapsed", [True, False])
def test_zero_distances_give_finite_gradients(normalizer, rows, collapsed):
    """Identical translations, and the collapse of the whole space into the origin."""
    vectors = torch.zeros(rows, 5) if collapsed else drawn(rows, 5)
    embeddings = vectors.expand(3, rows, 5).clone().requires_grad_()
    loss = DistanceConstraint(normalizer=normalizer)(embeddings).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(embeddings.grad).all()


@pytest.mark.parametrize(
    "objective",
    [
        InfoNCE(),
        InfoNCE(dims=[2, 4]),
        NtdvDistance(),
        AlignmentSoftmax(),
        SimilaritySoftmax(),
    ],
)
def test_one_row_costs_nothing(objective):
    embeddings = drawn(3, 1, 4).requires_grad_()
    objective(embeddings).loss.backward()
    assert embeddings.grad.abs().max() == 0


@pytest.mark.parametrize(
    "objective",
    [
        DistanceConstraint(),
        NtdvDistance(),
        InfoNCE(),
        InfoNCE(dims=[32, 64]),
        AlignmentSoftmax(),
        SimilarityLoss(),
        SimilaritySoftmax(),
    ],
)
def test_half_precision_is_computed_in_float32(objective):
    embeddings = drawn(2, 10, 64).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective(embeddings).loss
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(objective(embeddings.float()).loss.item(), rel=1e-6)


def test_counts_are_the_numbers_of_terms():
    sizes = BatchSizes(
        rows=5, languages=4, directions=6, target_tokens=131, tokens=150, taught_rows=3
    )
    ordered = 5 * 4 * 3
    unordered = 5 * 6
    expected = {
        "translation": 131,
        "distance": ordered,
        "infonce": ordered,
        "ntdv_distance": ordered,
        "alignment_softmax": unordered,
        "similarity": unordered,
        "similarity_softmax": unordered,
        "unified_generative": unordered,
        "xnli_alignment": 5 * 3,
        "distillation": 4 * 3,
        "weight_regularization": 1,
        "causal_lm": 150 - 20,
        "denoising": 150 - 20,
        "back_translation": 150 - 20,
        "nli": 5,
        "masked_lm": round(0.15 * (150 - 2 * 20)),
        "translation_lm": round(0.15 * 2 * (150 - 2 * 20)),
    }
    assert set(expected) == set(OBJECTIVES), "state here how many terms a new objective has"
    counts = {}
    for name, objective_class in OBJECTIVES.items():
        options = {"teacher": "t"} if name == "distillation" else {}
        counts[name] = objective_class(**options).count(sizes)
    assert counts == expected


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("distance", {"negatives": 0}, r"negatives=0 must lie in \[1, inf\)"),
        ("ntdv_distance", {"margin": 0.0}, "margin=0.0 must lie in"),
        ("infonce", {"temperature": 0}, r"infonce temperature=0 must lie in \(0, inf\)"),
        ("infonce", {"dims": []}, r"infonce dims: found an empty list, expected lengths such as"),
        ("infonce", {"dims": [0, 8]}, "infonce dims: found 0, expected lengths of 1 or more"),
        (
            "infonce",
            {"dims": [8, 4]},
            r"infonce dims: found 4 after 8 in \[8, 4\], expected increasing",
        ),
        ("infonce", {"dims": [4, 4]}, r"infonce dims: found 4 after 4 in \[4, 4\]"),
        ("infonce", {"dims_per_step": 1}, "infonce dims_per_step: found 1 without dims, expected"),
        (
            "infonce",
            {"dims": [2, 4], "dims_per_step": 3},
            "infonce dims_per_step: found 3, expected a number from 1 to 2, the number of dims",
        ),
        ("infonce", {"dims": [2, 4], "dims_per_step": 0}, "found 0, expected a number from 1 to 2"),
        ("xnli_alignment", {"negative_weight": -0.1}, "negative_weight=-0.1"),
        ("distillation", {}, "teacher: give a sentence-transformers model"),
        ("translation", {"row_share": 1.5}, r"row_share=1.5 must lie in \(0, 1\]"),
        ("masked_lm", {"share": 1.1}, "masked_lm share=1.1 must lie in"),
    ],
)
def test_settings_that_cannot_work_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        OBJECTIVES[name](**options)
