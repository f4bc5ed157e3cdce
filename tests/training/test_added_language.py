"""Languages added to a checkpoint: what the model begins with, the run, its report, and what may be lost."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
)

from modeling_tmde import (
    AlignedConfig,
    AlignedModel,
    BagModel,
    LaserConfig,
    LaserForConditionalGeneration,
    TmdeEncoderConfig,
    TmdeEncoderForMaskedLM,
)
from modeling_tmde.embedding import DocumentEmbedder
from modeling_tmde.eval.retrieval import precision_at_1
from modeling_tmde.training.added_language import (
    LEARNING_RATE_SHARE,
    AddedLanguages,
    _extended,
    add_languages,
    recipe_of,
)
from modeling_tmde.training.added_language import _start_model as start_model
from modeling_tmde.training.callbacks import RunSchedule
from modeling_tmde.training.evaluation import dev_losses
from modeling_tmde.training.language_report import LanguageReport
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.train import RunFolderError
from tests.conftest import make_dataset, tiny_model
from tests.hub_encoders import adapt_encoder, save_encoder
from tests.training.added_language_helpers import NEW, OLD, SHORT, greek_rows, planted_bag, write_rows


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A checkpoint `bag`, training rows `new.parquet` (English and Greek) and `old.parquet`, and `dev.parquet`."""
    folder = tmp_path_factory.mktemp("added")
    planted_bag(folder / "bag")
    write_rows(folder / "new.parquet", greek_rows(300, 1, ("en", NEW)))
    write_rows(folder / "old.parquet", greek_rows(300, 2, OLD))
    write_rows(folder / "dev.parquet", greek_rows(60, 7))
    return folder


def asked(place: Path, *overrides: str, **changes) -> AddedLanguages:
    options = {
        "checkpoint": str(place / "bag"),
        "languages": [NEW],
        "train": str(place / "new.parquet"),
        "replay": str(place / "old.parquet"),
        "dev": {"planted": str(place / "dev.parquet")},
        "overrides": (*SHORT, *overrides),
    }
    return AddedLanguages(**(options | changes))


@pytest.fixture(scope="module")
def added(place) -> tuple[Path, LanguageReport]:
    return place / "added", add_languages(asked(place), place / "added")


def p1(folder: Path, pair: tuple[str, str]) -> float:
    embedder = DocumentEmbedder.from_pretrained(str(folder))
    rows = greek_rows(60, 7)
    return precision_at_1(*(embedder.encode([row[code] for row in rows]) for code in pair))


def infonce_loss(folder: Path) -> float:
    """On the dev rows, of the model that is in the folder."""
    recipe = load_recipe(str(folder / "recipe.yaml"))
    model = ParallelModel(AutoModel.from_pretrained(folder), recipe.build_objectives()).eval()
    with torch.no_grad():
        rows, arguments = make_dataset(greek_rows(60, 7)), recipe.build_arguments(str(folder))
        return dev_losses(model, AutoTokenizer.from_pretrained(folder), rows, arguments)["infonce_loss"]


# ---- What the model begins with


def checkpoint_of(kind: str, folder: Path, tokenizer: PreTrainedTokenizerFast) -> tuple[Path, str]:
    """A checkpoint of an architecture, and a recipe that fits it."""
    names = {"languages": list(OLD), "pivot_languages": ["en"]}
    torch.manual_seed(1)
    if kind == "bag":
        return planted_bag(folder), "bag"
    if kind == "tmde":
        model, recipe = tiny_model(**names, bag_residual=True, share_embeddings=True), "quickstart"
    elif kind == "laser":
        sizes = {"vocab_size": 400, "d_model": 16, "embedding_dim": 8, "encoder_layers": 1}
        model, recipe = LaserForConditionalGeneration(LaserConfig(**sizes, **names)).eval(), "laser_1"
    else:
        sizes = {"vocab_size": 400, "d_model": 16, "encoder_layers": 1, "attention_heads": 2, "ffn_dim": 16}
        known = {key: value for key, value in sizes.items() if key in TmdeEncoderConfig.__annotations__}
        model, recipe = TmdeEncoderForMaskedLM(TmdeEncoderConfig(**known, **names)).eval(), "mlm"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, recipe


@pytest.mark.parametrize("kind", ["bag", "tmde", "laser", "encoder"])
def test_before_the_first_step_old_texts_have_their_vectors(kind, tmp_path, place, tokenizer):
    """And Greek words have tokens of their own, whose vectors are means of their bytes'."""
    checkpoint, recipe_name = checkpoint_of(kind, tmp_path / "model", tokenizer)
    request = asked(place, checkpoint=str(checkpoint), recipe=recipe_name, overrides=())
    recipe = recipe_of(request, tmp_path / "tokenizer")
    before = AutoTokenizer.from_pretrained(checkpoint)
    rows = greek_rows(50, 1)
    train = make_dataset(rows)
    after, counts = _extended(request, recipe, before, train)
    assert len(after) == len(before) + counts["new_tokens"] and counts["new_tokens"] > 20
    model, old = start_model(recipe, after), AutoModel.from_pretrained(checkpoint).eval()
    assert model.config.languages == [*OLD, NEW] and model.config.pivot_languages == ["en"]
    assert model.config.vocab_size == len(after)
    encoder = getattr(model, "model", model)
    texts = [row[code] for row in rows[:8] for code in OLD]
    kept = [text for text in texts if before(text)["input_ids"] == after(text)["input_ids"]]
    assert len(kept) >= 20
    inputs = before(kept, return_tensors="pt", padding=True)
    with torch.no_grad():
        vectors = [part(**inputs).pooler_output for part in (encoder.eval(), old)]
    torch.testing.assert_close(*vectors, atol=1e-5, rtol=0)
    assert (vectors[0][0] - vectors[0][-1]).abs().max() > 1e-3
    (word,) = after.encode("γάτα" if kind == "bag" else " γάτα", add_special_tokens=False)
    pieces = before.encode("γάτα" if kind == "bag" else " γάτα", add_special_tokens=False)
    assert word >= len(before) and len(pieces) > 4
    if not hasattr(old, "token_weights"):
        expected = old.get_input_embeddings().weight[pieces].mean(dim=0)
        torch.testing.assert_close(encoder.get_input_embeddings().weight[word], expected)


def test_a_new_language_is_written_as_the_old_ones_are_on_average(tmp_path, place, tokenizer):
    checkpoint, name = checkpoint_of("tmde", tmp_path / "model", tokenizer)
    request = asked(place, checkpoint=str(checkpoint), recipe=name, overrides=(), pivots=[NEW])
    recipe = recipe_of(request, tmp_path / "tokenizer")
    assert recipe.data.pivot_languages == ["en", NEW]
    table = start_model(recipe, tokenizer).decoder.embed_languages.weight
    old = AutoModelForSeq2SeqLM.from_pretrained(checkpoint).decoder.embed_languages.weight
    assert torch.equal(table[:3], old)
    torch.testing.assert_close(table[3], old.mean(dim=0))


def test_the_recipe_is_the_checkpoints_at_lower_rates(place, tmp_path):
    recipe = recipe_of(asked(place, overrides=("max_steps=5",)), tmp_path)
    base = load_recipe("bag", ["token_dropout=0.0"])
    assert recipe.sections["objectives"] == base.sections["objectives"]
    training = dict(base.sections["training"])
    training["learning_rate"] *= LEARNING_RATE_SHARE
    found = dict(recipe.sections["training"])
    assert (found.pop("embedding_learning_rate"), found.pop("max_steps")) == (None, 5)
    assert found == training | {"metric_for_best_model": "mix"}
    assert (recipe.sections["model"]["d_model"], recipe.architecture) == (16, "bag")
    recipe = recipe_of(asked(place, "learning_rate=0.01", recipe="bag"), tmp_path)
    assert recipe.sections["training"]["learning_rate"] == 0.01


def test_a_tokenizer_of_another_kind_stays(place, tmp_path):
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    other = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    recipe = recipe_of(asked(place), tmp_path)
    found, counts = _extended(asked(place), recipe, other, None)
    assert found is other and counts == {"new_tokens": 0, "left_out": 0, "vocab_size": 2}
    with pytest.raises(RecipeError, match="new_tokens=9: the tokenizer of .* stays as it is; leave --new-tokens out"):
        _extended(asked(place, new_tokens=9), recipe, other, None)


# ---- The run


def test_the_run_is_an_ordinary_one_with_a_report(added, place):
    folder, report = added
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert isinstance(model, BagModel) and model.config.languages == [*OLD, NEW]
    assert model.config.vocab_size == len(tokenizer) == report.tokenizer["vocab_size"]
    (word,) = tokenizer.encode("σκύλος", add_special_tokens=False)
    assert word >= 400 - report.tokenizer["new_tokens"]
    recipe = load_recipe(str(folder / "recipe.yaml"))
    assert recipe.warm_start.checkpoint == str(place / "bag")
    assert recipe.sections["data"]["train"]["replay"] == str(place / "old.parquet")
    run = json.loads((folder / "run.json").read_text())
    assert run["warm_start"]["tokens_left"] == 0  # every new token begins as what it was read as
    assert json.loads((folder / "results.json").read_text())["steps"] == 6


def test_the_report_is_what_was_measured(added, place):
    folder, report = added
    for pair in (("de", "en"), ("es", NEW)):
        key = f"p1_{'-'.join(pair)}"
        assert report.before["planted"][key] == pytest.approx(p1(place / "bag", pair), abs=1e-6)
        assert report.after["planted"][key] == pytest.approx(p1(folder, pair), abs=1e-6)
    assert report.before["planted"]["p1_de-en"] > 0.9 > 0.5 > report.before["planted"]["p1_de-el"]  # as planted
    results = json.loads((folder / "results.json").read_text())["best"]
    assert results["eval_planted_p1_es-el"] == pytest.approx(report.after["planted"]["p1_es-el"], abs=1e-6)
    old = [f"p1_{pair}" for pair in ("de-en", "de-es", "en-es")]
    means = [sum(found["planted"][key] for key in old) / 3 for found in (report.before, report.after)]
    assert report.means()["old_sentences"]["before"] == pytest.approx(means[0])
    assert report.fall(report.after) == pytest.approx(max(0, 100 * (means[0] - means[1])), abs=1e-9)
    written = json.loads((folder / "languages.json").read_text())
    assert written["fall"] == report.fall(report.after) and written["after"] == report.after
    assert report.data["old"]["rows"] == report.data["new"]["rows"] == 300


def test_pairs_of_codes_with_hyphens_are_old_ones_too():
    before = {"a": {"p1_pt-BR-en": 0.9, "p1_pt-BR-zh-CN": 0.2, "p1_en-zh-CN": 0.4, "doc_p1_pt-BR-en": 0.5}}
    tokenizer = {"new_tokens": 0, "vocab_size": 9, "changed_texts": {}, "tokens_per_word": {}}
    report = LanguageReport("c", ["pt-BR", "en"], ["zh-CN"], tokenizer, before, before)
    assert list(report.cells("old")) == [("a", "p1_", "pt-BR-en"), ("a", "doc_p1_", "pt-BR-en")]
    assert list(report.cells("new")) == [("a", "p1_", "pt-BR-zh-CN"), ("a", "p1_", "en-zh-CN")]
    assert report.fall({"a": before["a"] | {"p1_pt-BR-en": 0.7}}) == pytest.approx(20)


def test_a_limit_that_nothing_measures_is_refused_before_training(place, tmp_path, monkeypatch):
    dev = {"greek": write_rows(tmp_path / "dev.parquet", greek_rows(60, 7, ("en", NEW)))}
    message = r"max_drop=3: found no dev set with two rows of a pair of the old languages \(de, en, es\).*give --dev"
    with pytest.raises(RecipeError, match=message):
        add_languages(asked(place, dev=dev, max_drop=3.0), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    report = add_languages(asked(place, dev=dev), tmp_path / "run")
    assert report.fall(report.after) is None
    assert "was not measured" in (tmp_path / "run" / "languages.md").read_text()
    monkeypatch.setattr("modeling_tmde.training.added_language.train_recipe", None)
    with pytest.raises(RecipeError, match=message):
        add_languages(asked(place, dev=dev, max_drop=3.0), tmp_path / "run", resume=True)


def test_the_current_folder_can_be_that_of_the_run(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    add_languages(asked(place), ".")
    assert (tmp_path / "languages.md").is_file() and not list(tmp_path.glob(".*.tmp"))


def test_an_interrupted_run_goes_on(added, place, monkeypatch):
    folder, go_on = place / "resumed", RunSchedule.on_step_end
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def stop(self, args, state, control, **kwargs):
            if state.global_step == 5:
                raise KeyboardInterrupt
            return go_on(self, args, state, control, **kwargs)

        patch.setattr(RunSchedule, "on_step_end", stop)
        add_languages(asked(place), folder)
    with pytest.raises(RunFolderError, match="is not empty"):
        add_languages(asked(place), folder)
    monkeypatch.setattr("modeling_tmde.training.added_language._begin", None)  # what was measured is measured
    report = add_languages(asked(place), folder, resume=True)
    assert report.after["planted"] == pytest.approx(added[1].after["planted"])
    assert report.tokenizer == added[1].tokenizer
    weights = [AutoModel.from_pretrained(path).state_dict() for path in (folder, added[0])]
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], atol=1e-6, rtol=0)
    with pytest.raises(RecipeError, match="holds a run with other arguments: data.languages"):
        add_languages(asked(place, languages=["xx"]), folder, resume=True)


def test_a_run_without_a_checkpoint_yet_goes_on(added, place, monkeypatch):
    folder = place / "early"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def stop(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

        patch.setattr(RunSchedule, "on_step_end", stop)
        add_languages(asked(place), folder)
    assert (folder / "warm_start" / "languages.json").is_file() and not list(folder.glob("checkpoint-*"))
    report = add_languages(asked(place), folder, resume=True)
    assert report.after["planted"] == pytest.approx(added[1].after["planted"])


def test_an_encoder_of_the_hub_keeps_its_tokenizer(place, tmp_path):
    encoder = save_encoder(tmp_path / "bert", "bert")
    names = {"languages": list(OLD), "pivot_languages": ["en"]}
    adapt_encoder(encoder, **names, decoder_layers=1).save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.save_pretrained(tmp_path / "model")
    short = [setting for setting in SHORT if setting != "micro_batch_rows=32"]
    request = asked(
        place,
        checkpoint=str(tmp_path / "model"),
        recipe="adapted",
        overrides=[*short, "bf16=false", "train_max_length=40"],
    )
    report = add_languages(request, tmp_path / "run")
    assert report.tokenizer["new_tokens"] == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "run").get_vocab() == tokenizer.get_vocab()
    config = AutoModel.from_pretrained(tmp_path / "run").config
    assert config.languages == [*OLD, NEW] and config.decoder_layers == 1
    assert report.before["planted"] == report.start["planted"] != {}


# ---- What may be lost


@pytest.fixture(scope="module")
def ruined(place) -> LanguageReport:
    """A run at a rate that ruins what there is, without a limit and without replay."""
    return add_languages(asked(place, "learning_rate=0.5", replay=None), place / "ruined")


def test_without_replay_and_limit_much_may_be_lost(ruined, place):
    assert "chose these weights (step" in (place / "ruined" / "README.md").read_text()
    assert ruined.fall(ruined.after) > 10 and ruined.trained_share == 1.0 and ruined.data["old"]["rows"] == 0


def test_weights_are_averaged_without_an_evaluation_in_training(place):
    folder = place / "unwatched"
    request = asked(place, "learning_rate=0.5", "eval_strategy=no", replay=None, max_drop=4.0)
    report = add_languages(request, folder)
    assert report.fall(report.after) <= 4.0 and report.trained_share < 1
    results = json.loads((folder / "results.json").read_text())
    assert results["best"] is None and results["trained_share"] == report.trained_share


def test_the_old_languages_lose_no_more_than_was_allowed(ruined, place):
    folder = place / "limited"
    report = add_languages(asked(place, "learning_rate=0.5", replay=None, max_drop=4.0), folder)
    assert report.fall(report.after) <= 4.0 < ruined.fall(ruined.after)
    assert 0 < report.trained_share < 1
    measured = [p1(folder, pair) for pair in (("de", "en"), ("de", "es"), ("en", "es"))]
    before = [report.before["planted"][f"p1_{pair}"] for pair in ("de-en", "de-es", "en-es")]
    assert 100 * (sum(before) - sum(measured)) / 3 <= 4.0 + 1e-6  # of the model that is in the folder
    results = json.loads((folder / "results.json").read_text())
    assert results["best"]["eval_planted_p1_de-en"] == pytest.approx(measured[0], abs=1e-6)
    assert results["trained_share"] == report.trained_share
    assert results["best"]["eval_planted_infonce_loss"] == pytest.approx(infonce_loss(folder), abs=1e-5)
    assert f"{report.trained_share:.0%} of the trained ones" in (folder / "languages.md").read_text()
    card = (folder / "README.md").read_text()
    assert "chose the trained weights that were averaged with those before (step" in card
    weights = {path: AutoModel.from_pretrained(place / path).embed_tokens.weight for path in ("limited", "ruined")}
    recipe = recipe_of(asked(place), folder / "warm_start")
    start = start_model(recipe, AutoTokenizer.from_pretrained(folder)).embed_tokens.weight
    expected = start + report.trained_share * (weights["ruined"] - start)
    torch.testing.assert_close(weights["limited"], expected, atol=1e-4, rtol=0)


# ---- What is refused


def broken(kind: str, place: Path, folder: Path) -> AddedLanguages:
    if kind == "bert":
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        BertModel(BertConfig(vocab_size=20, **sizes)).save_pretrained(folder)
    elif kind == "aligned":
        names = {"languages": ["de", "en"], "pivot_languages": ["en"]}
        AlignedModel(
            AlignedConfig(vocab_size=50, encoder="bag", encoder_config={"d_model": 8}, **names)
        ).save_pretrained(folder)
    elif kind == "no recipe":
        shutil.copytree(place / "bag", folder, ignore=shutil.ignore_patterns("recipe.yaml"))
    return asked(place, checkpoint=str(folder))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bert", "found a model of type 'bert', expected one of this package"),
        ("aligned", "a model of type 'tmde_aligned' has an encoder for each language, and none can be added"),
        ("no recipe", "has no recipe.yaml: give --recipe"),
    ],
)
def test_checkpoints_that_cannot_be_extended(kind, message, place, tmp_path):
    with pytest.raises(RecipeError, match=message):
        recipe_of(broken(kind, place, tmp_path / "model"), tmp_path / "start")


def test_weights_are_chosen_by_the_mix_whatever_chose_those_of_the_checkpoint(place, tmp_path):
    settings = ["metric_for_best_model=dev_infonce_loss", "greater_is_better=false"]
    (tmp_path / "recipe.yaml").write_text(load_recipe("bag", settings).to_yaml())
    recipe = recipe_of(asked(place, recipe=str(tmp_path / "recipe.yaml")), tmp_path / "start")
    arguments = recipe.build_arguments(str(tmp_path))
    assert arguments.metric_for_best_model == "mix" and arguments.greater_is_better


def test_a_metric_that_nothing_measures_leaves_the_earlier_run(place, added):
    with pytest.raises(ValueError, match="metric_for_best_model=bogus: no evaluation measures it"):
        add_languages(asked(place, "metric_for_best_model=bogus"), added[0], overwrite=True)
    assert (added[0] / "model.safetensors").is_file()


def test_other_folders_are_left_alone(place, added, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "letter.txt").write_text("dear")
    with pytest.raises(RunFolderError, match="is not empty"):
        add_languages(asked(place), kept)
    with pytest.raises(RunFolderError, match="does not look like a training run"):
        add_languages(asked(place), kept, overwrite=True)
    assert [path.name for path in kept.iterdir()] == ["letter.txt"]
    with pytest.raises(RecipeError, match="the run would overwrite it"):
        add_languages(asked(place, checkpoint=str(added[0]), languages=["xx"]), added[0], overwrite=True)


def test_a_report_by_hand():
    before = {"a": {"p1_de-en": 0.9, "p1_de-el": 0.2, "doc_p1_de-en": 0.5}, "b": {"p1_de-en": 0.7}}
    after = {"a": {"p1_de-en": 0.85, "p1_de-el": 0.6, "doc_p1_de-en": 0.49}, "b": {"p1_de-en": 0.72}}
    tokenizer = {"new_tokens": 0, "vocab_size": 9, "changed_texts": {}, "tokens_per_word": {}}
    rows = {"new": {"rows": 3}, "old": {"rows": 1}}
    report = LanguageReport("c", ["de", "en"], ["el"], tokenizer, rows, before, before, after, max_drop=1.0)
    assert report.fall(after) == pytest.approx(1.5)  # sentences: 80 to 78.5; documents: 50 to 49
    assert report.fall(before) == 0.0 and report.falls_too_far()
    assert report.means()["new_sentences"] == {"before": 0.2, "start": 0.2, "after": 0.6}
    text = report.markdown()
    assert "fell by 1.5 points (1 were allowed)" in text and "3 of new pairs, 1 of old ones (25.0%)" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"languages": ["de"]}, r"Languages: found de, expected .* none of the checkpoint's \(de, en, es\)"),
        ({"languages": ["Greek"]}, "Languages: found Greek, expected codes such as it or pt-BR"),
        ({"pivots": ["fr"]}, "Pivot 'fr': expected one of the languages de, en, es, el"),
        ({"recipe": "quickstart"}, "Recipe quickstart trains a model of architecture 'tmde', and .* is of 'bag'"),
        ({"overrides": ["learning_rte=3"]}, "Recipe key 'learning_rte' is unknown; did you mean"),
        ({"overrides": ["push_to_hub=true"]}, "push_to_hub: .* push afterwards with `tmde push`"),
        ({"replay_share": 1.5}, "replay_share: found 1.5"),
        ({"checkpoint": "no/such/place"}, "Checkpoint no/such/place: no folder"),
    ],
)
def test_requests_that_make_no_sense(changes, message, place, tmp_path):
    with pytest.raises(ValueError, match=message):
        add_languages(asked(place, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
