"""Values of a recipe that are of the wrong kind, by the annotations of what reads them."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from modeling_tmde.tokenization import train_tokenizer
from modeling_tmde.training import arguments
from modeling_tmde.training.arguments import LEAST, TmdeTrainingArguments
from modeling_tmde.training.recipe import DataConfig, RecipeError, load_recipe, recipe_names
from modeling_tmde.training.recipe_values import wrong_value

AUTO = {"bf16": "auto"}


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_of_the_package_are_right(name):
    sections = load_recipe(name).sections
    assert wrong_value(sections["training"], TmdeTrainingArguments, AUTO) is None
    assert wrong_value(sections["data"], DataConfig, {}) is None
    assert wrong_value(sections["tokenizer"], train_tokenizer, {}) is None


@pytest.mark.parametrize(
    ("reader", "key", "value", "expected"),
    [
        (TmdeTrainingArguments, "learning_rate", "fast", "a number"),
        (TmdeTrainingArguments, "learning_rate", True, "a number"),
        (TmdeTrainingArguments, "learning_rate", [0.1], "a number"),
        (TmdeTrainingArguments, "seed", "x", "a whole number"),
        (TmdeTrainingArguments, "max_steps", 2.5, "a whole number"),
        (TmdeTrainingArguments, "bf16", "maybe", "true or false"),
        (TmdeTrainingArguments, "max_minutes", "ten", "a number"),
        (DataConfig, "temperature", "hot", "a number"),
        (DataConfig, "streaming", 1, "true or false"),
        (DataConfig, "max_rows", "all", "a whole number"),
        (train_tokenizer, "vocab_size", "many", "a whole number"),
        (DataConfig, "languages", 5, "a list of texts"),
        (DataConfig, "languages", "de", "a list of texts"),
        (DataConfig, "pivot_languages", ["de", 5], "a list of texts"),
        (DataConfig, "eval_task", 5, "a text or a list of texts"),
        (DataConfig, "eval_task", [None], "a text or a list of texts"),
        (TmdeTrainingArguments, "eval_pairs", "de-en", "a list of texts"),
        (TmdeTrainingArguments, "freeze", "model", "a list of texts"),
        (TmdeTrainingArguments, "report_to", 5, "a text or a list of texts"),
    ],
)
def test_wrong_kind_is_told(reader, key, value, expected):
    assert wrong_value({key: value}, reader, AUTO) == f"{key}: found {value!r}, expected {expected}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 1), ("learning_rate", 3e-4), ("max_steps", 1e3), ("bf16", "auto"), ("bf16", False),
        ("max_minutes", None), ("lr_scheduler_type", "linear"), ("fsdp", True), ("unknown", "x"),
        ("eval_pairs", ["de-en"]), ("eval_pairs", []), ("report_to", "wandb"), ("report_to", ["wandb", "mlflow"]),
    ],
)  # fmt: skip
def test_right_kinds_pass(key, value):
    assert wrong_value({key: value}, TmdeTrainingArguments, AUTO) is None


SOURCE = "a path or Hub id, files by language, or a list of these"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: 5", f"train: found 5, expected {SOURCE}"),
        ("train: [5]", f"train: found [5], expected {SOURCE}"),
        ("train: []", f"train: found [], expected {SOURCE}"),
        ("train: {a: 5}", f"train: found {{'a': 5}}, expected {SOURCE}"),
        ("train: {5: a}", f"train: found {{5: 'a'}}, expected {SOURCE}"),
        ("train: [a.tsv, {de: [b]}]", f"train: found ['a.tsv', {{'de': ['b']}}], expected {SOURCE}"),
        ("train: {new: 5, new_languages: [el]}", f"train.new: found 5, expected {SOURCE}"),
        ("train: {new: , new_languages: [el]}", f"train.new: found None, expected {SOURCE}"),
        ("train: {new: a, new_languages: [el], replay: [5]}", f"train.replay: found [5], expected {SOURCE}"),
        ("train: {new: a, new_languages: el}", "train.new_languages: found 'el', expected a list of texts"),
        ("train: {new: a, new_languages: [el], replay_share: x}", "train.replay_share: found 'x', expected a number"),
        ("train: {new: a}", "data.train: found the keys ['new'], expected new, new_languages"),
        ("dev: 5", f"dev: found 5, expected {SOURCE}"),
        ("dev: {d: 5}", f"dev.d: found 5, expected {SOURCE}"),
        ("dev: {d: }", f"dev.d: found None, expected {SOURCE}"),
        ("dev: {5: d}", "dev: found the name 5, expected a text"),
        ("languages: ", "languages: found None, expected a list of texts"),
        ("dev_rows: -1", "dev_rows: found -1, expected at least 0"),
        ("max_rows: 0", "max_rows: found 0, expected at least 1"),
        ("temperature: 0", "temperature: found 0, expected a number above 0"),
        ("bad_rows: 5", "bad_rows: found 5, expected report or raise"),
    ],
)
def test_data_that_nothing_reads_is_told(text, message, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"data: {{{text}}}\n", encoding="utf-8")
    with pytest.raises(RecipeError) as refused:
        load_recipe(str(path))
    assert str(refused.value).startswith(f"Section 'data' of recipe mine: {message}")


@pytest.mark.parametrize(
    "value",
    [
        "a.tsv", ["a.tsv", "b.tsv"], {"de": "a.de", "no": "a.no"}, [{"de": "a.de", "en": "a.en"}, "b"], Path("a.tsv"),
        {"new": ["a", {"de": "b", "el": "c"}], "new_languages": ["el"], "replay": None, "replay_share": 0.1}, None,
    ],
)  # fmt: skip
def test_every_kind_of_source_passes(value):
    recipe = load_recipe("small")
    recipe.set("data.train", value)
    if not (isinstance(value, dict) and "new" in value):
        recipe.set("data.dev", value)
        if value is not None:
            recipe.set("data.dev", {"one": value, "two": "sample"})


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("small", "d_model"), ("small", "decoder_attention_heads"), ("bag", "d_model"), ("laser_1", "embedding_dim"),
        ("adapted", "decoder_layers"), ("nv", "attention_heads"), ("light", "encoder_layers"),
    ],
)  # fmt: skip
def test_sizes_of_nothing_are_told(name, key):
    message = f"Section 'model' of recipe {name}: {key}: found 0, expected at least 1"
    with pytest.raises(RecipeError, match=message):
        load_recipe(name, [f"model.{key}=0"])


def test_none_of_the_layers_may_be_unidirectional():
    assert load_recipe("laser_1", ["unidirectional_layers=0"]).build_config().unidirectional_layers == 0


@pytest.mark.parametrize(("key", "least"), LEAST.items())
def test_numbers_that_are_too_small_are_told(key, least, tmp_path):
    message = f"Section 'training' of recipe small: {key}={least - 1} is too small, expected at least {least}$"
    with pytest.raises(RecipeError, match=message):
        load_recipe("small", [f"training.{key}={least - 1}"]).build_arguments(str(tmp_path))
    assert getattr(TmdeTrainingArguments(str(tmp_path), **{key: least}, use_cpu=True), key) == least


@pytest.mark.parametrize("override", ["languages=5", "eval_pairs=de-en", "d_model=0", "buffer_rows=0", "eval_pool=0"])
def test_nothing_is_deleted_for_a_wrong_value(override, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("data: {train: other}\n", encoding="utf-8")
    command = ["train", "quickstart", "--train", "sample", "-o", str(folder), "--overwrite", override]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1 and f"{override.partition('=')[0]}" in result.stderr
    assert result.stderr.startswith("Error: Section ") and result.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["recipe.yaml"]


def test_reporters_that_are_not_there_are_told_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(arguments, "get_available_reporting_integrations", lambda: ["mlflow"])
    monkeypatch.setattr(arguments, "find_spec", lambda name: name == "flytekit" or None)
    for value in ("mlflow", "flyte", "[mlflow, flyte]", "none"):
        load_recipe("small", [f"report_to={value}"]).build_arguments(str(tmp_path))
    for name, found in (("wandb", "wandb"), ("[mlflow, comet_ml]", "comet_ml")):
        with pytest.raises(RecipeError, match=f"recipe small: report_to={found} is not installed or not set up here"):
            load_recipe("small", [f"report_to={name}"]).build_arguments(str(tmp_path))
    with pytest.raises(RecipeError, match="report_to=wandbb is unknown, expected none, all or some of .*wandb"):
        load_recipe("small", ["report_to=wandbb"]).build_arguments(str(tmp_path))


@pytest.mark.parametrize("load_best", ["true", "false"])
def test_no_metric_is_the_mix(load_best, tmp_path):
    recipe = load_recipe("small", ["metric_for_best_model=null", f"load_best_model_at_end={load_best}"])
    built = recipe.build_arguments(str(tmp_path))
    assert (built.metric_for_best_model, built.greater_is_better) == ("mix", True)
    with pytest.raises(RecipeError, match="metric_for_best_model=5 "):
        load_recipe("small", ["metric_for_best_model=5"]).build_arguments(str(tmp_path))
