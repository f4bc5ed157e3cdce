"""Begin at random."""

from __future__ import annotations

from dataclasses import fields

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tmde.training.recipe.architectures import config_class
from tmde.training.recipe.building import build_config, model_class_of
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.schema import Recipe
from tmde.training.starts.base import BegunModel, Rows, Start
from tmde.training.starts.hub_encoders import token_settings
from tmde.training.starts.tokenizers import check_options, prepare_tokenizer


class FromNothing(Start):
    """Begin with random weights.

    The tokenizer is made of the training text, or the recipe names one.
    """

    def check(self) -> None:
        """Refuse options of the tokenizer that need an encoder."""
        check_options(self.recipe)

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of `tokenizer.path`, or the one in the folder of the run."""
        return prepare_tokenizer(self.recipe, rows, self.folder)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> BegunModel:
        """Return a new model."""
        return BegunModel(new_model(self.recipe, tokenizer))


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return a model of the recipe's architecture with random weights, for this tokenizer.

    Raises:
        RecipeError: The tokenizer puts no token before a text, which all architectures but
            `adapted` need.
    """
    settings = token_settings(tokenizer)
    if not settings.pop("reads_bos"):
        raise RecipeError(
            f"tokenizer: that of {tokenizer.name_or_path!r} puts no token before a text; take "
            "another"
        )
    settings["vocab_size"] = len(tokenizer)
    settings["mask_token_id"] = tokenizer.mask_token_id
    options = {field.name for field in fields(config_class(recipe.architecture))}
    known_settings = {name: value for name, value in settings.items() if name in options}
    model_class = model_class_of(recipe)
    return model_class(build_config(recipe, **known_settings))
