"""tmde: train multilingual document embedders of your own on parallel text, the HuggingFace way.

Importing the package registers its models with the Auto classes of transformers.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from ._version import __version__
from .configuration_bag import BagConfig
from .configuration_tmde import TmdeConfig
from .embedding import DocumentEmbedder
from .modeling_bag import BagModel
from .modeling_tmde import TmdeForConditionalGeneration, TmdeModel
from .tokenization import train_tokenizer

AutoConfig.register("tmde", TmdeConfig, exist_ok=True)
AutoModel.register(TmdeConfig, TmdeModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(TmdeConfig, TmdeForConditionalGeneration, exist_ok=True)
AutoConfig.register("tmde_bag", BagConfig, exist_ok=True)
AutoModel.register(BagConfig, BagModel, exist_ok=True)

__all__ = [
    "BagConfig",
    "BagModel",
    "DocumentEmbedder",
    "TmdeConfig",
    "TmdeForConditionalGeneration",
    "TmdeModel",
    "__version__",
    "train_tokenizer",
]
