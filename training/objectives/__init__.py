"""Training losses, one a file. An objective takes tensors, not models, so that each is tested by hand."""

from modeling_tmde.training.objectives.alignment_softmax import AlignmentSoftmax
from modeling_tmde.training.objectives.base import BatchSizes, Objective
from modeling_tmde.training.objectives.distance import DistanceConstraint
from modeling_tmde.training.objectives.distillation import Distillation
from modeling_tmde.training.objectives.infonce import InfoNCE
from modeling_tmde.training.objectives.masked_lm import CausalLanguageModel, MaskedLanguageModel
from modeling_tmde.training.objectives.natural_language_inference import NaturalLanguageInference
from modeling_tmde.training.objectives.ntdv_distance import NtdvDistance
from modeling_tmde.training.objectives.similarity import SimilarityLoss
from modeling_tmde.training.objectives.similarity_softmax import SimilaritySoftmax
from modeling_tmde.training.objectives.translation import TranslationObjective
from modeling_tmde.training.objectives.translation_lm import TranslationLanguageModel
from modeling_tmde.training.objectives.unified_generative import UnifiedGenerativeTask
from modeling_tmde.training.objectives.weight_regularization import WeightRegularization
from modeling_tmde.training.objectives.xnli_alignment import XnliAlignment

# Names in the `objectives` section of a recipe.
OBJECTIVES: dict[str, type[Objective]] = {
    "translation": TranslationObjective,
    "distance": DistanceConstraint,
    "distillation": Distillation,
    "infonce": InfoNCE,
    "alignment_softmax": AlignmentSoftmax,
    "causal_lm": CausalLanguageModel,
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
