"""The sections of a recipe whose keys are options of a class elsewhere.

They set options of a model's configuration, of the losses, and of the training arguments, where
every option and its default are declared once.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from modeling_tmde import TmdeError
from tmde.training.argument_table import field_default
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.recipe.architectures import (
    ADAPTED,
    ARCHITECTURES,
    DEFAULT_ARCHITECTURE,
    config_class,
)
from tmde.training.recipe.objective_classes import inits_of, objective_class, option_parameters
from tmde.training.recipe.sections import LoraSection, Section
from tmde.training.recipe.values import (
    RecipeError,
    WholeNumber,
    describe_type,
    read_value,
    recipe_type,
    unknown_name_message,
)

# Options of a model's configuration that follow from the tokenizer, the `data` section or the
# encoder.
DERIVED_OPTIONS = {
    "languages",
    "pivot_languages",
    "vocab_size",
    "reads_bos",
    "prompt_ids",
    "decoder_embedding_scale",
}
# Training arguments that a recipe does not set: the folder of the run, and an object that YAML
# cannot write.
NO_TRAINING_KEYS = {"output_dir", "parallelism_config"}
REQUIRED = inspect.Parameter.empty  # The default of an option that has none.


class Key(NamedTuple):
    """A key of a section.

    Attributes:
        type: The type of its values.
        default: The value of a recipe that does not set it, or `REQUIRED`.
    """

    type: Any
    default: Any = None


@dataclass(frozen=True)
class Options:
    """A section of options, each of which is an attribute, whether the recipe sets it or not.

    Attributes:
        given: The values that the recipe sets, by key.
        defaults: The values of all other options.
    """

    given: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Return the value of an option."""
        if not name.startswith("__"):  # Copying asks for such names before there are any values.
            for values in (self.given, self.defaults):
                if name in values:
                    return values[name]
        raise AttributeError(name)

    def settings(self) -> dict[str, Any]:
        """Return copies of the values that were set, as plain YAML types.

        transformers changes some of its arguments in place.
        """
        settings = {}
        for key, value in self.given.items():
            is_section = isinstance(value, Options | Section)
            settings[key] = value.settings() if is_section else copy.deepcopy(value)
        return settings

    def values(self) -> dict[str, Any]:
        """Return the values of all options, as plain YAML types."""
        values = {**self.given, **self.defaults}
        for key, value in values.items():
            if isinstance(value, Options | Section):
                values[key] = value.values()
        return values


def _read_options(values: Mapping[str, Any], keys: Mapping[str, Key]) -> Options:
    """Return validated options.

    Raises:
        RecipeError: An option does not exist, is missing, or has a value that does not fit.
    """
    for name in values:
        if name not in keys:
            raise RecipeError(unknown_name_message("key", name, keys))
    set_values = {}
    defaults = {}
    for name, key in keys.items():
        if name in values:
            set_values[name] = read_value(name, values[name], key.type)
        elif key.default is REQUIRED:
            raise RecipeError(f"{name} is missing, expected {describe_type(key.type)}")
        else:
            defaults[name] = key.default
    return Options(set_values, defaults)


# ---- Model

# The keys of `adapted` that its configuration lacks: folder or Hub id of the encoder, the numbers
# of its layers that are kept (None keeps all), and adapters that are trained instead of its
# weights.
ENCODER_KEYS = {
    "encoder": Key(str | None),
    "encoder_layers": Key(list[WholeNumber] | None),
    "lora": Key(LoraSection | None),
}


def named_architecture(values: Mapping[str, Any]) -> str:
    """Return the architecture that a `model` section names.

    Raises:
        RecipeError: There is no such architecture.
    """
    architecture = str(values.get("architecture", DEFAULT_ARCHITECTURE))
    if architecture not in ARCHITECTURES:
        raise RecipeError(unknown_name_message("model.architecture", architecture, ARCHITECTURES))
    return architecture


@functools.cache
def config_keys(architecture: str) -> dict[str, Key]:
    """Return the options of a model's configuration that a recipe may set."""
    config = config_class(architecture)
    hints = inspect.get_annotations(config, eval_str=True)  # Inherited fields are no options.
    keys = {}
    for field in dataclasses.fields(config):
        is_derived = field.name in DERIVED_OPTIONS or field.name.endswith("_token_id")
        # The encoder of the Hub determines the configuration of `adapted`.
        is_of_encoder = field.name == "encoder_config" and architecture == ADAPTED
        if field.name in hints and not is_derived and not is_of_encoder:
            keys[field.name] = Key(recipe_type(hints[field.name]), field_default(field))
    return keys


def model_keys(architecture: str) -> dict[str, Key]:
    """Return the keys of the `model` section of an architecture."""
    keys = {"architecture": Key(str, architecture)}
    if architecture == ADAPTED:
        keys.update(ENCODER_KEYS)
    return keys | config_keys(architecture)


def read_model(values: Mapping[str, Any]) -> Options:
    """Return the validated `model` section."""
    lora = values.get("lora")
    if isinstance(lora, Mapping):
        values = {**values, "lora": LoraSection.read(lora, place="lora: ")}
    return _read_options(values, model_keys(named_architecture(values)))


# ---- Objectives


@functools.cache
def objective_keys(name: str) -> dict[str, Key]:
    """Return the options of a loss, the arguments of its `__init__`.

    Raises:
        RecipeError: There is no such loss, see `objective_class`.
        TmdeError: An argument has no type annotation.
    """
    loss_class = objective_class(name)
    hints: dict[str, Any] = {}
    for init in inits_of(loss_class):
        hints = typing.get_type_hints(init) | hints
    keys = {}
    for option, parameter in option_parameters(loss_class).items():
        if option not in hints:
            raise TmdeError(
                f"{loss_class.__name__}.__init__: argument {option!r} needs a type "
                "annotation, because it is a recipe key"
            )
        keys[option] = Key(recipe_type(hints[option]), parameter.default)
    return keys


def read_objectives(values: Mapping[str, Any]) -> Options:
    """Return the validated `objectives` section: the options of every loss by its name.

    A loss without options, as in `distance:`, has its defaults. A loss of `OBJECTIVES` that the
    recipe lacks is None.

    Raises:
        RecipeError: There is no such loss, or an option does not exist or fit.
    """
    losses = {}
    for name, options in values.items():
        keys = objective_keys(str(name))
        if not isinstance(options, Mapping | None):
            raise RecipeError(f"{name}: found {options!r}, expected a mapping or null")
        try:
            losses[str(name)] = _read_options(options or {}, keys)
        except RecipeError as error:
            raise RecipeError(f"{name}: {error}") from error
    unused_names = [name for name in OBJECTIVES if name not in losses]
    return Options(losses, dict.fromkeys(unused_names))


# ---- Training


@functools.cache
def training_keys() -> dict[str, Key]:
    """Return the training arguments that a recipe may set."""
    hints = typing.get_type_hints(TmdeTrainingArguments)
    hints["fsdp"] = bool | str | None  # The annotation is str, but true is valid as well.
    keys = {}
    for field in dataclasses.fields(TmdeTrainingArguments):
        if field.name not in NO_TRAINING_KEYS:
            keys[field.name] = Key(recipe_type(hints[field.name]), field_default(field))
    return keys


def read_training(values: Mapping[str, Any]) -> Options:
    """Return the validated `training` section."""
    return _read_options(values, training_keys())
