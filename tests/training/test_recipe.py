"""Recipes: those of the package carry the published settings, and a wrong key is named, not ignored."""

from pathlib import Path

import pytest

from modeling_tmde import BagModel
from tests.conftest import make_dataset, make_rows
from tmde import DocumentEmbedder
from tmde.training.building import build_model, prepare_tokenizer
from tmde.training.recipe import RecipeError, load_recipe, packaged_names
from tmde.training.run import train_recipe

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
    assert changed.name == name and changed.description
    assert (loaded.sections, loaded.description) == (changed.sections, changed.description)


def test_accumulation_follows_from_batch_tokens(tmp_path):
    def accumulation(*overrides):
        return (
            load_recipe("ctmde", overrides)
            .build_arguments(str(tmp_path))
            .gradient_accumulation_steps
        )

    assert accumulation("micro_batch_tokens=4000") == 32
    assert accumulation("micro_batch_tokens=300000") == 1
    assert accumulation("batch_tokens=48000") == 6
    assert accumulation("batch_tokens=null", "gradient_accumulation_steps=5") == 5


# ---- Keys and values


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        (
            "training.learning_rate=3e-4",
            "training",
            "learning_rate",
            0.0003,
        ),  # a string to YAML itself
        ("max_minutes=1E2", "training", "max_minutes", 100.0),
        ("max_minutes=.inf", "training", "max_minutes", INFINITY),
        ("buffer_rows=1e5", "training", "buffer_rows", 100_000),
        ("eval_strategy=no", "training", "eval_strategy", "no"),
        (" tokenizer.vocab_size = 8000", "tokenizer", "vocab_size", 8000),
        ("languages=[de, en, no]", "data", "languages", ["de", "en", "no"]),  # Norwegian
        ("train=a=b.tsv", "data", "train", "a=b.tsv"),
        (
            "objectives.translation.label_smoothing=0",
            "objectives",
            "translation",
            {"label_smoothing": 0},
        ),
    ],
)
def test_overrides(override, section, key, value):
    found = load_recipe("ctmde", [override]).sections[section][key]
    if isinstance(value, dict):
        found = {name: found[name] for name in value}
    assert found == value and type(found) is type(value)
    assert (
        load_recipe("ctmde").sections["model"]["d_model"] == 1024
    )  # a recipe of its own each time


def test_objectives_are_removed_replaced_and_added():
    assert set(load_recipe("ctmde", ["objectives.distance=null"]).build_objectives()) == {
        "translation"
    }
    replaced = load_recipe("ctmde", ["objectives.distance={negatives: 7}"]).build_objectives()[
        "distance"
    ]
    assert (replaced.negatives, replaced.margin, replaced.weight) == (7, 0.5, 0.25)
    added = load_recipe("tmde", ["objectives.distance.weight=0.75"]).build_objectives()
    assert (set(added), added["distance"].weight) == ({"translation", "distance"}, 0.75)


def test_a_file_may_leave_sections_out(tmp_path):
    text = (
        "model: {d_model: 64}\ntraining:\nobjectives: {distance: }\ndata:\n  languages: [de, no]\n"
    )
    recipe = load_recipe(write(tmp_path, text + "  pivot_languages:\n  - no\n"))
    assert recipe.name == "mine" and recipe.sections["model"] == {"d_model": 64}
    assert (recipe.data.languages, recipe.data.pivot_languages) == (
        ["de", "no"],
        ["no"],
    )  # Norwegian
    assert (recipe.warm_start.checkpoint, recipe.warm_start.recipe) == (None, None)
    assert recipe.build_arguments(str(tmp_path)).learning_rate == 0.0005
    assert recipe.build_objectives()["distance"].negatives == 40


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rte=1", "Recipe key 'learning_rte' is unknown; did you mean learning_rate"),
        (
            "training.learning_rte=1",
            "Section 'training' of recipe ctmde: key 'learning_rte' is unknown; did you mean",
        ),
        ("learning_rate=fast", "'learning_rate'.* float.*'fast'"),
        ("data.languages=de", "'languages' expected a list, got str"),
        ("objectives.distanse.weight=1", "'distanse' is unknown; did you mean distance"),
        ("objectives.distance.wait=1", "key 'wait' is unknown; did you mean weight"),
        ("model.architecture=bags", "model.architecture 'bags' is unknown; did you mean bag"),
        ("data.temperature=-1", "temperature=-1 must lie in"),
        ("eval_head=ffm", "'eval_head'.*'ffm'"),
        ("model", "Override 'model' is not of the form key=value"),
        # Found when the model and the arguments are built, as they depend on several keys.
        ("d_model=0", "Section 'model' of recipe ctmde: d_model: found 0, expected at least 1"),
        ("cooldown=3", "Section 'training' of recipe ctmde: cooldown=3"),
        ("micro_batch_tokens=0", "micro_batch_tokens=0 must lie in"),
        ("max_minutes=0", "max_minutes=0 must lie in"),
        ("report_to=nowhere", "nowhere is not supported"),
    ],
)
def test_wrong_keys_and_values_are_one_sentence(override, message, tmp_path):
    with pytest.raises(RecipeError, match=message) as raised:
        recipe = load_recipe("ctmde", [override])
        recipe.build_config()
        recipe.build_arguments(str(tmp_path))
    assert "\n" not in str(raised.value)


# ---- The tokenizer and the model of a recipe


@pytest.mark.parametrize("layers", [1, 3])
def test_a_new_pyramid_needs_four_layers(layers, tmp_path):
    recipe = load_recipe("ctmde_p", [f"encoder_layers={layers}"])
    message = f"recipe ctmde_p: found bottleneck=pyramid with encoder_layers={layers}, expected at least 4"
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
    load_recipe(name, overrides).check_pyramid()


def test_a_pyramid_that_was_trained_with_three_layers_still_has_a_config():
    assert load_recipe("ctmde_p", ["encoder_layers=3"]).build_config().encoder_layers == 3


def test_tokenizer_and_model_of_the_bag(tmp_path):
    recipe = load_recipe("bag", ["vocab_size=400", "d_model=16", "pivot_languages=[de]"])
    tokenizer = prepare_tokenizer(
        recipe, make_dataset(make_rows(1200, seed=5)), tmp_path / "tokenizer"
    )
    assert tokenizer.model_max_length > 10**9
    assert tokenizer("HAUS katze")["input_ids"] == tokenizer("haus Katze")["input_ids"]
    words = tokenizer("katze katze", add_special_tokens=False)["input_ids"]
    assert words[: len(words) // 2] == words[len(words) // 2 :]  # first in the text or not
    model = build_model(recipe, tokenizer)
    assert isinstance(model, BagModel) and model.embed_tokens.weight.shape == (len(tokenizer), 16)
    assert (model.config.languages, model.config.pivot_languages) == (LANGUAGES, ["de"])
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
    """The thesis's systems read 750 tokens of a document, though T-MDE has more positions (4.5.2)."""
    sizes = ["vocab_size=400", "d_model=16", "encoder_attention_heads=2", "encoder_ffn_dim=8"]
    sizes += [] if name == "light" else ["decoder_attention_heads=2"]
    recipe = load_recipe(name, [*sizes, override])
    tokenizer = prepare_tokenizer(recipe, make_dataset(make_rows(50)), tmp_path / "tokenizer")
    assert (
        tokenizer.model_max_length
        == DocumentEmbedder(build_model(recipe, tokenizer), tokenizer).max_length
        == limit
    )
