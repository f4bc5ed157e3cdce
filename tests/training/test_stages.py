"""Runs of which the second begins with the model of the first."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training.trainers import checkpoint_recipe
from tmde.training.recipe import Recipe, RecipeError, load_recipe, packaged_names
from tmde.training.recipe.building import build_config
from tmde.training.run import train_recipe
from tmde.training.starts import choose_start
from tmde.training.starts.checkpoint import check_fit

SHORT = [
    "max_steps=4",
    "warmup_steps=1",
    "cooldown=0",
    "logging_steps=1",
    "eval_steps=2",
    "max_minutes=null",
    "eval_minutes=null",
    "bf16=false",
    "batch_tokens=null",
    "micro_batch_tokens=2000",
    "dataloader_num_workers=0",
    "train=sample",
    "max_rows=300",
    "dev_rows=30",
    "disable_tqdm=true",
    "eval_loss_rows=10",
    "eval_pairs=[de-fr]",
    "seed=7",
]
SIZES = [
    "d_model=32",
    "encoder_attention_heads=4",
    "encoder_ffn_dim=48",
    "decoder_attention_heads=4",
    "decoder_ffn_dim=48",
    "embedding_learning_rate=0.001",
    "objectives.translation.row_share=0.5",
]
BAG = [
    "d_model=16",
    "sublinear_counts=true",
    "per_device_train_batch_size=32",
    "token_dropout=0.3",
    "tokenizer.vocab_size=400",
    "tokenizer.max_characters=20000",
]


def second(checkpoint: Path, *overrides: str) -> Recipe:
    """The recipe `small` at a tiny size on some of the sample, after a checkpoint."""
    return load_recipe("small", [*SHORT, *SIZES, f"warm_start.checkpoint={checkpoint}", *overrides])


@pytest.fixture(scope="module")
def bag(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stages") / "bag"
    train_recipe(load_recipe("bag", [*SHORT, *BAG]), folder)
    return folder


@pytest.fixture(scope="module")
def finished(bag) -> Path:
    folder = bag.with_name("run")
    train_recipe(second(bag), folder)
    return folder


# ---- A whole run


def test_the_second_run_takes_the_tokenizer_and_the_table_of_the_first(bag, finished):
    tokenizer = AutoTokenizer.from_pretrained(finished)
    first = AutoTokenizer.from_pretrained(bag)
    assert tokenizer.get_vocab() == first.get_vocab()
    assert len(tokenizer) == 400
    # The normalizer is kept as well.
    assert tokenizer("HAUS und Hof")["input_ids"] == first("haus und hof")["input_ids"]
    config = AutoModelForSeq2SeqLM.from_pretrained(finished).config
    assert config.bag_residual
    assert config.sublinear_counts
    assert tokenizer.model_max_length == config.max_position_embeddings
    # The same rows are held out.
    first_run = json.loads((bag / "run.json").read_text())
    run = json.loads((finished / "run.json").read_text())
    assert first_run["data"] == run["data"]
    report = run["warm_start"]
    assert (report["checkpoint"], report["model_type"]) == (str(bag), "tmde_bag")
    assert (report["tokens_copied"], report["tokens_mapped"], report["tokens_left"]) == (400, 0, 0)
    assert (report["checkpoint_width"], report["width"]) == (16, 32)
    assert report["minutes"] == json.loads((bag / "results.json").read_text())["minutes"]
    assert load_recipe(str(finished / "recipe.yaml")).settings() == second(bag).settings()


def test_before_its_first_step_the_model_is_the_bag(bag, finished, tmp_path):
    start = choose_start(second(bag), tmp_path)
    tokenizer = start.tokenizer(None)
    assert tokenizer.name_or_path == str(bag)
    model = start.apply(tokenizer)[0].eval()
    bag_model = AutoModel.from_pretrained(bag)
    inputs = tokenizer(
        ["la casa, la casa, la casa", "das alte Haus"], return_tensors="pt", padding=True
    )
    vectors = nn.functional.pad(bag_model(**inputs).pooler_output, (0, 16))  # New columns are 0.
    expected = nn.functional.layer_norm(math.sqrt(32) * vectors, (32,))
    torch.testing.assert_close(model.model(**inputs).pooler_output, expected, atol=1e-5, rtol=1e-5)
    trained = AutoModel.from_pretrained(finished)
    assert (trained(**inputs).pooler_output - expected).abs().max() > 1e-3  # and then it learns


def test_a_bag_and_a_model_with_a_bag_hand_on_how_a_bag_is_made(bag, finished, tmp_path):
    for checkpoint in (bag, finished):
        recipe = second(checkpoint)
        start = choose_start(recipe, tmp_path / "other")
        start.check()
        assert start.tokenizer(None).name_or_path == str(checkpoint)
        assert start.completed_recipe.model.bag_residual is True
        assert start.completed_recipe.model.sublinear_counts is True
        assert recipe.tokenizer.settings() == {}  # the recipe itself stays
    assert not (tmp_path / "other").exists()


# ---- Without the checkpoint


NEED_CHECKPOINTS = {
    "base",
    "cnv",
    "default",
    "nv",
    "small",
    "unsupervised_translation",
    "xnli_bilstm",
    "xnli_cbow",
}


def test_a_recipe_that_needs_a_checkpoint_tells_the_command_that_makes_it(tmp_path):
    settings = ["data.train=[my texts.tsv, b.tsv]", "data.languages=[cs, en]"]
    settings += ["data.pivot_languages=[en]", "data.columns={cs: Source text, en: Target}"]
    recipe = load_recipe("small", settings)
    with pytest.raises(RecipeError) as error:
        train_recipe(recipe, tmp_path / "run")
    start = tmp_path / "run-start"
    assert str(error.value) == (
        "Recipe small is initialized from a checkpoint. Make it: tmde train bag d_model=512 "
        "sublinear_counts=true max_minutes=20 eval_minutes=10 token_dropout=0.3 "
        "neighbor_share=0.05 --train 'my texts.tsv' --train b.tsv --languages cs,en --pivots en "
        f"--columns 'cs=Source text,en=Target' -o {start}. Then repeat your command with "
        f"--warm-start {start} (and without --from-scratch)"
    )
    assert not (tmp_path / "run").exists()


def test_the_checkpoint_of_a_run_in_the_current_folder_is_beside_it(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    settings = ["data.train=a.tsv", "data.languages=[cs, en]", "data.pivot_languages=[en]"]
    recipe = load_recipe("small", settings)
    with pytest.raises(RecipeError, match=f"-o {tmp_path}/run-start"):
        train_recipe(recipe, ".")


def test_recipes_that_need_a_checkpoint():
    names = set()
    for name in packaged_names():
        if load_recipe(name).warm_start.made_by is not None:
            names.add(name)
    assert names == NEED_CHECKPOINTS


@pytest.mark.parametrize("name", sorted(NEED_CHECKPOINTS - {"default"}))
def test_the_command_makes_a_checkpoint_that_fits(name):
    check_fit(load_recipe(name), build_config(checkpoint_recipe(name)))
