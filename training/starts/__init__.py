"""How a model begins: with a checkpoint, with an encoder of the Hub, or with random weights.

| file | what is in it |
|---|---|
| `checkpoint` | a new model that begins with a checkpoint or at random; a run that is resumed |
| `encoder` | a model on an encoder of the Hub, which `hub_encoders` opens |
| `packaged` | whether a run begins with the model that comes with the package |
| `tokenizers` | the tokenizer of a run |
| `weights`, `vocabulary` | what a model takes of a checkpoint |
| `replay` | the data of a run that adds languages |

All ways are a `Start`: `check`, `tokenizer` and `apply`, called in this order.
"""

from __future__ import annotations

from pathlib import Path

from tmde.training.recipe.architectures import ADAPTED
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.base import BegunModel, Start, open_config
from tmde.training.starts.checkpoint import NewModel, ResumedModel, begin_with
from tmde.training.starts.encoder import FromAdapted, FromEncoder
from tmde.training.starts.packaged import (
    choose_packaged,
    has_packaged_languages,
    without_automatic_start,
)

__all__ = [
    "BegunModel",
    "ResumedModel",
    "Start",
    "begin_with",
    "choose_packaged",
    "choose_start",
    "has_packaged_languages",
    "open_config",
    "without_automatic_start",
]


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
