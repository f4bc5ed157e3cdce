"""An encoder of the Hub in training: its tokenizer in batches, rates, recipes, and what is refused."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertModel
from typer.testing import CliRunner

from modeling_tmde import AdaptedForConditionalGeneration, DocumentEmbedder
from modeling_tmde.cli.main import app
from modeling_tmde.training.arguments import TmdeTrainingArguments
from modeling_tmde.training.batching import ParallelBatches
from modeling_tmde.training.hub_encoder import adapt_encoder
from modeling_tmde.training.objectives import OBJECTIVES
from modeling_tmde.training.parallel_model import ParallelModel
from modeling_tmde.training.recipe import RecipeError, load_recipe
from modeling_tmde.training.schedule import rates_of_parts
from modeling_tmde.training.throughput import OperationCount
from modeling_tmde.training.token_store import TextBounds, text_bounds
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.hub_encoders import SIZES, make_tokenizer, save_encoder

KINDS = ("bert", "xlm-roberta", "modernbert", "t5")
LANGUAGES = ["de", "en", "fr"]
ROWS = make_rows(300, seed=5, languages=tuple(LANGUAGES))
SMALL_RUN = [
    "data.languages=[de, en, fr]",
    "data.pivot_languages=[en, fr]",
    "data.dev_rows=30",
    "max_steps=24",
    "eval_steps=12",
    "logging_steps=4",
    "micro_batch_tokens=512",
    "train_max_length=40",
    "encoder_learning_rate=0.003",
    "learning_rate=0.003",
    "warmup_steps=0",
    "eval_on_start=false",
    "eval_loss_rows=20",
    "eval_pairs=[de-en]",
    "disable_tqdm=true",
    "report_to=none",
    "bf16=false",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("encoders")
    return {kind: save_encoder(root / kind, kind) for kind in (*KINDS, "gpt2")}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rows.jsonl"
    path.write_text("".join(json.dumps({"translation": row}) + "\n" for row in ROWS))
    return path


def run(*arguments: str | Path):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def adapted(folder: Path, **settings) -> AdaptedForConditionalGeneration:
    torch.manual_seed(1)
    return adapt_encoder(folder, languages=LANGUAGES, pivot_languages=["en", "fr"], dropout=0.0, **settings).eval()


# ---- Batches


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_sees_the_vectors_that_users_get(kind, pooling, folders):
    """And its loss is that of the model's own forward pass."""
    model, tokenizer = adapted(folders[kind], pooling=pooling), AutoTokenizer.from_pretrained(folders[kind])
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


def test_tables_are_no_layers_and_no_operations(folders):
    parallel = ParallelModel(adapted(folders["bert"]), {"translation": OBJECTIVES["translation"]()})
    assert parallel._no_split_modules == ["BertLayer", "TmdeDecoderLayer"]  # not BertEmbeddings, whose table is shared
    size = parallel.config.vocab_size
    tables = parallel.embedding_parameters()
    assert [tuple(table.shape) for table in tables] == [(size, 32)]
    count = OperationCount(parallel)
    inside = sum(p.numel() for name, p in parallel.encoder.named_parameters() if "_embeddings.weight" not in name)
    assert count.per_padded_token == 6 * inside
    decoder = sum(p.numel() for name, p in parallel.model.decoder.named_parameters() if "embed_" not in name)
    assert count.per_target_token == 6 * (decoder + size * 32)


# ---- Learning rates


def test_rates_of_encoder_and_tables(folders, tmp_path):
    parallel = ParallelModel(adapted(folders["bert"]), {"translation": OBJECTIVES["translation"]()})
    encoder, table = set(map(id, parallel.encoder.parameters())), id(parallel.embedding_parameters()[0])

    def rates(**options) -> list[tuple[set[int], float]]:
        arguments = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        return [(set(map(id, parameters)), rate) for parameters, rate in rates_of_parts(parallel, arguments)]

    assert rates() == []
    assert rates(encoder_learning_rate=1e-5) == [(encoder, 1e-5)]
    assert rates(encoder_learning_rate=1e-5, embedding_learning_rate=1e-3) == [
        (encoder - {table}, 1e-5),
        ({table}, 1e-3),
    ]
    assert rates(encoder_learning_rate=0, embedding_learning_rate=1e-3) == [({table}, 1e-3)]
    frozen = {id(parameter) for parameter in parallel.parameters() if not parameter.requires_grad}
    assert frozen == encoder - {table}
    with pytest.raises(ValueError, match="encoder_learning_rate=-1 must be at least 0"):
        TmdeTrainingArguments(output_dir=str(tmp_path), encoder_learning_rate=-1)


# ---- Recipes


def test_a_recipe_on_an_encoder_keeps_what_fits(folders, caplog):
    before = load_recipe("small")
    recipe = load_recipe("small", ["model.pooling=mean"], encoder=str(folders["bert"]))
    for section in ("objectives", "training", "data"):
        assert recipe.sections[section] == before.sections[section]
    assert recipe.sections["tokenizer"] == recipe.sections["warm_start"] == {}
    model = {"architecture": "adapted", "encoder": str(folders["bert"]), "pooling": "mean"}
    assert recipe.sections["model"] == model | {"decoder_layers": 1, "dropout": 0.0}
    assert "small on " in caplog.text and "its own: model.d_model, model.decoder_attention_heads" in caplog.text
    assert "model.share_embeddings, warm_start" in caplog.text
    other = load_recipe("small", [f"model.encoder={folders['bert']}", "model.pooling=mean"])
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


def failure(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 1 and "Traceback" not in result.output
    return " ".join(result.output.split("Error: ")[1].split())


def test_encoders_that_cannot_be_trained(folders, corpus, tmp_path):
    out = ["--train", corpus, *SMALL_RUN, "-o", tmp_path / "run"]
    assert "GPT2Model reads from left to right, as decoders do" in failure("--encoder", folders["gpt2"], *out)
    assert "no folder" in failure("--encoder", "./nowhere/at/all", *out)
    assert "needs an encoder: give --encoder" in failure("adapted", *out)
    assert "Name a recipe" in failure("-o", tmp_path / "run")
    no_pad = broken(tmp_path / "no_pad", "bert", pad_token=None)
    assert "no pad_token" in failure("--encoder", no_pad, *out)
    no_end = broken(tmp_path / "no_end", "bert", sep_token=None)
    assert "expected its cls_token 2 before and its eos_token, which it lacks, after" in failure(
        "--encoder", no_end, *out
    )
    assert "found vocab_size" in failure("--encoder", folders["bert"], *out, "tokenizer.vocab_size=500")
    assert "of this package ('tmde')" in failure("--encoder", saved_tmde(tmp_path / "ours"), *out)
    assert "expected a text encoder" in failure("--encoder", saved_config(tmp_path / "vit", "vit"), *out)
    code = saved_config(tmp_path / "code", "own", {"AutoConfig": "configuration.Own", "AutoModel": "modeling.Own"})
    assert "needs code of its own (trust_remote_code)" in failure("--encoder", code, *out)
    assert not (tmp_path / "run").exists()


def saved_tmde(folder: Path) -> Path:
    tiny_model().save_pretrained(folder)
    return folder


def saved_config(folder: Path, model_type: str, auto_map: dict[str, str] | None = None) -> Path:
    folder.mkdir()
    auto = {} if auto_map is None else {"auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, **auto}))
    return folder


def test_weights_and_tokenizers_of_another_model(folders, corpus, tmp_path):
    out = ["--train", corpus, *SMALL_RUN, "-o", tmp_path / "run"]
    lacking = tmp_path / "lacking"
    shutil.copytree(folders["bert"], lacking)
    weights = load_file(lacking / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "layer.1." not in name}
    save_file(kept, lacking / "model.safetensors")
    assert "its weights lack 16 of those of a BertModel, such as encoder.layer.1." in failure(
        "--encoder", lacking, *out
    )
    small = tmp_path / "small"
    BertModel(BertConfig(**SIZES | {"vocab_size": 50})).save_pretrained(small)
    AutoTokenizer.from_pretrained(folders["bert"]).save_pretrained(small)
    assert "but the model has 50 token embeddings" in failure("--encoder", small, *out)


def test_an_encoder_and_a_checkpoint(folders, corpus, tmp_path):
    out = ["--train", corpus, *SMALL_RUN, "-o", tmp_path / "run"]
    both = failure("--encoder", folders["bert"], "--warm-start", saved_tmde(tmp_path / "ours"), *out)
    assert "Give --encoder or --warm-start, not both" in both
    other = failure("adapted", "--warm-start", tmp_path / "ours", *out)
    assert "found a model of type 'tmde', expected 'tmde_adapted'" in other
    staged = failure("adapted", *out, "warm_start.recipe=bag")
    assert "a first stage cannot make an encoder" in staged
    inside = tmp_path / "run" / "encoder"
    shutil.copytree(folders["bert"], inside)
    (tmp_path / "run" / "recipe.yaml").write_text("")
    assert "the run would overwrite it" in failure("--encoder", inside, *out, "--overwrite")
    assert inside.exists()
    assert "is more than the model takes" in failure(
        "--encoder", folders["bert"], *out, "train_max_length=63", "--overwrite"
    )
