"""Vectors, losses and gradients of fixed weights are those of the first version, to 1e-5.

`python tests/test_goldens.py` writes the file again: only when numbers are meant to change.
"""

import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, PreTrainedModel

from modeling_tmde.configuration_adapted import AdaptedConfig
from modeling_tmde.configuration_aligned import AlignedConfig
from modeling_tmde.configuration_bag import BagConfig
from modeling_tmde.configuration_encoder import TmdeEncoderConfig
from modeling_tmde.configuration_laser import LaserConfig
from modeling_tmde.configuration_ntdv import NtdvConfig
from modeling_tmde.configuration_tmde import TmdeConfig
from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration

GOLDENS = Path(__file__).parent / "goldens" / "models.npz"
LANGUAGES = {"languages": ["de", "en"], "pivot_languages": ["de", "en"], "vocab_size": 60}
ENCODER = {"d_model": 16, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 24}
SIZES = ENCODER | {"max_position_embeddings": 32, "dropout": 0.0} | LANGUAGES
TMDE = SIZES | {
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "language_embedding_dim": 6,
    "pyramid_queries": 8,
}
LASER = {
    "d_model": 16,
    "embedding_dim": 12,
    "decoder_hidden_size": 20,
    "language_embedding_dim": 6,
    "dropout": 0.0,
}
NTDV = {"embedding_dim": 12, "d_model": 8, "attention_heads": 3} | LANGUAGES
BERT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def tmde(**changes) -> TmdeForConditionalGeneration:
    return TmdeForConditionalGeneration(TmdeConfig(**TMDE | changes))


def laser(**changes) -> LaserForConditionalGeneration:
    return LaserForConditionalGeneration(
        LaserConfig(encoder_layers=2, **LASER | LANGUAGES | changes)
    )


def encoder(**changes) -> TmdeEncoderForMaskedLM:
    return TmdeEncoderForMaskedLM(TmdeEncoderConfig(**SIZES | {"attention_dropout": 0.0} | changes))


def aligned(kind: str, sizes: dict) -> AlignedModel:
    return AlignedModel(
        AlignedConfig(encoder=kind, encoder_config=sizes, source_language="en", **LANGUAGES)
    )


def adapted(pooling: str) -> AdaptedForConditionalGeneration:
    config = AdaptedConfig(
        encoder_config=BertConfig(**BERT),
        pooling=pooling,
        languages=LANGUAGES["languages"],
        pivot_languages=LANGUAGES["pivot_languages"],
        dropout=0.0,
        decoder_attention_heads=4,
        language_embedding_dim=6,
    )
    return AdaptedForConditionalGeneration(config)


FAMILIES = {
    "first": tmde,
    "pyramid": lambda: tmde(bottleneck="pyramid"),
    "full": lambda: tmde(bottleneck="full"),
    "dual": lambda: tmde(bottleneck="dual", bottleneck_loss_weight=0.3),
    "first-bag": lambda: tmde(bag_residual=True, sublinear_counts=True, share_embeddings=True),
    "pyramid-bag": lambda: tmde(bottleneck="pyramid", bag_residual=True),
    "bag": lambda: BagModel(BagConfig(d_model=16, sublinear_counts=True, **LANGUAGES)),
    "bag-mean": lambda: BagModel(BagConfig(d_model=16, normalize=False, **LANGUAGES)),
    "laser": laser,
    "laser-001": lambda: laser(
        unidirectional_layers=1, pooling="mean", language_signal="start_token"
    ),
    "laser-gated": lambda: laser(cell="gated_conv"),
    "ntdv": lambda: NtdvForConditionalGeneration(NtdvConfig(**NTDV)),
    "ntdv-concat": lambda: NtdvForConditionalGeneration(NtdvConfig(vector="concat", **NTDV)),
    "ntdv-nmt": lambda: NtdvForConditionalGeneration(NtdvConfig(shared_layers=False, **NTDV)),
    "encoder-mean": encoder,
    "encoder-first": lambda: encoder(
        pooling="first", position_embeddings="learned", prediction_head="transform"
    ),
    "aligned-bilstm": lambda: aligned("bilstm", {"embedding_dim": 8, "d_model": 16}),
    "aligned-bag": lambda: aligned("bag", {"d_model": 16}),
    "adapted-cls": lambda: adapted("cls"),
    "adapted-mean": lambda: adapted("mean"),
}
INPUT_IDS = [[0, 9, 14, 33, 9, 2, 1, 1], [0, 21, 2, 1, 1, 1, 1, 1], [0, 5, 17, 26, 11, 50, 30, 2]]
TARGETS = [[12, 13, 44, 2, -100], [14, 2, -100, -100, -100], [15, 16, 17, 18, 2]]  # without <s>
MLM_LABELS = [
    [-100, 9, -100, 33, *[-100] * 4],
    [-100, 21, *[-100] * 6],
    [-100, -100, 17, *[-100] * 5],
]


@torch.no_grad()
def fill(model: PreTrainedModel) -> None:
    """Set weights that depend on the names of the parameters alone."""
    for name, parameter in model.named_parameters():
        values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(
            tuple(parameter.shape)
        )
        is_norm = "norm" in name.lower() and name.endswith("weight")
        values = 1 + 0.1 * values if is_norm else 0.3 * values
        parameter.copy_(torch.from_numpy(values))


def seen_by(family: str) -> dict[str, np.ndarray]:
    """Return what a user sees: names of weights, vectors, loss, logits, gradients, translations."""
    model = FAMILIES[family]().eval()
    fill(model)
    inputs = make_inputs(model)
    encoded = model.base_model(**inputs)
    states = encoded.last_hidden_state
    if states.shape[1] > 1:
        # The states at padding mean nothing.
        states = states * inputs["attention_mask"].unsqueeze(2)
    tensors = {"vectors": encoded.pooler_output, "states": states}
    direction = np.random.RandomState(7).standard_normal(tuple(encoded.pooler_output.shape))
    loss = (encoded.pooler_output * torch.from_numpy(direction).float()).sum()
    if hasattr(model, "decoder"):
        tensors |= translated(model, inputs)
    elif hasattr(model, "head"):
        tensors |= predicted(model, inputs)
    if "loss" in tensors:
        loss = loss + 10 * tensors["loss"]
    loss.backward()
    learned_names, gradients = gradients_by_name(model)
    tensors |= gradients

    arrays = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    arrays["weights"] = np.array("\n".join(describe_weights(model)))
    arrays["learned"] = np.array("\n".join(learned_names))
    return arrays


def make_inputs(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the inputs of the encoder of a model."""
    input_ids = torch.tensor(INPUT_IDS)
    inputs = {"input_ids": input_ids, "attention_mask": (input_ids != 1).long()}
    if getattr(model.base_model, "needs_language_ids", False):
        inputs["language_ids"] = torch.tensor([0, 1, 0])
    return inputs


def translated(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the loss and logits of a decoder, and what it generates with 1 and 3 beams."""
    labels = torch.tensor(TARGETS)
    outputs = model(**inputs, labels=labels, target_language=["en", "de", "en"])
    tensors = {"loss": outputs.loss, "logits": outputs.logits[labels != -100][:, :20]}
    for beams in (1, 3):
        options = {
            "target_language": "en",
            "max_new_tokens": 5,
            "num_beams": beams,
            "do_sample": False,
        }
        tensors[f"generated{beams}"] = model.generate(**inputs, **options)
    return tensors


def predicted(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the loss and logits of a masked language model."""
    labels = torch.tensor(MLM_LABELS)
    outputs = model(**inputs, labels=labels)
    return {"loss": outputs.loss, "logits": outputs.logits[labels != -100][:, :20]}


def gradients_by_name(model: PreTrainedModel) -> tuple[list[str], dict[str, torch.Tensor]]:
    """Return the names of the parameters with a gradient, and norms and entries of all gradients.

    Parameters are in the order of their names. Of each gradient there are four entries at most.
    """
    names = []
    norms = []
    entries = []
    for name, parameter in sorted(model.named_parameters()):
        gradient = parameter.grad
        if gradient is not None:
            names.append(name)
            norms.append(gradient.double().norm())
            step = max(1, gradient.numel() // 4)
            entries.append(gradient.flatten()[::step][:4])
    tensors = {
        "gradient_norms": torch.stack(norms).float(),
        "gradient_entries": torch.cat(entries),
    }
    return names, tensors


def describe_weights(model: PreTrainedModel) -> list[str]:
    """Return name and shape of each entry of the state dict, sorted."""
    return sorted(f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_numbers_of_the_first_version(family):
    expected = {}
    with np.load(GOLDENS) as goldens:
        for key in goldens.files:
            golden_family, name = key.split("/")
            if golden_family == family:
                expected[name] = goldens[key]
    arrays = seen_by(family)
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype.kind in "Ui":
            assert np.array_equal(arrays[name], value), name
        else:
            size = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(
                arrays[name] / size, value / size, rtol=0, atol=1e-5, err_msg=name
            )


def write_goldens() -> None:
    """Write the numbers of all families into the file."""
    goldens = {}
    for family in FAMILIES:
        for name, array in seen_by(family).items():
            goldens[f"{family}/{name}"] = array
    GOLDENS.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDENS, **goldens)
    sys.stdout.write(f"{GOLDENS}: {GOLDENS.stat().st_size} bytes\n")


if __name__ == "__main__":
    write_goldens()
