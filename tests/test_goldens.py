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
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 24,
    "language_embedding_dim": 6,
    "pyramid_queries": 8,
}
TMDE |= {"decoder_layers": 2}
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
}
BERT |= {
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
    options = {name: value for name, value in LANGUAGES.items() if name != "vocab_size"} | {
        "dropout": 0.0
    }
    options |= {"decoder_attention_heads": 4, "language_embedding_dim": 6}
    return AdaptedForConditionalGeneration(
        AdaptedConfig(encoder_config=BertConfig(**BERT), pooling=pooling, **options)
    )


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
    """Weights that depend on the names of the parameters alone."""
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
    input_ids = torch.tensor(INPUT_IDS)
    inputs = {"input_ids": input_ids, "attention_mask": (input_ids != 1).long()}
    body = model.base_model
    if getattr(body, "needs_language_ids", False):
        inputs["language_ids"] = torch.tensor([0, 1, 0])
    encoded = body(**inputs)
    states = encoded.last_hidden_state
    if states.shape[1] > 1:
        states = states * inputs["attention_mask"].unsqueeze(2)  # at padding they mean nothing
    found = {"vectors": encoded.pooler_output, "states": states}
    direction = np.random.RandomState(7).standard_normal(tuple(encoded.pooler_output.shape))
    loss = (encoded.pooler_output * torch.from_numpy(direction).float()).sum()
    if hasattr(model, "decoder"):
        labels = torch.tensor(TARGETS)
        outputs = model(**inputs, labels=labels, target_language=["en", "de", "en"])
        loss = loss + 10 * outputs.loss
        found |= {"loss": outputs.loss, "logits": outputs.logits[labels != -100][:, :20]}
        for beams in (1, 3):
            options = {
                "target_language": "en",
                "max_new_tokens": 5,
                "num_beams": beams,
                "do_sample": False,
            }
            found[f"generated{beams}"] = model.generate(**inputs, **options)
    elif hasattr(model, "head"):
        outputs = model(**inputs, labels=torch.tensor(MLM_LABELS))
        loss = loss + 10 * outputs.loss
        found |= {
            "loss": outputs.loss,
            "logits": outputs.logits[torch.tensor(MLM_LABELS) != -100][:, :20],
        }
    loss.backward()
    gradients = {name: p.grad for name, p in sorted(model.named_parameters()) if p.grad is not None}
    found["gradient_norms"] = torch.stack(
        [gradient.double().norm() for gradient in gradients.values()]
    ).float()
    entries = [
        gradient.flatten()[:: max(1, gradient.numel() // 4)][:4] for gradient in gradients.values()
    ]
    found["gradient_entries"] = torch.cat(entries)
    found = {name: value.detach().numpy() for name, value in found.items()}
    weights = sorted(f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items())
    return found | {
        "weights": np.array("\n".join(weights)),
        "learned": np.array("\n".join(gradients)),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_numbers_of_the_first_version(family):
    with np.load(GOLDENS) as goldens:
        expected = {
            name.split("/")[1]: goldens[name]
            for name in goldens.files
            if name.startswith(f"{family}/")
        }
    found = seen_by(family)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype.kind in "Ui":
            assert np.array_equal(found[name], value), name
        else:
            size = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(
                found[name] / size, value / size, rtol=0, atol=1e-5, err_msg=name
            )


if __name__ == "__main__":
    GOLDENS.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        GOLDENS, **{f"{f}/{name}": value for f in FAMILIES for name, value in seen_by(f).items()}
    )
    sys.stdout.write(f"{GOLDENS}: {GOLDENS.stat().st_size} bytes\n")
