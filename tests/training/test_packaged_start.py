"""The packaged model as the start of a run: when it is chosen, and what speaks against it."""

import pytest

from tmde.training.recipe import Recipe, load_recipe, packaged_names
from tmde.training.starts.packaged import choose_packaged, without_automatic_start

# The recipes of this project for users. All others reproduce a paper or a measured model.
AUTOMATIC_RECIPES = {"bag", "small", "base"}


def chosen(name: str, *overrides: str, user_keys: set[str] | None = None) -> tuple[Recipe, str]:
    """Return what is chosen for a recipe with overrides, which are the user's by default."""
    keys = {override.partition("=")[0] for override in overrides}
    choice = choose_packaged(load_recipe(name, overrides), keys if user_keys is None else user_keys)
    return choice.recipe, "".join(choice.messages)


def test_only_recipes_that_declare_it_begin_with_the_packaged_model():
    names = set()
    for name in packaged_names():
        if load_recipe(name).warm_start.packaged == "auto":
            names.add(name)
    assert names == AUTOMATIC_RECIPES


def test_every_other_recipe_stays_as_it_is():
    for name in set(packaged_names()) - AUTOMATIC_RECIPES:
        recipe, message = chosen(name)
        assert recipe.settings() == load_recipe(name).settings()
        assert message == ""


@pytest.mark.parametrize("name", sorted(AUTOMATIC_RECIPES))
def test_the_start_is_stated(name):
    recipe, message = chosen(name)
    assert message == "Initialized from the packaged model (--from-scratch trains without it)."
    assert recipe.warm_start.checkpoint == "default"
    assert recipe.warm_start.settings().keys() == {"checkpoint"}


def test_a_bag_has_the_width_and_the_vocabulary_of_the_packaged_model():
    recipe, _ = chosen("bag")
    assert recipe.model.d_model == 384
    assert recipe.tokenizer.settings() == {}


@pytest.mark.parametrize(
    ("name", "override", "reason"),
    [
        ("bag", "data.languages=[de, en, es, nl]", "it has no nl"),
        ("bag", "data.languages=[en, es, nl, pt]", "it has no nl and no pt"),
        ("bag", "model.d_model=128", "model.d_model=128 contradicts it (it has 384)"),
        ("small", "model.d_model=512", "model.d_model=512 contradicts it (it has 384)"),
        (
            "bag",
            "model.sublinear_counts=false",
            "model.sublinear_counts=False contradicts it (it has True)",
        ),
        (
            "bag",
            "tokenizer.vocab_size=2000",
            "tokenizer.vocab_size=2000 contradicts it (it has a vocabulary of its own)",
        ),
        (
            "small",
            "tokenizer.vocab_size=2000",
            "tokenizer.vocab_size=2000 contradicts it (it has a vocabulary of its own)",
        ),
        (
            "bag",
            "objectives.distillation={teacher: a/b}",
            "the objective distillation learns the space of its teacher",
        ),
    ],
)
def test_languages_and_settings_of_the_user_speak_against_it(name, override, reason):
    recipe, message = chosen(name, override)
    assert message == f"Not initialized from the packaged model: {reason}."
    expected = without_automatic_start(load_recipe(name, [override]))
    assert recipe.settings() == expected.settings()


def test_the_width_of_the_packaged_model_does_not_contradict_it():
    recipe, message = chosen("bag", "model.d_model=384")
    assert message.startswith("Initialized from the packaged model")
    assert recipe.warm_start.checkpoint == "default"


def test_settings_of_the_recipe_itself_give_way():
    recipe, _ = chosen("bag", "model.d_model=128", user_keys=set())
    assert recipe.model.d_model == 384


def test_a_checkpoint_of_the_recipe_goes_before():
    recipe, message = chosen("bag", "warm_start.checkpoint=a/b")
    assert recipe.warm_start.checkpoint == "a/b"
    assert message == ""
