"""How a model begins, one file a way.

| file | the model begins |
|---|---|
| `from_nothing` | at random |
| `checkpoint` | as a bag, or as a model of the same architecture |
| `first_stage` | as another recipe, trained on the same data before |
| `token_vectors` | as a bag of an encoder's token vectors |
| `encoder` | with an encoder of the Hub, or as an earlier run left one |
| `added_language` | as a checkpoint of fewer languages; `replay` has its data |
| `resumed` | as an interrupted run ended |

`packaged` chooses whether a run begins with the model that comes with the package.

All ways are a `Start`: `check`, `tokenizer` and `apply`, called in this order.
"""

from __future__ import annotations

from pathlib import Path

from tmde.training.recipe.architectures import ADAPTED, BAG, architecture_of
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.added_language import FromFewerLanguages
from tmde.training.starts.base import STAGE_FOLDER, BegunModel, Start, open_any_config, open_config
from tmde.training.starts.checkpoint import FromCheckpoint, begin_with
from tmde.training.starts.encoder import FromAdapted, FromEncoder
from tmde.training.starts.first_stage import FromFirstStage, share_tokenizer, stage_recipe
from tmde.training.starts.from_nothing import FromNothing
from tmde.training.starts.packaged import (
    ChosenStart,
    choose_packaged,
    has_packaged_languages,
    without_automatic_start,
)
from tmde.training.starts.resumed import Resumed
from tmde.training.starts.token_vectors import FromTokenVectors

__all__ = [
    "STAGE_FOLDER",
    "BegunModel",
    "ChosenStart",
    "FromFewerLanguages",
    "FromFirstStage",
    "Resumed",
    "Start",
    "begin_with",
    "choose_packaged",
    "choose_start",
    "has_packaged_languages",
    "open_config",
    "share_tokenizer",
    "stage_recipe",
    "without_automatic_start",
]


def choose_start(recipe: Recipe, folder: Path) -> Start:
    """Return the way in which a new run begins.

    Args:
        recipe: The recipe of the run.
        folder: The folder of the run.

    Raises:
        RecipeError: The checkpoint of the recipe cannot be opened.
    """
    if recipe.data.replay is not None:
        return FromFewerLanguages(recipe, folder, _choose_without_replay(recipe, folder))
    return _choose_without_replay(recipe, folder)


def _choose_without_replay(recipe: Recipe, folder: Path) -> Start:
    if recipe.architecture == ADAPTED:
        if recipe.model.encoder is not None:
            return FromEncoder(recipe, folder)
        return FromAdapted(recipe, folder)
    checkpoint = recipe.warm_start.checkpoint
    if checkpoint is not None:
        if recipe.architecture == BAG and _is_foreign(checkpoint):
            return FromTokenVectors(recipe, folder, checkpoint)
        return FromCheckpoint(recipe, folder, checkpoint)
    if recipe.warm_start.recipe is not None:
        return FromFirstStage(recipe, folder, recipe.warm_start.recipe)
    return FromNothing(recipe, folder)


def _is_foreign(checkpoint: str) -> bool:
    """Return whether a checkpoint is a model of another package, such as an encoder of the Hub."""
    return architecture_of(open_any_config(checkpoint)) is None
