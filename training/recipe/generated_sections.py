"""The sections of a recipe whose keys are declared elsewhere.

They set options of a model's configuration, of a loss and of the training arguments. Their classes
are generated from these declarations, so that every option and its default exist once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)

from modeling_tmde import TmdeError
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.objectives.base import Objective
from tmde.training.recipe.architectures import (
    ADAPTED,
    ARCHITECTURES,
    DEFAULT_ARCHITECTURE,
    config_class,
)
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.objective_classes import inits_of, objective_class, option_parameters
from tmde.training.recipe.sections import LoraSection, Section, describe_problem
from tmde.training.recipe.values import WholeNumber, recipe_type, union_of

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


# ---- Model


class ModelSection(Section):
    """Base of the `model` sections. Every architecture has a section class."""

    architecture: str

    if TYPE_CHECKING:  # The fields are the options of the configuration.

        def __getattr__(self, name: str) -> Any: ...

    # Keys that are not options of the configuration.
    not_in_config: ClassVar[frozenset[str]] = frozenset({"architecture"})

    def config_options(self) -> dict[str, Any]:
        """Return the options of the model's configuration that were set."""
        options = self.settings()
        for key in self.not_in_config:
            options.pop(key, None)
        return options


class AdaptedSection(ModelSection):
    """The keys of the `model` section of `adapted` that its configuration lacks.

    Attributes:
        encoder: Folder or Hub id of the encoder.
        encoder_layers: The numbers of the encoder's layers that are kept; None keeps all.
        lora: Train adapters of the encoder instead of its weights, and merge them at the end; None
            trains the weights.
    """

    encoder: str | None = None
    encoder_layers: list[WholeNumber] | None = None
    lora: LoraSection | None = None

    not_in_config: ClassVar[frozenset[str]] = frozenset(
        {"architecture", "encoder", "encoder_layers", "lora"}
    )


def _is_model_key(option: str, architecture: str) -> bool:
    """Return whether a recipe may set an option of a model's configuration."""
    if option == "encoder_config":
        # The encoder of the Hub determines the configuration of `adapted`.
        return architecture != ADAPTED
    return option not in DERIVED_OPTIONS and not option.endswith("_token_id")


def _field_of(hint: Any, field: dataclasses.Field[Any]) -> tuple[Any, Any]:
    """Return the type and the default of a recipe's key for the field of a dataclass."""
    if field.default_factory is not dataclasses.MISSING:
        return recipe_type(hint), Field(default_factory=field.default_factory)
    return recipe_type(hint), field.default


def _model_section(architecture: str) -> type[ModelSection]:
    """Return the class of the `model` section of an architecture."""
    base = AdaptedSection if architecture == ADAPTED else ModelSection
    config = config_class(architecture)
    hints = inspect.get_annotations(config, eval_str=True)  # Inherited fields are no options.
    options: dict[str, Any] = {"architecture": (Literal[architecture], architecture)}
    for field in dataclasses.fields(config):
        if field.name in hints and _is_model_key(field.name, architecture):
            options[field.name] = _field_of(hints[field.name], field)
    return create_model(f"{config.__name__}Section", __base__=base, **options)


MODEL_SECTIONS = {name: _model_section(name) for name in ARCHITECTURES}


def architecture_tag(values: Any) -> str:
    """Return the architecture that a `model` section names, by which its class is chosen."""
    if isinstance(values, Mapping):
        return str(values.get("architecture", DEFAULT_ARCHITECTURE))
    return DEFAULT_ARCHITECTURE


if TYPE_CHECKING:
    AnyModelSection = ModelSection
else:
    _TAGGED_SECTIONS = [Annotated[section, Tag(name)] for name, section in MODEL_SECTIONS.items()]
    AnyModelSection = Annotated[union_of(_TAGGED_SECTIONS), Discriminator(architecture_tag)]

# ---- Objectives


def _objective_section(objective_class: type[Objective]) -> type[Section]:
    """Return the class of the options of a loss, the arguments of its `__init__`.

    Raises:
        TmdeError: An argument has no type annotation.
    """
    hints: dict[str, Any] = {}
    for init in inits_of(objective_class):
        hints = typing.get_type_hints(init) | hints
    options: dict[str, Any] = {}
    for name, parameter in option_parameters(objective_class).items():
        if name not in hints:
            raise TmdeError(
                f"{objective_class.__name__}.__init__: argument {name!r} needs a type "
                "annotation, because it is a recipe key"
            )
        is_required = parameter.default is inspect.Parameter.empty
        default = ... if is_required else parameter.default
        options[name] = (recipe_type(hints[name]), default)
    return create_model(f"{objective_class.__name__}Section", __base__=Section, **options)


class ObjectivesSection(Section):
    """The `objectives` section: the losses by name, each with its options.

    Every value is a section itself, whose keys are the arguments of the loss's `__init__`.
    """

    # The losses are no fields, because those of the user are known when a recipe names them.
    model_config = ConfigDict(extra="allow")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the options of a loss; None for one of `OBJECTIVES` that the recipe lacks."""
            if name in OBJECTIVES:
                return (self.__pydantic_extra__ or {}).get(name)
            return super().__getattr__(name)

    else:

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="before")
    @classmethod
    def _read_losses(cls, values: Any) -> Any:
        """Validate the options of each loss; `distance:` without any means its defaults.

        Raises:
            RecipeError: There is no such loss, or an option does not exist or fit.
        """
        if not isinstance(values, Mapping):
            return values
        sections = {}
        for name, options in values.items():
            sections[name] = options
            if not isinstance(options, Section):
                sections[name] = _read_options(str(name), {} if options is None else options)
        return sections


def _read_options(name: str, options: Any) -> Section:
    """Return the validated options of a loss."""
    options_class = options_section(name)
    try:
        return options_class.model_validate(options)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        if not problem["loc"]:  # The options are no mapping.
            raise RecipeError(f"{name}: found {options!r}, expected a mapping or null") from error
        raise RecipeError(f"{name}: {describe_problem(problem, options_class)}") from error


@functools.cache
def options_section(name: str) -> type[Section]:
    """Return the class that validates the options of a loss.

    Raises:
        RecipeError: See `objective_class`.
    """
    return _objective_section(objective_class(name))


# ---- Training


class _TrainingSection(Section):
    """The `training` section: the training arguments."""

    if TYPE_CHECKING:  # The fields are the training arguments.

        def __getattr__(self, name: str) -> Any: ...


def _training_section() -> type[_TrainingSection]:
    hints = typing.get_type_hints(TmdeTrainingArguments)
    hints["fsdp"] = bool | str | None  # The annotation is str, but true is valid as well.
    options: dict[str, Any] = {}
    for field in dataclasses.fields(TmdeTrainingArguments):
        if field.name not in NO_TRAINING_KEYS:
            options[field.name] = _field_of(hints[field.name], field)
    return create_model("TrainingSection", __base__=_TrainingSection, **options)


if TYPE_CHECKING:
    TrainingSection = _TrainingSection
else:
    TrainingSection = _training_section()
