"""tmde: train multilingual document embedders of your own on parallel text, the HuggingFace way.

Importing the package makes its models known to the Auto classes of transformers. Neither they nor torch are imported
before they are used, so that `tmde --help` answers at once.
"""

import importlib
from typing import TYPE_CHECKING

from ._version import __version__
from .registration import register_when_imported

if TYPE_CHECKING:
    from .configuration_adapted import AdaptedConfig
    from .configuration_aligned import AlignedConfig
    from .configuration_bag import BagConfig
    from .configuration_encoder import TmdeEncoderConfig
    from .configuration_laser import LaserConfig
    from .configuration_ntdv import NtdvConfig
    from .configuration_tmde import TmdeConfig
    from .density import SentenceDensity
    from .embedding import DocumentEmbedder
    from .modeling_adapted import AdaptedForConditionalGeneration, AdaptedModel
    from .modeling_aligned import AlignedModel
    from .modeling_bag import BagModel
    from .modeling_encoder import TmdeEncoderForMaskedLM, TmdeEncoderModel
    from .modeling_laser import LaserForConditionalGeneration, LaserModel
    from .modeling_ntdv import NtdvForConditionalGeneration, NtdvModel
    from .modeling_tmde import TmdeForConditionalGeneration, TmdeModel
    from .tokenization import train_tokenizer

_HOMES = {
    "AdaptedConfig": "configuration_adapted",
    "AdaptedForConditionalGeneration": "modeling_adapted",
    "AdaptedModel": "modeling_adapted",
    "AlignedConfig": "configuration_aligned",
    "AlignedModel": "modeling_aligned",
    "BagConfig": "configuration_bag",
    "BagModel": "modeling_bag",
    "DocumentEmbedder": "embedding",
    "LaserConfig": "configuration_laser",
    "LaserForConditionalGeneration": "modeling_laser",
    "LaserModel": "modeling_laser",
    "NtdvConfig": "configuration_ntdv",
    "NtdvForConditionalGeneration": "modeling_ntdv",
    "NtdvModel": "modeling_ntdv",
    "SentenceDensity": "density",
    "TmdeConfig": "configuration_tmde",
    "TmdeEncoderConfig": "configuration_encoder",
    "TmdeEncoderForMaskedLM": "modeling_encoder",
    "TmdeEncoderModel": "modeling_encoder",
    "TmdeForConditionalGeneration": "modeling_tmde",
    "TmdeModel": "modeling_tmde",
    "train_tokenizer": "tokenization",
}
__all__ = [
    "AdaptedConfig",
    "AdaptedForConditionalGeneration",
    "AdaptedModel",
    "AlignedConfig",
    "AlignedModel",
    "BagConfig",
    "BagModel",
    "DocumentEmbedder",
    "LaserConfig",
    "LaserForConditionalGeneration",
    "LaserModel",
    "NtdvConfig",
    "NtdvForConditionalGeneration",
    "NtdvModel",
    "SentenceDensity",
    "TmdeConfig",
    "TmdeEncoderConfig",
    "TmdeEncoderForMaskedLM",
    "TmdeEncoderModel",
    "TmdeForConditionalGeneration",
    "TmdeModel",
    "__version__",
    "train_tokenizer",
]


def __getattr__(name: str):
    """A name of `__all__`, imported when asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


register_when_imported()
