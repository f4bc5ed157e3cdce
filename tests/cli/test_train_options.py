"""Options of `tmde train` that stand for recipe keys, and values that the shell has split."""

import pytest

from tmde.cli.errors import OptionError
from tmde.cli.train_options import check_quoting, user_settings


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ["small", "languages=[de,", "en]"],
            "languages=[de,: unclosed brackets. The shell splits arguments at spaces: write "
            "'languages=[de, en]', or --languages de,en",
        ),
        (["data.pivot_languages=[en,", "es]"], "or --pivots en,es"),
        (["objectives.infonce={weight:", "1.0}"], "write 'objectives.infonce={weight: 1.0}'"),
        (["eval_pairs=[de-en,", "max_steps=3"], "write 'eval_pairs=...' in quotes"),
    ],
)
def test_split_brackets_are_explained(words, advice):
    with pytest.raises(OptionError) as refusal:
        check_quoting(words)
    assert advice in str(refusal.value)


def test_whole_brackets_pass():
    check_quoting(["small", "languages=[de, en]", "objectives.infonce={}", "description=a b"])


def test_options_set_recipe_keys():
    settings = user_settings(
        [], languages="de,en", pivots="en", minutes=10.0, steps=50, seed=7, batch_tokens=4096
    )
    assert settings == {
        "data.languages": ["de", "en"],
        "data.pivot_languages": ["en"],
        "training.max_minutes": 10.0,
        "training.max_steps": 50,
        "training.seed": 7,
        "training.batch_tokens": 4096,
    }


def test_steps_alone_lift_the_minutes_of_the_recipe():
    assert user_settings([], steps=50) == {"training.max_steps": 50, "training.max_minutes": None}


def test_steps_keep_the_minutes_of_the_user():
    settings = user_settings(["max_minutes=3"], steps=50)
    assert settings["training.max_minutes"] == 3


def test_an_option_may_repeat_a_word():
    settings = user_settings(["languages=[de, en]"], languages="de, en")
    assert settings == {"data.languages": ["de", "en"]}


@pytest.mark.parametrize(
    ("word", "options", "message"),
    [
        ("max_minutes=5", {"minutes": 10}, "--minutes is 10, but max_minutes is 5; give"),
        ("training.seed=5", {"seed": 6}, "--seed is 6, but seed is 5; give only one"),
        (
            "languages=[de]",
            {"languages": "de,en"},
            r"--languages is \['de', 'en'\], but languages is \['de'\]; give only one",
        ),
    ],
)
def test_an_option_and_a_word_must_not_contradict(word, options, message):
    with pytest.raises(OptionError, match=message):
        user_settings([word], **options)


def test_brackets_are_no_codes():
    with pytest.raises(OptionError, match="--languages: found '.*', expected codes such as de,en"):
        user_settings([], languages="[de,en]")
