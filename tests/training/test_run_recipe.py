"""The recipe that `tmde train` makes of a name, the user's settings and the data."""

from pathlib import Path

import pytest

from tmde.cli.train_options import user_settings
from tmde.training.recipe import RecipeError, load_recipe
from tmde.training.recipe.schema import ChosenRecipe
from tmde.training.resuming import changed_settings
from tmde.training.run_recipe import RunRequest, make_recipe

OPTIONS = {"languages", "pivots", "minutes", "steps", "seed", "batch_tokens"}


def make(name: str, *words: str, output: Path = Path("no/run"), **arguments) -> ChosenRecipe:
    """Return the recipe of a run on the sample; options of the recipe are arguments as well."""
    options = {key: arguments.pop(key) for key in OPTIONS & arguments.keys()}
    settings = user_settings(words, **options)
    arguments = {"train_data": ["sample"]} | arguments
    return make_recipe(RunRequest(name, settings, output, **arguments))


def test_a_plain_command_tells_the_languages_and_the_start():
    made = make("bag")
    assert made.messages == [
        "Languages of the data: de, en, es, fr, it; pivots: en, es (change with "
        "--languages and --pivots).",
        "Initialized from the packaged model (--from-scratch trains without it).",
    ]
    assert made.recipe.data.languages == ["de", "en", "es", "fr", "it"]


def test_a_run_that_begins_with_a_model_is_measured_before_the_first_step():
    assert make("bag").recipe.training.eval_on_start
    assert not make("bag", from_scratch=True).recipe.training.eval_on_start
    assert not make("bag", "eval_on_start=false").recipe.training.eval_on_start
    assert not make("bag", "dev_rows=0").recipe.training.eval_on_start
    assert not make("bag", "eval_strategy=no").recipe.training.eval_on_start


def test_from_scratch_begins_without_the_packaged_model():
    bag = make("bag", from_scratch=True).recipe
    assert bag.warm_start.settings() == {}
    assert bag.model.d_model == 256
    assert make("small", from_scratch=True).recipe.warm_start.settings().keys() == {"made_by"}


def test_a_recipe_that_is_made_to_begin_with_a_model_refuses_to_begin_from_scratch():
    with pytest.raises(RecipeError, match="recipe hybrid is initialized from default"):
        make("hybrid", from_scratch=True)


def test_a_checkpoint_of_the_user_goes_before_the_packaged_model():
    made = make("small", "max_minutes=3", warm_start="default")
    assert made.recipe.warm_start.settings() == {"checkpoint": "default"}
    assert made.recipe.training.max_minutes == 3
    assert not any("packaged" in message for message in made.messages)


def test_steps_are_not_cut_off_by_the_minutes_of_the_recipe():
    training = make("bag", steps=70).recipe.training
    assert training.max_steps == 70
    assert training.max_minutes is None


def test_missing_data_are_told_before_anything_is_chosen():
    with pytest.raises(RecipeError, match="Recipe bag needs training data: give --train"):
        make("bag", train_data=None)


# ---- Resuming


def resumed(tmp_path: Path, *words: str, **begun) -> ChosenRecipe:
    """Begin a run by writing its recipe, and return that of the same command with --resume."""
    recipe = make("bag", **begun).recipe
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    return make("bag", *words, output=tmp_path, resume=True)


def test_a_resumed_run_keeps_its_start_and_languages(tmp_path):
    made = resumed(tmp_path, languages="fr,en")
    assert made.recipe.warm_start.checkpoint == "default"
    assert made.recipe.data.languages == ["fr", "en"]
    assert made.recipe.data.pivot_languages == ["en"]
    assert not made.messages


def test_a_run_that_was_begun_from_scratch_goes_on_so(tmp_path):
    made = resumed(tmp_path, from_scratch=True)
    assert made.recipe.warm_start.settings() == {}
    assert made.recipe.model.d_model == 256


def test_a_resumed_run_is_the_same_recipe(tmp_path):
    made = resumed(tmp_path)
    assert made.recipe.settings() == make("bag").recipe.settings()


def test_a_resumed_run_needs_no_longer_the_model_that_it_began_with(tmp_path):
    begun = make("small", warm_start="default").recipe
    text = begun.to_yaml().replace("checkpoint: default", "checkpoint: no/longer/there")
    (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
    for options in ({}, {"warm_start": "no/longer/there"}):
        made = make("small", output=tmp_path, resume=True, **options)
        assert made.recipe.settings() == load_recipe(str(tmp_path / "recipe.yaml")).settings()


@pytest.mark.parametrize(
    ("edit", "arguments", "key"),
    [
        (("learning_rate: 0.001", "learning_rate: 0.002"), {}, "training.learning_rate"),
        (("train: sample", "train: other.tsv"), {}, "data.train"),
        (("- fr", "- it"), {}, "data.languages"),
        (("checkpoint: default", "checkpoint: other"), {}, "warm_start.checkpoint"),
        (("", ""), {"from_scratch": True}, "warm_start.checkpoint"),
        (("", ""), {"warm_start": "other"}, "warm_start.checkpoint"),
        (("", ""), {"languages": "en,it"}, "data.languages"),
        (("", ""), {"columns": {"de": "Source"}}, "data.columns"),
    ],
)
def test_changes_of_a_recipe_file_and_of_options_reach_the_check(edit, arguments, key, tmp_path):
    text = make("small", "learning_rate=0.001", languages="en,fr").recipe.to_yaml()
    own = tmp_path / "own.yaml"
    own.write_text(text, encoding="utf-8")
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(text, encoding="utf-8")
    own.write_text(text.replace(*edit), encoding="utf-8")
    arguments = {"train_data": None} | arguments
    if "from_scratch" in arguments:
        own = "small"
        arguments |= {"languages": "en,fr"}
    resumed = make(str(own), output=run, resume=True, **arguments).recipe
    changes = changed_settings(load_recipe(str(run / "recipe.yaml")), resumed)
    assert key in [change.key for change in changes if not change.is_allowed]
