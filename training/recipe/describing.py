"""Describe a model, losses and training arguments that were made in Python by a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES, Objective
from tmde.training.recipe.architectures import architecture_of
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.generated_sections import MODEL_SECTIONS, TrainingSection
from tmde.training.recipe.schema import Recipe, read_sections, validate_recipe

NAME = "python"
DESCRIPTION = "Trained with TmdeTrainer from Python"
# Arguments that the trainer sets itself, that follow from the machine, and a secret.
NOT_DESCRIBED = {
    "ddp_broadcast_buffers",
    "ddp_find_unused_parameters",
    "hub_token",
    "ignore_data_skip",
    "logging_nan_inf_filter",
    "remove_unused_columns",
    "use_cpu",
}


def describe_recipe(
    model: PreTrainedModel, objectives: Mapping[str, Objective], args: TmdeTrainingArguments
) -> Recipe:
    """Return the recipe from which the same model, losses and arguments are made.

    It names no training data: a `Dataset` does not say where it comes from.

    Args:
        model: A model of this package.
        objectives: The losses by name.
        args: The training arguments.

    Raises:
        RecipeError: Two losses are of the same class, or a value is one that YAML cannot hold.
    """
    config = model.config
    data = {
        "languages": list(config.languages),
        "pivot_languages": list(getattr(config, "pivot_languages", ())),
    }
    content = {
        "data": data,
        "model": _describe_config(config),
        "objectives": _describe_objectives(objectives),
        "training": _describe_arguments(args),
    }
    return validate_recipe(NAME, DESCRIPTION, read_sections(content, NAME))


def _describe_config(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the architecture, and the options that are not the defaults."""
    architecture = architecture_of(config)
    if architecture is None:
        raise RecipeError(f"model: {type(config).__name__} is the configuration of no recipe")
    options: dict[str, Any] = {"architecture": architecture}
    for name, field in MODEL_SECTIONS[architecture].model_fields.items():
        value = getattr(config, name, field.default)
        if name not in options and value != field.get_default(call_default_factory=True):
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
        parameters = inspect.signature(objective_class.__init__).parameters
        options = [option for option in parameters if option != "self"]
        described[name] = {option: _plain(getattr(objective, option)) for option in options}
    return described


def _describe_arguments(args: TmdeTrainingArguments) -> dict[str, Any]:
    """Return the training arguments that are not the defaults."""
    defaults = _values(TmdeTrainingArguments(args.output_dir, use_cpu=args.use_cpu))
    described = {}
    for name, value in _values(args).items():
        is_key = name in TrainingSection.model_fields and name not in NOT_DESCRIBED
        if is_key and value != defaults[name]:
            described[name] = _plain(value)
    return described


def _values(args: TmdeTrainingArguments) -> dict[str, Any]:
    """Return the arguments as plain values: strings in the place of enumerations."""
    values: dict[str, Any] = args.to_dict()  # type: ignore[no-untyped-call]  # transformers
    return values


def _plain(value: Any) -> Any:
    """Return a value with lists in the place of tuples, which YAML does not know."""
    return list(value) if isinstance(value, tuple) else value
