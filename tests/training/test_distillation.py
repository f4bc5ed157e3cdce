"""Distillation: the loss by hand and against a plain float64 loop, and in batches, training and evaluation."""

import math

import pytest
import torch

from modeling_tmde.training.objectives import BatchSizes, Distillation
from modeling_tmde.training.recipe import load_recipe


def objective(**options) -> Distillation:
    return Distillation("teacher", **options)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def everything(rows: int) -> torch.Tensor:
    return torch.ones(rows, dtype=torch.bool)


def test_two_languages_by_hand():
    """Row 0: (3, 4) to (0, 0) and to (3, 0), 9 + 16 and 16; row 1: (1, 1) to (1, 1) and to (1, -1), 0 and 4."""
    embeddings = torch.tensor([[[0.0, 0.0], [1.0, 1.0]], [[3.0, 0.0], [1.0, -1.0]]], requires_grad=True)
    vectors = torch.tensor([[3.0, 4.0], [1.0, 1.0]], requires_grad=True)
    output = objective()(embeddings, vectors, everything(2))
    assert output.loss.item() == 25 + 16 + 0 + 4
    assert output.components["loss"].item() == 45 and not output.components["loss"].requires_grad
    assert output.components["cosine"].item() == pytest.approx(0 + 3 / 5 + 1 + 0)
    output.loss.backward()
    assert embeddings.grad.tolist() == [[[-6.0, -8.0], [0.0, 0.0]], [[0.0, -8.0], [0.0, -4.0]]]


def test_equals_a_plain_loop_over_what_it_counts():
    embeddings, vectors = drawn(3, 5, 7), drawn(5, 7, seed=1)
    taught = torch.tensor([True, False, True, True, False])
    terms, cosines = [], []
    for language in range(3):
        for row in (0, 2, 3):
            student, teacher = embeddings[language, row].tolist(), vectors[row].tolist()
            terms.append(sum((x - y) ** 2 for x, y in zip(student, teacher, strict=True)))
            product = sum(x * y for x, y in zip(student, teacher, strict=True))
            cosines.append(product / math.hypot(*student) / math.hypot(*teacher))
    output = objective()(embeddings, vectors, taught)
    assert output.loss.item() == pytest.approx(sum(terms), rel=1e-6)
    assert output.components["cosine"].item() == pytest.approx(sum(cosines), rel=1e-5)
    sizes = BatchSizes(rows=5, languages=3, directions=2, target_tokens=9, tokens=40, taught_rows=3)
    assert objective().count(sizes) == len(terms) == 9


def test_is_d_times_the_loss_of_sentence_transformers():
    """Whose MSELoss takes the mean over the coordinates too."""
    embeddings, vectors = drawn(1, 6, 8), drawn(6, 8, seed=1)
    output = objective()(embeddings, vectors, everything(6))
    expected = torch.nn.MSELoss()(embeddings[0], vectors)
    torch.testing.assert_close(output.loss / objective().count(BatchSizes(6, 1, 0, 0, 9, 6)), 8 * expected)


def test_rows_without_a_vector_do_not_count_whatever_stands_there():
    embeddings = drawn(2, 3, 4).requires_grad_()
    vectors = drawn(3, 4, seed=1)
    vectors[1] = torch.nan
    output = objective()(embeddings, vectors, torch.tensor([True, False, True]))
    alone = objective()(embeddings[:, ::2], vectors[::2], everything(2))
    torch.testing.assert_close(output.loss, alone.loss)
    torch.testing.assert_close(output.components["cosine"], alone.components["cosine"])
    output.loss.backward()
    assert embeddings.grad[:, 1].eq(0).all() and embeddings.grad[:, ::2].ne(0).all()


def test_no_row_with_a_vector_costs_nothing():
    embeddings = drawn(2, 3, 4).requires_grad_()
    output = objective()(embeddings, torch.zeros(3, 4), ~everything(3))
    output.loss.backward()
    assert output.loss.item() == 0 and embeddings.grad.eq(0).all()


def test_float32_of_close_vectors_in_half_precision():
    """1 and 1 + 2^-7 are neighbours in bfloat16; the teacher's come in float16."""
    embeddings = torch.full((1, 1, 64), 1.0078125, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective()(embeddings, torch.ones(1, 64, dtype=torch.float16), everything(1)).loss
    assert loss.dtype == torch.float32 and loss.item() == 64 * 2.0**-14


def test_other_widths_are_an_error():
    with pytest.raises(ValueError, match=r"d=8, the teacher's d=6"):
        objective()(drawn(2, 3, 8), drawn(3, 6), everything(3))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("objectives.distillation={weight: 1}", r"found None, expected the folder or the Hub id"),
        ("objectives.distillation={teacher: 3}", r"distillation.teacher: found 3"),
        ("objectives.distillation={teacher: x, teacher_languages: en}", r"found 'en', expected a list such as \[en\]"),
        ("objectives.distillation={teacher: x, teacher_languages: []}", r"found \[\], expected a list"),
        (
            "objectives.distillation={teacher: x, teacher_revision: 12}",
            r"teacher_revision: found 12, expected",
        ),
        ("objectives.distillation={teacher: x, teacher_batch_size: 0}", r"teacher_batch_size: found 0"),
    ],
)
def test_what_a_recipe_may_say(override, message):
    with pytest.raises(ValueError, match=message):
        load_recipe("distil", [override]).build_objectives()


def test_a_recipe_names_teacher_and_languages():
    override = "objectives.distillation={teacher: a/b, weight: 0.5, teacher_languages: [en, de]}"
    made = load_recipe("small", [override]).build_objectives()
    assert list(made) == ["translation", "distance", "infonce", "distillation"]
    assert made["distillation"].teacher == "a/b" and made["distillation"].weight == 0.5
    assert made["distillation"].teacher_languages == ["en", "de"]
