"""Runs in two stages: what the first leaves to the second, interruptions in either, and starts from a checkpoint."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
import typer
import yaml
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, BertConfig, BertModel
from typer.testing import CliRunner

from modeling_tmde import BagModel
from modeling_tmde.training.building import (
    STAGE_FOLDER,
    apply_warm_start,
    check_warm_start,
    prepare_warm_start,
    stage_recipe,
)
from modeling_tmde.training.callbacks import RunSchedule
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe
from modeling_tmde.training.train import build_model, train, train_recipe

SHORT = ["max_steps=4", "warmup_steps=1", "cooldown=0", "logging_steps=1", "eval_steps=2", "max_minutes=null"]
SMALL = ["eval_minutes=null", "eval_pairs=[de-fr]", "eval_loss_rows=10", "disable_tqdm=true", "bf16=false"]
FIRST = ["vocab_size=400", "max_characters=20000", "d_model=16", "sublinear_counts=true", "neighbor_share=0.3"]
SECOND = [
    "d_model=32", "encoder_attention_heads=4", "encoder_ffn_dim=48", "decoder_attention_heads=4",
    "embedding_learning_rate=0.001",
]  # fmt: skip


def two_stages(*overrides: str) -> Recipe:
    """The recipe `small` on a part of the built-in sample, four steps of tiny sizes in each stage."""
    fixed = [
        "train=sample",
        "max_rows=300",
        "dev_rows=30",
        "decoder_ffn_dim=48",
        "objectives.translation.row_share=0.5",
    ]
    recipe = load_recipe("small", [*fixed, *SECOND, *SHORT, *SMALL, "micro_batch_tokens=2000", *overrides])
    first = [*FIRST, *SHORT, "eval_minutes=null", "bf16=false", "micro_batch_rows=32", "token_dropout=0.3"]
    pairs = (override.split("=", 1) for override in first)
    recipe.set("warm_start.overrides", {key: yaml.safe_load(value) for key, value in pairs})
    return recipe


def read(path: Path):
    return json.loads(path.read_text())


def steps_of(folder: Path) -> list[int]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["step"] for line in lines if "loss" in line]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stages") / "run"
    train_recipe(two_stages("seed=7"), folder)
    return folder


def interrupt(monkeypatch: pytest.MonkeyPatch, folder: Path, step: int) -> None:
    """Ctrl-C after so many steps of the run in `folder`."""
    go_on = RunSchedule.on_step_end

    def stop(self, args, state, control, **kwargs):
        if state.global_step == step and Path(args.output_dir) == folder:
            raise KeyboardInterrupt
        return go_on(self, args, state, control, **kwargs)

    monkeypatch.setattr(RunSchedule, "on_step_end", stop)


def never(*arguments, **options):
    raise AssertionError(f"a first stage is trained: {arguments} {options}")


# ---- A whole run


def test_the_first_stage_is_a_run_of_its_own(finished):
    stage = finished / STAGE_FOLDER
    assert isinstance(AutoModel.from_pretrained(stage), BagModel)
    assert steps_of(stage) == steps_of(finished) == [1, 2, 3, 4]
    recipe, whole = (yaml.safe_load((folder / "recipe.yaml").read_text()) for folder in (stage, finished))
    assert recipe["data"] == whole["data"] and recipe["data"]["train"] == "sample"
    assert recipe["training"]["seed"] == whole["training"]["seed"] == 7
    assert (recipe["model"]["architecture"], recipe["model"]["d_model"]) == ("bag", 16)
    assert not recipe["warm_start"]
    records = [read(folder / "run.json")["data"] for folder in (stage, finished)]
    assert records[0] == records[1]  # the same rows, and the same held out


def test_the_second_stage_has_what_the_first_one_learned(finished):
    stage = finished / STAGE_FOLDER
    own, first = AutoTokenizer.from_pretrained(finished), AutoTokenizer.from_pretrained(stage)
    assert own.get_vocab() == first.get_vocab() and len(own) == 400
    assert own("HAUS und Hof")["input_ids"] == first("haus und hof")["input_ids"]  # the normaliser too
    assert not (finished / "tokenizer").exists()  # none of its own was trained
    config = AutoModelForSeq2SeqLM.from_pretrained(finished).config
    assert config.bag_residual and config.sublinear_counts and config.vocab_size == 400
    assert AutoTokenizer.from_pretrained(finished).model_max_length == config.max_position_embeddings
    report = read(finished / "run.json")["warm_start"]
    assert (report["checkpoint"], report["model_type"]) == (str(stage), "tmde_bag")
    assert (report["tokens_copied"], report["tokens_mapped"], report["tokens_left"]) == (400, 0, 0)
    assert (report["checkpoint_width"], report["width"]) == (16, 32)
    assert report["minutes"] == read(stage / "results.json")["minutes"]
    assert read(stage / "run.json")["warm_start"] is None


def test_the_recipe_in_the_folder_is_the_one_that_was_given(finished):
    """So that it can be repeated: what a first stage settles is settled anew, and names no folder of this run."""
    assert load_recipe(str(finished / "recipe.yaml")).sections == two_stages("seed=7").sections
    assert str(finished) not in (finished / "recipe.yaml").read_text()


def test_before_its_first_step_the_model_is_the_bag(finished):
    stage = finished / STAGE_FOLDER
    recipe = two_stages()
    assert prepare_warm_start(recipe, finished, None, never) == str(stage)
    assert recipe.sections["tokenizer"] == {"path": str(stage)}
    assert recipe.sections["model"]["bag_residual"] is True and recipe.sections["model"]["sublinear_counts"] is True
    tokenizer, bag = AutoTokenizer.from_pretrained(stage), AutoModel.from_pretrained(stage)
    model = build_model(recipe, tokenizer).eval()
    apply_warm_start(recipe, model, tokenizer, str(stage))
    inputs = tokenizer(["la casa, la casa, la casa", "das alte Haus"], return_tensors="pt", padding=True)
    vectors = nn.functional.pad(bag(**inputs).pooler_output, (0, 16))  # the new columns are zeros
    expected = nn.functional.layer_norm(math.sqrt(32) * vectors, (32,))
    torch.testing.assert_close(model.model(**inputs).pooler_output, expected, atol=1e-5, rtol=1e-5)
    trained = AutoModel.from_pretrained(finished)
    assert (trained(**inputs).pooler_output - expected).abs().max() > 1e-3  # and then it learns


def test_rows_seed_and_evaluation_of_the_first_stage_are_the_runs():
    recipe = two_stages("seed=7", "eval_pool=50", "languages=[de, en, fr]", "pivot_languages=[en]")
    stage = stage_recipe(recipe)
    assert stage.sections["data"] == recipe.sections["data"]
    training = stage.sections["training"]
    assert (training["seed"], training["eval_pool"], training["eval_pairs"]) == (7, 50, ["de-fr"])
    assert (training["micro_batch_rows"], stage.sections["model"]["sublinear_counts"]) == (32, True)
    assert "seed" not in stage_recipe(two_stages()).sections["training"]
    for key in ("seed", "training.seed", "data_seed", "data.max_rows"):
        recipe = two_stages()
        recipe.set(f"warm_start.overrides.{key}", 5)
        with pytest.raises(RecipeError, match=f"warm_start.overrides: found {key}=5, but .* the run's data and seed"):
            stage_recipe(recipe)
    recipe = two_stages()
    recipe.set("warm_start.recipe", "small")
    recipe.set("warm_start.overrides", {})
    with pytest.raises(RecipeError, match="warm_start.recipe=small: a first stage may not have a first stage"):
        stage_recipe(recipe)


def test_columns_that_could_never_learn_are_refused():
    recipe = two_stages("embedding_learning_rate=0")
    with pytest.raises(RecipeError, match="d_model=32 from a bag with d_model=16: .*set model.d_model=16"):
        check_warm_start(recipe)
    recipe.set("warm_start.new_columns_std", 0.1)
    check_warm_start(recipe)


def test_pivots_are_among_the_languages_of_the_stage():
    recipe = load_recipe("xnli_cbow")
    recipe.set("warm_start.overrides", {"data.languages": ["en", "es"], "data.pivot_languages": ["de"]})
    with pytest.raises(RecipeError, match="pivot_languages"):
        check_warm_start(recipe)


# ---- Interruptions


def same_results(folder: Path, finished: Path) -> None:
    for part in (folder, folder / STAGE_FOLDER):
        other = finished / part.relative_to(folder)
        for name, value in load_file(other / "model.safetensors").items():
            found = load_file(part / "model.safetensors")[name]
            torch.testing.assert_close(found, value, rtol=0, atol=1e-6, msg=f"{part.name} {name}")
        results = [read(path / "results.json") for path in (part, other)]
        for key in ("steps", "best_step", "seen", "rows"):
            assert results[0][key] == results[1][key], key
    reports = [read(path / "run.json")["warm_start"] for path in (folder, finished)]
    for report in reports:
        del report["checkpoint"], report["minutes"]
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_a_run_interrupted_in_its_first_stage_goes_on_there(finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    stage = folder / STAGE_FOLDER
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, stage, 3)
        train_recipe(two_stages("seed=7"), folder)
    assert (stage / "checkpoint-2").is_dir() and not (stage / "results.json").exists()
    assert not list(folder.glob("checkpoint-*"))
    before = (stage / "log.jsonl").read_text()
    train_recipe(two_stages("seed=7"), folder, resume=True)
    assert (stage / "log.jsonl").read_text().startswith(before)  # gone on with, not begun anew
    assert steps_of(stage)[-2:] == [3, 4] and steps_of(stage).count(1) == 1
    assert steps_of(folder) == [1, 2, 3, 4]
    same_results(folder, finished)


@pytest.mark.slow
@pytest.mark.parametrize(("step", "steps"), [(3, [1, 2, 3, 4]), (1, [1, 2, 3, 4])], ids=["checkpoint", "none"])
def test_a_run_interrupted_in_its_second_stage_keeps_the_first(step, steps, finished, tmp_path, monkeypatch):
    """With a checkpoint or before there is one."""
    folder = tmp_path / "run"
    stage = folder / STAGE_FOLDER
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, folder, step)
        train_recipe(two_stages("seed=7"), folder)
    assert (folder / "checkpoint-2").is_dir() == (step == 3)
    kept = {path: path.stat().st_mtime_ns for path in stage.rglob("*") if path.is_file()}
    assert stage / "results.json" in kept
    train_recipe(two_stages("seed=7"), folder, resume=True)
    assert {path: path.stat().st_mtime_ns for path in stage.rglob("*") if path.is_file()} == kept
    assert sorted(set(steps_of(folder))) == steps
    assert steps_of(folder).count(1) == 1
    same_results(folder, finished)


@pytest.mark.slow
def test_a_first_stage_without_a_whole_checkpoint_begins_anew(finished, tmp_path):
    """As it is left by an interruption while its first checkpoint was written."""
    folder = tmp_path / "run"
    stage = folder / STAGE_FOLDER
    (stage / "checkpoint-2").mkdir(parents=True)
    for part in (folder, stage):
        shutil.copy(finished / part.relative_to(folder) / "recipe.yaml", part / "recipe.yaml")
    (stage / "checkpoint-2" / "trainer_state.json").write_text('{"global_step": 2, "log_hist')
    train_recipe(two_stages("seed=7"), folder, resume=True)
    assert steps_of(stage) == [1, 2, 3, 4]
    same_results(folder, finished)


# ---- Checkpoints


def test_a_checkpoint_takes_the_place_of_the_first_stage(finished, tmp_path):
    stage = str(finished / STAGE_FOLDER)
    recipe = two_stages(f"warm_start.checkpoint={stage}")
    assert prepare_warm_start(recipe, tmp_path / "other", None, never) == stage
    assert recipe.sections["tokenizer"] == {"path": stage}
    assert recipe.sections["model"]["bag_residual"] is True
    # A T-MDE model with the direct path hands it on as well.
    recipe = two_stages(f"warm_start.checkpoint={finished}")
    assert prepare_warm_start(recipe, tmp_path / "other", None, never) == str(finished)
    assert recipe.sections["model"]["bag_residual"] is True and recipe.sections["model"]["sublinear_counts"] is True
    assert not (tmp_path / "other").exists()


def test_values_that_the_recipe_states_stay(finished, tmp_path):
    stage = str(finished / STAGE_FOLDER)
    stated = ("model.sublinear_counts=false", "tokenizer.vocab_size=300", "model.bag_residual=false")
    recipe = two_stages(f"warm_start.checkpoint={stage}", *stated)
    prepare_warm_start(recipe, tmp_path, None, never)
    assert recipe.sections["tokenizer"] == {"vocab_size": 300}
    assert recipe.sections["model"]["sublinear_counts"] is False and recipe.sections["model"]["bag_residual"] is False
    tokenizer = AutoTokenizer.from_pretrained(stage)
    with pytest.raises(ValueError, match="token weights need the direct path, .* set model.bag_residual=true"):
        apply_warm_start(recipe, build_model(recipe, tokenizer), tokenizer, stage)


@pytest.mark.parametrize("name", ["quickstart", "ctmde", "bag"])
def test_a_cold_recipe_stays_cold(name, tmp_path):
    recipe, untouched = load_recipe(name), load_recipe(name)
    assert prepare_warm_start(recipe, tmp_path / "run", None, never) is None
    assert recipe.sections == untouched.sections
    assert not (tmp_path / "run").exists()


def test_the_small_recipe_can_be_cold(tmp_path):
    recipe = two_stages("warm_start.recipe=null", "tokenizer.vocab_size=400", "max_characters=20000", "max_steps=1")
    recipe.set("warm_start.overrides", {})
    train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / STAGE_FOLDER).exists()
    assert (tmp_path / "run" / "tokenizer").is_dir()
    assert read(tmp_path / "run" / "run.json")["warm_start"] is None
    written = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert not {"bag_residual", "sublinear_counts"} & set(written["model"])
    assert not AutoModel.from_pretrained(tmp_path / "run").config.bag_residual


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "no folder .*missing; expected a saved model's folder"),
        ("empty", "has no config.json"),
        ("bert", "found a model of type 'bert', expected one of this package"),
    ],
)
def test_a_wrong_checkpoint_is_one_clear_error(kind, message, tmp_path):
    checkpoint = tmp_path / kind
    if kind != "missing":
        checkpoint.mkdir()
    if kind == "bert":
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        BertModel(BertConfig(vocab_size=20, **sizes)).save_pretrained(checkpoint)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train)
    arguments = ["small", *SECOND, *SHORT, *SMALL, "decoder_ffn_dim=48", "max_rows=40", "--train", "sample"]
    result = CliRunner().invoke(
        app, [*arguments, "--warm-start", str(checkpoint), "-o", str(tmp_path / "run")], env={"COLUMNS": "500"}
    )
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if "Error" in line]
    assert line.startswith(f"Error: Warm start from {checkpoint}: ")
    assert re.search(message, line)
    assert not (tmp_path / "run").exists()  # before anything is read or trained
