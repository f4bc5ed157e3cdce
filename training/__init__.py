"""Training of document embedders: the trainer, its arguments, the losses, and recipes.

Names are imported at first use, because the commands import parts of this package before torch.
"""

from typing import TYPE_CHECKING

from tmde.lazy_names import attach

if TYPE_CHECKING:
    from tmde.training.arguments import TmdeTrainingArguments
    from tmde.training.objectives import (
        AlignmentSoftmax,
        BackTranslation,
        CausalLanguageModel,
        Denoising,
        DistanceConstraint,
        Distillation,
        EmbeddingObjective,
        InfoNCE,
        MaskedLanguageModel,
        NaturalLanguageInference,
        NtdvDistance,
        Objective,
        ObjectiveOutput,
        SimilarityLoss,
        SimilaritySoftmax,
        TranslationLanguageModel,
        TranslationObjective,
        UnifiedGenerativeTask,
        WeightRegularization,
        XnliAlignment,
    )
    from tmde.training.recipe import Recipe, load_recipe
    from tmde.training.run import train_recipe
    from tmde.training.starts.encoder import adapt_encoder
    from tmde.training.trainer import TmdeTrainer

__all__ = [
    "AlignmentSoftmax",
    "BackTranslation",
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
    "Recipe",
    "SimilarityLoss",
    "SimilaritySoftmax",
    "TmdeTrainer",
    "TmdeTrainingArguments",
    "TranslationLanguageModel",
    "TranslationObjective",
    "UnifiedGenerativeTask",
    "WeightRegularization",
    "XnliAlignment",
    "adapt_encoder",
    "load_recipe",
    "train_recipe",
]

_MODULES = {
    "Recipe": "tmde.training.recipe",
    "TmdeTrainer": "tmde.training.trainer",
    "TmdeTrainingArguments": "tmde.training.arguments",
    "adapt_encoder": "tmde.training.starts.encoder",
    "load_recipe": "tmde.training.recipe",
    "train_recipe": "tmde.training.run",
}
# All other names are those of losses.
_MODULES = dict.fromkeys(__all__, "tmde.training.objectives") | _MODULES

__getattr__, __dir__ = attach(__name__, _MODULES)
