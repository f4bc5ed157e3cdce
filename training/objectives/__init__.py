"""Training losses, one a file. An objective takes tensors, not models, so that each is tested by hand."""

from modeling_tmde.training.objectives.base import BatchSizes, EmbeddingObjective, Objective, ObjectiveOutput
from modeling_tmde.training.objectives.distance import DistanceConstraint
from modeling_tmde.training.objectives.infonce import InfoNCE
from modeling_tmde.training.objectives.translation import TranslationObjective

# Names in the `objectives` section of a recipe.
OBJECTIVES: dict[str, type[Objective]] = {
    "translation": TranslationObjective,
    "distance": DistanceConstraint,
    "infonce": InfoNCE,
}

__all__ = [
    "OBJECTIVES",
    "BatchSizes",
    "DistanceConstraint",
    "EmbeddingObjective",
    "InfoNCE",
    "Objective",
    "ObjectiveOutput",
    "TranslationObjective",
]
