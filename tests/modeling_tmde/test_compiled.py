"""A training step of every transformer is one graph."""

import pytest
import torch
from torch import nn

from tests.modeling_tmde.families import filled, padded

LABELS = torch.tensor([[12, 13, 44, 2], [14, 2, -100, -100]] * 2)
AFTER_PADDING = torch.tensor([[-100, 12, 13, 2], [0, 14, 2, -100]] * 2)


def gradient_of(model: nn.Module) -> torch.Tensor:
    gradients = []
    for parameter in model.parameters():
        if parameter.grad is not None:
            gradients.append(parameter.grad.flatten())
    return torch.cat(gradients)


@pytest.mark.parametrize(
    ("family", "labels"),
    [
        ("first", LABELS),
        ("first", AFTER_PADDING),
        ("pyramid", LABELS),
        ("dual", AFTER_PADDING),
        ("adapted-cls", AFTER_PADDING),
    ],
)
def test_a_forward_with_labels_is_one_graph(family, labels):
    torch.compiler.reset()
    model = filled(family).train()
    inputs = padded() | {"labels": labels, "target_language": "en"}
    expected = model(**inputs)
    expected.loss.backward()
    gradient = gradient_of(model)
    model.zero_grad()
    compiled = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    compiled.loss.backward()
    torch.testing.assert_close(compiled.loss, expected.loss)
    torch.testing.assert_close(compiled.logits, expected.logits)
    torch.testing.assert_close(gradient_of(model), gradient)


def test_a_masked_language_model_is_one_graph():
    torch.compiler.reset()
    model = filled("encoder-mean").train()
    inputs = padded()
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    compiled = torch.compile(model, fullgraph=True, backend="eager")(**inputs)
    torch.testing.assert_close(compiled.loss, model(**inputs).loss)
