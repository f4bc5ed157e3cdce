"""An encoder of the Hub in training: its tokenizer in batches, rates, recipes, and what is refused."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from modeling_tmde import AdaptedForConditionalGeneration, DocumentEmbedder
from modeling_tmde.data.tokens import TextBounds, text_bounds
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.objectives import OBJECTIVES
from modeling_tmde.training.optimization import own_rates
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import RecipeError, load_recipe
from tests.conftest import make_dataset, tiny_model
from tests.hub_encoders import SIZES, adapt_encoder, make_tokenizer, save_encoder
from tests.training.adapted_helpers import KINDS, LANGUAGES, ROWS


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


def test_tables_are_no_layers(encoders):
    parallel = ParallelModel(adapted(encoders["bert"]), {"translation": OBJECTIVES["translation"]()})
    assert parallel._no_split_modules == ["AdaptedDecoderLayer", "BertLayer"]  # BertEmbeddings has a shared table
    size = parallel.config.vocab_size
    tables = parallel.embedding_parameters()
    assert [tuple(table.shape) for table in tables] == [(size, 32)]


# ---- Learning rates


def test_rates_of_encoder_and_tables(encoders, tmp_path):
    parallel = ParallelModel(adapted(encoders["bert"]), {"translation": OBJECTIVES["translation"]()})
    encoder, table = set(map(id, parallel.encoder.parameters())), id(parallel.embedding_parameters()[0])

    def rates(**options) -> list[tuple[set[int], float]]:
        arguments = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        found = own_rates(parallel, arguments)
        assert all(parameter.requires_grad for parameter in parallel.parameters())
        return [(set(map(id, parameters)), rate) for parameters, rate in found]

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


def broken(folder: Path, kind: str, **tokens) -> Path:
    """An encoder whose tokenizer lacks something."""
    save_encoder(folder, kind)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name, value in tokens.items():
        setattr(tokenizer, name, value)
    tokenizer.save_pretrained(folder)
    return folder


def configured(kind: type, **changes):
    return kind(**SIZES | {"vocab_size": 300, "max_position_embeddings": 62} | changes)


def saved_tmde(folder: Path) -> Path:
    tiny_model().save_pretrained(folder)
    return folder


def saved_config(folder: Path, model_type: str, auto_map: dict[str, str] | None = None) -> Path:
    folder.mkdir()
    auto = {} if auto_map is None else {"auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **auto}))
    return folder
