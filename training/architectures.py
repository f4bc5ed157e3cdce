"""The architectures that a recipe can name, each by the model that is trained."""

from transformers import PreTrainedConfig, PreTrainedModel

from modeling_tmde.modeling_adapted import AdaptedForConditionalGeneration
from modeling_tmde.modeling_aligned import AlignedModel
from modeling_tmde.modeling_bag import BagModel
from modeling_tmde.modeling_encoder import TmdeEncoderForMaskedLM
from modeling_tmde.modeling_laser import LaserForConditionalGeneration
from modeling_tmde.modeling_ntdv import NtdvForConditionalGeneration
from modeling_tmde.modeling_tmde import TmdeForConditionalGeneration

# By the name of `architecture` in the `model` section of a recipe.
ARCHITECTURES: dict[str, type[PreTrainedModel]] = {
    "tmde": TmdeForConditionalGeneration,
    "bag": BagModel,
    "laser": LaserForConditionalGeneration,
    "ntdv": NtdvForConditionalGeneration,
    "encoder": TmdeEncoderForMaskedLM,
    "aligned": AlignedModel,
    "adapted": AdaptedForConditionalGeneration,
}


def architecture_of(config: PreTrainedConfig) -> str | None:
    """The architecture of a model's configuration; None if it is not of this package."""
    types = {model.config_class.model_type: name for name, model in ARCHITECTURES.items()}
    return types.get(config.model_type)
