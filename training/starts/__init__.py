"""How a model begins: with a checkpoint, with an encoder of the Hub, or with random weights."""

from __future__ import annotations

from pathlib import Path

from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.base import Start
from tmde.training.starts.checkpoint import NewModel
from tmde.training.starts.encoder import FromAdapted, FromEncoder

__all__ = ["choose_start"]


def choose_start(recipe: Recipe, folder: Path) -> Start:
    """Return the way in which a new run begins.

    Args:
        recipe: The recipe of the run.
        folder: The folder of the run.
    """
    if recipe.architecture != ADAPTED:
        return NewModel(recipe, folder)
    if recipe.model.encoder is not None:
        return FromEncoder(recipe, folder)
    return FromAdapted(recipe, folder)
