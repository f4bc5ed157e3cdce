"""The recipe: one validated object with everything that a training run is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml

from modeling_tmde import TmdeError
from tmde.data.rows import ANCHOR, POSITIVE
from tmde.training.objectives.base import Requirements
from tmde.training.objectives.targets import target_columns, target_names
from tmde.training.recipe.objective_classes import objective_class
from tmde.training.recipe.options import (
    Options,
    read_model,
    read_objectives,
    read_training,
)
from tmde.training.recipe.sections import (
    PLAIN_SECTIONS,
    CardSection,
    DataSection,
    TokenizerSection,
    WarmStartSection,
)
from tmde.training.recipe.values import RecipeError, section_message, unknown_name_message

SECTIONS = ("data", "tokenizer", "warm_start", "model", "objectives", "training", "card")
# What makes an object of the values of a section.
READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "model": read_model,
    "objectives": read_objectives,
    "training": read_training,
}
for _name, _section in PLAIN_SECTIONS.items():
    READERS[_name] = _section.read

Sections = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """A recipe for a training run.

    Recipes are frozen: `with_settings` and `with_sections` return new ones.

    Attributes:
        name: The name of the recipe or of its file.
        description: The purpose, as a sentence.
        data: The languages and sources.
        tokenizer: The tokenizer to train or to load.
        warm_start: What the model is initialized from.
        model: The architecture and sizes.
        objectives: The losses and their options.
        training: The training arguments.
        card: Texts for the model card.

    Example:
        ```python
        from tmde import load_recipe

        recipe = load_recipe("small", ["learning_rate=3e-4"])
        print(recipe.description)
        print(recipe.to_yaml())
        ```
    """

    name: str
    description: str
    data: DataSection
    tokenizer: TokenizerSection
    warm_start: WarmStartSection
    model: Options
    objectives: Options
    training: Options
    card: CardSection

    @property
    def architecture(self) -> str:
        """The architecture of the `model` section, one of `ARCHITECTURES`."""
        architecture: str = self.model.architecture
        return architecture

    @property
    def seed(self) -> int:
        """The seed of the run."""
        seed: int = self.training.seed
        return seed

    @property
    def requirements(self) -> dict[str, Requirements]:
        """The requirements of each loss on the model and on a row, by the loss's name."""
        return {name: objective_class(name).requirements for name in self.objectives.settings()}

    @property
    def named_texts(self) -> Sequence[str] | None:
        """The texts of a labeled row (premise and hypothesis); None if a row has languages."""
        for required in self.requirements.values():
            if required.texts is not None:
                return required.texts
        return None

    @property
    def texts(self) -> Sequence[str]:
        """The names of a row's texts: languages, premise and hypothesis, or anchor and positive."""
        if self.named_texts is None:
            return self.searched_texts
        return self.named_texts

    @property
    def searched_texts(self) -> Sequence[str]:
        """The texts between which retrieval is evaluated: languages, or anchor and positive."""
        if self.data.triples:
            return (ANCHOR, POSITIVE)
        return self.data.languages

    @property
    def target_columns(self) -> list[str]:
        """The columns whose texts the decoder predicts."""
        if self.objectives.translation is None:
            return []
        return target_columns(target_names(self.objectives.translation.targets))

    @property
    def read_texts(self) -> list[str]:
        """The texts of a row to tokenize: the encoded ones, then target columns."""
        return [*self.texts, *self.target_columns]

    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the keys that were set, by section, as plain YAML types."""
        return {section: getattr(self, section).settings() for section in SECTIONS}

    def to_yaml(self) -> str:
        """Return a YAML file from which `load_recipe` returns the same recipe."""
        content = {"description": self.description, **self.settings()}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


class ChosenRecipe(NamedTuple):
    """A recipe of which something was chosen for the user.

    Attributes:
        recipe: The recipe, which states what was chosen.
        messages: Sentences about it for the user.
    """

    recipe: Recipe
    messages: Sequence[str] = ()


def read_sections(content: Mapping[str, Any], recipe_name: str) -> Sections:
    """Return all sections of a recipe as mappings that may be changed; those left out are empty.

    Raises:
        RecipeError: There is no such section, or it is not a mapping.
    """
    for section, values in content.items():
        if section not in SECTIONS:
            raise RecipeError(
                unknown_name_message(f"Recipe {recipe_name}: section", section, SECTIONS)
            )
        if not isinstance(values, Mapping | None):
            problem = f"found {values!r}, expected a mapping"
            raise RecipeError(section_message(section, recipe_name, problem))
    return {section: dict(content.get(section) or {}) for section in SECTIONS}


def validate_recipe(name: str, description: str, sections: Mapping[str, Any]) -> Recipe:
    """Return the recipe with these sections.

    Raises:
        RecipeError: Names the first key that does not exist, or whose value does not fit.
    """
    made = {}
    for section in SECTIONS:
        try:
            made[section] = READERS[section](sections[section])
        except TmdeError as error:
            raise RecipeError(section_message(section, name, str(error))) from error
    return Recipe(name, str(description), **made)
