"""Languages added to a checkpoint: the start, the run, its report, and what may be lost."""

import itertools
import json
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.conftest import make_dataset, tiny_model
from tests.hub_encoders import adapt_encoder, save_encoder
from tests.training.added_language_helpers import (
    NEW,
    OLD,
    SHORT,
    greek_rows,
    planted_bag,
    planted_place,
    write_rows,
)
from tests.training.models import tiny
from tests.training.trainers import interrupt
from tmde.embedding.document_embedder import DocumentEmbedder
from tmde.eval.retrieval import precision_at_1
from tmde.training import added_language
from tmde.training.added_language import (
    LEARNING_RATE_SHARE,
    add_languages,
    extension_recipe,
    model_before_training,
    with_new_tokens,
)
from tmde.training.language_report import describe, fall, means
from tmde.training.recipe import Recipe, RecipeError, load_recipe
from tmde.training.recipe.building import build_arguments, build_config
from tmde.training.run_data import load_data
from tmde.training.starts import choose_start

NAMES = {"languages": list(OLD), "pivot_languages": ["en"]}
OLD_PAIRS = (("de", "en"), ("de", "es"), ("en", "es"))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return planted_place(tmp_path_factory.mktemp("added"))


def recipe_of(place: Path, *overrides: str, **changes) -> Recipe:
    options = {
        "checkpoint": str(place / "bag"),
        "languages": [NEW],
        "train": str(place / "new.parquet"),
    }
    options |= {
        "replay": str(place / "old.parquet"),
        "dev": {"planted": str(place / "dev.parquet")},
    }
    return extension_recipe(**{**options, "overrides": (*SHORT, *overrides), **changes})


@pytest.fixture(scope="module")
def added(place) -> tuple[Path, dict]:
    return place / "added", add_languages(recipe_of(place), place / "added")


def p1(folder: Path, pair: tuple[str, str]) -> float:
    embedder = DocumentEmbedder.from_pretrained(str(folder))
    rows = greek_rows(60, 7)
    source_texts = [row[pair[0]] for row in rows]
    target_texts = [row[pair[1]] for row in rows]
    return precision_at_1(embedder.encode(source_texts), embedder.encode(target_texts))


def read(folder: Path, name: str = "results.json") -> dict:
    return json.loads((folder / name).read_text())


# ---- What the model begins with


def checkpoint_of(kind: str, folder: Path, tokenizer) -> tuple[Path, str]:
    """A checkpoint of an architecture, and a recipe that fits it."""
    if kind == "bag":
        return planted_bag(folder), "bag"
    recipes = {"tmde": "quickstart", "laser": "laser_1", "encoder": "mlm"}
    tmde = partial(tiny_model, bag_residual=True, share_embeddings=True)
    model = (tmde if kind == "tmde" else partial(tiny, kind))(**NAMES)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, recipes[kind]


@pytest.mark.parametrize("kind", ["bag", "tmde", "laser", "encoder"])
def test_before_the_first_step_old_texts_keep_their_vectors(kind, tmp_path, place, tokenizer):
    """Greek words have tokens of their own, whose vectors are the means of their bytes'."""
    checkpoint, name = checkpoint_of(kind, tmp_path / "model", tokenizer)
    recipe = recipe_of(place, checkpoint=str(checkpoint), recipe=name, overrides=())
    before = AutoTokenizer.from_pretrained(checkpoint)
    rows = greek_rows(50, 1)
    recipe = with_new_tokens(recipe, None)
    after = choose_start(recipe, tmp_path / "run").tokenizer(make_dataset(rows))
    assert len(after) > len(before) + 20
    model = model_before_training(recipe, tmp_path / "run", after, None)
    old = AutoModel.from_pretrained(checkpoint).eval()
    assert model.config.languages == [*OLD, NEW]
    assert model.config.vocab_size == len(after)
    encoder = getattr(model, "model", model)
    texts = []
    for row, language in itertools.product(rows[:8], OLD):
        text = row[language]
        if before(text)["input_ids"] == after(text)["input_ids"]:
            texts.append(text)
    assert len(texts) >= 20
    inputs = before(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        vectors = encoder.eval()(**inputs).pooler_output
        old_vectors = old(**inputs).pooler_output
    torch.testing.assert_close(vectors, old_vectors, atol=1e-5, rtol=0)
    greek = "γάτα" if kind == "bag" else " γάτα"
    (word,) = after.encode(greek, add_special_tokens=False)
    pieces = before.encode(greek, add_special_tokens=False)
    assert word >= len(before)
    assert len(pieces) > 4
    if not hasattr(old, "token_weights"):
        expected = old.get_input_embeddings().weight[pieces].mean(dim=0)
        torch.testing.assert_close(encoder.get_input_embeddings().weight[word], expected)


def test_the_recipe_is_that_of_the_checkpoint_at_lower_rates(place, tmp_path):
    recipe = recipe_of(place, overrides=("max_steps=5",))
    base = load_recipe("bag", ["token_dropout=0.0"])
    assert recipe.objectives.settings() == base.objectives.settings()
    assert build_config(recipe).d_model == 16
    training = base.training.settings()
    changed = {"learning_rate": training["learning_rate"] * LEARNING_RATE_SHARE, "max_steps": 5}
    changed |= {"metric_for_best_model": "mix", "embedding_learning_rate": None}
    assert recipe.training.settings() == training | changed
    settings = ["metric_for_best_model=dev_infonce_loss", "greater_is_better=false"]
    (tmp_path / "recipe.yaml").write_text(load_recipe("bag", settings).to_yaml())
    recipe = recipe_of(place, recipe=str(tmp_path / "recipe.yaml"))
    arguments = build_arguments(recipe, str(tmp_path))
    assert arguments.metric_for_best_model == "mix"
    assert arguments.greater_is_better


# ---- The run


def test_the_report_is_what_was_measured(added, place):
    folder, report = added
    before = report["before"]["planted"]
    after = report["after"]["planted"]
    for pair in (("de", "en"), ("es", NEW)):
        name = f"p1_{'-'.join(pair)}"
        assert before[name] == pytest.approx(p1(place / "bag", pair), abs=1e-6)
        assert after[name] == pytest.approx(p1(folder, pair), abs=1e-6)
    # The planted checkpoint knows German and English, and no Greek.
    assert before["p1_de-en"] > 0.9
    assert before["p1_de-el"] < 0.5
    results = read(folder)
    assert results["steps"] == 6
    best = results["best"]["eval_planted_p1_es-el"]
    assert best == pytest.approx(after["p1_es-el"], abs=1e-6)
    assert read(folder, "languages.json") == report
    assert report["data"] == {"new": {"rows": 300}, "old": {"rows": 300}}
    model = AutoModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.languages == [*OLD, NEW]
    assert model.config.vocab_size == len(tokenizer) == report["tokenizer"]["vocab_size"] > 400
    assert read(folder, "run.json")["warm_start"]["tokens_left"] == 0


def test_a_report_by_hand():
    """Codes with hyphens, old and new pairs, sentences and documents."""
    before = {
        "a": {"p1_pt-BR-en": 0.9, "p1_pt-BR-zh-CN": 0.2, "doc_p1_pt-BR-en": 0.5},
        "b": {"p1_pt-BR-en": 0.7},
    }
    after = {
        "a": {"p1_pt-BR-en": 0.85, "p1_pt-BR-zh-CN": 0.6, "doc_p1_pt-BR-en": 0.49},
        "b": {"p1_pt-BR-en": 0.72},
    }
    report = {
        "old_languages": ["pt-BR", "en"],
        "new_languages": ["zh-CN"],
        "before": before,
        "trained_share": 1.0,
    }
    assert fall(report) == 0
    assert fall({**report, "before": {"a": {"p1_en-zh-CN": 0.4}}}) is None
    report["after"] = after
    assert fall(report) == pytest.approx(1.5)  # Sentences fell from 80 to 78.5.
    assert means(report)["new_sentences"] == {"before": 0.2, "after": 0.6}
    tokenizer = {"new_tokens": 3, "vocab_size": 9}
    report |= {
        "means": means(report),
        "fall": fall(report),
        "max_drop": 1.0,
        "tokenizer": tokenizer,
    }
    text = describe({**report, "data": {"new": {"rows": 3}, "old": {"rows": 1}}})
    assert "fell by 1.5 points (1 were allowed)" in text
    assert "3 of new pairs, 1 of old ones (25.0%)" in text
    assert "3 tokens were added to make 9." in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "| a | sentences | pt-BR-zh-CN | 20.0 | 60.0 | +40.0 |" in rows
    assert "| all | documents | mean of old pairs | 50.0 | 49.0 | -1.0 |" in rows


def test_an_interrupted_run_goes_on(added, place, tmp_path, monkeypatch):
    """In the folder of the process."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt(patch, Path("."), 5)
        add_languages(recipe_of(place), ".")
    with pytest.raises(ValueError, match="is not empty"):
        add_languages(recipe_of(place), ".")

    report = add_languages(recipe_of(place), ".", resume=True)

    assert report["before"] == added[1]["before"]
    assert report["after"] == added[1]["after"]
    expected = AutoModel.from_pretrained(added[0]).state_dict()
    for name, value in AutoModel.from_pretrained(tmp_path).state_dict().items():
        torch.testing.assert_close(value, expected[name], atol=1e-6, rtol=0)
    with pytest.raises(RecipeError, match="cannot be resumed with other values: data"):
        add_languages(recipe_of(place, languages=["sv"]), ".", resume=True)


@pytest.mark.nightly
def test_an_encoder_of_the_hub_keeps_its_tokenizer(place, tmp_path):
    encoder = save_encoder(tmp_path / "bert", "bert")
    adapt_encoder(encoder, **NAMES, decoder_layers=1).save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.save_pretrained(tmp_path / "model")
    short = [
        *SHORT[:-1],
        "max_steps=1",
        "bf16=false",
        "train_max_length=40",
        "objectives.distillation=null",
    ]
    recipe = recipe_of(place, checkpoint=str(tmp_path / "model"), recipe="adapted", overrides=short)
    report = add_languages(recipe, tmp_path / "run")
    assert report["tokenizer"]["new_tokens"] == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "run").get_vocab() == tokenizer.get_vocab()
    config = AutoModel.from_pretrained(tmp_path / "run").config
    assert config.languages == [*OLD, NEW]
    assert config.decoder_layers == 1
    with pytest.raises(
        RecipeError,
        match="new_tokens=9: the tokenizer of .* cannot have more entries; leave --new-tokens out",
    ):
        add_languages(recipe, tmp_path / "other", new_tokens=9)


# ---- What may be lost


def test_the_old_languages_lose_no_more_than_was_allowed(place):
    ruined = add_languages(recipe_of(place, "learning_rate=0.5", replay=None), place / "ruined")
    assert ruined["fall"] > 10
    assert ruined["trained_share"] == 1.0
    assert ruined["data"]["old"]["rows"] == 0
    folder = place / "limited"
    report = add_languages(recipe_of(place, "learning_rate=0.5", replay=None), folder, max_drop=4.0)
    assert report["fall"] <= 4.0
    assert 0 < report["trained_share"] < 1
    # The model in the folder is the one that was measured.
    measured = [p1(folder, pair) for pair in OLD_PAIRS]
    planted = report["before"]["planted"]
    before = [planted[f"p1_{'-'.join(pair)}"] for pair in OLD_PAIRS]
    assert 100 * (fmean(before) - fmean(measured)) <= 4.0 + 1e-6
    results = read(folder)
    assert results["best"]["eval_planted_p1_de-en"] == pytest.approx(measured[0], abs=1e-6)
    assert results["trained_share"] == report["trained_share"]
    share = f"{report['trained_share']:.0%} of the trained ones"
    assert share in (folder / "languages.md").read_text()
    sentence = "the trained weights that were averaged with the initial ones"
    assert sentence in (folder / "README.md").read_text()
    limited = AutoModel.from_pretrained(folder).embed_tokens.weight
    trained = AutoModel.from_pretrained(place / "ruined").embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(folder)
    begin = model_before_training(recipe_of(place), folder, tokenizer, None).embed_tokens.weight
    expected = torch.lerp(begin, trained, report["trained_share"])
    torch.testing.assert_close(limited, expected, atol=1e-4, rtol=0)


def test_a_limit_that_nothing_measures_is_refused_before_training(place, tmp_path, monkeypatch):
    dev = {"greek": write_rows(tmp_path / "dev.parquet", greek_rows(60, 7, ("en", NEW)))}
    message = (
        r"max_drop=3: found no dev set with two rows in any pair of the old languages "
        r"\(de, en, es\).*give --dev"
    )
    reads = []

    def count(recipe, *args):
        reads.append(recipe)
        return load_data(recipe, *args)

    monkeypatch.setattr("tmde.training.run.load_data", count)
    with pytest.raises(RecipeError, match=message):
        add_languages(recipe_of(place, dev=dev), tmp_path / "run", max_drop=3.0)
    assert not (tmp_path / "run").exists()
    assert len(reads) == 1
    assert not hasattr(added_language, "load_data")  # The corpus is read once, by the run.


# ---- What is refused


def test_other_folders_are_left_alone(place, added, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="does not look like a training run"):
        add_languages(recipe_of(place), tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="has no complete checkpoint to resume from"):
        add_languages(recipe_of(place), tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "letter.txt"]
    with pytest.raises(RecipeError, match="the run would overwrite it"):
        add_languages(
            recipe_of(place, checkpoint=str(added[0]), languages=["sv"]), added[0], overwrite=True
        )
    with pytest.raises(
        ValueError, match="metric_for_best_model=bogus: this run does not measure it"
    ):
        add_languages(recipe_of(place, "metric_for_best_model=bogus"), added[0], overwrite=True)
    assert (added[0] / "languages.json").is_file()  # The earlier run is still there.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"languages": ["de"]},
            r"Languages: found de, expected .* not already in the checkpoint \(de, en, es\)",
        ),
        ({"languages": ["Greek"]}, r"languages: found 'Greek', .* Did you mean el\?"),
        ({"pivots": ["fr"]}, r"pivot_languages: found \['en', 'fr'\], expected some of"),
        ({"overrides": ["learning_rte=3"]}, "Recipe key 'learning_rte' is unknown; did you mean"),
        ({"overrides": ["push_to_hub=true"]}, "push_to_hub: push with `tmde push`"),
        ({"replay_share": 1.5}, "replay_share=1.5 must lie in"),
        ({"checkpoint": "no/such/place"}, "no/such/place: no such folder"),
        ({"checkpoint": "aligned"}, "aligned has one encoder per language"),
        ({"checkpoint": "no recipe"}, "has no recipe.yaml: give a matching one with --recipe"),
    ],
)
def test_requests_that_cannot_be_met(changes, message, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if changes.get("checkpoint") == "aligned":
        tiny("aligned").save_pretrained("aligned")
    elif changes.get("checkpoint") == "no recipe":
        planted_bag(Path("no recipe"), recipe=False)
    with pytest.raises(ValueError, match=message):
        add_languages(recipe_of(place, **changes), "run")
    assert not Path("run").exists()
