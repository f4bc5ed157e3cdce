# SPDX-License-Identifier: Apache-2.0

"""The models of tmde. Importing this package registers them with the Auto classes of transformers.

It needs torch, transformers, tokenizers and safetensors only.
"""

import sys

import transformers

from .collation import TranslationCollator
from .common import EmbedderConfig, EmbedderPreTrainedModel, TmdeError
from .configuration_adapted import AdaptedConfig
from .configuration_aligned import AlignedConfig
from .configuration_bag import BagConfig
from .configuration_encoder import TmdeEncoderConfig
from .configuration_laser import LaserConfig
from .configuration_ntdv import NtdvConfig
from .configuration_tmde import TmdeConfig
from .modeling_adapted import AdaptedForConditionalGeneration, AdaptedModel
from .modeling_aligned import AlignedModel
from .modeling_bag import BagModel
from .modeling_encoder import (
    TmdeEncoderForMaskedLM,
    TmdeEncoderForSequenceClassification,
    TmdeEncoderModel,
)
from .modeling_laser import LaserForConditionalGeneration, LaserModel
from .modeling_ntdv import NtdvForConditionalGeneration, NtdvModel
from .modeling_tmde import (
    TmdeForConditionalGeneration,
    TmdeForSequenceClassification,
    TmdeForTokenClassification,
    TmdeModel,
)
from .tokenization import train_tokenizer

__all__ = [
    "AdaptedConfig",
    "AdaptedForConditionalGeneration",
    "AdaptedModel",
    "AlignedConfig",
    "AlignedModel",
    "BagConfig",
    "BagModel",
    "EmbedderConfig",
    "EmbedderPreTrainedModel",
    "LaserConfig",
    "LaserForConditionalGeneration",
    "LaserModel",
    "NtdvConfig",
    "NtdvForConditionalGeneration",
    "NtdvModel",
    "TmdeConfig",
    "TmdeEncoderConfig",
    "TmdeEncoderForMaskedLM",
    "TmdeEncoderForSequenceClassification",
    "TmdeEncoderModel",
    "TmdeError",
    "TmdeForConditionalGeneration",
    "TmdeForSequenceClassification",
    "TmdeForTokenClassification",
    "TmdeModel",
    "TranslationCollator",
    "train_tokenizer",
]

_BASE_MODELS = (
    TmdeModel,
    LaserModel,
    NtdvModel,
    AdaptedModel,
    TmdeEncoderModel,
    BagModel,
    AlignedModel,
)


def _register(base_model: type[EmbedderPreTrainedModel]) -> None:
    """Register a family with the Auto classes, and have `save_pretrained` copy its code."""
    config_class = base_model.config_class
    assert config_class is not None  # Every family declares its configuration.
    transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    config_class.register_for_auto_class()
    for auto_name, class_path in base_model._auto_map.items():
        if auto_name == "AutoConfig":
            continue
        class_name = class_path.rpartition(".")[2]
        model_class = getattr(sys.modules[base_model.__module__], class_name)
        auto_class = getattr(transformers, auto_name)
        auto_class.register(config_class, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_name)


for _base_model in _BASE_MODELS:
    _register(_base_model)
