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


def architecture_of(config: PreTrainedConfig) -> str | None:
    """Return the architecture of a model's configuration; None if it is not of this package."""
    for name, model_class in ARCHITECTURES.items():
        if model_class.config_class.model_type == config.model_type:
            return name
    return None
