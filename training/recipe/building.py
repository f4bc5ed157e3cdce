"""Build what a recipe describes: the model's configuration, losses and training arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel

from modeling_tmde import TmdeError
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objective_checks import check_objectives
from tmde.training.objectives import Objective
from tmde.training.recipe.architectures import ADAPTED, ARCHITECTURES, TMDE, config_class
from tmde.training.recipe.objective_classes import make_objectives
from tmde.training.recipe.options import config_keys
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError, section_message

MIN_PYRAMID_LAYERS = 4  # The queries attend the output of the third layer from the top.
# The training arguments of a run that has nothing to evaluate on.
NO_EVALUATION = {"eval_strategy": "no", "load_best_model_at_end": False, "eval_on_start": False}
# Errors that our classes raise for a wrong value of a user. Any other error is a bug.
OPTION_ERRORS = (TmdeError, StrictDataclassError)
# Errors that transformers raises for a wrong value: a TypeError for an unknown key of
# `accelerator_config`, a RuntimeError or ImportError for a missing package, an OSError for a file.
ARGUMENT_ERRORS = (ImportError, OSError, RuntimeError, TypeError, ValueError)


def model_class_of(recipe: Recipe) -> type[PreTrainedModel]:
    """Return the class of the model that a recipe trains."""
    return ARCHITECTURES[recipe.architecture]


def build_config(recipe: Recipe, **derived_options: Any) -> PreTrainedConfig:
    """Return the configuration of the `model` section, with the languages of `data`.

    Args:
        recipe: The recipe.
        derived_options: Options that follow from the tokenizer or the encoder.

    Raises:
        RecipeError: Sizes do not fit together.
    """
    options: dict[str, Any] = {
        "languages": recipe.data.languages,
        "pivot_languages": recipe.data.pivot_languages,
    }
    known_options = config_keys(recipe.architecture)
    for name, value in recipe.model.settings().items():
        if name in known_options:
            options[name] = value
    options.update(derived_options)
    with _section_errors(recipe, "model", OPTION_ERRORS):
        return config_class(recipe.architecture)(**options)


def build_objectives(recipe: Recipe) -> dict[str, Objective]:
    """Return the losses by name, in the order of the recipe.

    A loss that is named by its import path has the name of its class, which logs and metrics show.

    Raises:
        RecipeError: An option does not fit, or two losses have the same name.
    """
    with _section_errors(recipe, "objectives", OPTION_ERRORS):
        return make_objectives(recipe.objectives.settings())


def check_fit_of_objectives(
    recipe: Recipe, objectives: Mapping[str, Objective], token_dropout: float
) -> None:
    """Check that the losses fit the model, before a text is read.

    The configuration of `adapted` is that of its encoder; there the losses are checked when the
    model is made.

    Args:
        recipe: The recipe.
        objectives: The losses by name.
        token_dropout: The probability that a token is hidden from the encoder.

    Raises:
        RecipeError: A loss cannot be computed.
    """
    if recipe.architecture == ADAPTED:
        return
    config = build_config(recipe)
    with torch.device("meta"):  # No memory, and no time for random weights.
        model = model_class_of(recipe)(config)
    with _section_errors(recipe, "objectives", OPTION_ERRORS):
        check_objectives(model, objectives, token_dropout)


def build_arguments(recipe: Recipe, output_dir: str) -> TmdeTrainingArguments:
    """Return the training arguments of a run in the folder `output_dir`.

    Raises:
        RecipeError: A value does not fit.
    """
    values = recipe.training.settings()
    if not recipe.data.is_evaluated:
        values.update(NO_EVALUATION)
    with _section_errors(recipe, "training", ARGUMENT_ERRORS):
        return TmdeTrainingArguments(output_dir=output_dir, **values)


def check_pyramid(recipe: Recipe) -> None:
    """Refuse to begin the training of a pyramid whose encoder is too shallow for it.

    This is a rule for new models: the configuration still opens those that were trained with three
    layers.

    Raises:
        RecipeError: The recipe trains a pyramid on fewer than four layers.
    """
    if recipe.architecture != TMDE or recipe.model.bottleneck != "pyramid":
        return
    layers = recipe.model.encoder_layers
    if layers < MIN_PYRAMID_LAYERS:
        raise RecipeError(
            section_message(
                "model",
                recipe.name,
                f"found bottleneck=pyramid with encoder_layers={layers}, expected at least "
                f"{MIN_PYRAMID_LAYERS} layers, because the pyramid's queries attend to the "
                "third layer from the top, which must have seen some context. Set "
                "model.encoder_layers=6, or model.bottleneck=first",
            )
        )


@contextmanager
def _section_errors(
    recipe: Recipe, section: str, user_errors: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Name the section and the recipe in errors of the classes that take its options.

    Args:
        recipe: The recipe.
        section: The section with the options.
        user_errors: The errors that a wrong value raises. All others pass through.

    Raises:
        RecipeError: One of `user_errors` was raised.
    """
    try:
        yield
    except user_errors as error:
        cause = error.__cause__ or error
        field = re.match(r"Validation error for field '(\w+)'", str(error))
        problem = f"{field[1]}: {cause}" if field else str(cause)
        raise RecipeError(section_message(section, recipe.name, problem)) from error
