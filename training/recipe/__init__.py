"""Recipes: YAML files with everything that a training run is made of, and `key=value` overrides.

A recipe is read (`loading`), changed by overrides (`overrides`) and validated (`schema`) into one
frozen object. `building` makes the configuration, the losses and the training arguments of it.
"""

from tmde.training.recipe.errors import RecipeError, unknown_name_message
from tmde.training.recipe.loading import load_recipe, packaged_names, read_yaml
from tmde.training.recipe.overrides import (
    full_key,
    parse_override,
    with_overrides,
    with_sections,
    with_settings,
)
from tmde.training.recipe.schema import Recipe

__all__ = [
    "Recipe",
    "RecipeError",
    "full_key",
    "load_recipe",
    "packaged_names",
    "parse_override",
    "read_yaml",
    "unknown_name_message",
    "with_overrides",
    "with_sections",
    "with_settings",
]
