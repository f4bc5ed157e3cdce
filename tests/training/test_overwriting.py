"""`--overwrite` deletes an earlier run only after the inputs of the new one are checked."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.conftest import make_rows
from tmde.cli.main import app
from tmde.training.recipe import RecipeError, load_recipe
from tmde.training.run_folder import check_inputs_stay


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with rows beside a run that holds inputs."""
    (tmp_path / "run" / "model").mkdir(parents=True)
    for name in ("rows.jsonl", "recipe.yaml", "corpus.de-en.de", "corpus.de-en.en"):
        (tmp_path / "run" / name).write_text("")
    (tmp_path / "run" / "first.yaml").write_text(load_recipe("quickstart").to_yaml())
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"translation": row}) + "\n" for row in make_rows(60))
    )
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("recipe", "override"),
    [
        ("small", "warm_start.checkpoint=run/model"),
        ("adapted", "model.encoder=run/model"),
        ("distil", "objectives.distillation.teacher=run/model"),
        ("distil", "objectives.distillation.teacher=[a/b, run/model]"),
        ("quickstart", "data.train=[sample, 'run/*.jsonl']"),
        ("quickstart", "data.train=run/corpus.de-en"),
        ("quickstart", "data.train=linked/rows.jsonl"),
        ("quickstart", "data.dev={news: run/rows.jsonl}"),
        ("quickstart", "data.eval_task=mldoc=run/model"),
    ],
)
def test_what_a_run_reads_is_not_deleted(recipe, override, place):
    chosen = load_recipe(recipe, [override])
    with pytest.raises(RecipeError, match="^(linked|mldoc=run|run)/.*: the run would overwrite it"):
        check_inputs_stay(chosen, Path("run"))
    check_inputs_stay(chosen, place / "other")


@pytest.mark.parametrize("override", ["data.train=run/europarl", "data.train=running/rows.jsonl"])
def test_names_that_are_no_paths_in_the_run_are_no_inputs(override, place):
    """Such as a Hub id of a user called `run`."""
    check_inputs_stay(load_recipe("quickstart", [override]), place / "run")


def test_the_folder_may_have_the_name_of_a_pair_of_files_beside_it(place):
    for name in ("corpus.de-en.de", "corpus.de-en.en"):
        (place / name).write_text("")
    recipe = load_recipe("quickstart", ["data.train=corpus.de-en"])
    check_inputs_stay(recipe, Path("corpus.de-en"))


def test_the_folder_may_have_the_name_of_the_recipe(place):
    (place / "run").rename(place / "quickstart")
    call = ["train", "quickstart", "metric_for_best_model=bogus", "-o", "quickstart", "--overwrite"]
    result = CliRunner().invoke(app, call, env={"COLUMNS": "300"})
    assert "this run does not measure it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run/first.yaml"], "run/first.yaml: the run would overwrite it"),
        (["quickstart", "metric_for_best_model=bogus"], "this run does not measure it"),
        (["quickstart", "data.dev={dev: missing.jsonl}"], "missing.jsonl"),
        (["quickstart", "data.eval_task=bogus"], "found task 'bogus'"),
    ],
)
def test_a_mistake_leaves_the_earlier_run(arguments, message, place):
    call = ["train", "--train", "rows.jsonl", *arguments, "-o", "run", "--overwrite"]
    result = CliRunner().invoke(app, call, env={"COLUMNS": "300"})
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert (place / "run" / "rows.jsonl").is_file()
    assert (place / "run" / "model").is_dir()
