"""Runs in two stages: what the second one takes, interruptions, and starts from a checkpoint."""

import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from modeling_tmde import AlignedModel, BagModel, LaserModel
from tests.training.logs import read_log, values_of
from tests.training.trainers import interrupt
from tmde.training.recipe import Recipe, RecipeError, load_recipe, with_sections, with_settings
from tmde.training.recipe.building import build_config
from tmde.training.run import train_recipe
from tmde.training.run_data import load_data
from tmde.training.starts import STAGE_FOLDER, choose_start, stage_recipe
from tmde.training.starts.first_stage import share_tokenizer

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
]
DATA = [
    "train=sample",
    "max_rows=300",
    "dev_rows=30",
    "streaming=false",
    "temperature=null",
    "disable_tqdm=true",
    "eval_loss_rows=10",
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
    "neighbor_share=0.3",
    "per_device_train_batch_size=32",
    "token_dropout=0.3",
]
TOKENIZER = ["tokenizer.vocab_size=400", "tokenizer.max_characters=20000"]
LASER = ["model.embedding_dim=12", "model.d_model=16", "model.decoder_hidden_size=16"]
ENCODERS = {
    "embedding_dim": 12,
    "d_model": 16,
    "encoder_layers": 1,
    "pooling": "max",
    "dropout": 0.0,
}


def with_stage(recipe: Recipe, *overrides: str) -> Recipe:
    """The recipe with these overrides of its first stage, beside those that it has."""
    section = recipe.warm_start.settings()
    values = dict(section.get("overrides", {}))
    for override in (*SHORT, *TOKENIZER, *overrides):
        key, value = override.split("=", 1)
        values[key] = yaml.safe_load(value)
    return with_sections(recipe, warm_start={**section, "overrides": values})


def two_stages(*overrides: str) -> Recipe:
    """The recipe `small` at a tiny size on some of the sample, four steps in each stage."""
    recipe = load_recipe("small", [*DATA, *SIZES, *SHORT, "eval_pairs=[de-fr]", *overrides])
    recipe = with_settings(recipe, {"warm_start.overrides": {}})
    return with_stage(recipe, *BAG)


def five_after_two(*overrides: str, stage: tuple[str, ...] = ()) -> Recipe:
    """`xnli_bilstm` at a tiny size: five languages aligned after a translation model of two."""
    recipe = load_recipe(
        "xnli_bilstm", [*DATA, *SHORT, "max_steps=1", "micro_batch_tokens=600", *overrides]
    )
    recipe = with_settings(recipe, {"model.encoder_config": ENCODERS})
    return with_stage(recipe, *LASER, *stage)


def read(folder: Path, name: str = "results.json"):
    return json.loads((folder / name).read_text())


def steps_of(folder: Path) -> list[int]:
    return values_of(read_log(folder, "loss"), "step")


def read_recipe(folder: Path) -> dict:
    return yaml.safe_load((folder / "recipe.yaml").read_text())


def times_of_files(folder: Path) -> dict[Path, int]:
    """Return when each file in a folder was written, in nanoseconds."""
    times = {}
    for path in folder.rglob("*"):
        if path.is_file():
            times[path] = path.stat().st_mtime_ns
    return times


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stages") / "run"
    train_recipe(two_stages("seed=7"), folder)
    return folder


# ---- A whole run


def test_the_first_stage_is_a_run_of_its_own_whose_tokenizer_is_kept(finished):
    stage = finished / STAGE_FOLDER
    assert isinstance(AutoModel.from_pretrained(stage), BagModel)
    assert steps_of(stage) == steps_of(finished) == [1, 2, 3, 4]
    recipe = read_recipe(stage)
    whole = read_recipe(finished)
    assert recipe["data"] == whole["data"]
    assert recipe["training"]["seed"] == whole["training"]["seed"] == 7
    assert recipe["model"]["architecture"] == "bag"
    assert recipe["model"]["d_model"] == 16
    # The same rows are held out.
    assert read(stage, "run.json")["data"] == read(finished, "run.json")["data"]
    tokenizer = AutoTokenizer.from_pretrained(finished)
    first = AutoTokenizer.from_pretrained(stage)
    assert tokenizer.get_vocab() == first.get_vocab()
    assert len(tokenizer) == 400
    # The normalizer is kept as well.
    assert tokenizer("HAUS und Hof")["input_ids"] == first("haus und hof")["input_ids"]
    config = AutoModelForSeq2SeqLM.from_pretrained(finished).config
    assert config.bag_residual
    assert config.sublinear_counts
    assert tokenizer.model_max_length == config.max_position_embeddings
    report = read(finished, "run.json")["warm_start"]
    assert (report["checkpoint"], report["model_type"]) == (str(stage), "tmde_bag")
    assert (report["tokens_copied"], report["tokens_mapped"], report["tokens_left"]) == (400, 0, 0)
    assert (report["checkpoint_width"], report["width"]) == (16, 32)
    assert report["minutes"] == read(stage)["minutes"]
    # The recipe in the folder can be repeated: it names no folder of this run.
    assert load_recipe(str(finished / "recipe.yaml")).settings() == two_stages("seed=7").settings()


def test_before_its_first_step_the_model_is_the_bag(finished):
    stage = finished / STAGE_FOLDER
    start = choose_start(two_stages(), finished)
    tokenizer = start.tokenizer(None)
    assert tokenizer.name_or_path == str(stage)
    model = start.apply(tokenizer).model.eval()
    bag = AutoModel.from_pretrained(stage)
    inputs = tokenizer(
        ["la casa, la casa, la casa", "das alte Haus"], return_tensors="pt", padding=True
    )
    vectors = nn.functional.pad(bag(**inputs).pooler_output, (0, 16))  # New columns are 0.
    expected = nn.functional.layer_norm(math.sqrt(32) * vectors, (32,))
    torch.testing.assert_close(model.model(**inputs).pooler_output, expected, atol=1e-5, rtol=1e-5)
    trained = AutoModel.from_pretrained(finished)
    assert (trained(**inputs).pooler_output - expected).abs().max() > 1e-3  # and then it learns


# ---- The recipe of the first stage


@pytest.mark.parametrize("prefix", ["", "data."])
@pytest.mark.parametrize(
    ("pairs", "expected"), [(["de-en", "fr-en"], ["de-en"]), (["fr-en"], None)]
)
def test_a_first_stage_may_have_fewer_languages(prefix, pairs, expected):
    recipe = load_recipe(
        "xnli_bilstm", ["data.languages=[de, en, fr]", f"eval_pairs={pairs}", "data.max_rows=200"]
    )
    fewer = {f"{prefix}languages": ["de", "en"], f"{prefix}pivot_languages": ["de"]}
    recipe = with_settings(recipe, {"warm_start.overrides": fewer})
    stage = stage_recipe(recipe)
    changed = {"languages": ["de", "en"], "pivot_languages": ["de"]}
    assert stage.data.settings() == {**recipe.data.settings(), **changed}
    assert build_config(stage).languages == ["de", "en"]
    assert recipe.data.languages == ["de", "en", "fr"]
    assert stage.training.eval_pairs == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"seed": 5}, "found seed=5, but the first stage has the run's data and seed"),
        ({"training.data_seed": 5}, "but the first stage has the run's data and seed"),
        ({"streaming": True}, "but the first stage has the run's data and seed"),
        (
            {"languages": ["en", "pl"]},
            r"found languages=.'en', 'pl'., expected some of .'de', 'en', 'es'",
        ),
        ({"data.languages": "en"}, "languages: found 'en', expected a list of texts"),
        ({"languages": ["en", "es"], "pivot_languages": ["de"]}, "pivot_languages"),
        ({"warm_start.recipe": "bag"}, "a first stage may not have a first stage"),
    ],
)
def test_first_stages_that_cannot_be(overrides, message, tmp_path):
    recipe = with_settings(load_recipe("xnli_cbow"), {"warm_start.overrides": overrides})
    start = choose_start(recipe, tmp_path)
    with pytest.raises(RecipeError, match=message):
        start.check()


# ---- The tokenizer of both


def test_a_tokenizer_of_fewer_languages_learns_all_of_them(tmp_path):
    rows, _, _ = load_data(five_after_two("languages=[en, es, it]"))
    pieces = []
    for name, languages in (("three", "[en, es, it]"), ("two", "[en, es]")):
        recipe = five_after_two(
            f"languages={languages}", stage=("data.languages=[en]", "data.pivot_languages=[en]")
        )
        made = tmp_path / name / "tokenizer"
        stage = share_tokenizer(recipe, stage_recipe(recipe), rows, tmp_path / name)
        assert stage.tokenizer.path == str(made)
        tokenizer = AutoTokenizer.from_pretrained(made)
        assert len(tokenizer) == 400
        italian_texts = [row["it"] for row in rows["translation"]]
        token_ids = tokenizer(italian_texts)["input_ids"]
        pieces.append(sum(map(len, token_ids)))
    # A tokenizer of English and Spanish alone cuts Italian into more pieces.
    assert pieces[0] < 0.97 * pieces[1]


@pytest.mark.slow
def test_a_run_of_five_languages_after_a_stage_of_two(tmp_path):
    folder = tmp_path / "run"
    stage = tmp_path / "run" / STAGE_FOLDER
    train_recipe(five_after_two(), folder)
    model = AutoModel.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(stage)
    assert isinstance(encoder, LaserModel)
    assert encoder.config.languages == ["en", "es"]
    assert isinstance(model, AlignedModel)
    assert list(model.encoders) == [
        "de",
        "en",
        "es",
        "fr",
        "it",
    ]
    vocabularies = [
        AutoTokenizer.from_pretrained(path).get_vocab()
        for path in (folder, stage, folder / "tokenizer")
    ]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    assert len(vocabularies[0]) == 400
    # The recipe can be repeated.
    repeated = load_recipe(str(folder / "recipe.yaml"))
    assert "tokenizer.path" not in repeated.warm_start.overrides
    report = read(folder, "run.json")["warm_start"]
    assert (report["model_type"], report["tokens_copied"], report["tensors_kept"]) == (
        "tmde_laser",
        400,
        [],
    )
    for (
        name,
        parameter,
    ) in encoder.named_parameters():  # the frozen encoder is what the first stage made
        torch.testing.assert_close(
            model.encoders["en"].get_parameter(name), parameter, rtol=1e-6, atol=1e-7
        )
    table = encoder.embed_tokens.weight
    learnt = {
        code: not torch.equal(part.embed_tokens.weight, table)
        for code, part in model.encoders.items()
    }
    assert sum(learnt.values()) == 1
    assert not learnt["en"]  # that of the one pair of the one step


# ---- Interruptions


def same_results(folder: Path, finished: Path) -> None:
    for part in (folder, folder / STAGE_FOLDER):
        other = finished / part.relative_to(folder)
        weights = load_file(part / "model.safetensors")
        for name, value in load_file(other / "model.safetensors").items():
            message = f"{part.name} {name}"
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-6, msg=message)
        for key in ("steps", "best_step", "seen", "rows"):
            assert read(part)[key] == read(other)[key], key
    assert warm_start_report(folder) == warm_start_report(finished)


def warm_start_report(folder: Path) -> dict:
    """Return what is told of the warm start, without its path and time."""
    report = read(folder, "run.json")["warm_start"]
    del report["checkpoint"]
    del report["minutes"]
    return report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_stage", "step"),
    [(True, 3), (False, 3), (False, 1)],
    ids=["first", "second", "before a checkpoint"],
)
def test_an_interrupted_run_goes_on_in_its_stage(in_stage, step, finished, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    stage = tmp_path / "run" / STAGE_FOLDER
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, stage if in_stage else folder, step)
        train_recipe(two_stages("seed=7"), folder)
    assert (stage / "results.json").exists() == (not in_stage)
    times = times_of_files(stage)
    before = (stage / "log.jsonl").read_text()
    train_recipe(two_stages("seed=7"), folder, resume=True)
    assert (stage / "log.jsonl").read_text().startswith(before)  # It goes on.
    if not in_stage:
        assert times_of_files(stage) == times
    for part in (folder, stage):
        assert sorted(set(steps_of(part))) == [1, 2, 3, 4]
        assert steps_of(part).count(1) == 1
    same_results(folder, finished)


# ---- Checkpoints


def test_a_checkpoint_takes_the_place_of_the_first_stage(finished, tmp_path):
    for checkpoint in (
        finished / STAGE_FOLDER,
        finished,
    ):  # T-MDE with the direct path hands it on as well
        recipe = two_stages(f"warm_start.checkpoint={checkpoint}")
        start = choose_start(recipe, tmp_path / "other")
        start.check()
        assert start.tokenizer(None).name_or_path == str(checkpoint)
        assert start.completed_recipe.model.bag_residual is True
        assert start.completed_recipe.model.sublinear_counts is True
        assert recipe.tokenizer.settings() == {}  # the recipe itself stays
    assert not (tmp_path / "other").exists()
