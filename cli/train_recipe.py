"""Make the recipe of a run: the recipe of a name, the user's settings, and what the data has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tmde.cli.options import one_or_all
from tmde.cli.train_options import UserSettings
from tmde.data.columns import with_plain_languages
from tmde.training.recipe import (
    Recipe,
    RecipeError,
    load_recipe,
    packaged_names,
    with_sections,
    with_settings,
)
from tmde.training.recipe.schema import ChosenRecipe
from tmde.training.run_data import check_has_data, named_sources
from tmde.training.run_folder import RECIPE_NAME, with_stored_data
from tmde.training.run_languages import choose_languages
from tmde.training.starts.checkpoint import begin_with
from tmde.training.starts.packaged import choose_packaged, without_automatic_start


@dataclass(frozen=True)
class TrainCommand:
    """What the command line says of the recipe of a run.

    Attributes:
        name: The name of the recipe, or the path of its file.
        settings: The keys that the user has set.
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
    settings: UserSettings
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


@dataclass(frozen=True)
class RunRecipe:
    """The recipe of a run, and what was chosen for the user.

    Attributes:
        recipe: The recipe.
        messages: Sentences about what was chosen.
    """

    recipe: Recipe
    messages: list[str] = field(default_factory=list)


def make_recipe(command: TrainCommand) -> RunRecipe:
    """Return the recipe of a run with its data, languages and start.

    Raises:
        TmdeError: Names the option, the key or the file, what was found and what is expected.
    """
    recipe = load_recipe(command.name, command.settings.words, command.encoder)
    recipe = command.settings.with_options(recipe)
    if command.train_data:
        recipe = with_settings(recipe, {"data.train": one_or_all(command.train_data)})
    if command.dev_data:
        recipe = with_settings(recipe, {"data.dev": named_sources(command.dev_data)})
    if command.columns:
        recipe = with_settings(recipe, {"data.columns": with_plain_languages(command.columns)})
    earlier = command.resumed_recipe
    if earlier is not None:
        recipe = _with_data_of_run(recipe, command)
        return RunRecipe(_as_begun(recipe, earlier, command))
    check_has_data(recipe)
    settings = command.settings
    languages = choose_languages(recipe, settings.languages, settings.pivots)
    start = _choose_start(languages.recipe, command)
    recipe = _measured_at_start(start.recipe)
    messages = []
    for message in (languages.message, start.message):
        if message is not None:
            messages.append(message)
    return RunRecipe(recipe, messages)


def _with_data_of_run(recipe: Recipe, command: TrainCommand) -> Recipe:
    """Return the recipe of a run to resume, with the run's data where the user names none."""
    keys = set()
    for word in command.settings.words:
        keys.add(word.partition("=")[0].removeprefix("data."))
    if command.is_file:
        keys.update(recipe.data.settings())
    names_train = bool(command.train_data) or "train" in keys
    names_dev = bool(command.dev_data) or "dev" in keys
    return with_stored_data(recipe, command.output, train=not names_train, dev=not names_dev)


def _as_begun(recipe: Recipe, earlier: Recipe, command: TrainCommand) -> Recipe:
    """Return the recipe of a run that is resumed, with the languages and the start that it had.

    Args:
        recipe: The recipe that the command names.
        earlier: The recipe with which the run was begun.
        command: The command.
    """
    if earlier.data.triples:
        recipe = with_settings(recipe, {"data.triples": True})
    recipe = _with_languages_of_run(recipe, earlier, command)
    checkpoint = command.warm_start
    names_start = command.from_scratch or recipe.warm_start.checkpoint is not None
    if checkpoint is None and not names_start:
        checkpoint = earlier.warm_start.checkpoint
    recipe = without_automatic_start(recipe)
    if checkpoint is not None:
        recipe = command.settings.with_all(_begun_as(recipe, earlier, checkpoint))
    return _measured_at_start(recipe)


def _with_languages_of_run(recipe: Recipe, earlier: Recipe, command: TrainCommand) -> Recipe:
    """Return the recipe with the languages that a run was begun with, where the user names none."""
    languages = command.settings.languages
    pivots = command.settings.pivots
    if languages is None and not (command.is_file and "languages" in recipe.data.settings()):
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


def _choose_start(recipe: Recipe, command: TrainCommand) -> ChosenRecipe:
    """Return the recipe with the start that the user names, or else with the packaged model."""
    settings = command.settings
    if command.from_scratch:
        if recipe.warm_start.checkpoint is not None:
            raise RecipeError(
                f"--from-scratch: recipe {recipe.name} is made to begin with "
                f"{recipe.warm_start.checkpoint}; choose another recipe"
            )
        return ChosenRecipe(without_automatic_start(recipe))
    if command.warm_start is not None:
        begun = begin_with(without_automatic_start(recipe), command.warm_start)
        # The start has set keys of its own; those of the user go before them.
        return ChosenRecipe(settings.with_all(begun))
    return choose_packaged(recipe, settings.keys_in(recipe))


def _measured_at_start(recipe: Recipe) -> Recipe:
    """Return the recipe with an evaluation before the first step, if it begins with a model."""
    is_begun = recipe.warm_start.checkpoint is not None
    is_stated = "eval_on_start" in recipe.training.settings()
    is_evaluated = recipe.data.is_evaluated and recipe.training.eval_strategy != "no"
    if not is_begun or is_stated or not is_evaluated:
        return recipe
    return with_settings(recipe, {"training.eval_on_start": True})
