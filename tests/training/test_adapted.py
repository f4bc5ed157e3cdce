"""An encoder of the Hub in training: its tokenizer in batches, rates, recipes, and what is refused."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    FNetConfig,
    FNetModel,
    ViTConfig,
    ViTModel,
)

from modeling_tmde import AdaptedForConditionalGeneration, DocumentEmbedder
from modeling_tmde.data.tokens import TextBounds, text_bounds
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.hub_encoder import check_encoder
from modeling_tmde.training.objectives import OBJECTIVES
from modeling_tmde.training.optimization import own_rates
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import RecipeError, load_recipe
from tests.conftest import make_dataset, tiny_model
from tests.hub_encoders import SIZES, adapt_encoder, make_tokenizer
from tests.training.adapted_helpers import KINDS, LANGUAGES, ROWS, SMALL_RUN, failure


def adapted(folder: Path, **settings) -> AdaptedForConditionalGeneration:
    torch.manual_seed(1)
    return adapt_encoder(folder, languages=LANGUAGES, pivot_languages=["en", "fr"], dropout=0.0, **settings).eval()


# ---- Batches


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_sees_the_vectors_that_users_get(kind, pooling, encoders):
    """And its loss is that of the model's own forward pass."""
    model, tokenizer = adapted(encoders[kind], pooling=pooling), AutoTokenizer.from_pretrained(encoders[kind])
    objectives = {name: OBJECTIVES[name]() for name in ("translation", "infonce")}
    parallel = ParallelModel(model, objectives).eval()
    seen = []
    encoder = parallel.encoder
    hook = encoder.register_forward_hook(lambda module, inputs, output: seen.append(output.pooler_output))
    batches = ParallelBatches(
        make_dataset(ROWS[:40]),
        tokenizer,
        LANGUAGES,
        ["en", "fr"],
        languages_per_row=2,
        micro_batch_tokens=600,
        epochs=1,
    )
    batch = next(iter(batches))
    outputs = parallel(**batch.model_inputs())
    hook.remove()
    texts = tokenizer.batch_decode(batch.input_ids.flatten(0, 1), skip_special_tokens=True)
    expected = DocumentEmbedder(model, tokenizer).encode(texts)
    np.testing.assert_allclose(seen[0].detach().numpy(), expected, atol=1e-5)
    total, tokens = 0.0, 0
    rows = len(batch.input_ids[0])
    for target, language in enumerate(batch.languages):
        for source in range(2):
            if source == target or language not in ("en", "fr"):
                continue
            for row in range(rows):
                inputs = tokenizer(texts[source * rows + row], return_tensors="pt")
                labels = tokenizer(texts[target * rows + row], return_tensors="pt")["input_ids"]
                loss = model(**inputs, labels=labels, target_language=language).loss
                number = int(batch.lengths[target, row]) - 1
                total, tokens = total + loss.item() * number, tokens + number
    assert float(outputs["translation"]["nll"]) == pytest.approx(total, rel=1e-4)
    assert batch.sizes.target_tokens == tokens


def test_what_a_tokenizer_puts_around_a_text(tokenizer):
    texts = [row[language] for row in ROWS for language in LANGUAGES]
    bounds = {kind: text_bounds(make_tokenizer(kind, texts)) for kind in ("wordpiece", "bpe", "unigram", "t5")}
    assert bounds == {
        "wordpiece": TextBounds(2, 3),
        "bpe": TextBounds(2, 3),
        "unigram": TextBounds(0, 2),
        "t5": TextBounds(0, 1, reads_bos=False),
    }
    assert text_bounds(tokenizer) == TextBounds(0, 2)


def test_layers_that_sharding_keeps_whole_hold_no_table(encoders):
    parallel = ParallelModel(adapted(encoders["bert"]), {"translation": OBJECTIVES["translation"]()})
    # Not BertEmbeddings, whose table is shared.
    assert parallel._no_split_modules == ["AdaptedDecoderLayer", "BertLayer"]
    assert [tuple(table.shape) for table in parallel.embedding_parameters()] == [(parallel.config.vocab_size, 32)]


# ---- Learning rates


def test_rates_of_encoder_and_tables(encoders, tmp_path):
    parallel = ParallelModel(adapted(encoders["bert"]), {"translation": OBJECTIVES["translation"]()})
    encoder, table = set(map(id, parallel.encoder.parameters())), id(parallel.embedding_parameters()[0])

    def rates(**options) -> list[tuple[set[int], float]]:
        arguments = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        found = own_rates(parallel, arguments).items()
        rates = sorted({rate for _, rate in found})
        return [({id(parameter) for parameter, own in found if own == rate}, rate) for rate in rates]

    assert rates() == []
    assert rates(encoder_learning_rate=1e-5) == [(encoder, 1e-5)]
    assert rates(encoder_learning_rate=1e-5, embedding_learning_rate=1e-3) == [
        (encoder - {table}, 1e-5),
        ({table}, 1e-3),
    ]
    assert rates(encoder_learning_rate=0, embedding_learning_rate=1e-3) == [(encoder - {table}, 0), ({table}, 1e-3)]
    with pytest.raises(ValueError, match="encoder_learning_rate=-1 must be at least 0"):
        TmdeTrainingArguments(output_dir=str(tmp_path), encoder_learning_rate=-1)


# ---- Recipes


def test_a_recipe_on_an_encoder_keeps_what_fits(encoders, caplog):
    before = load_recipe("small")
    recipe = load_recipe("small", ["model.pooling=mean"], encoder=str(encoders["bert"]))
    for section in ("objectives", "training", "data"):
        assert recipe.sections[section] == before.sections[section]
    assert recipe.sections["tokenizer"] == recipe.sections["warm_start"] == {}
    model = {"architecture": "adapted", "encoder": str(encoders["bert"]), "pooling": "mean"}
    assert recipe.sections["model"] == model | {"decoder_layers": 1, "dropout": 0.0}
    assert "small on " in caplog.text and "its own: model.d_model, model.decoder_attention_heads" in caplog.text
    assert "model.share_embeddings, warm_start" in caplog.text
    other = load_recipe("small", [f"model.encoder={encoders['bert']}", "model.pooling=mean"])
    assert other.sections == recipe.sections
    with pytest.raises(RecipeError, match="ctmde_p has model.bottleneck=pyramid"):
        load_recipe("ctmde_p", encoder="x/y")
    own = load_recipe("adapted", ["model.decoder_layers=2"], encoder="x/y")
    assert own.sections["model"]["decoder_layers"] == 2 and own.sections["model"]["pooling"] == "mean"
    assert load_recipe("xnli_bilstm", ["model.encoder=bag"]).architecture == "aligned"
    with pytest.raises(RecipeError, match="'d_model' is unknown"):
        load_recipe("adapted", ["model.d_model=64"], encoder="x/y")
    assert copy.deepcopy(own).to_yaml() == own.to_yaml()


# ---- Errors


def copied(encoder: Path, folder: Path, **tokens) -> Path:
    """A copy of an encoder, with these tokens of its tokenizer changed."""
    shutil.copytree(encoder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name, value in tokens.items():
        setattr(tokenizer, name, value)
    tokenizer.save_pretrained(folder)
    return folder


def configured(kind: type, **changes):
    return kind(**SIZES | {"vocab_size": 300, "max_position_embeddings": 62} | changes)


def broken_encoder(problem: str, encoders: dict[str, Path], folder: Path) -> Path:
    """A tiny model with one reason why it cannot be trained."""
    if problem == "causal":
        return encoders["gpt2"]
    if problem == "no padding":
        return copied(encoders["bert"], folder, pad_token=None)
    if problem == "no end":
        return copied(encoders["bert"], folder, sep_token=None)
    if problem == "of this package":
        tiny_model().save_pretrained(folder)
    elif problem == "images":
        ViTModel(configured(ViTConfig, image_size=16, patch_size=8)).save_pretrained(folder)
    elif problem == "own code":
        folder.mkdir()
        auto_map = {"AutoConfig": "configuration.Own", "AutoModel": "modeling.Own"}
        (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto_map}))
    elif problem == "missing weights":
        shutil.copytree(encoders["bert"], folder)
        weights = load_file(folder / "model.safetensors")
        kept = {name: tensor for name, tensor in weights.items() if "layer.1." not in name}
        save_file(kept, folder / "model.safetensors")
    else:
        models = {
            "foreign tokenizer": lambda: BertModel(BertConfig(**SIZES | {"vocab_size": 50})),
            "reads padding": lambda: FNetModel(configured(FNetConfig)),
        }
        torch.manual_seed(0)
        models[problem]().save_pretrained(folder)
        AutoTokenizer.from_pretrained(encoders["bert"]).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("causal", "GPT2Model reads from left to right, as decoders do"),
        ("no padding", "its tokenizer has no pad_token"),
        ("no end", "its eos_token, which it lacks"),
        ("of this package", r"found a model of this package \('tmde'\)"),
        ("images", "expected a text encoder"),
        ("own code", "it needs code of its own"),
        ("missing weights", "its weights lack 16 of a BertModel, such as encoder.layer.1."),
        ("foreign tokenizer", "but the model has 50 token embeddings"),
        ("reads padding", r"its outputs depend on padding: .* by [1-9]\.\d"),
    ],
)
def test_encoders_that_cannot_be_trained(problem, message, encoders, tmp_path):
    folder = broken_encoder(problem, encoders, tmp_path / "encoder")
    with pytest.raises(RecipeError, match=f"^Encoder .*{message}"):
        check_encoder(load_recipe("adapted", encoder=str(folder)))


def test_an_encoder_or_a_checkpoint(encoders, rows_file, tmp_path):
    out = ["--train", rows_file, *SMALL_RUN, "-o", tmp_path / "run"]
    tiny_model().save_pretrained(tmp_path / "ours")
    assert "Name a recipe" in failure("-o", tmp_path / "run")
    assert "no folder" in failure("--encoder", "./nowhere/at/all", *out)
    either = "give either --encoder"
    assert either in failure("adapted", *out)
    assert either in failure("adapted", *out, "warm_start.recipe=bag")
    assert either in failure("--encoder", encoders["bert"], "--warm-start", tmp_path / "ours", *out)
    other = failure("adapted", "--warm-start", tmp_path / "ours", *out)
    assert "found a model of type 'tmde', expected 'tmde_adapted'" in other
    assert "found vocab_size" in failure("--encoder", encoders["bert"], *out, "tokenizer.vocab_size=500")
    assert not (tmp_path / "run").exists()
