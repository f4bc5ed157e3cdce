"""Recipes: typed, frozen, and with errors that name key, value and what is expected."""

import dataclasses
import inspect
from pathlib import Path

import pydantic
import pytest
import torch

from modeling_tmde import BagModel
from tests.conftest import make_dataset, make_rows
from tmde import DocumentEmbedder
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.recipe import (
    Recipe,
    RecipeError,
    load_recipe,
    packaged_names,
    with_overrides,
    with_sections,
    with_settings,
)
from tmde.training.recipe.architectures import ARCHITECTURES
from tmde.training.recipe.building import (
    build_arguments,
    build_config,
    build_objectives,
    check_fit_of_objectives,
    check_pyramid,
)
from tmde.training.recipe.options import config_keys, model_keys, objective_keys, training_keys
from tmde.training.run import train_recipe
from tmde.training.starts.checkpoint import NewModel

LANGUAGES = ["de", "en", "es", "fr", "it"]
INFINITY = float("inf")


def write(folder: Path, text: str) -> str:
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    return str(folder / "mine.yaml")


# ---- The recipes of the package


@pytest.mark.parametrize("name", packaged_names())
def test_every_recipe_survives_a_round_trip(name, tmp_path):
    changed = load_recipe(
        name, ["learning_rate=3e-4", "pair_temperature=.inf", "data.train=[a.tsv, größe.tsv]"]
    )
    loaded = load_recipe(write(tmp_path, changed.to_yaml()))
    assert changed.name == name
    assert changed.description
    assert loaded.description == changed.description
    assert loaded.settings() == changed.settings()
    assert loaded.to_yaml() == changed.to_yaml()  # The order of the keys is the same as well.


def test_accumulation_follows_from_batch_tokens(tmp_path):
    def accumulation(*overrides):
        arguments = build_arguments(load_recipe("ctmde", overrides), str(tmp_path))
        return arguments.gradient_accumulation_steps

    assert accumulation("micro_batch_tokens=4000") == 32
    assert accumulation("micro_batch_tokens=300000") == 1
    assert accumulation("batch_tokens=48000") == 6
    assert accumulation("batch_tokens=null", "gradient_accumulation_steps=5") == 5


# ---- One validated object


def test_a_recipe_does_not_change():
    recipe = load_recipe("ctmde")
    for section, key in ((recipe, "name"), (recipe.data, "train"), (recipe.model, "d_model")):
        with pytest.raises((pydantic.ValidationError, dataclasses.FrozenInstanceError)):
            setattr(section, key, "other")


def test_changes_make_new_recipes():
    recipe = load_recipe("ctmde")
    before = recipe.to_yaml()
    assert with_settings(recipe, {"d_model": 64}).model.d_model == 64
    assert with_overrides(recipe, ["model.dropout=0"]).model.dropout == 0
    assert with_sections(recipe, tokenizer={}).tokenizer.settings() == {}
    assert recipe.to_yaml() == before


def test_building_the_arguments_leaves_the_recipe_as_it_is(tmp_path):
    options = ["fsdp=true", "fsdp_config={min_num_params: 0, transformer_layer_cls_to_wrap: Layer}"]
    recipe = load_recipe("ctmde", options)
    before = recipe.to_yaml()
    build_arguments(recipe, str(tmp_path))
    assert recipe.to_yaml() == before


def test_settings_are_copies():
    recipe = load_recipe("ctmde", ["fsdp_config={fsdp_version: 2}", "data.train=[a.tsv]"])
    settings = recipe.settings()
    settings["training"]["fsdp_config"]["fsdp_version"] = 1
    settings["data"]["train"].append("b.tsv")
    assert recipe.training.fsdp_config == {"fsdp_version": 2}
    assert recipe.data.train == ["a.tsv"]


def test_keys_that_are_not_set_have_the_defaults_of_their_options():
    recipe = load_recipe("quickstart")
    assert "seed" not in recipe.settings()["training"]
    assert recipe.seed == TmdeTrainingArguments.seed
    assert recipe.model.activation_function == "relu"
    assert recipe.objectives.infonce is None
    assert recipe.objectives.distance.settings()["hinge_weight"] == 20.0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_keys_of_its_own(architecture):
    recipe = load_recipe("quickstart")
    recipe = with_sections(recipe, model={"architecture": architecture})
    assert set(recipe.model.values()) == set(model_keys(architecture))
    config_class = ARCHITECTURES[architecture].config_class
    options = {field.name for field in dataclasses.fields(config_class)}
    keys = set(config_keys(architecture))
    assert keys <= options
    assert not keys & {"languages", "vocab_size", "pad_token_id"}  # data and tokenizer decide them


def test_every_objective_takes_the_options_of_its_class():
    for name, objective in OBJECTIVES.items():
        parameters = list(inspect.signature(objective.__init__).parameters)
        assert list(objective_keys(name)) == parameters[1:], name


def test_training_takes_the_training_arguments():
    fields = {field.name for field in dataclasses.fields(TmdeTrainingArguments)}
    assert fields - set(training_keys()) == {"output_dir", "parallelism_config"}


# ---- Keys and values


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("training.learning_rate=3e-4", "training", "learning_rate", 0.0003),  # text to YAML itself
        ("learning_rate=1", "training", "learning_rate", 1),
        ("max_minutes=1E2", "training", "max_minutes", 100.0),
        ("max_minutes=.inf", "training", "max_minutes", INFINITY),
        ("max_steps=1e6", "training", "max_steps", 1_000_000),
        ("buffer_rows=1e5", "training", "buffer_rows", 100_000),
        ("per_device_train_batch_size=1e3", "training", "per_device_train_batch_size", 1000),
        ("eval_strategy=no", "training", "eval_strategy", "no"),
        ("fsdp=true", "training", "fsdp", True),
        ("fsdp=full_shard", "training", "fsdp", "full_shard"),
        ("bf16=auto", "training", "bf16", "auto"),
        ("bf16=false", "training", "bf16", False),
        ("pivot_pairs=true", "training", "pivot_pairs", True),
        ("pivot_pairs=[en]", "training", "pivot_pairs", ["en"]),
        (" tokenizer.vocab_size = 8000", "tokenizer", "vocab_size", 8000),
        (
            "languages=[de, en, es, no]",  # Norwegian
            "data",
            "languages",
            ["de", "en", "es", "no"],
        ),
        ("train=a=b.tsv", "data", "train", "a=b.tsv"),
        ("train=null", "data", "train", None),
        ("model.d_model=1e3", "model", "d_model", 1000),
        ("made_by=tmde train bag", "warm_start", "made_by", "tmde train bag"),
    ],
)
def test_overrides(override, section, key, value):
    setting = load_recipe("ctmde", [override]).settings()[section][key]
    assert setting == value
    assert type(setting) is type(value)


def test_overrides_may_be_a_mapping():
    settings = {"learning_rate": 3e-4, "objectives.distance": None, "data.train": ["a.tsv"]}
    recipe = load_recipe("ctmde", settings)
    words = ["learning_rate=3e-4", "objectives.distance=null", "data.train=[a.tsv]"]
    assert recipe.settings() == load_recipe("ctmde", words).settings()


def test_languages_and_pivots_are_set_in_any_order():
    overrides = ["languages=[de]", "pivot_languages=[de]"]
    for ordered in (overrides, overrides[::-1]):
        assert load_recipe("ctmde", ordered).data.pivot_languages == ["de"]


def test_every_recipe_is_read_anew():
    load_recipe("ctmde", ["model.d_model=8"])
    assert load_recipe("ctmde").model.d_model == 1024


def test_a_prompt_is_text_even_if_it_looks_like_yaml():
    recipe = load_recipe("adapted", ["model.prompt=query: "])
    assert recipe.model.prompt == "query: "


def test_one_option_of_an_objective_leaves_the_others():
    before = load_recipe("ctmde").objectives.translation.settings()
    changed = load_recipe("ctmde", ["objectives.translation.label_smoothing=0"])
    assert changed.objectives.translation.settings() == {**before, "label_smoothing": 0}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.streaming=true", "with streaming=true, but a stream's documents"),
        ("data.train={new: a.tsv, new_languages: [it]}", "with data.train.new, but the old rows"),
    ],
)
def test_a_share_of_documents_that_cannot_be_drawn_is_refused(override, message):
    with pytest.raises(RecipeError, match=f"train_share: found 0.5 {message}"):
        load_recipe("quickstart", ["data.train_share=0.5", override])


def test_one_key_of_a_mapping_leaves_the_others():
    recipe = load_recipe("xnli_cbow", ["model.encoder_config.d_model=16"])
    assert recipe.model.encoder_config == {"d_model": 16, "normalize": False}
    recipe = load_recipe("ctmde", ["fsdp_config.fsdp_version=2", "fsdp_config.min_num_params=9"])
    assert recipe.training.fsdp_config == {"fsdp_version": 2, "min_num_params": 9}
    recipe = load_recipe("ctmde", ["card.data_licenses.a/b.tsv=mit"])
    assert recipe.card.data_licenses == {"a/b.tsv": "mit"}
    replay = "data.train={new: a.tsv, new_languages: [it]}"
    recipe = load_recipe("quickstart", [replay, "data.train.replay_share=0.25"])
    assert recipe.data.replay.new == "a.tsv"
    assert recipe.data.replay.replay_share == 0.25


def test_objectives_are_removed_replaced_and_added():
    removed = build_objectives(load_recipe("ctmde", ["objectives.distance=null"]))
    assert set(removed) == {"translation"}
    replaced = build_objectives(load_recipe("ctmde", ["objectives.distance={negatives: 7}"]))
    assert replaced["distance"].negatives == 7
    assert replaced["distance"].margin == 0.5
    assert replaced["distance"].weight == 0.25
    added = build_objectives(load_recipe("tmde", ["objectives.distance.weight=0.75"]))
    assert list(added) == ["translation", "distance"]
    assert added["distance"].weight == 0.75


def test_a_file_may_leave_sections_out(tmp_path):
    text = """
        model: {d_model: 64}
        training:
        objectives: {distance: }
        data:
          languages: [de, no]
          pivot_languages:
          - no
    """
    recipe = load_recipe(write(tmp_path, inspect.cleandoc(text)))
    assert recipe.name == "mine"
    assert recipe.model.settings() == {"d_model": 64}
    assert recipe.data.languages == ["de", "no"]  # Norwegian
    assert recipe.data.pivot_languages == ["no"]
    assert recipe.warm_start.checkpoint is None
    assert recipe.warm_start.made_by is None
    assert build_arguments(recipe, str(tmp_path)).learning_rate == 0.0005
    assert build_objectives(recipe)["distance"].negatives == 40


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rte=1", "Recipe key 'learning_rte' is unknown; did you mean learning_rate"),
        (
            "training.learning_rte=1",
            "Section 'training' of recipe ctmde: key 'learning_rte' is unknown; did you mean",
        ),
        (
            "learning_rate=fast",
            "Section 'training' of recipe ctmde: learning_rate: found 'fast', expected a number",
        ),
        ("max_steps=1.5", "max_steps: found 1.5, expected an integer"),
        ("max_minutes=long", "max_minutes: found 'long', expected a number or null"),
        ("data.languages=de", "languages: found 'de', expected a list of texts"),
        (
            "data.languages=[de]",
            r"Section 'data' of recipe ctmde: pivot_languages: found \['en', 'es'\], expected some "
            r"of languages=\['de'\]; set data.pivot_languages as well",
        ),
        ("languages=[de, en, es, de]", r"languages: found \[.*\], expected each language once"),
        ("data.streaming=1", "streaming: found 1, expected true or false"),
        ("model.d_model.x=3", "Section 'model' of recipe ctmde: key 'd_model.x' is unknown"),
        ("d_model=wide", "Section 'model' of recipe ctmde: d_model: found 'wide', expected an int"),
        (
            "model.bottleneck=last",
            "found 'last', expected 'first' or 'pyramid' or 'full' or 'dual'",
        ),
        ("objectives.distanse.weight=1", "objective 'distanse' is unknown; did you mean distance"),
        ("objectives.distance.wait=1", "distance: key 'wait' is unknown; did you mean weight"),
        ("objectives.distance=3", "distance: found 3, expected a mapping or null"),
        (
            "objectives.translation.reduction=max",
            "reduction: found 'max', expected 'mean' or 'sum'",
        ),
        (
            "objectives.infonce.dims=64",
            "infonce: dims: found 64, expected a list of integers or null",
        ),
        (
            "objectives.infonce.dims=[64, a]",
            "infonce: dims: found 'a', expected a list of integers",
        ),
        ("model.architecture=bags", "model.architecture 'bags' is unknown; did you mean bag"),
        ("data.temperature=-1", "temperature=-1 must lie in"),
        ("data.train_share=1.5", "train_share=1.5 must lie in"),
        ("data.train={new: a.tsv}", "train: new_languages is missing, expected a list of texts"),
        ("model", "Override 'model' is not of the form key=value"),
        ("model=3", "Recipe key 'model' is a whole section"),
        # Found when the model and the arguments are built, as they depend on several keys.
        ("d_model=0", "Section 'model' of recipe ctmde: d_model: found 0, expected at least 1"),
        ("cooldown=3", "Section 'training' of recipe ctmde: cooldown=3"),
        ("micro_batch_tokens=0", "micro_batch_tokens=0 must lie in"),
        ("max_minutes=0", "max_minutes=0 must lie in"),
        ("report_to=nowhere", "nowhere is not supported"),
        ("accelerator_config={batches: 1}", "unexpected keyword argument 'batches'"),
        ("accelerator_config=nowhere.json", "No such file or directory: 'nowhere.json'"),
    ],
)
def test_wrong_keys_and_values_are_one_sentence(override, message, tmp_path):
    with pytest.raises(RecipeError, match=message) as raised:
        recipe = load_recipe("ctmde", [override])
        build_config(recipe)
        build_arguments(recipe, str(tmp_path))
    assert "\n" not in str(raised.value)


def test_defects_of_our_own_are_no_mistakes_of_the_recipe(monkeypatch):
    class Broken(OBJECTIVES["distance"]):
        def __init__(self, **options):
            raise TypeError("a defect")

    monkeypatch.setitem(OBJECTIVES, "distance", Broken)
    with pytest.raises(TypeError, match="^a defect$"):
        build_objectives(load_recipe("ctmde"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: {}", "Recipe mine: section 'modle' is unknown; did you mean model"),
        ("model: 3", "Section 'model' of recipe mine: found 3, expected a mapping"),
        ("name: {}", "Recipe mine: section 'name' is unknown"),
        ("- model", "expected a mapping of keys to values"),
        ("model: [", "is not YAML"),
    ],
)
def test_files_that_are_no_recipes(text, message, tmp_path):
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(tmp_path, text))


# ---- Nested dimensions


def test_nested_dimensions_of_the_command_line_and_of_yaml(tmp_path):
    recipe = load_recipe("bag", ["objectives.infonce.dims=[64, 128, 256]"])
    loaded = load_recipe(write(tmp_path, recipe.to_yaml()))
    for opened in (recipe, loaded):
        assert build_objectives(opened)["infonce"].dims == [64, 128, 256]
    assert build_objectives(load_recipe("bag"))["infonce"].dims is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["objectives.infonce.dims=[64, 512]"], "infonce dims: found 512, expected at most 256"),
        (["objectives.infonce.dims=[64, 48]"], "infonce dims: found 48 after 64"),
        (["objectives.infonce.dims=[]"], "infonce dims: found an empty list"),
    ],
)
def test_nested_dimensions_are_checked_before_anything_is_read(overrides, message, tmp_path):
    recipe = load_recipe("bag", ["data.train=nowhere.tsv", *overrides])
    with pytest.raises(RecipeError, match=f"Section 'objectives' of recipe bag: {message}"):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- Losses that the model cannot have


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (
            "unsupervised_translation",
            ["data.languages=[de]", "data.pivot_languages=[de]"],
            r"objectives.back_translation: found languages=\['de'\], expected at least two: list ",
        ),
        (
            "laser_1",
            ["objectives.denoising={}"],
            "denoising blank_share=0.1 needs a mask token, .*: set "
            "objectives.denoising.blank_share=0",
        ),
        (
            "nmt",
            ["objectives.denoising={blank_share: 0}"],
            r"'denoising' needs one shared encoder, not Ntdv.*: .*objectives.denoising=null\)",
        ),
        (
            "bag",
            ["objectives.translation={}"],
            r"'translation' needs a decoder, .*: .*objectives.translation=null\)",
        ),
        (
            "mlm",
            ["objectives.masked_lm=null", "objectives.causal_lm={}"],
            "objectives.causal_lm needs .*: set model.causal=true",
        ),
        ("mlm", ["token_dropout=0.1"], "token_dropout=0.1 would hide .*: set token_dropout=0"),
    ],
)
def test_losses_are_checked_before_anything_is_read(name, overrides, message, tmp_path):
    recipe = load_recipe(name, ["data.train=nowhere.tsv", *overrides])
    with pytest.raises(RecipeError, match=f"Section 'objectives' of recipe {name}: .*{message}"):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_losses_of_every_recipe_are_possible_and_draw_no_number():
    for name in packaged_names():
        recipe = load_recipe(name)
        random_state = torch.get_rng_state()
        check_fit_of_objectives(recipe, build_objectives(recipe), token_dropout=0.0)
        assert torch.equal(torch.get_rng_state(), random_state), name


def test_the_remedy_of_a_missing_mask_is_accepted():
    recipe = load_recipe("laser_1", ["objectives.denoising={blank_share: 0}"])
    check_fit_of_objectives(recipe, build_objectives(recipe), token_dropout=0.0)


# ---- The tokenizer and the model of a recipe


@pytest.mark.parametrize("layers", [1, 3])
def test_a_new_pyramid_needs_four_layers(layers, tmp_path):
    recipe = load_recipe("ctmde_p", [f"encoder_layers={layers}"])
    message = f"found bottleneck=pyramid with encoder_layers={layers}, expected at least 4"
    with pytest.raises(RecipeError, match=message):
        train_recipe(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("ctmde_p", []),
        ("ctmde_p", ["encoder_layers=4"]),
        ("ctmde", ["encoder_layers=1"]),
        ("bag", []),
    ],
)
def test_deep_pyramids_and_other_models_pass(name, overrides):
    check_pyramid(load_recipe(name, overrides))


def test_a_pyramid_that_was_trained_with_three_layers_still_has_a_config():
    recipe = load_recipe("ctmde_p", ["encoder_layers=3"])
    assert build_config(recipe).encoder_layers == 3


def begin(recipe: Recipe, folder: Path, rows: int, seed: int = 0):
    """The tokenizer and the model of a run that begins at random."""
    start = NewModel(recipe, folder)
    tokenizer = start.tokenizer(make_dataset(make_rows(rows, seed=seed)))
    return tokenizer, start.apply(tokenizer)[0]


def test_tokenizer_and_model_of_the_bag(tmp_path):
    recipe = load_recipe("bag", ["vocab_size=400", "d_model=16", "pivot_languages=[de]"])
    tokenizer, model = begin(recipe, tmp_path, rows=1200, seed=5)
    assert tokenizer.model_max_length > 10**9
    assert tokenizer("HAUS katze")["input_ids"] == tokenizer("haus Katze")["input_ids"]
    words = tokenizer("katze katze", add_special_tokens=False)["input_ids"]
    assert words[: len(words) // 2] == words[len(words) // 2 :]  # first in the text or not
    assert isinstance(model, BagModel)
    assert model.embed_tokens.weight.shape == (len(tokenizer), 16)
    assert model.config.languages == LANGUAGES
    assert model.config.pivot_languages == ["de"]
    for name in ("bos_token_id", "pad_token_id", "eos_token_id"):
        assert getattr(model.config, name) == getattr(tokenizer, name)


@pytest.mark.parametrize(
    ("name", "override", "limit"),
    [
        ("small", "max_position_embeddings=77", 77),
        ("tmde", "decoder_ffn_dim=8", 750),
        ("light", "dropout=0.0", 2048),
    ],
)
def test_texts_end_where_the_model_does(name, override, limit, tmp_path):
    """The thesis reads 750 tokens of a document, though T-MDE has more positions (4.5.2)."""
    sizes = ["vocab_size=400", "d_model=16", "encoder_attention_heads=2", "encoder_ffn_dim=8"]
    if name != "light":
        sizes.append("decoder_attention_heads=2")
    recipe = load_recipe(name, [*sizes, override])
    tokenizer, model = begin(recipe, tmp_path, rows=50)
    assert tokenizer.model_max_length == limit
    assert DocumentEmbedder(model, tokenizer).max_length == limit
