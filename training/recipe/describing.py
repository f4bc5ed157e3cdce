"""Describe a model, losses and training arguments that were made in Python by a recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

from transformers import PreTrainedModel

from tmde.training.argument_table import field_default
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.lora import has_adapters
from tmde.training.objectives import OBJECTIVES, Objective
from tmde.training.recipe.architectures import ADAPTED, architecture_of
from tmde.training.recipe.options import model_keys, objective_keys, training_keys
from tmde.training.recipe.schema import Recipe, read_sections, validate_recipe
from tmde.training.recipe.values import RecipeError

NAME = "python"
DESCRIPTION = "Trained with TmdeTrainer from Python"
# An argument of the machine, and a secret.
NOT_DESCRIBED = {"hub_token", "use_cpu"}


def describe_recipe(
    model: PreTrainedModel,
    objectives: Mapping[str, Objective],
    args: TmdeTrainingArguments,
    triples: bool = False,
) -> Recipe:
    """Return the recipe from which the same model, losses and arguments are made.

    It names no training data: a `Dataset` does not say where it comes from. The training arguments
    are those that were set when `args` was made.

    Args:
        model: A model of this package.
        objectives: The losses by name.
        args: The training arguments.
        triples: Whether the rows are triples.

    Raises:
        RecipeError: The model has adapters, two losses are of the same class, or an option of a
            loss is not known.
    """
    if has_adapters(model):
        raise RecipeError("model: found adapters of PEFT, which only `model.lora` describes")
    config = model.config
    data: dict[str, Any] = {
        "languages": list(config.languages),
        "pivot_languages": list(getattr(config, "pivot_languages", ())),
    }
    if triples:
        data["triples"] = True
    content = {
        "data": data,
        "model": _describe_model(model),
        "objectives": _describe_objectives(objectives),
        "training": _describe_arguments(args),
    }
    return validate_recipe(NAME, DESCRIPTION, read_sections(content, NAME))


def _describe_model(model: PreTrainedModel) -> dict[str, Any]:
    """Return the architecture, and the options that are not the defaults."""
    config = model.config
    architecture = architecture_of(config)
    if architecture is None:
        raise RecipeError(f"model: {type(config).__name__} can't be described by a recipe")
    options: dict[str, Any] = {"architecture": architecture}
    if architecture == ADAPTED and model.name_or_path:
        options["encoder"] = model.name_or_path
    for name, key in model_keys(architecture).items():
        value = getattr(config, name, key.default)
        if name not in options and value != key.default:
            options[name] = _plain(value)
    return options


def _describe_objectives(objectives: Mapping[str, Objective]) -> dict[str, dict[str, Any]]:
    """Return the options of every loss by the name that a recipe gives it."""
    names = {objective_class: name for name, objective_class in OBJECTIVES.items()}
    described: dict[str, dict[str, Any]] = {}
    for objective in objectives.values():
        objective_class = type(objective)
        name = names.get(
            objective_class, f"{objective_class.__module__}:{objective_class.__qualname__}"
        )
        if name in described:
            raise RecipeError(f"objectives: found two of {name}, expected one")
        described[name] = _describe_options(name, objective)
    return described


def _describe_options(name: str, objective: Objective) -> dict[str, Any]:
    """Return the options of a loss, which its attributes of the same names hold."""
    if type(objective).__module__ == "__main__":
        raise RecipeError(f"objectives: {name} is defined in a script; move its class to a module")
    described = {}
    for option in objective_keys(name):
        if not hasattr(objective, option):
            raise RecipeError(f"objectives: {name} has no attribute {option!r} for its option")
        described[option] = _plain(getattr(objective, option))
    return described


def _describe_arguments(args: TmdeTrainingArguments) -> dict[str, Any]:
    """Return the training arguments that were set."""
    described = {}
    for field in dataclasses.fields(args):
        value = args.given[field.name]
        is_key = field.name in training_keys() and field.name not in NOT_DESCRIBED
        if is_key and value != field_default(field):
            described[field.name] = _plain(value)
    return described


def _plain(value: Any) -> Any:
    """Return a value as YAML knows it: lists for tuples, strings for members of enumerations."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Enum):
        return value.value
    return value
