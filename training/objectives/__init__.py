"""Training losses, one a file. Their `forward` takes tensors, so that it is tested by hand.

A new objective is one file with a subclass of `Objective`, and one line in `OBJECTIVES`.
"""

from tmde.training.objectives.alignment_softmax import AlignmentSoftmax
from tmde.training.objectives.back_translation import BackTranslation
from tmde.training.objectives.base import (
    BatchSizes,
    EmbeddingObjective,
    Objective,
    ObjectiveOutput,
)
from tmde.training.objectives.denoising import Denoising
from tmde.training.objectives.distance import DistanceConstraint
from tmde.training.objectives.distillation import Distillation
from tmde.training.objectives.infonce import InfoNCE
from tmde.training.objectives.masked_lm import CausalLanguageModel, MaskedLanguageModel
from tmde.training.objectives.natural_language_inference import NaturalLanguageInference
from tmde.training.objectives.ntdv_distance import NtdvDistance
from tmde.training.objectives.similarity import SimilarityLoss
from tmde.training.objectives.similarity_softmax import SimilaritySoftmax
from tmde.training.objectives.translation import TranslationObjective
from tmde.training.objectives.translation_lm import TranslationLanguageModel
from tmde.training.objectives.unified_generative import UnifiedGenerativeTask
from tmde.training.objectives.weight_regularization import WeightRegularization
from tmde.training.objectives.xnli_alignment import XnliAlignment

# Names in the `objectives` section of a recipe.
OBJECTIVES: dict[str, type[Objective]] = {
    "translation": TranslationObjective,
    "distance": DistanceConstraint,
    "distillation": Distillation,
    "infonce": InfoNCE,
    "alignment_softmax": AlignmentSoftmax,
    "back_translation": BackTranslation,
    "causal_lm": CausalLanguageModel,
    "denoising": Denoising,
    "masked_lm": MaskedLanguageModel,
    "nli": NaturalLanguageInference,
    "ntdv_distance": NtdvDistance,
    "similarity": SimilarityLoss,
    "similarity_softmax": SimilaritySoftmax,
    "translation_lm": TranslationLanguageModel,
    "unified_generative": UnifiedGenerativeTask,
    "weight_regularization": WeightRegularization,
    "xnli_alignment": XnliAlignment,
}

__all__ = [
    "OBJECTIVES",
    "AlignmentSoftmax",
    "BackTranslation",
    "BatchSizes",
    "CausalLanguageModel",
    "Denoising",
    "DistanceConstraint",
    "Distillation",
    "EmbeddingObjective",
    "InfoNCE",
    "MaskedLanguageModel",
    "NaturalLanguageInference",
    "NtdvDistance",
    "Objective",
    "ObjectiveOutput",
    "SimilarityLoss",
    "SimilaritySoftmax",
    "TranslationLanguageModel",
    "TranslationObjective",
    "UnifiedGenerativeTask",
    "WeightRegularization",
    "XnliAlignment",
]
