"""Choose by itself whether a run begins with the model that comes with the package.

A recipe asks for it by `warm_start.packaged: auto`. The choice is made once, by `tmde train`, and
the recipe of the run then states its start like any other.
"""

from __future__ import annotations

from collections.abc import Collection

from transformers import PreTrainedConfig

from tmde.embedding.packaged_models import DEFAULT_MODEL
from tmde.training.recipe.loading import with_sections
from tmde.training.recipe.schema import ChosenRecipe, Recipe
from tmde.training.starts.base import open_config
from tmde.training.starts.checkpoint import bag_options, begin_with

AUTOMATIC = "auto"


def choose_packaged(recipe: Recipe, user_keys: Collection[str] = ()) -> ChosenRecipe:
    """Let a recipe begin with the packaged model if it asks for that and nothing contradicts.

    Args:
        recipe: The recipe, with the languages of the run and all that the user has set.
        user_keys: The keys that the user has set, `section.key`. The start changes none of them.
    """
    is_automatic = recipe.warm_start.packaged == AUTOMATIC
    plain = without_automatic_start(recipe)
    if not is_automatic or recipe.warm_start.checkpoint is not None:
        return ChosenRecipe(plain)
    config = open_config(DEFAULT_MODEL)
    begun = begin_with(plain, DEFAULT_MODEL)
    reason = _reason_against(plain, begun, config, user_keys)
    if reason is not None:
        return ChosenRecipe(plain, [f"Not initialized from the packaged model: {reason}."])
    message = "Initialized from the packaged model (--from-scratch trains without it)."
    return ChosenRecipe(begun, [message])


def without_automatic_start(recipe: Recipe) -> Recipe:
    """Return the recipe with no other start than the one that it names."""
    section = recipe.warm_start.settings()
    if section.pop("packaged", None) is None:
        return recipe
    return with_sections(recipe, warm_start=section)


def has_packaged_languages(languages: Collection[str]) -> bool:
    """Return whether the packaged model was trained on all of these languages."""
    return set(languages) <= set(open_config(DEFAULT_MODEL).languages)


def _reason_against(
    recipe: Recipe, begun: Recipe, config: PreTrainedConfig, user_keys: Collection[str]
) -> str | None:
    """Return why a run does not begin with the packaged model; None if it does.

    Args:
        recipe: The recipe.
        begun: The recipe as the packaged model would begin it.
        config: The configuration of the packaged model.
        user_keys: The keys that the user has set.
    """
    missing = [code for code in recipe.data.languages if code not in config.languages]
    if missing:
        return f"it has no {' and no '.join(missing)}"
    if recipe.objectives.distillation is not None:
        return "the objective distillation learns the space of its teacher"
    bag_values = bag_options(recipe, config)
    for key in sorted(user_keys):
        section, _, name = key.partition(".")
        if section not in ("tokenizer", "model"):
            continue
        user_value = getattr(recipe, section).settings().get(name)
        value = getattr(begun, section).settings().get(name)
        if section == "model" and name in bag_values:
            value = bag_values[name]
        if user_value != value:
            expected = "it has a vocabulary of its own" if value is None else f"it has {value}"
            return f"{key}={user_value} contradicts it ({expected})"
    return None
