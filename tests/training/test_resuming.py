"""What a resumed run may change, and why it may not change the rest."""

import dataclasses
from pathlib import Path

import pytest

from tmde.training.argument_table import CHANGEABLE, CHANGEABLE_ADDITIONS, HONORED, LASTING
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.recipe import Recipe, RecipeError, load_recipe
from tmde.training.resuming import check_same_settings, record_changes
from tmde.training.run_folder import RECIPE_NAME

OPEN = ("lr_scheduler_type=constant_with_warmup", "cooldown=0", "warmup_steps=20")
LIMITS = ("max_steps=6", "num_train_epochs=2", "max_minutes=9", "max_cpu_minutes=9")


def begin(folder: Path, *settings: str, name: str = "bag") -> Recipe:
    """Write the recipe of a run that was begun in a folder."""
    recipe = load_recipe(name, settings)
    (folder / RECIPE_NAME).write_text(recipe.to_yaml(), encoding="utf-8")
    return recipe


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_may_change_where_the_rates_do_not_depend_on_them(limit, tmp_path):
    begin(tmp_path, *OPEN)
    check_same_settings(load_recipe("bag", [*OPEN, limit]), tmp_path)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("lr_scheduler_type=linear", "lr_scheduler_type=linear depends on where the run ends"),
        ("cooldown=0.4", r"cooldown=0\.4 lowers the learning rate toward the end"),
        ("warmup_steps=0.1", r"warmup_steps=0\.1 is a share of all steps"),
    ],
)
def test_limits_that_change_the_rates_are_refused(schedule, reason, limit, tmp_path):
    begin(tmp_path, *OPEN, schedule)
    key = limit.partition("=")[0]
    message = rf"training\.{key} is .*, but the run started with .* \({reason}"
    with pytest.raises(RecipeError, match=message):
        check_same_settings(load_recipe("bag", [*OPEN, schedule, limit]), tmp_path)


def test_evaluations_that_a_schedule_follows_stay(tmp_path):
    follows = "lr_scheduler_type=reduce_lr_on_plateau"
    begin(tmp_path, *OPEN, follows)
    with pytest.raises(RecipeError, match=r"eval_steps is 7, .*\(.*plateau follows the eval"):
        check_same_settings(load_recipe("bag", [*OPEN, follows, "eval_steps=7"]), tmp_path)
    begin(tmp_path)
    check_same_settings(load_recipe("bag", ["eval_steps=7"]), tmp_path)


def test_the_batches_of_dev_losses_stay(tmp_path):
    begin(tmp_path)
    with pytest.raises(RecipeError, match=r"training\.per_device_eval_batch_size is 7"):
        check_same_settings(load_recipe("bag", ["per_device_eval_batch_size=7"]), tmp_path)


def test_keys_of_a_mapping_may_change_with_it(tmp_path):
    key = "activation_checkpointing_kwargs"
    begin(tmp_path, f"{key}={{use_reentrant: true, preserve_rng_state: true}}")
    recipe = load_recipe("bag", [f"{key}={{use_reentrant: false}}"])
    check_same_settings(recipe, tmp_path)
    record_changes(recipe, tmp_path)
    recorded = load_recipe(str(tmp_path / RECIPE_NAME))
    assert recorded.training.activation_checkpointing_kwargs == {"use_reentrant": False}


def test_all_other_arguments_stay():
    names = {field.name for field in dataclasses.fields(TmdeTrainingArguments)}
    assert set(CHANGEABLE_ADDITIONS) <= names - HONORED.keys()
    assert not CHANGEABLE.keys() & LASTING.keys()
