"""Make the recipe of a run: the recipe of a name, the user's settings, and what the data has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tmde.data.columns import with_plain_languages
from tmde.training.recipe import (
    Recipe,
    RecipeError,
    full_key,
    load_recipe,
    packaged_names,
    with_sections,
    with_settings,
)
from tmde.training.recipe.schema import ChosenRecipe
from tmde.training.run_data import check_has_data, choose_languages, named_sources
from tmde.training.run_folder import RECIPE_NAME
from tmde.training.starts.checkpoint import begin_with
from tmde.training.starts.packaged import choose_packaged, without_automatic_start

LANGUAGES = "data.languages"
PIVOTS = "data.pivot_languages"


@dataclass(frozen=True)
class RunRequest:
    """What a user says of the recipe of a run.

    Attributes:
        name: The name of the recipe, or the path of its file.
        settings: The keys that the user has set, and their values.
        output: The folder of the run.
        train_data: The sources of training data; None for those of the recipe.
        dev_data: The sources of held-out rows, `[NAME=]SOURCE`; None for those of the recipe.
        columns: The columns of the data by what they hold; None for those of the recipe.
        warm_start: The checkpoint to begin with; None for the start of the recipe.
        encoder: The pretrained encoder to begin with; None for none.
        from_scratch: Whether the run does not begin with the packaged model.
        resume: Whether the run in the folder is resumed.
    """

    name: str
    settings: dict[str, Any]
    output: Path
    train_data: list[str] | None = None
    dev_data: list[str] | None = None
    columns: dict[str, str] | None = None
    warm_start: str | None = None
    encoder: str | None = None
    from_scratch: bool = False
    resume: bool = False

    @property
    def is_file(self) -> bool:
        """Whether the recipe is a file of the user, who may have edited any of its keys."""
        return self.name not in packaged_names()

    @property
    def resumed_recipe(self) -> Recipe | None:
        """The recipe of the run that is resumed; None for a new run."""
        path = self.output / RECIPE_NAME
        if self.resume and path.is_file():
            return load_recipe(str(path))
        return None


def make_recipe(request: RunRequest) -> ChosenRecipe:
    """Return the recipe of a run with its data, languages and start, and what was chosen of them.

    Raises:
        TmdeError: Names the option, the key or the file, what was found and what is expected.
    """
    settings = dict(request.settings)
    user_languages = settings.pop(LANGUAGES, None)
    user_pivots = settings.pop(PIVOTS, None)
    if request.train_data:
        is_one = len(request.train_data) == 1
        settings["data.train"] = request.train_data[0] if is_one else request.train_data
    if request.dev_data:
        settings["data.dev"] = named_sources(request.dev_data)
    if request.columns:
        settings["data.columns"] = with_plain_languages(request.columns)
    recipe = load_recipe(request.name, settings, request.encoder)
    earlier = request.resumed_recipe
    if earlier is not None:
        recipe = _with_data_of_run(recipe, earlier, request)
        return ChosenRecipe(_as_begun(recipe, earlier, request))
    check_has_data(recipe)
    languages = choose_languages(recipe, user_languages, user_pivots)
    start = _choose_start(languages.recipe, request)
    return ChosenRecipe(_measured_at_start(start.recipe), [*languages.messages, *start.messages])


def _with_data_of_run(recipe: Recipe, earlier: Recipe, request: RunRequest) -> Recipe:
    """Return the recipe of a run to resume, with the run's data where the user names none.

    Args:
        recipe: The recipe that the user names.
        earlier: The recipe with which the run was begun.
        request: What the user says.
    """
    keys = {key.removeprefix("data.") for key in request.settings}
    if request.is_file:
        keys.update(recipe.data.settings())
    names_train = bool(request.train_data) or "train" in keys
    names_dev = bool(request.dev_data) or "dev" in keys
    now = recipe.data.settings()
    before = earlier.data.settings()
    settings = {}
    if not names_train and "train" in before:
        settings["data.train"] = before["train"]
        for name in ("columns", "quoting"):
            if name in before and name not in now:
                settings[f"data.{name}"] = before[name]
    states_dev_rows = "dev" in before or "dev" in now
    if not names_dev and states_dev_rows:
        settings["data.dev"] = before.get("dev")
    return with_settings(recipe, settings)


def _as_begun(recipe: Recipe, earlier: Recipe, request: RunRequest) -> Recipe:
    """Return the recipe of a run that is resumed, with the languages and the start that it had.

    Args:
        recipe: The recipe that the user names.
        earlier: The recipe with which the run was begun.
        request: What the user says.
    """
    if earlier.data.triples:
        recipe = with_settings(recipe, {"data.triples": True})
    recipe = _with_languages_of_run(recipe, earlier, request)
    checkpoint = request.warm_start
    names_start = request.from_scratch or recipe.warm_start.checkpoint is not None
    if checkpoint is None and not names_start:
        checkpoint = earlier.warm_start.checkpoint
    recipe = without_automatic_start(recipe)
    if checkpoint is not None:
        recipe = with_settings(_begun_as(recipe, earlier, checkpoint), request.settings)
    return _measured_at_start(recipe)


def _with_languages_of_run(recipe: Recipe, earlier: Recipe, request: RunRequest) -> Recipe:
    """Return the recipe with the languages that a run was begun with, where the user names none."""
    languages = request.settings.get(LANGUAGES)
    pivots = request.settings.get(PIVOTS)
    if languages is None and not (request.is_file and "languages" in recipe.data.settings()):
        languages = earlier.data.languages
    if pivots is None and languages == earlier.data.languages:
        pivots = earlier.data.pivot_languages
    return choose_languages(recipe, languages, pivots).recipe


def _begun_as(recipe: Recipe, earlier: Recipe, checkpoint: str) -> Recipe:
    """Return the recipe with a checkpoint, and with what an earlier run took from it.

    The checkpoint is not opened: a run goes on without the model that it began with.
    """
    start = {**recipe.warm_start.settings(), "checkpoint": checkpoint}
    start.pop("made_by", None)
    recipe = with_sections(recipe, warm_start=start)
    if not earlier.tokenizer.settings():
        recipe = with_sections(recipe, tokenizer={})
    if recipe.architecture == earlier.architecture and "d_model" in earlier.model.settings():
        recipe = with_settings(recipe, {"model.d_model": earlier.model.d_model})
    return recipe


# ---- The start


def _choose_start(recipe: Recipe, request: RunRequest) -> ChosenRecipe:
    """Return the recipe with the start that the user names, or else with the packaged model."""
    if request.from_scratch:
        if recipe.warm_start.checkpoint is not None:
            raise RecipeError(
                f"--from-scratch: recipe {recipe.name} is initialized from "
                f"{recipe.warm_start.checkpoint}; choose another recipe"
            )
        return ChosenRecipe(without_automatic_start(recipe))
    if request.warm_start is not None:
        begun = begin_with(without_automatic_start(recipe), request.warm_start)
        # The start has set keys of its own; those of the user go before them.
        return ChosenRecipe(with_settings(begun, request.settings))
    user_keys = {full_key(recipe, key) for key in request.settings}
    return choose_packaged(recipe, user_keys)


def _measured_at_start(recipe: Recipe) -> Recipe:
    """Return the recipe with an evaluation before the first step, if it begins with a model."""
    is_begun = recipe.warm_start.checkpoint is not None
    is_stated = "eval_on_start" in recipe.training.settings()
    is_evaluated = recipe.data.is_evaluated and recipe.training.eval_strategy != "no"
    if not is_begun or is_stated or not is_evaluated:
        return recipe
    return with_settings(recipe, {"training.eval_on_start": True})
