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

TMDE = "tmde"
BAG = "bag"
ADAPTED = "adapted"  # T-MDE's bottleneck and decoder on an encoder of the Hub

# The models by the names that `architecture` has in the `model` section of a recipe.
ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    TMDE: TmdeForConditionalGeneration,
    BAG: BagModel,
    "laser": LaserForConditionalGeneration,
    "ntdv": NtdvForConditionalGeneration,
    "encoder": TmdeEncoderForMaskedLM,
    "aligned": AlignedModel,
    ADAPTED: AdaptedForConditionalGeneration,
}
DEFAULT_ARCHITECTURE = TMDE


def config_class(architecture: str) -> type[PreTrainedConfig]:
    """Return the class of the configuration of an architecture."""
    model_config_class = ARCHITECTURES[architecture].config_class
    # `PreTrainedModel` may have none, but every architecture of this package does.
    assert model_config_class is not None
    return model_config_class


def architecture_of(config: PreTrainedConfig) -> str | None:
    """Return the architecture of a model's configuration; None if it is not of this package."""
    for name in ARCHITECTURES:
        if config_class(name).model_type == config.model_type:
            return name
    return None
