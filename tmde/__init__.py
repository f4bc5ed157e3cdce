"""Multilingual document embeddings: train T-MDE on your own parallel text, the HuggingFace way.

```python
from tmde import DocumentEmbedder

embedder = DocumentEmbedder.from_pretrained()
vectors = embedder.encode(["Guten Tag", "Good day"])
```

Everything is imported at first use, so that `import tmde` and `tmde --help` are fast.
"""

# `__all__` is the one list of what is public; type checkers find its names by the star imports.
# ruff: noqa: F403, F405

import importlib
import os
import sys
from typing import TYPE_CHECKING

from tmde.auto_registration import register_lazily

if TYPE_CHECKING:
    from modeling_tmde import *
    from tmde.data import *
    from tmde.data.file_embedding import *
    from tmde.documents import *
    from tmde.embedding import *
    from tmde.embedding.vectorizer import *
    from tmde.training import *

__version__ = "0.1.0"

# GNU OpenMP reads this when torch is imported. By default threads spin for so long while they wait
# for each other that training slows down many times when another process keeps a core busy. With
# 6,000 turns it keeps most of its speed there and loses a few percent on an idle machine
# (benchmarks/README.md).
os.environ.setdefault("GOMP_SPINCOUNT", "6000")

__all__ = [
    "AdaptedConfig",
    "AdaptedForConditionalGeneration",
    "AdaptedModel",
    "AlignedConfig",
    "AlignedModel",
    "AlignmentSoftmax",
    "BackTranslation",
    "BagConfig",
    "BagModel",
    "CausalLanguageModel",
    "Denoising",
    "DistanceConstraint",
    "Distillation",
    "DocumentEmbedder",
    "DocumentIndex",
    "EmbeddingObjective",
    "EncodeReport",
    "InfoNCE",
    "LaserConfig",
    "LaserForConditionalGeneration",
    "LaserModel",
    "MaskedLanguageModel",
    "NaturalLanguageInference",
    "NtdvConfig",
    "NtdvDistance",
    "NtdvForConditionalGeneration",
    "NtdvModel",
    "Objective",
    "ObjectiveOutput",
    "Recipe",
    "SentenceDensity",
    "SimilarityLoss",
    "SimilaritySoftmax",
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
    "TmdeTrainer",
    "TmdeTrainingArguments",
    "TmdeVectorizer",
    "TranslationCollator",
    "TranslationLanguageModel",
    "TranslationObjective",
    "UnifiedGenerativeTask",
    "WeightRegularization",
    "XnliAlignment",
    "__version__",
    "adapt_encoder",
    "align_documents",
    "align_files",
    "align_sentences",
    "align_word_files",
    "calibrate_model",
    "clean_files",
    "dedupe_files",
    "embed_file",
    "index_files",
    "load_mldoc",
    "load_parallel",
    "load_recipe",
    "load_sib200",
    "load_xnli",
    "mine_bitext",
    "mine_files",
    "train_recipe",
    "train_tokenizer",
]

# The modules that define these names, in the order in which they are searched.
_PACKAGES = (
    "modeling_tmde",
    "tmde.embedding",
    "tmde.data",
    "tmde.data.file_embedding",
    "tmde.training",
    "tmde.documents",
    "tmde.embedding.vectorizer",
)


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name in __all__:
        for package in _PACKAGES:
            module = importlib.import_module(package)
            if name in module.__all__:
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, those that are not imported yet included."""
    return __all__


register_lazily(sys.modules[__name__])
