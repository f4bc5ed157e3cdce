"""The languages and the pivot languages of a run, found in its data if nobody names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tmde.data.languages import languages_of
from tmde.data.rows import triple_texts
from tmde.training.recipe.loading import with_settings
from tmde.training.recipe.schema import ChosenRecipe, Recipe
from tmde.training.recipe.values import RecipeError

PREFERRED_PIVOT = "en"


def choose_languages(
    recipe: Recipe,
    user_languages: Sequence[str] | None = None,
    user_pivots: Sequence[str] | None = None,
) -> ChosenRecipe:
    """Return the recipe with the languages and pivot languages of a run.

    The user's go first, then those of the recipe, then those of the data. Without pivot languages
    of the user, the run has those of the recipe that are among its languages, else English, else
    the first language.

    Args:
        recipe: The recipe with its training data.
        user_languages: The languages that the user names; None for no such wish.
        user_pivots: The pivot languages that the user names; None for no such wish.

    Raises:
        RecipeError: The data has fewer than two languages, or the pivots are not among them.
        TmdeError: The data cannot be found or read.
    """
    data = recipe.data
    if data.triples:
        return _languages_of_triples(recipe, user_languages, user_pivots)
    is_stated = user_languages is not None or "languages" in data.settings()
    if is_stated or data.replay is not None or recipe.named_texts is not None:
        languages = list(data.languages if user_languages is None else user_languages)
        message = None
    else:
        languages = _languages_in(data.train, data.settings().get("columns"))
        if triple_texts(languages):
            recipe = with_settings(recipe, {"data.triples": True})
            return _languages_of_triples(recipe, user_languages, user_pivots)
        message = f"Languages of the data: {', '.join(sorted(languages))}"
    pivots = user_pivots
    if pivots is None and (message is not None or user_languages is not None):
        pivots = _choose_pivots(languages, data.pivot_languages)
    if pivots is None:
        pivots = data.pivot_languages
    if message is not None:
        if user_pivots is None:
            message += f"; {_describe_pivots(pivots, data.pivot_languages)}"
        message += " (--languages and --pivots name others)."
        # The same text in another format, with other columns first, makes the same run.
        languages = sorted(languages)
    settings = _changed_settings(recipe, languages, list(pivots))
    return ChosenRecipe(with_settings(recipe, settings), message)


def _languages_of_triples(
    recipe: Recipe, user_languages: Sequence[str] | None, user_pivots: Sequence[str] | None
) -> ChosenRecipe:
    """Return the recipe of triples with its languages, which the data do not state."""
    languages = [PREFERRED_PIVOT]
    message: str | None = (
        f"The data are triples of anchor and positive. Language of their texts: {PREFERRED_PIVOT} "
        "(--languages names others)."
    )
    if user_languages is not None or "languages" in recipe.data.settings():
        languages = list(user_languages or recipe.data.languages)
        message = None
    pivots = user_pivots
    if pivots is None:
        pivots = _choose_pivots(languages, recipe.data.pivot_languages)
    settings = _changed_settings(recipe, languages, list(pivots))
    return ChosenRecipe(with_settings(recipe, settings), message)


def _languages_in(source: Any, columns: dict[str, str] | None) -> list[str]:
    """Return the languages of the training data, in the order in which they appear."""
    languages = languages_of(source, columns)
    if len(languages) < 2:
        count = "none" if not languages else f"only {languages[0]}"
        raise RecipeError(
            f"{source}: found the languages of its texts: {count}; expected at least two. Name "
            "each column by its language, such as de and en, or say which is which: --columns "
            "de=Source,en=Target"
        )
    return languages


def _choose_pivots(languages: Sequence[str], preferred: Sequence[str]) -> list[str]:
    """Return the preferred pivots among the languages; else English, else the first language."""
    pivots = [code for code in preferred if code in languages]
    if pivots or not preferred:
        return pivots
    if PREFERRED_PIVOT in languages:
        return [PREFERRED_PIVOT]
    return list(languages[:1])


def _describe_pivots(pivots: Sequence[str], preferred: Sequence[str]) -> str:
    """Return the pivots of a run in words, and why it has none of those of the recipe."""
    if set(pivots) <= set(preferred):
        return f"pivots: {', '.join(pivots)}"
    return f"pivot: {pivots[0]}, since it has no {' and no '.join(preferred)}"


def _changed_settings(recipe: Recipe, languages: list[str], pivots: list[str]) -> dict[str, Any]:
    """Return the settings of a recipe that state the languages, without those it has."""
    stated = recipe.data.settings()
    settings: dict[str, Any] = {}
    if stated.get("languages") != languages:
        settings["data.languages"] = languages
    if stated.get("pivot_languages") != pivots:
        settings["data.pivot_languages"] = pivots
    return settings
