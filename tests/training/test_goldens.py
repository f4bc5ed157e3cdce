"""Losses and gradients of every objective are those of the first version."""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from modeling_tmde import TmdeConfig, TmdeForConditionalGeneration
from tests.training.models import tiny
from tmde.training.objectives import OBJECTIVES
from tmde.training.parallel_model import ParallelModel

GOLDENS = Path(__file__).parents[1] / "goldens" / "objectives.npz"
SHARED = {"vocab_size": 60, "languages": ["de", "en", "es"], "pivot_languages": ["en", "es"]}
LAYERS = {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
LAYERS |= {"dropout": 0.0, "max_position_embeddings": 64}
DECODER = {
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 24,
    "language_embedding_dim": 4,
}


def tmde(**changes):
    return TmdeForConditionalGeneration(TmdeConfig(**SHARED | LAYERS | DECODER | changes))


def model(kind: str, **changes) -> Callable[[], nn.Module]:
    return partial(tiny, kind, vocab_size=60, **changes)


laser, ntdv, aligned, bag = map(model, ("laser", "ntdv", "aligned", "bag"))
encoder = model("encoder", encoder_layers=2, max_position_embeddings=64)
CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, dict]]] = {
    "first": (tmde, {"translation": {}, "distance": {"negatives": 2}}),
    "first sum": (tmde, {"translation": {"reduction": "sum", "row_share": 0.5}}),
    "pyramid": (
        lambda: tmde(bottleneck="pyramid", encoder_layers=4),
        {"translation": {}, "infonce": {"margin": 0.1}},
    ),
    "full": (lambda: tmde(bottleneck="full"), {"translation": {"sampled_vocabulary": 20}}),
    "dual": (
        lambda: tmde(bottleneck="dual", bottleneck_loss_weight=0.3),
        {"translation": {}, "similarity": {}},
    ),
    "laser": (
        laser,
        {"translation": {"label_smoothing": 0.2}, "weight_regularization": {"weight": 0.1}},
    ),
    "ntdv": (ntdv, {"translation": {}, "ntdv_distance": {"negatives": 2, "margin": 2.0}}),
    "encoder": (
        encoder,
        {"masked_lm": {}, "translation_lm": {}, "alignment_softmax": {"weight": 2.0}},
    ),
    "unified": (encoder, {"unified_generative": {}, "similarity_softmax": {"weight": 2.0}}),
    "aligned": (aligned, {"xnli_alignment": {}}),
    "bag": (bag, {"infonce": {"temperature": 0.3}, "distance": {"normalizer": "none"}}),
    "distillation": (bag, {"distillation": {"teacher": "one"}}),
}


def batch() -> dict:
    """Six rows in three languages, `<s> 2 to 7 tokens </s>`, padded on the right; a teacher read
    four of them.
    """
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(4, 10, (3, 6), generator=generator)
    lengths[0, 0] = 9
    ids = torch.randint(5, 60, (3, 6, 9), generator=generator)
    places = torch.arange(9)
    ids[..., 0] = 0
    ids = torch.where(places == lengths[..., None] - 1, 2, ids)
    mask = (places < lengths[..., None]).long()
    return {
        "input_ids": ids.masked_fill(mask == 0, 1),
        "attention_mask": mask,
        "languages": ("es", "de", "en"),
        "sizes": SimpleNamespace(has_triples=False),
        "lengths": lengths.numpy(),
        "teacher_vectors": torch.randn(6, 16, generator=generator),
        "taught": torch.tensor([True, True, False, True, False, True]),
    }


def fill_parameters(model: nn.Module) -> None:
    """Give every parameter values that follow from its name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = torch.randn(parameter.shape, generator=generator) * 0.2
            if "norm" in name and name.endswith("weight"):
                values = values + 1.0
            parameter.copy_(values)


def measure(case: str) -> dict[str, tuple[float, float]]:
    """Return numbers in which every loss and gradient has a part.

    Returns:
        Every component of every objective with 0, and for each parameter the norm of its gradient
        and the gradient's product with fixed random numbers.
    """
    make, options = CASES[case]
    objectives = {name: OBJECTIVES[name](**values) for name, values in options.items()}
    parallel = ParallelModel(make(), objectives).train()
    fill_parameters(parallel.model)
    torch.manual_seed(3)
    outputs = parallel(SimpleNamespace(**batch()))
    loss = 0.0
    measured = {}
    for name, output in outputs.items():
        loss = loss + objectives[name].weight * output["total"]
        for component, value in output.items():
            measured[f"{case}/{name}/{component}"] = (float(value.detach()), 0.0)
    loss.backward()
    for name, parameter in parallel.model.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        generator = torch.Generator().manual_seed(1 + zlib.crc32(name.encode()))
        product = (gradient * torch.randn(gradient.shape, generator=generator)).sum()
        measured[f"{case}/gradient/{name}"] = (float(gradient.norm()), float(product))
    return measured


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_the_first_version(case):
    file = np.load(GOLDENS)
    goldens = dict(zip(file["names"].tolist(), file["values"], strict=True))
    names = {name for name in goldens if name.startswith(f"{case}/")}
    measured = measure(case)
    assert measured.keys() == names
    for name, value in measured.items():
        # Processors add float32 numbers in different orders.
        np.testing.assert_allclose(value, goldens[name], rtol=5e-5, atol=5e-5, err_msg=name)
