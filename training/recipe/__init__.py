"""Recipes: YAML files with everything that a training run is made of, and `key=value` overrides.

A recipe is read and changed (`loading`), and validated into one frozen object (`schema`).
`building` makes the configuration, the losses and the training arguments of it.
"""

from tmde.training.recipe.loading import (
    full_key,
    load_recipe,
    packaged_names,
    parse_override,
    with_overrides,
    with_sections,
    with_settings,
)
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.values import RecipeError, unknown_name_message

__all__ = [
    "Recipe",
    "RecipeError",
    "full_key",
    "load_recipe",
    "packaged_names",
    "parse_override",
    "unknown_name_message",
    "with_overrides",
    "with_sections",
    "with_settings",
]
