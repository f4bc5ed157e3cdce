"""Begin with a first stage: another recipe, trained on the same data before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from tmde.eval.dev_retrieval import language_pairs
from tmde.training.recipe.building import build_config
from tmde.training.recipe.errors import RecipeError
from tmde.training.recipe.loading import load_recipe
from tmde.training.recipe.overrides import with_sections, with_settings
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.sections import DataSection
from tmde.training.starts.base import STAGE_FOLDER, BegunModel, Rows, Start
from tmde.training.starts.checkpoint import FromCheckpoint, check_fit
from tmde.training.starts.packaged import without_automatic_start
from tmde.training.starts.tokenizers import TOKENIZER_FOLDER, check_options, prepare_tokenizer

# Training keys that a first stage takes from the run: the same rows are held out, and curves are
# comparable.
SHARED_KEYS = (
    "seed",
    "data_seed",
    "use_cpu",
    "token_cache_dir",
    "fsdp",
    "fsdp_config",
    "disable_tqdm",
    "eval_pairs",
    "eval_pool",
    "eval_loss_rows",
)
# Keys of the data section that a first stage may change.
STAGE_DATA_KEYS = {"languages", "pivot_languages"}


@dataclass(frozen=True)
class FromFirstStage(Start):
    """Begin with a first stage in `warm_start/` of the run's folder.

    The run trains it there before it asks for the tokenizer.

    Attributes:
        stage_name: Name or path of the first stage's recipe.
    """

    stage_name: str

    @cached_property
    def stage(self) -> Recipe:
        """The recipe of the first stage."""
        return build_stage(self.recipe, self.stage_name)

    @property
    def stage_folder(self) -> Path:
        """The folder of the first stage."""
        return self.folder / STAGE_FOLDER

    @property
    def is_trained(self) -> bool:
        """Whether the first stage has been trained to its end."""
        return (self.stage_folder / "results.json").exists()

    @cached_property
    def continuation(self) -> FromCheckpoint:
        """The start with the trained stage as a checkpoint."""
        return FromCheckpoint(self.recipe, self.folder, str(self.stage_folder))

    def check(self) -> None:
        """Refuse a stage that cannot be built, or whose weights do not fit."""
        check_options(self.recipe)
        check_fit(self.recipe, build_config(self.stage))

    def tokenizer(self, rows: Rows | None) -> PreTrainedTokenizerBase:
        """Return the tokenizer of both stages, after the first one is trained."""
        return self.continuation.tokenizer(rows)

    def apply(self, tokenizer: PreTrainedTokenizerBase) -> BegunModel:
        """Return a new model that begins as the first stage ended."""
        return self.continuation.apply(tokenizer)


def stage_recipe(recipe: Recipe) -> Recipe | None:
    """Return the recipe of a run's first stage, on the run's data; None without such a stage.

    Raises:
        RecipeError: See `build_stage`.
    """
    start = recipe.warm_start
    if start.checkpoint is not None or start.recipe is None:
        return None
    return build_stage(recipe, start.recipe)


def build_stage(recipe: Recipe, stage_name: str) -> Recipe:
    """Return the recipe of a first stage on the data of a run.

    Args:
        recipe: The recipe of the run.
        stage_name: Name or path of the first stage's recipe.

    Raises:
        RecipeError: The stage has a first stage of its own, or overrides the run's data or seed (it
            may have fewer languages).
    """
    overrides = recipe.warm_start.overrides
    _check_overrides(overrides)
    run_training = recipe.training.settings()
    shared = {key: run_training[key] for key in SHARED_KEYS if key in run_training}
    stage = without_automatic_start(load_recipe(stage_name))
    training = {**stage.training.settings(), **shared}
    stage = with_sections(stage, data=recipe.data.settings(), training=training)
    stage = with_settings(stage, overrides)
    _check_languages(stage, recipe)
    if stage.warm_start.recipe is not None and stage.warm_start.checkpoint is None:
        raise RecipeError(
            f"warm_start.recipe={stage_name}: a first stage may not have a first stage of its own"
        )
    return _with_its_pairs(stage)


def share_tokenizer(recipe: Recipe, stage: Recipe, rows: Rows | None, folder: Path) -> Recipe:
    """Return the recipe of a first stage with a tokenizer that serves both stages.

    If the first stage has fewer languages than the run, the tokenizer is trained on all of them.

    Args:
        recipe: The recipe of the run.
        stage: The recipe of its first stage.
        rows: The training rows.
        folder: The folder of the run.
    """
    has_all_languages = stage.data.languages == recipe.data.languages
    if has_all_languages or recipe.tokenizer.settings():
        return stage
    section = stage.tokenizer.settings()
    takes_checkpoints_tokenizer = not section and stage.warm_start.checkpoint is not None
    if "path" in section or takes_checkpoints_tokenizer:
        return stage
    with_all_languages = with_settings(stage, {"data.languages": recipe.data.languages})
    prepare_tokenizer(with_all_languages, rows, folder)
    return with_settings(stage, {"tokenizer.path": str(folder / TOKENIZER_FOLDER)})


def _check_overrides(overrides: dict[str, Any]) -> None:
    """Refuse overrides of what a first stage shares with its run."""
    fixed = {"seed", "data_seed", *DataSection.model_fields} - STAGE_DATA_KEYS
    for name, value in overrides.items():
        key = name.removeprefix("data.").removeprefix("training.")
        if key in fixed:
            raise RecipeError(
                f"warm_start.overrides: found {name}={value}, but the first stage has the run's "
                "data and seed"
            )


def _check_languages(stage: Recipe, recipe: Recipe) -> None:
    languages = stage.data.languages
    run_languages = recipe.data.languages
    if not set(languages) <= set(run_languages):
        raise RecipeError(
            f"warm_start.overrides: found languages={languages}, expected some of {run_languages}"
        )


def _with_its_pairs(stage: Recipe) -> Recipe:
    """Drop pairs with a language that the stage lacks."""
    pairs = stage.training.eval_pairs
    if not pairs:
        return stage
    known_pairs = language_pairs(stage.data.languages)
    pairs = [pair for pair in pairs if pair in known_pairs]
    return with_settings(stage, {"training.eval_pairs": pairs or None})
