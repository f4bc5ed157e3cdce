# SPDX-License-Identifier: Apache-2.0

"""tmde: train multilingual document embedders of your own on parallel text, the HuggingFace way.

Importing the package registers its models with the Auto classes of transformers.
"""

# ruff: noqa: E402
import os
import sys

# libgomp reads this when torch is imported. By default threads spin for so long while they wait for each other that
# training slows down many times when another process keeps a core busy; 6,000 turns keep most of the speed there and
# cost a few percent on an idle machine (benchmarks/README.md).
os.environ.setdefault("GOMP_SPINCOUNT", "6000")

import transformers

from ._version import __version__
from .collation import TranslationCollator
from .common import EmbedderPreTrainedModel
from .configuration_adapted import AdaptedConfig
from .configuration_aligned import AlignedConfig
from .configuration_bag import BagConfig
from .configuration_encoder import TmdeEncoderConfig
from .configuration_laser import LaserConfig
from .configuration_ntdv import NtdvConfig
from .configuration_tmde import TmdeConfig
from .embedding import DocumentEmbedder
from .export import write_sentence_transformers_files
from .long_documents import SentenceDensity
from .modeling_adapted import AdaptedForConditionalGeneration, AdaptedModel
from .modeling_aligned import AlignedModel
from .modeling_bag import BagModel
from .modeling_encoder import TmdeEncoderForMaskedLM, TmdeEncoderForSequenceClassification, TmdeEncoderModel
from .modeling_laser import LaserForConditionalGeneration, LaserModel
from .modeling_ntdv import NtdvForConditionalGeneration, NtdvModel
from .modeling_tmde import TmdeForConditionalGeneration, TmdeModel
from .tokenization import train_tokenizer

for _model in (TmdeModel, LaserModel, NtdvModel, AdaptedModel, TmdeEncoderModel, BagModel, AlignedModel):
    _config = _model.config_class
    transformers.AutoConfig.register(_config.model_type, _config, exist_ok=True)
    _config.register_for_auto_class()  # `save_pretrained` copies the code of the family beside the weights
    for _auto, _path in _model._auto_map.items():
        if _auto != "AutoConfig":
            _class = getattr(sys.modules[_model.__module__], _path.rpartition(".")[2])
            getattr(transformers, _auto).register(_config, _class, exist_ok=True)
            _class.register_for_auto_class(_auto)

EmbedderPreTrainedModel.write_companions = staticmethod(write_sentence_transformers_files)
