"""A first stage with fewer languages than the run, the tokenizer of both, and where it begins itself."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModel, AutoTokenizer

from modeling_tmde import AlignedModel, BagModel, LaserModel
from modeling_tmde.training.building import STAGE_FOLDER, share_tokenizer, stage_recipe
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe
from modeling_tmde.training.train import load_data, train_recipe

SHORT = [
    "max_steps=2", "warmup_steps=1", "cooldown=0", "logging_steps=1", "eval_steps=2", "batch_tokens=null",
    "micro_batch_tokens=600", "train_max_length=64", "bf16=false", "dataloader_num_workers=0",
]  # fmt: skip
DATA = ["train=sample", "streaming=false", "temperature=null", "max_rows=200", "dev_rows=20", "eval_loss_rows=10"]
ENCODERS = {"embedding_dim": 12, "d_model": 16, "encoder_layers": 1, "pooling": "max", "dropout": 0.0}
LASER = ["model.embedding_dim=12", "model.d_model=16", "model.decoder_hidden_size=16"]
TOKENIZER = ["tokenizer.vocab_size=350", "tokenizer.max_characters=20000"]


def run_recipe(*overrides: str, stage: tuple[str, ...] = ()) -> Recipe:
    """`xnli_bilstm` at a tiny size: an aligned model of five languages after a translation model of two."""
    recipe = load_recipe("xnli_bilstm", [*DATA, *SHORT, "disable_tqdm=true", *overrides])
    recipe.set("model.encoder_config", ENCODERS)
    for override in (*SHORT, *LASER, *TOKENIZER, *stage):
        key, _, value = override.partition("=")
        recipe.set(f"warm_start.overrides.{key}", yaml.safe_load(value))
    return recipe


def record(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


# ---- Languages


def test_a_first_stage_may_have_fewer_languages():
    recipe = run_recipe()
    stage = stage_recipe(recipe)
    assert stage.data.languages == ["en", "es"] and stage.data.pivot_languages == ["es"]
    config = stage.build_config()
    assert (config.languages, config.pivot_languages) == (["en", "es"], ["es"])
    others = {key: value for key, value in recipe.sections["data"].items() if "languages" not in key}
    assert {key: value for key, value in stage.sections["data"].items() if "languages" not in key} == others
    assert others["max_rows"] == 200
    # The recipe of the run is as it was.
    assert recipe.data.languages == ["de", "en", "es", "fr", "it"] and recipe.data.pivot_languages == ["en"]


@pytest.mark.parametrize("prefix", ["", "data."])
def test_keys_of_the_data_have_two_names(prefix):
    recipe = load_recipe("xnli_cbow")
    recipe.set("warm_start.overrides", {f"{prefix}languages": ["fr", "en"], f"{prefix}pivot_languages": ["fr"]})
    assert stage_recipe(recipe).data.languages == ["fr", "en"]
    assert stage_recipe(recipe).data.pivot_languages == ["fr"]


def test_without_overrides_the_languages_are_the_runs():
    recipe = load_recipe("xnli_cbow", ["languages=[en, fr]"])
    recipe.set("warm_start.overrides", {})
    assert stage_recipe(recipe).sections["data"] == recipe.sections["data"]


@pytest.mark.parametrize("value", [["en", "pl"], [], "en", None, {"en": 1}])
@pytest.mark.parametrize("key", ["data.languages", "data.pivot_languages", "languages"])
def test_other_languages_than_the_runs_are_refused(key, value):
    recipe = load_recipe("xnli_cbow", ["languages=[de, en]"])
    recipe.set("warm_start.overrides", {key: value})
    with pytest.raises(RecipeError, match=f"found {key}=.*, expected a list of some of .'de', 'en'"):
        stage_recipe(recipe)


@pytest.mark.parametrize("key", ["data.max_rows", "max_rows", "data.train", "dev_rows", "streaming", "data_seed"])
def test_other_data_than_the_runs_are_refused(key):
    recipe = load_recipe("xnli_cbow")
    recipe.set("warm_start.overrides", {"data.languages": ["en", "es"], key: 5})
    with pytest.raises(RecipeError, match=f"found {key}=5, but the first stage has the run's data and seed"):
        stage_recipe(recipe)


# ---- The tokenizer of both


def test_a_tokenizer_of_fewer_languages_learns_all_of_them(tmp_path):
    recipe = run_recipe("languages=[en, es, it]")
    rows, _, _ = load_data(recipe)
    folder = tmp_path / "tokenizer"
    share_tokenizer(recipe, rows, folder)
    assert recipe.warm_start.overrides["tokenizer.path"] == str(folder)
    assert stage_recipe(recipe).sections["tokenizer"]["path"] == str(folder)
    shared = AutoTokenizer.from_pretrained(folder)
    assert len(shared) == 350 and stage_recipe(recipe).data.languages == ["en", "es"]
    texts = [row["it"] for row in rows["translation"]]
    # One of English and Spanish alone cuts Italian into more pieces.
    two = run_recipe("languages=[en, es]", stage=("data.languages=[en]", "data.pivot_languages=[en]"))
    share_tokenizer(two, rows, tmp_path / "two")
    other = AutoTokenizer.from_pretrained(tmp_path / "two")
    assert len(other) == 350

    def pieces(tokenizer) -> int:
        return sum(len(ids) for ids in tokenizer(texts)["input_ids"])

    assert pieces(shared) < 0.97 * pieces(other)


@pytest.mark.parametrize(
    ("overrides", "stage"),
    [
        (["languages=[en, es]"], ()),  # no fewer
        ([], ("tokenizer.path=somewhere",)),
        (["tokenizer.vocab_size=300"], ()),  # the run has one of its own
        (["tokenizer.path=somewhere"], ()),
        (["warm_start.checkpoint=somewhere"], ()),  # no first stage
    ],
)
def test_otherwise_nothing_is_shared(overrides, stage, tmp_path):
    recipe, untouched = (run_recipe(*overrides, stage=stage) for _ in range(2))
    share_tokenizer(recipe, None, tmp_path / "tokenizer")
    assert recipe.sections == untouched.sections
    assert not list(tmp_path.iterdir())


def test_nor_where_the_stage_has_that_of_its_checkpoint(tmp_path):
    recipe = load_recipe("cnv", ["languages=[de, en, es]", "pivot_languages=[de, en]", "warm_start.recipe=nv"])
    recipe.set("warm_start.overrides", {"data.languages": ["de", "en"], "warm_start.checkpoint": "somewhere"})
    assert not recipe.sections["tokenizer"] and not stage_recipe(recipe).sections["tokenizer"]
    share_tokenizer(recipe, None, tmp_path / "tokenizer")
    assert "tokenizer.path" not in recipe.warm_start.overrides and not list(tmp_path.iterdir())


# ---- Runs


@pytest.fixture(scope="module")
def bag(tmp_path_factory) -> Path:
    """A bag of two languages, which others begin with."""
    folder = tmp_path_factory.mktemp("bag") / "run"
    size = [
        "model.d_model=12",
        "max_minutes=null",
        "languages=[en, it]",
        "pivot_languages=[en]",
        "disable_tqdm=true",
        "eval_pairs=null",
    ]
    train_recipe(load_recipe("bag", [*DATA, *SHORT, *TOKENIZER, "tokenizer.vocab_size=330", *size]), folder)
    return folder


def test_a_run_of_five_languages_after_a_stage_of_two(tmp_path):
    folder = tmp_path / "run"
    train_recipe(run_recipe("max_steps=1"), folder)
    stage, model = folder / STAGE_FOLDER, AutoModel.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(stage)
    assert isinstance(encoder, LaserModel) and encoder.config.languages == ["en", "es"]
    assert isinstance(model, AlignedModel) and list(model.encoders) == ["de", "en", "es", "fr", "it"]
    vocabularies = [AutoTokenizer.from_pretrained(path).get_vocab() for path in (folder, stage, folder / "tokenizer")]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2] and len(vocabularies[0]) == 350
    recipes = [load_recipe(str(path / "recipe.yaml")) for path in (folder, stage)]
    assert recipes[0].data.languages == ["de", "en", "es", "fr", "it"] and recipes[1].data.languages == ["en", "es"]
    assert "tokenizer.path" not in recipes[0].warm_start.overrides  # it can be repeated elsewhere
    report = record(folder)["warm_start"]
    assert (report["model_type"], report["tokens_copied"], report["tensors_kept"]) == ("tmde_laser", 350, [])
    table = encoder.embed_tokens.weight
    for name, parameter in encoder.named_parameters():  # the frozen encoder is what the first stage made
        torch.testing.assert_close(model.encoders["en"].get_parameter(name), parameter, rtol=1e-6, atol=1e-7)
    learnt = {code: not torch.equal(part.embed_tokens.weight, table) for code, part in model.encoders.items()}
    assert sum(learnt.values()) == 1 and not learnt["en"]  # that of the one pair of the one step


def test_a_first_stage_may_begin_with_a_checkpoint_of_its_own(bag, tmp_path):
    """Whose tokenizer is then that of all, whatever its languages were; nothing else is trained for it."""
    folder = tmp_path / "run"
    recipe = run_recipe("max_steps=1")
    del recipe.sections["warm_start"]["overrides"]["tokenizer.vocab_size"]
    del recipe.sections["warm_start"]["overrides"]["tokenizer.max_characters"]
    recipe.set("warm_start.overrides.warm_start.checkpoint", str(bag))
    recipe.set("warm_start.overrides.tokenizer.path", str(bag))
    stage = stage_recipe(recipe)
    assert stage.warm_start.checkpoint == str(bag) and recipe.warm_start.checkpoint is None
    train_recipe(recipe, folder)
    reports = [record(path)["warm_start"] for path in (folder / STAGE_FOLDER, folder)]
    assert [report["checkpoint"] for report in reports] == [str(bag), str(folder / STAGE_FOLDER)]
    assert [report["model_type"] for report in reports] == ["tmde_bag", "tmde_laser"]
    assert not (folder / STAGE_FOLDER / STAGE_FOLDER).exists() and not (folder / "tokenizer").exists()
    expected = AutoTokenizer.from_pretrained(bag).get_vocab()
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == expected and len(expected) == 330
    assert isinstance(AutoModel.from_pretrained(bag), BagModel)


def test_a_run_with_a_tokenizer_of_its_own_maps_that_of_the_stage(tmp_path):
    folder = tmp_path / "run"
    train_recipe(run_recipe("max_steps=1", "tokenizer.vocab_size=300", "tokenizer.max_characters=20000"), folder)
    sizes = [len(AutoTokenizer.from_pretrained(path)) for path in (folder, folder / STAGE_FOLDER)]
    assert sizes == [300, 350]
    assert AutoModel.from_pretrained(folder).config.vocab_size == 300
    report = record(folder)["warm_start"]
    assert report["tokens_copied"] + report["tokens_mapped"] == 300 and report["tokens_mapped"] > 0


@pytest.mark.parametrize(("pairs", "expected"), [(["de-en", "fr-en"], ["de-en"]), (["fr-en"], None)])
def test_a_stage_is_evaluated_on_the_pairs_that_it_has(pairs, expected):
    recipe = load_recipe("xnli_bilstm", ["data.languages=[de, en, fr]", f"eval_pairs={pairs}"])
    recipe.set("warm_start.overrides.data.languages", ["de", "en"])
    recipe.set("warm_start.overrides.data.pivot_languages", ["de"])
    assert stage_recipe(recipe).sections["training"]["eval_pairs"] == expected
