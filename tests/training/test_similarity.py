"""The similarity loss of paper 001, by hand and against a plain float64 loop."""

import itertools

import pytest
import torch

from modeling_tmde.training.objectives import BatchSizes
from modeling_tmde.training.objectives.similarity import SimilarityLoss


def vectors(languages: int, rows: int, width: int = 8) -> torch.Tensor:
    return torch.randn(languages, rows, width, generator=torch.Generator().manual_seed(0))


def test_two_rows_by_hand():
    """Differences (1, -2) and (0, 3): 1 + 4 and 9."""
    embeddings = torch.tensor([[[2.0, 1.0], [5.0, 4.0]], [[1.0, 3.0], [5.0, 1.0]]], requires_grad=True)
    output = SimilarityLoss()(embeddings)
    assert output.loss.item() == 14
    assert output.components["loss"].item() == 14 and not output.components["loss"].requires_grad
    output.loss.backward()
    assert embeddings.grad.tolist() == [[[2.0, -4.0], [0.0, 6.0]], [[-2.0, 4.0], [0.0, -6.0]]]


def test_three_languages_by_hand():
    """Points 0, 1 and 3 on a line: every pair once, 1 + 9 + 4."""
    assert SimilarityLoss()(torch.tensor([[[0.0]], [[1.0]], [[3.0]]])).loss.item() == 14


@pytest.mark.parametrize("languages", [1, 2, 4])
def test_equals_a_plain_loop_over_what_it_counts(languages):
    embeddings = vectors(languages, 5)
    terms = [
        sum((x - y) ** 2 for x, y in zip(embeddings[a, row].tolist(), embeddings[b, row].tolist(), strict=True))
        for a, b in itertools.combinations(range(languages), 2)
        for row in range(5)
    ]
    output = SimilarityLoss()(embeddings)
    assert output.loss.item() == pytest.approx(sum(terms), rel=1e-6)
    sizes = BatchSizes(rows=5, languages=languages, directions=1, target_tokens=9, tokens=40)
    assert SimilarityLoss().count(sizes) == len(terms)


def test_grows_with_the_square_of_the_distance():
    embeddings = vectors(2, 6)
    loss = SimilarityLoss()(embeddings).loss
    torch.testing.assert_close(SimilarityLoss()(3 * embeddings).loss, 9 * loss)
    torch.testing.assert_close(SimilarityLoss()(embeddings + vectors(1, 1)).loss, loss)  # a shift of all is none
    assert SimilarityLoss()(embeddings[[0, 0]]).loss.item() == 0


def test_float32_of_close_vectors_in_half_precision():
    """1 and 1 + 2^-7 are neighbours in bfloat16; their squares, in it, would be off by a hundredth."""
    embeddings = torch.tensor([[[1.0] * 64], [[1.0078125] * 64]], dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = SimilarityLoss()(embeddings).loss
    assert loss.dtype == torch.float32
    assert loss.item() == 64 * 2.0**-14
