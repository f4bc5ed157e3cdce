"""The architectures that a recipe can name."""

from __future__ import annotations

from transformers import PreTrainedConfig, PreTrainedModel

from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration

# By the name that `architecture` has in the `model` section of a recipe.
ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    "tmde": TmdeForConditionalGeneration,
    "bag": BagModel,
    "laser": LaserForConditionalGeneration,
    "ntdv": NtdvForConditionalGeneration,
    "encoder": TmdeEncoderForMaskedLM,
    "aligned": AlignedModel,
    "adapted": AdaptedForConditionalGeneration,
}
DEFAULT_ARCHITECTURE = "tmde"
ADAPTED = "adapted"  # T-MDE's bottleneck and decoder on an encoder of the Hub


def config_class(architecture: str) -> type[PreTrainedConfig]:
    """Return the class of the configuration of an architecture."""
    found = ARCHITECTURES[architecture].config_class
    assert found is not None  # which PreTrainedModel leaves open
    return found


def architecture_of(config: PreTrainedConfig) -> str | None:
    """Return the architecture of a model's configuration; None if it is not of this package."""
    for name in ARCHITECTURES:
        if config_class(name).model_type == config.model_type:
            return name
    return None
