"""Recipes: those of the package carry the published settings, and a wrong key is named, not ignored."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from modeling_tmde import BagConfig, BagModel, DocumentEmbedder, TmdeConfig
from modeling_tmde.training.architectures import ARCHITECTURES
from modeling_tmde.training.building import stage_recipe
from modeling_tmde.training.objectives import OBJECTIVES, DistanceConstraint
from modeling_tmde.training.recipe import Recipe, RecipeError, load_recipe, recipe_names
from modeling_tmde.training.train import build_model, prepare_tokenizer, train_recipe
from modeling_tmde.training.trainer import TmdeTrainer, load_weights
from tests.conftest import make_dataset, make_rows, tiny_model

LANGUAGES = ["de", "en", "es", "fr", "it"]
INFINITY = float("inf")


def write(tmp_path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# ---- The recipes of the package


def test_names():
    assert {"tmde", "ctmde", "ctmde_p", "small", "quickstart", "bag"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds(name, tmp_path):
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.description
    objectives = recipe.build_objectives()
    assert objectives and all(type(value) is OBJECTIVES[key] for key, value in objectives.items())
    for objective, options in recipe.sections["objectives"].items():
        for option, value in options.items():
            assert getattr(objectives[objective], option) == value
    arguments = recipe.build_arguments(str(tmp_path / "run"))
    for option, value in recipe.sections["training"].items():
        assert value == "auto" or getattr(arguments, option) == value, option
    assert arguments.save_steps == arguments.eval_steps  # the best checkpoint is one that was evaluated
    # Without a tokenizer of its own, a recipe has that of its first stage; on an encoder of the Hub, the encoder's.
    if recipe.architecture == "adapted":
        vocab_size, config = 250002, recipe.build_config()
    else:
        vocab_size = (stage_recipe(recipe) or recipe).sections["tokenizer"]["vocab_size"]
        config = recipe.build_config(vocab_size=vocab_size)
    assert type(config) is ARCHITECTURES[recipe.architecture].config
    assert config.vocab_size == vocab_size
    assert config.languages == recipe.data.languages
    assert config.pivot_languages == recipe.data.pivot_languages
    for option, value in recipe.sections["model"].items():
        assert option in ("architecture", "encoder") or getattr(config, option) == value
    assert arguments.train_max_length <= (getattr(config, "max_position_embeddings", INFINITY) or 512)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "bottleneck"), [("tmde", "first"), ("ctmde", "first"), ("ctmde_p", "pyramid")])
def test_settings_of_thesis_4_3(name, bottleneck, tmp_path):
    recipe = load_recipe(name)
    arguments = recipe.build_arguments(str(tmp_path))
    # footnote 4 of section 4.3.1
    assert (arguments.adam_beta1, arguments.adam_beta2) == (0.9, 0.98)
    assert arguments.learning_rate == 0.0005
    assert arguments.lr_scheduler_type == "inverse_sqrt"
    assert arguments.weight_decay == 0.0001
    # section 4.3.1: 128K tokens a batch, uniform sampling, ten to twenty epochs
    assert arguments.batch_tokens == 128_000
    assert arguments.micro_batch_tokens * arguments.gradient_accumulation_steps == 128_000
    assert arguments.gradient_accumulation_steps == 16
    assert arguments.languages_per_row == 2
    assert arguments.pair_temperature == recipe.data.temperature == INFINITY
    assert 10 <= arguments.num_train_epochs <= 20
    assert recipe.data.train == "Helsinki-NLP/europarl"
    # transformer_vaswani_wmt_en_de_big
    assert arguments.warmup_steps == 4000
    assert arguments.max_grad_norm == 25.0

    # table 4.1
    config = TmdeConfig(**recipe.sections["model"], vocab_size=recipe.sections["tokenizer"]["vocab_size"])
    assert config.bottleneck == bottleneck
    assert config.vocab_size == 50_000
    assert config.d_model == 1024
    assert (config.encoder_layers, config.decoder_layers) == (6, 1)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (16, 16)
    assert (config.encoder_ffn_dim, config.decoder_ffn_dim) == (4096, 4096)
    assert config.dropout == 0.3
    assert not config.share_embeddings

    objectives = recipe.build_objectives()
    assert objectives["translation"].label_smoothing == 0.1
    if name == "tmde":
        assert set(objectives) == {"translation"}
        assert objectives["translation"].weight == 1.0
        return
    assert set(objectives) == {"translation", "distance"}
    assert objectives["translation"].weight == 0.5  # eq. 4.21
    assert objectives["translation"].reduction == "sum"
    distance = objectives["distance"]
    assert isinstance(distance, DistanceConstraint)
    assert distance.negatives == 40  # N_s
    assert distance.hinge_weight == 1.0  # lambda
    assert distance.margin == 0.5  # alpha
    assert distance.weight == 0.25  # beta
    assert distance.normalizer == "pairwise"


def test_accumulation_follows_from_batch_tokens(tmp_path):
    def accumulation(*overrides):
        arguments = load_recipe("ctmde", list(overrides)).build_arguments(str(tmp_path))
        return arguments.gradient_accumulation_steps

    assert accumulation("micro_batch_tokens=4000") == 32
    assert accumulation("micro_batch_tokens=300000") == 1
    assert accumulation("batch_tokens=48000") == 6
    assert accumulation("batch_tokens=null", "gradient_accumulation_steps=5") == 5


# ---- Overrides


def test_full_bare_and_objective_keys():
    recipe = load_recipe(
        "ctmde",
        [
            "training.learning_rate=3e-4",
            "d_model=512",
            " tokenizer.vocab_size = 8000",
            "data.languages=[de, en]",
            "pivot_languages=[en]",
            "train=corpus.tsv",
            "objectives.distance.normalizer=none",
            "objectives.translation.label_smoothing=0",
            "bf16=false",
            "pair_temperature=5",
            "max_minutes=1.5",
        ],
    )
    assert recipe.sections["training"]["learning_rate"] == 0.0003
    assert isinstance(recipe.sections["training"]["learning_rate"], float)  # YAML itself reads 3e-4 as a string
    assert recipe.sections["model"]["d_model"] == 512
    assert recipe.sections["tokenizer"]["vocab_size"] == 8000
    assert (recipe.data.languages, recipe.data.pivot_languages) == (["de", "en"], ["en"])
    assert recipe.data.train == "corpus.tsv"
    objectives = recipe.build_objectives()
    assert (objectives["distance"].normalizer, objectives["distance"].margin) == ("none", 0.5)
    assert objectives["translation"].label_smoothing == 0
    training = recipe.sections["training"]
    assert (training["bf16"], training["pair_temperature"], training["max_minutes"]) == (False, 5, 1.5)
    untouched = load_recipe("ctmde")
    assert untouched.sections["model"]["d_model"] == 1024  # a recipe of its own each time


def test_objectives_are_removed_replaced_and_added():
    assert set(load_recipe("ctmde", ["objectives.distance=null"]).build_objectives()) == {"translation"}
    replaced = load_recipe("ctmde", ["objectives.distance={negatives: 7}"]).build_objectives()["distance"]
    assert (replaced.negatives, replaced.margin, replaced.weight) == (7, 0.5, 0.25)
    added = load_recipe("tmde", ["objectives.distance.weight=0.75"]).build_objectives()
    assert set(added) == {"translation", "distance"}
    assert (added["distance"].weight, added["distance"].negatives) == (0.75, 40)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3e-4", 0.0003), ("1E5", 100000.0), ("inf", INFINITY), (".inf", INFINITY), ("12", 12), ("null", None)],
)
def test_values_of_overrides(text, value):
    found = load_recipe("small", [f"max_minutes={text}"]).sections["training"]["max_minutes"]
    assert found == value and type(found) is type(value)


def test_norwegian_is_no_false(tmp_path):
    listed = ["de", "en", "no"]
    path = write(tmp_path, "data:\n  languages: [de, en, no]\n  pivot_languages:\n  - en\n  - no\n")
    recipe = load_recipe(path)
    assert recipe.data.languages == listed and recipe.data.pivot_languages == ["en", "no"]
    recipe = load_recipe("small", ["languages=[de, en, no]", "warm_start.overrides.languages=[en, no]", "bf16=no"])
    assert recipe.data.languages == listed and recipe.warm_start.overrides["languages"] == ["en", "no"]
    assert recipe.sections["training"]["bf16"] is False
    copy = tmp_path / "copy.yaml"
    copy.write_text(recipe.to_yaml())
    assert load_recipe(str(copy)).data.languages == listed


def test_numbers_of_a_file_are_numbers_too(tmp_path):
    path = write(
        tmp_path, "training: {learning_rate: 3e-4, pair_temperature: .inf}\nobjectives: {distance: {weight: 1e-1}}\n"
    )
    recipe = load_recipe(path)
    arguments = recipe.build_arguments(str(tmp_path))
    assert arguments.learning_rate == 0.0003
    assert arguments.pair_temperature == INFINITY
    assert recipe.build_objectives()["distance"].weight == 0.1


def test_keys_of_a_first_stage_are_set_one_by_one():
    recipe = load_recipe(
        "small", ["warm_start.overrides.max_minutes=3e-1", "warm_start.overrides.model.d_model=64", "d_model=64"]
    )
    before = load_recipe("small").warm_start.overrides
    assert before["max_minutes"] > 1 and before["model.d_model"] == 512
    assert recipe.warm_start.overrides == {**before, "max_minutes": 0.3, "model.d_model": 64}
    stage = stage_recipe(recipe)
    assert (stage.sections["training"]["max_minutes"], stage.sections["model"]["d_model"]) == (0.3, 64)
    recipe.set("warm_start.overrides.max_minuts", 5)
    with pytest.raises(RecipeError, match="'max_minuts' is unknown; did you mean .*max_minutes"):
        stage_recipe(recipe)


def test_a_value_may_hold_equal_signs():
    assert load_recipe("small", ["data.train=a=b.tsv"]).data.train == "a=b.tsv"


# ---- Errors


def test_wrong_training_values_name_section_and_recipe(tmp_path):
    recipe = load_recipe("small", ["cooldown=3"])
    with pytest.raises(RecipeError, match="Section 'training' of recipe small: cooldown=3"):
        recipe.build_arguments(str(tmp_path))


# ---- Files


@pytest.mark.parametrize("name", recipe_names())
def test_yaml_round_trip(name, tmp_path):
    recipe = load_recipe(name, ["learning_rate=3e-4", "pair_temperature=inf", "data.train=[a.tsv, größe.tsv]"])
    loaded = load_recipe(write(tmp_path, recipe.to_yaml()))
    assert loaded.sections == recipe.sections
    assert loaded.description == recipe.description
    assert loaded.to_yaml() == recipe.to_yaml()


def test_a_file_may_leave_sections_out(tmp_path):
    recipe = load_recipe(write(tmp_path, "model: {d_model: 64}\ntraining:\n"))
    assert recipe.name == "mine"
    empty = {"data": {}, "tokenizer": {}, "warm_start": {}, "objectives": {}, "training": {}, "card": {}}
    assert recipe.sections == {**empty, "model": {"d_model": 64}}
    assert (recipe.warm_start.checkpoint, recipe.warm_start.recipe) == (None, None)
    assert recipe.data.languages == LANGUAGES
    assert recipe.build_objectives() == {}
    assert recipe.build_arguments(str(tmp_path)).learning_rate == 0.0005


def test_an_objective_without_options_has_its_defaults(tmp_path):
    recipe = load_recipe(write(tmp_path, "objectives: {distance: }\n"))
    assert recipe.build_objectives()["distance"].negatives == 40
    recipe.set("objectives.distance.negatives", 3)
    assert recipe.build_objectives()["distance"].negatives == 3


# ---- Architectures


def small_bag(*overrides: str) -> Recipe:
    """The bag on a part of the built-in sample, for 12 steps."""
    fixed = ["train=sample", "max_rows=600", "dev_rows=60", "vocab_size=400", "max_characters=20000", "d_model=16"]
    short = ["max_steps=12", "warmup_steps=2", "cooldown=0", "logging_steps=1", "eval_steps=6", "micro_batch_rows=32"]
    whole = ["token_dropout=0"]  # whole texts, whose accuracy rises within a few steps
    return load_recipe("bag", [*fixed, *short, *whole, "eval_pairs=[de-fr, en-es]", "eval_loss_rows=50", *overrides])


@pytest.mark.parametrize(("name", "override"), [("laser_1", "d_model=7"), ("small", "d_model=7")])
def test_sizes_that_do_not_fit_name_section_and_recipe(name, override):
    with pytest.raises(RecipeError, match=f"Section 'model' of recipe {name}: .*{override}"):
        load_recipe(name, [override]).build_config()


def test_tokenizer_and_model_of_the_bag(tmp_path):
    recipe = load_recipe("bag", ["vocab_size=400", "d_model=16", "pivot_languages=[de]"])
    rows = make_dataset(make_rows(1200, seed=5))
    tokenizer = prepare_tokenizer(recipe, rows, tmp_path / "tokenizer")
    assert tokenizer.model_max_length > 10**9
    assert tokenizer("HAUS katze")["input_ids"] == tokenizer("haus Katze")["input_ids"]
    words = tokenizer("katze katze", add_special_tokens=False)["input_ids"]
    assert words[: len(words) // 2] == words[len(words) // 2 :]  # first in the text or not
    model = build_model(recipe, tokenizer)
    assert isinstance(model, BagModel)
    assert model.embed_tokens.weight.shape == (len(tokenizer), 16)
    assert (model.config.languages, model.config.pivot_languages) == (LANGUAGES, ["de"])
    ids = (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert (model.config.bos_token_id, model.config.pad_token_id, model.config.eos_token_id) == ids


def test_tokenizer_of_the_other_recipes_ends_where_the_model_does(tmp_path):
    recipe = load_recipe("small", ["vocab_size=400", "max_position_embeddings=77"])
    assert prepare_tokenizer(recipe, make_dataset(make_rows(50)), tmp_path / "a").model_max_length == 77
    recipe = load_recipe("light", ["vocab_size=400"])  # the default of the config
    assert prepare_tokenizer(recipe, make_dataset(make_rows(50)), tmp_path / "b").model_max_length == 2048


@pytest.mark.parametrize("name", ["tmde", "ctmde", "ctmde_p", "tmde_f", "dbtmde"])
def test_the_thesis_systems_read_750_tokens(name, tmp_path):
    sizes = ["vocab_size=400", "d_model=16", "encoder_attention_heads=2", "encoder_ffn_dim=8", "decoder_ffn_dim=8"]
    recipe = load_recipe(name, [*sizes, "decoder_attention_heads=2"])
    tokenizer = prepare_tokenizer(recipe, make_dataset(make_rows(50)), tmp_path / "tokenizer")
    model = build_model(recipe, tokenizer)
    assert (tokenizer.model_max_length, model.config.max_position_embeddings) == (750, 2048)
    assert DocumentEmbedder(model, tokenizer).max_length == 750


def test_objectives_that_the_bag_cannot_have(tmp_path):
    with pytest.raises(ValueError, match="'translation' needs a decoder, which BagModel does not have"):
        train_recipe(small_bag("objectives.translation.weight=1"), tmp_path / "run")


@pytest.fixture(scope="module")
def bag_run(tmp_path_factory) -> tuple[TmdeTrainer, Path]:
    folder = tmp_path_factory.mktemp("bag") / "run"
    return train_recipe(small_bag(), folder), folder


def test_the_bag_learns_and_is_measured(bag_run):
    trainer, folder = bag_run
    losses = [entry["infonce_loss"] for entry in trainer.state.log_history if "infonce_loss" in entry]
    accuracies = [entry["infonce_accuracy"] for entry in trainer.state.log_history if "infonce_accuracy" in entry]
    assert len(losses) == 12
    assert sum(losses[-3:]) / 3 < sum(losses[:3]) / 3 - 0.3
    assert all(0 <= accuracy <= 1 for accuracy in accuracies) and sum(accuracies[-3:]) > sum(accuracies[:3])
    evaluations = [entry for entry in trainer.state.log_history if "eval_retrieval" in entry]
    assert [entry["step"] for entry in evaluations] == [6, 12]
    assert evaluations[1]["eval_retrieval"] > 3 / 60  # chance is 1 / 60
    for name in ("eval_dev_p1_de-fr", "eval_dev_p1_en-es", "eval_dev_infonce_loss", "eval_dev_infonce_accuracy"):
        assert name in evaluations[1]
    assert json.loads((folder / "results.json").read_text())["best"]["eval_retrieval"] > 0


def test_auto_classes_open_the_trained_bag(bag_run):
    trainer, folder = bag_run
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, BagModel)
    trained = trainer.model.model
    assert (trained.token_weights != trained.initial_token_weights()).sum() > 50
    for name, value in model.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name]), name
    assert "use_cache" not in json.loads((folder / "config.json").read_text())  # which only a decoder has
    embedder = DocumentEmbedder.from_pretrained(str(folder), max_length=10**6)
    assert embedder.max_length == 10**6  # neither model nor tokenizer has a longest text
    inputs = tokenizer(["Das Haus ist alt."], return_tensors="pt")
    expected = model(**inputs).pooler_output[0].detach()
    torch.testing.assert_close(torch.as_tensor(embedder.encode(["Das Haus ist alt."])[0]), expected)


def test_a_bag_resumes(bag_run, tmp_path):
    trainer, folder = bag_run
    shutil.copytree(folder, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint-12")
    resumed = train_recipe(small_bag(), tmp_path / "run", resume=True)  # from step 6
    assert resumed.state.global_step == 12
    entries = [entry for entry in resumed.state.log_history if "infonce_loss" in entry]
    expected = [entry for entry in trainer.state.log_history if "infonce_loss" in entry]
    assert [entry["infonce_loss"] for entry in entries] == pytest.approx([e["infonce_loss"] for e in expected])
    for name, value in resumed.model.state_dict().items():
        torch.testing.assert_close(value, trainer.model.state_dict()[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["bag", "tied", "untied"])
def test_weights_that_do_not_fit_are_named(name, tmp_path):
    def model(seed: int):
        torch.manual_seed(seed)
        if name == "bag":
            return BagModel(BagConfig(vocab_size=400, d_model=8))
        return tiny_model(seed, share_embeddings=name == "tied")

    lost = {"bag": "token_weights"}.get(name, "model.layer_norm.bias")
    model(0).save_pretrained(tmp_path)
    target = model(1)
    load_weights(target, str(tmp_path))
    for key, value in model(0).state_dict().items():
        assert torch.equal(target.state_dict()[key], value), key
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({key: value for key, value in tensors.items() if key != lost}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=rf"do not fit the model: missing \['{lost}'\]"):
        load_weights(model(1), str(tmp_path))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rte=1", "Recipe key 'learning_rte' is unknown; did you mean learning_rate"),
        ("training.learning_rte=1", "Section 'training' of recipe ctmde: key 'learning_rte' is unknown; did you mean"),
        ("learning_rate=fast", "learning_rate: found 'fast', expected float"),
        ("data.languages=de", "languages: found 'de', expected list"),
        ("model.d_model=wide", "d_model: found 'wide', expected int"),
        ("objectives.distanse.weight=1", "distanse"),
        ("objectives.distance.wait=1", "key 'wait' is unknown; did you mean weight"),
        ("model.architecture=bags", "model.architecture 'bags' is unknown; did you mean bag"),
        ("data.temperature=-1", "temperature: found -1, expected a number above 0"),
        ("data.bad_rows=skip", "bad_rows: found 'skip'"),
        ("model.d_model=0", "Section 'model' of recipe ctmde: d_model: found 0, expected at least 1"),
        ("model.encoder_layers=-1", "encoder_layers: found -1, expected at least 1"),
        ("tokenizer.vocab_size=0", "vocab_size: found 0, expected at least 1"),
        ("model", "Override 'model' is not of the form key=value"),
        ("model=5", "Recipe key 'model' is a section; give one of its keys"),
    ],
)
def test_wrong_keys_and_values_are_one_sentence(override, message):
    with pytest.raises(RecipeError, match=message) as raised:
        load_recipe("ctmde", [override])
    assert "\n" not in str(raised.value)


def test_unknown_recipes_name_the_closest():
    with pytest.raises(RecipeError, match="Recipe 'quickstrt' is unknown; did you mean quickstart"):
        load_recipe("quickstrt")
