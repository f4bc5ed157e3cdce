"""The weight regularisation of paper 001, by hand, and on the encoder of a model."""

import pytest
import torch
from torch import nn

from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.training.objectives import BatchSizes
from modeling_tmde.training.objectives.weight_regularization import WeightRegularization
from modeling_tmde.training.parallel_model import ParallelModel


def test_squares_by_hand():
    """1 + 4 + 9 + 16 and 4; the bias does not count."""
    matrix = nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 4.0]]))
    table, bias = nn.Parameter(torch.tensor([[2.0]])), nn.Parameter(torch.tensor([100.0]))
    output = WeightRegularization()([matrix, bias, table])
    assert output.loss.item() == 34
    assert output.components["loss"].item() == 34 and not output.components["loss"].requires_grad
    output.loss.backward()
    assert torch.equal(matrix.grad, 2 * matrix) and table.grad.item() == 4 and bias.grad is None


def test_count_is_one_whatever_the_batch():
    for rows in (1, 500):
        sizes = BatchSizes(rows=rows, languages=2, directions=2, target_tokens=9 * rows, tokens=20 * rows)
        assert WeightRegularization().count(sizes) == 1


def test_float32_of_half_precision():
    weight = torch.full((300, 300), 0.01, dtype=torch.float16)  # the square of a single one is near float16's last
    loss = WeightRegularization()([weight]).loss
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(90_000 * float(weight[0, 0]) ** 2, rel=1e-5)


def test_nothing_to_train_is_named():
    with pytest.raises(ValueError, match="no weight matrix to train among 1 parameters"):
        WeightRegularization()([torch.zeros(3)])


def test_encoder_alone():
    """In a batch: the sum over the encoder's matrices and its token table, and no gradient to the decoder."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "d_model": 8, "embedding_dim": 6, "encoder_layers": 2, "decoder_hidden_size": 10}
    model = LaserForConditionalGeneration(LaserConfig(**sizes))
    parallel = ParallelModel(model, {"weight_regularization": WeightRegularization()})
    ids = torch.randint(3, 40, (2, 3, 5))
    total = parallel(ids, torch.ones_like(ids), ("de", "en"))["weight_regularization"]["total"]
    counted = {"embed_tokens.weight"} | {
        f"layers.{layer}.weight_{kind}_l0{direction}"
        for layer in (0, 1)
        for kind in ("ih", "hh")
        for direction in ("", "_reverse")
    }
    expected = sum(
        float(parameter.detach().double().pow(2).sum())
        for name, parameter in model.model.named_parameters()
        if name in counted
    )
    assert total.item() == pytest.approx(expected, rel=1e-6)
    total.backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is not None} == {
        f"model.{name}" for name in counted
    }
