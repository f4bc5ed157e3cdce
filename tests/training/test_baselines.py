"""The models that a run is measured against: its start and the packaged model."""

import json

import pytest
from typer.testing import CliRunner

from tests.conftest import WORDS, make_dataset
from tmde import DocumentEmbedder
from tmde.cli.main import app
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.evaluation import retrieval_scores
from tmde.training.recipe import load_recipe
from tmde.training.run import resolve


def test_the_packaged_model_is_measured_on_the_dev_rows(tmp_path):
    """It finds the translations of ten words, but not where two of them are exchanged."""
    english = [*WORDS["en"]]
    english[0], english[1] = english[1], english[0]
    rows = [{"de": word, "en": english[number]} for number, word in enumerate(WORDS["de"])]
    args = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True)

    embedder = DocumentEmbedder.from_pretrained()
    scores = retrieval_scores(embedder, {"talks": make_dataset(rows)}, ["de", "en"], args)

    assert scores == {"eval_talks_p1_de-en": 0.8, "eval_retrieval": 0.8}


def test_a_resumed_run_is_not_measured_at_its_start_again(tmp_path, monkeypatch):
    recipe = load_recipe("bag", ["eval_on_start=true"])
    assert resolve(recipe, tmp_path).arguments.eval_on_start
    monkeypatch.setattr("tmde.training.run.find_checkpoint", lambda folder: folder / "checkpoint-4")
    monkeypatch.setattr("tmde.training.run.check_resumable", lambda folder: None)
    assert not resolve(recipe, tmp_path, resume=True).arguments.eval_on_start


# ---- The whole command

SHORT = ["max_rows=400", "dev_rows=40", "learning_rate=0", "micro_batch_tokens=2000"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of `bag` on the sample that learns nothing: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("runs") / "bag"
    words = ["train", "bag", *SHORT, "--train", "sample", "--languages", "de,en", "--steps", "2"]
    result = CliRunner().invoke(app, [*words, "-o", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result


def test_a_bag_begins_with_the_packaged_model_and_equals_it(finished):
    folder, result = finished
    results = json.loads((folder / "results.json").read_text())
    assert "Initialized from the packaged model" in result.stderr
    scores = results["packaged"]
    assert results["start"]["eval_dev_p1_de-en"] == pytest.approx(scores["eval_dev_p1_de-en"])
    assert results["best"]["eval_retrieval"] == pytest.approx(scores["eval_retrieval"])
    assert results["steps"] == 2
    assert "the model has hardly learned anything" in result.stdout


def test_the_recipe_of_a_run_states_its_start_and_languages(finished):
    recipe = load_recipe(str(finished[0] / "recipe.yaml"))
    assert recipe.warm_start.settings() == {"checkpoint": "default"}
    assert recipe.data.languages == ["de", "en"]
    assert recipe.data.pivot_languages == ["en"]


def test_the_card_names_the_start_and_the_packaged_model(finished):
    card = (finished[0] / "README.md").read_text()
    assert "| dev rows | this model | before training | packaged model | chance |" in card
