"""The languages and pivots of a run: the user's, the recipe's, or those of the data."""

from pathlib import Path

import pytest

from tmde.training.recipe import Recipe, RecipeError, load_recipe
from tmde.training.run_data import choose_languages


def write_table(path: Path, *languages: str) -> Path:
    """Write a TSV with one row of text in these languages."""
    texts = [f"text in {language}" for language in languages]
    path.write_text("\t".join(languages) + "\n" + "\t".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path):
    """Return a function that makes a recipe with a table of these languages as its data."""

    def make(name: str, *languages: str) -> Recipe:
        return load_recipe(name, [f"data.train={write_table(tmp_path / 'memory.tsv', *languages)}"])

    return make


@pytest.mark.parametrize(
    ("columns", "languages", "pivots", "sentence"),
    [
        (("en", "de"), ["de", "en"], ["en"], "pivots: en"),
        (("es", "de", "en"), ["de", "en", "es"], ["en", "es"], "pivots: en, es"),
        (("nl", "de"), ["de", "nl"], ["nl"], "pivot: nl, since it has no en and no es"),
    ],
)
def test_they_are_found_in_the_data(table, columns, languages, pivots, sentence):
    chosen = choose_languages(table("bag", *columns))
    assert chosen.recipe.data.languages == languages
    assert chosen.recipe.data.pivot_languages == pivots
    assert chosen.messages == [
        f"Languages of the data: {', '.join(languages)}; {sentence} "
        "(change with --languages and --pivots)."
    ]


def test_english_is_the_pivot_if_the_recipe_has_none_of_the_datas(table):
    recipe = table("bag", "de", "en", "nl")
    recipe = load_recipe("bag", [f"data.train={recipe.data.train}", "pivot_languages=[fr]"])
    chosen = choose_languages(recipe)
    assert chosen.recipe.data.pivot_languages == ["en"]
    assert "pivot: en, since it has no fr" in chosen.messages[0]


def test_the_users_go_first(table):
    recipe = table("bag", "de", "en", "es")
    chosen = choose_languages(recipe, ["es", "de"], ["de"])
    assert chosen.recipe.data.languages == ["es", "de"]
    assert chosen.recipe.data.pivot_languages == ["de"]
    assert not chosen.messages


def test_languages_of_the_user_bring_pivots_among_them(table):
    chosen = choose_languages(table("ctmde", "de", "en"), ["de", "en"])
    assert chosen.recipe.data.pivot_languages == ["en"]


def test_a_recipe_of_a_paper_keeps_the_languages_that_it_states(table):
    recipe = table("ctmde", "de", "en")
    chosen = choose_languages(recipe)
    assert chosen.recipe.settings() == recipe.settings()
    assert not chosen.messages


def test_pivots_that_the_data_lacks_are_refused(table):
    with pytest.raises(RecipeError, match=r"pivot_languages: found \['fr'\], expected some of"):
        choose_languages(table("bag", "de", "en"), user_pivots=["fr"])


def test_one_language_is_too_few(table):
    recipe = table("bag", "de", "Notes")
    with pytest.raises(RecipeError, match="memory.tsv: found only the language de"):
        choose_languages(recipe)
