"""Recipes: those of the package carry the published settings, and a wrong key is named, not ignored."""

import pytest

from modeling_tmde import TmdeConfig
from modeling_tmde.training.objectives import DistanceConstraint, TranslationObjective
from modeling_tmde.training.recipe import RecipeError, load_recipe, recipe_names

LANGUAGES = ["de", "en", "es", "fr", "it"]
INFINITY = float("inf")


def write(tmp_path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# ---- The recipes of the package


def test_names():
    assert {"tmde", "ctmde", "ctmde_p", "small", "quickstart"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_builds(name, tmp_path):
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.description
    objectives = recipe.build_objectives()
    assert isinstance(objectives["translation"], TranslationObjective)
    for objective, options in recipe.sections["objectives"].items():
        for option, value in options.items():
            assert getattr(objectives[objective], option) == value
    arguments = recipe.build_arguments(str(tmp_path / "run"))
    for option, value in recipe.sections["training"].items():
        assert getattr(arguments, option) == value, option
    assert arguments.save_steps == arguments.eval_steps  # the best checkpoint is one that was evaluated
    config = TmdeConfig(
        **recipe.sections["model"],
        vocab_size=recipe.sections["tokenizer"]["vocab_size"],
        languages=recipe.data.languages,
        pivot_languages=recipe.data.pivot_languages,
    )
    assert config.languages == LANGUAGES
    assert config.pivot_languages == ["en", "es"]
    for option, value in recipe.sections["model"].items():
        assert getattr(config, option) == value
    assert arguments.train_max_length <= config.max_position_embeddings
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
    assert arguments.gradient_accumulation_steps == 8
    assert arguments.languages_per_row == 2
    assert arguments.pair_temperature == recipe.data.temperature == INFINITY
    assert 10 <= arguments.num_train_epochs <= 20
    assert recipe.data.train == "Helsinki-NLP/europarl"
    # transformer_vaswani_wmt_en_de_big
    assert arguments.warmup_steps == 4000
    assert arguments.max_grad_norm == 0.0

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
    assert accumulation("batch_tokens=48000") == 3
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


def test_numbers_of_a_file_are_numbers_too(tmp_path):
    path = write(
        tmp_path, "training: {learning_rate: 3e-4, pair_temperature: .inf}\nobjectives: {distance: {weight: 1e-1}}\n"
    )
    recipe = load_recipe(path)
    arguments = recipe.build_arguments(str(tmp_path))
    assert arguments.learning_rate == 0.0003
    assert arguments.pair_temperature == INFINITY
    assert recipe.build_objectives()["distance"].weight == 0.1


def test_a_value_may_hold_equal_signs():
    assert load_recipe("small", ["data.train=a=b.tsv"]).data.train == "a=b.tsv"


# ---- Errors


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learning_rat=1", "'learning_rat' is unknown; did you mean learning_rate"),
        ("learning_rat=1", "'learning_rat' is unknown; did you mean .*learning_rate"),
        ("model.dmodel=1", "'dmodel' is unknown; did you mean .*d_model"),
        ("modell.d_model=1", "'modell.d_model' is unknown; did you mean .*model.d_model"),
        ("objectives.distanse.weight=1", "'distanse' is unknown; did you mean distance"),
        ("objectives.distance.negative=1", "'negative' is unknown; did you mean negatives"),
        ("model.languages=[de]", "'languages' is unknown"),
        ("training.output_dir=x", "'output_dir' is unknown"),
        ("zzzzzz=1", "'zzzzzz' is unknown; sections are data, tokenizer, model, objectives, training"),
        ("learning_rate", "'learning_rate' is not of the form key=value"),
        ("learning_rate=[1", r"learning_rate=\[1 is not YAML"),
        ("objectives.distance=5", "distance"),
        ("objectives=5", "objective|Objective"),
        ("data=x", "data"),
    ],
)
def test_wrong_overrides_are_named(override, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("ctmde", [override])


def test_a_bare_key_of_two_sections_is_refused():
    with pytest.raises(RecipeError, match="use_cache.*(model.use_cache.*training.use_cache|training.*model)"):
        load_recipe("small", ["use_cache=false"])
    assert load_recipe("small", ["model.use_cache=false"]).sections["model"]["use_cache"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: {d_model: 8}\n", "'modle' is unknown; did you mean model"),
        ("model: {dmodel: 8}\n", "'dmodel' is unknown; did you mean .*d_model"),
        ("training: {lr: 1}\n", "'lr' is unknown"),
        ("data: {trian: x}\n", "'trian' is unknown; did you mean train"),
        ("objectives: {distance: {alpha: 1}}\n", "'alpha' is unknown"),
        ("- model\n", "must be a mapping with the sections data, tokenizer"),
        ("model: [1\n", "mine.yaml is not YAML"),
        ("model: 5\n", "model"),
        ("data: abc\n", "data"),
        ("training: [1]\n", "training"),
        ("objectives: {distance: 5}\n", "distance"),
    ],
)
def test_wrong_files_are_named(tmp_path, text, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(tmp_path, text))


def test_unknown_recipes_name_the_known_ones(tmp_path):
    with pytest.raises(RecipeError, match="There is no recipe 'ctmde_q'.* ctmde, ctmde_p, quickstart, small, tmde"):
        load_recipe("ctmde_q")
    with pytest.raises(RecipeError, match="There is no recipe .*absent.yaml"):
        load_recipe(str(tmp_path / "absent.yaml"))


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
    assert recipe.sections == {"data": {}, "tokenizer": {}, "model": {"d_model": 64}, "objectives": {}, "training": {}}
    assert recipe.data.languages == LANGUAGES
    assert recipe.build_objectives() == {}
    assert recipe.build_arguments(str(tmp_path)).learning_rate == 0.0005


def test_an_objective_without_options_has_its_defaults(tmp_path):
    recipe = load_recipe(write(tmp_path, "objectives: {distance: }\n"))
    assert recipe.build_objectives()["distance"].negatives == 40
    recipe.set("objectives.distance.negatives", 3)
    assert recipe.build_objectives()["distance"].negatives == 3
