"""The recipe: one validated object with everything that a training run is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Discriminator, Tag, ValidationError

from tmde.data.parallel import NLI_TEXTS
from tmde.training.recipe.architectures import ARCHITECTURES, DEFAULT_ARCHITECTURE
from tmde.training.recipe.errors import RecipeError, section_message, unknown
from tmde.training.recipe.sections import (
    MODEL_SECTIONS,
    CardSection,
    DataSection,
    ObjectivesSection,
    ReplaySources,
    Section,
    TokenizerSection,
    TrainingSection,
    WarmStartSection,
)
from tmde.training.recipe.values import describe_type, union_of

SECTIONS = ("data", "tokenizer", "warm_start", "model", "objectives", "training", "card")


def _architecture_tag(values: Any) -> str:
    """Return the architecture that a `model` section names, by which its class is chosen."""
    if isinstance(values, Mapping):
        return str(values.get("architecture", DEFAULT_ARCHITECTURE))
    return DEFAULT_ARCHITECTURE


_TAGGED_SECTIONS = [Annotated[section, Tag(name)] for name, section in MODEL_SECTIONS.items()]
AnyModelSection = Annotated[union_of(_TAGGED_SECTIONS), Discriminator(_architecture_tag)]


class Recipe(Section):
    """A training run as its recipe describes it.

    A recipe does not change. `with_settings`, `with_overrides` and `with_sections` return new ones.

    Args:
        name: The name of the recipe, or that of its file.
        description: What the recipe is for.
        data: What is read.
        tokenizer: The tokenizer to train or to use.
        warm_start: What the model begins with.
        model: Architecture and sizes of the model.
        objectives: The losses.
        training: The training arguments.
        card: What the model card says.
    """

    model_config = ConfigDict(strict=False)  # sections are given as mappings

    name: str
    description: str
    data: DataSection
    tokenizer: TokenizerSection
    warm_start: WarmStartSection
    model: AnyModelSection  # type: ignore[valid-type]
    objectives: ObjectivesSection  # type: ignore[valid-type]
    training: TrainingSection  # type: ignore[valid-type]
    card: CardSection

    @property
    def architecture(self) -> str:
        """What the `model` section builds, one of `ARCHITECTURES`."""
        return self.model.architecture

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.training.seed

    @property
    def texts(self) -> Sequence[str]:
        """The names of a row's texts: the languages, or premise and hypothesis."""
        if self.objectives.nli is not None:
            return NLI_TEXTS
        return self.data.languages

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the keys that were set, by section, as plain YAML types."""
        return {section: getattr(self, section).settings() for section in SECTIONS}

    def to_yaml(self) -> str:
        """Return the YAML file from which `load_recipe` makes the same recipe."""
        content = {"description": self.description, **self.settings()}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def read_sections(content: Mapping[str, Any], recipe_name: str) -> dict[str, dict[str, Any]]:
    """Return all sections of a recipe as mappings that may be changed; those left out are empty.

    Raises:
        RecipeError: There is no such section, or it is not a mapping.
    """
    for section, values in content.items():
        if section not in SECTIONS:
            raise RecipeError(unknown(f"Recipe {recipe_name}: section", section, SECTIONS))
        if not isinstance(values, Mapping | None):
            problem = f"found {values!r}, expected a mapping"
            raise RecipeError(section_message(section, recipe_name, problem))
    return {section: dict(content.get(section) or {}) for section in SECTIONS}


def validate_recipe(name: str, description: str, sections: Mapping[str, Any]) -> Recipe:
    """Return the recipe with these sections.

    Raises:
        RecipeError: Names the first key that does not exist, or whose value does not fit.
    """
    content = {"name": name, "description": str(description), **sections}
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise RecipeError(_describe_problem(error, name, sections)) from error


# ---- Errors


def _describe_problem(error: ValidationError, recipe_name: str, sections: Mapping[str, Any]) -> str:
    """Return a sentence about the first problem that pydantic found."""
    problem = error.errors(include_url=False)[0]
    section, *path = [str(part) for part in problem["loc"]]
    if problem["type"] == "union_tag_invalid":
        return unknown("model.architecture", problem["ctx"]["tag"], ARCHITECTURES)
    if section == "model":
        path = path[1:]  # without the architecture, by which pydantic chose the class
    section_class = _section_class(section, sections[section])
    place = ""
    options_class = _options_class(section_class, path)
    if options_class is not None:
        place = f"{path[0]}: "
        section_class = options_class
        path = path[1:]
    return section_message(
        section, recipe_name, place + _describe_key(problem, path, section_class)
    )


def _section_class(section: str, values: Mapping[str, Any]) -> type[Section]:
    """Return the class that validates a section."""
    if section == "model":
        return MODEL_SECTIONS[_architecture_tag(values)]
    annotation: type[Section] = Recipe.model_fields[section].annotation
    return annotation


def _options_class(section_class: type[Section], path: Sequence[str]) -> type[Section] | None:
    """Return the class that validates the options below a key; None if there is none."""
    if len(path) < 2:
        return None
    if section_class is DataSection and path[0] == "train":
        return ReplaySources
    if section_class is ObjectivesSection and path[0] in section_class.model_fields:
        options, _ = section_class.model_fields[path[0]].annotation.__args__  # `Options | None`
        return options
    return None


def _describe_key(problem: Any, path: Sequence[str], section_class: type[Section]) -> str:
    """Return the part of the sentence that is about a key and its value."""
    if problem["type"] == "value_error":  # one of our own checks, which names the key
        return str(problem["ctx"]["error"])
    key = path[0]
    if problem["type"] == "extra_forbidden":
        return unknown("key", key, section_class.model_fields)
    expected = describe_type(section_class.model_fields[key].annotation)
    if problem["type"] == "missing":
        return f"{key} is missing, expected {expected}"
    return f"{key}: found {problem['input']!r}, expected {expected}"
