# SPDX-License-Identifier: Apache-2.0

"""tmde: train multilingual document embedders of your own on parallel text, the HuggingFace way.

```python
from tmde import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained()
vectors = embedder.encode(["Guten Tag", "Good day"])
```

Everything is imported at first use, so that `import tmde` and `tmde --help` are fast.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modeling_tmde import (
        AdaptedConfig,
        AdaptedForConditionalGeneration,
        AdaptedModel,
        AlignedConfig,
        AlignedModel,
        BagConfig,
        BagModel,
        LaserConfig,
        LaserForConditionalGeneration,
        LaserModel,
        NtdvConfig,
        NtdvForConditionalGeneration,
        NtdvModel,
        TmdeConfig,
        TmdeEncoderConfig,
        TmdeEncoderForMaskedLM,
        TmdeEncoderForSequenceClassification,
        TmdeEncoderModel,
        TmdeError,
        TmdeForConditionalGeneration,
        TmdeModel,
        TranslationCollator,
        train_tokenizer,
    )
    from tmde.documents import DocumentIndex, align_documents, align_sentences, mine_bitext
    from tmde.embedding import DocumentEmbedder, EncodeReport, SentenceDensity

__version__ = "0.1.0"

# GNU OpenMP reads this when torch is imported. By default threads spin for so long while they wait
# for each other that training slows down many times when another process keeps a core busy. With
# 6,000 turns it keeps most of its speed there and loses a few percent on an idle machine
# (benchmarks/README.md).
os.environ.setdefault("GOMP_SPINCOUNT", "6000")

# The module that defines each public name.
_MODULES = {
    "modeling_tmde": (
        "AdaptedConfig",
        "AdaptedForConditionalGeneration",
        "AdaptedModel",
        "AlignedConfig",
        "AlignedModel",
        "BagConfig",
        "BagModel",
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
        "TmdeModel",
        "TranslationCollator",
        "train_tokenizer",
    ),
    "tmde.documents": ("DocumentIndex", "align_documents", "align_sentences", "mine_bitext"),
    "tmde.embedding": ("DocumentEmbedder", "EncodeReport", "SentenceDensity"),
}
_MODULE_OF_NAME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AdaptedConfig",
    "AdaptedForConditionalGeneration",
    "AdaptedModel",
    "AlignedConfig",
    "AlignedModel",
    "BagConfig",
    "BagModel",
    "DocumentEmbedder",
    "DocumentIndex",
    "EncodeReport",
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
    "TmdeEncoderForSequenceClassification",
    "TmdeEncoderModel",
    "TmdeError",
    "TmdeForConditionalGeneration",
    "TmdeModel",
    "TranslationCollator",
    "__version__",
    "align_documents",
    "align_sentences",
    "mine_bitext",
    "train_tokenizer",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, those that are not imported yet included."""
    return __all__
