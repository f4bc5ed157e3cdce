"""What a run reads is not deleted before it is read."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde.training.command import train
from modeling_tmde.training.overwriting import check_inputs_stay, check_recipe_stays
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.train import train_recipe
from tests.conftest import make_rows

INPUTS = {
    "warm_start.checkpoint": ("small", "run/model"),
    "warm_start.recipe": ("small", "run/first.yaml"),
    "model.encoder": ("adapted", "run/model"),
    "tokenizer.path": ("quickstart", "run/model"),
    "objectives.distillation.teacher": ("distil", "run/model"),
    "data.train": ("quickstart", "run/rows.jsonl"),
    "data.dev.news": ("quickstart", "run/rows.jsonl"),
    "data.eval_task": ("quickstart", "mldoc=run/model"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a run that has files to read."""
    (tmp_path / "run" / "model").mkdir(parents=True)
    for name in ("rows.jsonl", "first.yaml", "recipe.yaml", "corpus.de-en.de", "corpus.de-en.en"):
        (tmp_path / "run" / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("key", INPUTS)
def test_every_input_is_looked_at(key, place):
    name, value = INPUTS[key]
    override = f"data.dev={{news: {value}}}" if key == "data.dev.news" else f"{key}={value}"
    recipe = load_recipe(name, [override])
    found = value.partition("=")[2] or value
    with pytest.raises(RecipeError, match=f"^{key}={found}: the run would overwrite it, since it is in run; choose"):
        check_inputs_stay(recipe, Path("run"))
    check_inputs_stay(recipe, place / "other")
    check_inputs_stay(recipe, place / "run", made=[key])


WRITTEN = ["~/run/model", "run", "run/*.jsonl", "r[u]n/*.jsonl", "**/rows.jsonl", "../{here}/run/model"]
WRITTEN += ["run/corpus.de-en", "~/run/corpus.de-en", "run/link", "linked/rows.jsonl"]


@pytest.mark.parametrize("value", WRITTEN)
def test_however_it_is_written(value, place, monkeypatch):
    monkeypatch.setenv("HOME", str(place))
    (place / "elsewhere").write_text("")
    (place / "run" / "link").symlink_to(place / "elsewhere")
    (place / "linked").symlink_to(place / "run")
    recipe = load_recipe("quickstart")
    recipe.set("data.train", ["sample", value.format(here=place.name)])
    with pytest.raises(RecipeError, match="data.train=.*: the run would overwrite it"):
        check_inputs_stay(recipe, place / "run")


def test_names_of_other_things_are_no_inputs_there(place):
    recipe = load_recipe("quickstart", ["data.train=run/europarl", "tokenizer.path=run/tokenizer"])
    check_inputs_stay(recipe, place / "run")  # ids of a user called `run`
    check_inputs_stay(load_recipe("quickstart", ["data.train=running/rows.jsonl"]), place / "run")
    for name in ("sample", "nmt"):  # what comes with the package
        (place / name).mkdir()
        recipe = load_recipe("small", ["data.train=sample", "data.eval_task=sample", "warm_start.recipe=nmt"])
        check_inputs_stay(recipe, place / name)


def test_the_file_of_a_recipe_stays(place):
    (place / "run" / "first.yaml").write_text(load_recipe("quickstart").to_yaml())
    app = typer.Typer()
    app.command()(train)
    result = CliRunner().invoke(app, ["run/first.yaml", "--train", "missing.jsonl", "-o", "run", "--overwrite"])
    assert result.exit_code == 1 and "Recipe run/first.yaml: the run would overwrite it" in result.stderr
    assert (place / "run" / "first.yaml").is_file()
    check_recipe_stays("run/recipe.yaml", place / "run")
    check_recipe_stays("quickstart", place / "run")
    check_recipe_stays("run/first.yaml", place / "other")


MISTAKES = {
    "metric_for_best_model=bogus": "no evaluation measures it",
    "metric_for_best_model=sample_p1_de-xx": "expected sample_p1_ and one of the pairs de-en,",
    "data.dev={dev: missing.jsonl}": "missing.jsonl",
    "data.train=missing.jsonl": "missing.jsonl",
    "data.eval_task=bogus": "found task 'bogus'",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_leaves_the_earlier_run(mistake, place):
    rows = "".join(json.dumps({"translation": row}) + "\n" for row in make_rows(60))
    (place / "rows.jsonl").write_text(rows)
    with pytest.raises(ValueError, match=MISTAKES[mistake]):
        train_recipe(load_recipe("quickstart", ["data.train=rows.jsonl", mistake]), place / "run", overwrite=True)
    assert (place / "run" / "rows.jsonl").is_file() and (place / "run" / "model").is_dir()


def test_a_teacher_in_the_folder_survives(place):
    shutil.copy(place / "run" / "recipe.yaml", place / "run" / "model" / "kept")
    rows = "".join(json.dumps({"translation": row}) + "\n" for row in make_rows(60))
    (place / "rows.jsonl").write_text(rows)
    recipe = load_recipe("distil", ["data.train=rows.jsonl", "objectives.distillation.teacher=run/model"])
    with pytest.raises(RecipeError, match="the run would overwrite it"):
        train_recipe(recipe, place / "run", overwrite=True)
    assert (place / "run" / "model" / "kept").is_file()
