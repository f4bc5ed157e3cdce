"""The architectures a recipe can name: a configuration, and the model that is trained with it."""

from typing import NamedTuple

from transformers import PreTrainedConfig, PreTrainedModel

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


class Architecture(NamedTuple):
    config: type[PreTrainedConfig]
    model: type[PreTrainedModel]


# Names of `architecture` in the `model` section of a recipe.
ARCHITECTURES: dict[str, Architecture] = {
    "tmde": Architecture(TmdeConfig, TmdeForConditionalGeneration),
    "bag": Architecture(BagConfig, BagModel),
    "laser": Architecture(LaserConfig, LaserForConditionalGeneration),
    "ntdv": Architecture(NtdvConfig, NtdvForConditionalGeneration),
    "encoder": Architecture(TmdeEncoderConfig, TmdeEncoderForMaskedLM),
    "aligned": Architecture(AlignedConfig, AlignedModel),
    "adapted": Architecture(AdaptedConfig, AdaptedForConditionalGeneration),
}


def architecture_of(config: PreTrainedConfig) -> Architecture | None:
    """That of a model's configuration; None if it is not of this package."""
    return next((item for item in ARCHITECTURES.values() if item.config.model_type == config.model_type), None)
