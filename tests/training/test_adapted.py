"""`tmde train --encoder`: batches, rates, refusals, and runs whose checkpoint stands alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, FNetConfig, FNetModel
from typer.testing import CliRunner

import tmde
from modeling_tmde import AdaptedForConditionalGeneration
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.hub_encoders import SIZES, adapt_encoder, make_tokenizer, save_encoder
from tests.modeling_tmde.families import BLOCKED
from tests.training.batches import parallel_batches
from tests.training.logs import assert_equal_weights, entries_with, read_log, values_of
from tmde import DocumentEmbedder
from tmde.cli.main import app
from tmde.data.tokens import TextBounds, text_bounds
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.objectives import OBJECTIVES
from tmde.training.optimization import special_rates
from tmde.training.parallel_model import ParallelModel
from tmde.training.recipe import RecipeError, load_recipe
from tmde.training.starts.encoder import FromEncoder

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
    "warmup_steps=0",
    "encoder_learning_rate=0.003",
    "learning_rate=0.003",
    "eval_on_start=false",
    "eval_loss_rows=20",
]
# T-MDE's decoder and losses on the encoder, and no teacher.
TMDE = [
    "objectives.distillation=null",
    "objectives.distance={weight: 0.02}",
    "embedding_learning_rate=null",
    "objectives.translation={weight: 0.1, label_smoothing: 0.1, reduction: mean, row_share: 0.5}",
]
SMALL_RUN += ["eval_pairs=[de-en]", "disable_tqdm=true", "bf16=false"]


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny encoders of the Hub by their kind, and `gpt2`, which is none."""
    root = tmp_path_factory.mktemp("encoders")
    return {kind: save_encoder(root / kind, kind) for kind in (*KINDS, "gpt2")}


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rows.jsonl"
    make_dataset(ROWS).to_json(path)
    return path


def run(*arguments: str | Path):
    """`tmde train` with these arguments."""
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def failure(*arguments: str | Path) -> str:
    """The one error of `tmde train` with these arguments."""
    result = run(*arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    return " ".join(result.output.split("Error: ")[1].split())


def trained(folder: Path, *arguments: str | Path) -> list[dict]:
    """The log of a run that must succeed."""
    result = run(*arguments, "-o", folder)
    assert result.exit_code == 0, result.output
    return read_log(folder)


def parallel_model(folder: Path, *objectives: str, **settings) -> ParallelModel:
    torch.manual_seed(1)
    model = adapt_encoder(
        folder, languages=LANGUAGES, pivot_languages=["en", "fr"], dropout=0.0, **settings
    )
    return ParallelModel(model, {name: OBJECTIVES[name]() for name in objectives}).eval()


# ---- Batches and rates


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_sees_the_vectors_that_users_get(kind, pooling, encoders):
    """The loss is that of the model's own forward pass, too."""
    parallel = parallel_model(encoders[kind], "translation", "infonce", pooling=pooling)
    model = parallel.model
    tokenizer = AutoTokenizer.from_pretrained(encoders[kind])
    seen = []
    hook = parallel.encoder.register_forward_hook(
        lambda module, inputs, output: seen.append(output.pooler_output)
    )
    options = {"languages_per_row": 2, "micro_batch_tokens": 600, "epochs": 1}
    batch = next(
        iter(
            parallel_batches(make_dataset(ROWS[:40]), tokenizer, LANGUAGES, ["en", "fr"], **options)
        )
    )
    outputs = parallel(batch)
    hook.remove()
    texts = tokenizer.batch_decode(batch.input_ids.flatten(0, 1), skip_special_tokens=True)
    np.testing.assert_allclose(
        seen[0].detach().numpy(), DocumentEmbedder(model, tokenizer).encode(texts), atol=1e-5
    )
    total = 0.0
    tokens = 0
    rows = len(batch.input_ids[0])
    for target, language in enumerate(batch.languages):
        for row in range(rows if language in ("en", "fr") else 0):
            inputs = tokenizer(texts[(1 - target) * rows + row], return_tensors="pt")
            labels = tokenizer(texts[target * rows + row], return_tensors="pt")["input_ids"]
            number = int(batch.lengths[target, row]) - 1
            total += model(**inputs, labels=labels, target_language=language).loss.item() * number
            tokens += number
    assert float(outputs["translation"]["nll"]) == pytest.approx(total, rel=1e-4)
    assert batch.sizes.target_tokens == tokens


def test_what_a_tokenizer_puts_around_a_text(tokenizer):
    assert text_bounds(tokenizer) == TextBounds(0, 2)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wordpiece", TextBounds(2, 3)),
        ("bpe", TextBounds(2, 3)),
        ("unigram", TextBounds(0, 2)),
        ("t5", TextBounds(0, 1, reads_bos=False)),
    ],
)
def test_what_tokenizers_of_the_hub_put_around_a_text(kind, expected):
    texts = []
    for row in ROWS:
        texts.extend(row.values())
    assert text_bounds(make_tokenizer(kind, texts)) == expected


def test_rates_of_encoder_and_tables(encoders, tmp_path):
    parallel = parallel_model(encoders["bert"], "translation")
    encoder = set(parallel.encoder.parameters())
    table = parallel.embedding_parameters()[0]

    def rates(**options) -> dict[nn.Parameter, float]:
        arguments = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **options)
        return special_rates(parallel, arguments)

    assert rates() == {}
    assert rates(encoder_learning_rate=1e-5) == dict.fromkeys(encoder, 1e-5)
    for rate in (1e-5, 0):
        expected = {**dict.fromkeys(encoder, rate), table: 1e-3}
        assert rates(encoder_learning_rate=rate, embedding_learning_rate=1e-3) == expected


def test_a_negative_rate_is_refused(tmp_path):
    with pytest.raises(ValueError, match="encoder_learning_rate=-1 must lie in"):
        TmdeTrainingArguments(output_dir=str(tmp_path), encoder_learning_rate=-1)


# ---- From Python


def test_an_encoder_is_adapted_in_python(encoders, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(encoders["bert"], encoder)
    prompts = {"prompts": {"query": "katze: "}, "default_prompt_name": "query"}
    (encoder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    texts = ["haus hund", "house"]
    tokenizer = AutoTokenizer.from_pretrained(encoder)

    model = tmde.adapt_encoder(encoder, languages=["de", "en"], pivot_languages=["en"])

    vectors = DocumentEmbedder(model.eval(), tokenizer).encode(texts)
    bare = AutoModel.from_pretrained(encoder)
    expected = DocumentEmbedder(bare, tokenizer, pooling="mean", prompt="katze: ").encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert model.config.languages == ["de", "en"]
    assert model.name_or_path == model.config.name_or_path == str(encoder)


def test_a_model_from_python_inherits_the_license_of_its_encoder(encoders, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(encoders["bert"], encoder)
    (encoder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    arguments = TmdeTrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=1, train_max_length=40, use_cpu=True
    )
    trainer = tmde.TmdeTrainer(
        tmde.adapt_encoder(encoder, languages=LANGUAGES, pivot_languages=["en"]),
        arguments,
        make_dataset(ROWS[:40]),
        processing_class=AutoTokenizer.from_pretrained(encoder),
        objectives={"infonce": 1.0},
    )
    trainer.train()
    trainer.save_model()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [origin["license"] for origin in record["begun_with"]] == ["cc-by-nc-4.0"]


def test_what_adapt_encoder_refuses(encoders, tmp_path):
    folder = broken_encoder("foreign tokenizer", encoders, tmp_path / "encoder")
    with pytest.raises(RecipeError, match="^Encoder .*its tokenizer has the id"):
        tmde.adapt_encoder(folder)
    with pytest.raises(ValueError, match=r"bag_residual=4\.0: expected 0"):
        tmde.adapt_encoder(encoders["bert"], bag_residual=4.0)


def test_a_trainer_says_how_a_bare_encoder_is_adapted(encoders, tmp_path):
    rows = make_dataset(ROWS[:20])
    arguments = TmdeTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    bare = AutoModel.from_pretrained(encoders["bert"])
    tokenizer = AutoTokenizer.from_pretrained(encoders["bert"])
    with pytest.raises(ValueError, match=r"found BertModel, .* model = tmde\.adapt_encoder\("):
        tmde.TmdeTrainer(bare, arguments, rows, processing_class=tokenizer)


# ---- Recipes and errors


def test_a_recipe_on_an_encoder_keeps_what_fits(caplog):
    before = load_recipe("small")
    recipe = load_recipe("small", ["model.pooling=cls"], encoder="x/y")
    for section in ("objectives", "training", "data"):
        assert recipe.settings()[section] == before.settings()[section]
    assert recipe.settings()["tokenizer"] == {}
    assert recipe.settings()["warm_start"] == {}
    adapted = load_recipe("adapted").model.settings()
    assert recipe.model.settings() == {**adapted, "encoder": "x/y", "pooling": "cls"}
    assert "sizes, tokenizer and warm start are ignored" in caplog.text
    deeper = load_recipe("adapted", ["model.decoder_layers=2"], encoder="x/y")
    assert deeper.model.decoder_layers == 2
    assert deeper.model.pooling == "mean"
    taught = load_recipe("adapted", ["model.prompt=query: "], encoder="x/y").objectives.distillation
    assert taught.teacher == "x/y"
    assert taught.teacher_prompt == "query: "
    two = ["model.prompt=query: ", "objectives.distillation.teacher=[encoder, use.parquet]"]
    taught = load_recipe("adapted", two, encoder="x/y").objectives.distillation
    assert taught.teacher == ["x/y", "use.parquet"]
    assert taught.teacher_prompt == ["query: ", None]
    with pytest.raises(RecipeError, match="'d_model' is unknown"):
        load_recipe("adapted", ["model.d_model=64"], encoder="x/y")


def broken_encoder(problem: str, encoders: dict[str, Path], folder: Path) -> Path:
    """A tiny model with one reason why it cannot be trained."""
    sizes = SIZES | {"vocab_size": 300, "max_position_embeddings": 62}
    torch.manual_seed(0)
    if problem == "causal":
        return encoders["gpt2"]
    if problem == "of this package":
        tiny_model().save_pretrained(folder)
    elif problem == "own code":
        folder.mkdir()
        auto_map = {"AutoConfig": "configuration.Own", "AutoModel": "modeling.Own"}
        (folder / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto_map}))
    else:
        shutil.copytree(encoders["bert"], folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if problem == "reads padding":
            FNetModel(FNetConfig(**sizes)).save_pretrained(folder)
        elif problem == "foreign tokenizer":
            tokenizer.add_tokens(list(map("new{}".format, range(9))))
        else:
            setattr(tokenizer, {"no padding": "pad_token", "no end": "sep_token"}[problem], None)
        tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ("causal", "GPT2Model reads from left to right, like a decoder"),
        ("no padding", "its tokenizer has no pad_token"),
        ("no end", "expected its bos_token .* its eos_token or sep_token"),
        ("of this package", r"found a model of this package \('tmde'\)"),
        ("own code", "whose code is in transformers"),
        ("foreign tokenizer", "its tokenizer has the id"),
        ("reads padding", r"its outputs depend on padding: .* by [1-9]\.\d"),
    ],
)
def test_encoders_that_cannot_be_trained(problem, message, encoders, tmp_path):
    folder = broken_encoder(problem, encoders, tmp_path / "encoder")
    with pytest.raises(RecipeError, match=f"(?s)^Encoder .*{message}"):
        FromEncoder(load_recipe("adapted", encoder=str(folder)), tmp_path / "run").check()


def test_an_encoder_or_a_checkpoint(encoders, rows_file, tmp_path):
    out = ["--train", rows_file, *SMALL_RUN, "-o", tmp_path / "run"]
    tiny_model().save_pretrained(tmp_path / "ours")
    assert "no such folder" in failure("--encoder", "./nowhere/at/all", *out)
    assert "needs --encoder" in failure("adapted", *out)
    assert "needs --encoder" in failure(
        "--encoder", encoders["bert"], "--warm-start", tmp_path / "ours", *out
    )
    other = failure("adapted", "--warm-start", tmp_path / "ours", *out)
    assert "found a model of type 'tmde', expected 'tmde_adapted'" in other
    assert "found vocab_size" in failure(
        "--encoder", encoders["bert"], *out, "tokenizer.vocab_size=500"
    )
    assert not (tmp_path / "run").exists()


# ---- Whole runs


WITHOUT_PACKAGE = (
    BLOCKED
    + """from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
model = AutoModel.from_pretrained("run", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("run")
inputs = tokenizer(["haus hund", "house"], return_tensors="pt", padding=True)
embedding = model(**inputs).pooler_output.detach().contiguous()
save_file({"embedding": embedding}, "embedding.safetensors")
"""
)


@pytest.mark.parametrize(
    "kind",
    [
        "bert",
        pytest.param("xlm-roberta", marks=pytest.mark.nightly),
        pytest.param("modernbert", marks=pytest.mark.nightly),
        pytest.param("t5", marks=pytest.mark.nightly),
    ],
)
def test_train_on_an_encoder_of_the_hub(kind, encoders, rows_file, tmp_path):
    encoder = tmp_path / "encoder"
    texts = ["haus hund", "house"]
    shutil.copytree(encoders[kind], encoder)
    log = trained(tmp_path / "run", "--encoder", encoder, "--train", rows_file, *SMALL_RUN, *TMDE)
    losses = values_of(entries_with(log, "loss"), "loss")
    assert len(losses) == 6
    assert np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])
    assert all(np.isfinite(losses))
    assert log[0]["translation_nll"] < 1.3 * np.log(200)
    shutil.rmtree(encoder)  # The checkpoint stands alone.
    whole = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")
    model = AutoModel.from_pretrained(tmp_path / "run")
    assert type(whole) is AdaptedForConditionalGeneration
    assert model.config.languages == LANGUAGES
    assert model.config.encoder_config.model_type == kind
    assert model.config.pooling == "mean"
    before = AutoTokenizer.from_pretrained(encoders[kind])
    after = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert after.backend_tokenizer.to_str() == before.backend_tokenizer.to_str()
    assert after.special_tokens_map == before.special_tokens_map
    assert after.model_input_names == before.model_input_names
    vectors = DocumentEmbedder.from_pretrained(tmp_path / "run", device="cpu").encode(texts)
    start = DocumentEmbedder.from_pretrained(encoders[kind], device="cpu", pooling="mean").encode(
        texts
    )
    assert vectors.shape == (2, 32)
    assert abs(vectors - start).max() > 1e-2  # the encoder has learned
    if kind == "modernbert":
        changes = {
            "HF_MODULES_CACHE": str(tmp_path / "modules"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", WITHOUT_PACKAGE]
        process = subprocess.run(
            command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr[-3000:]
        found = load_file(tmp_path / "embedding.safetensors")["embedding"].numpy()
        assert abs(found - vectors).max() < 1e-5


@pytest.mark.nightly
def test_the_prompt_of_an_encoder_and_gradient_checkpointing(encoders, rows_file, tmp_path):
    """The encoder as it was is the teacher, and reads with its prompt."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    encoder = tmp_path / "encoder"
    texts = ["haus hund", "house"]
    prompted = sentence_transformers.SentenceTransformer(
        str(encoders["bert"]), prompts={"query": "katze: "}, default_prompt_name="query"
    )
    prompted.save(str(encoder))
    options = ["--encoder", encoder, "--train", rows_file, *SMALL_RUN, "max_steps=4"]
    options += ["logging_steps=1", "objectives.distillation.teacher_share=1.0"]
    logs = {}
    for name, override in {
        "plain": "model.prompt=katze: ",
        "less": "gradient_checkpointing=true",
        "none": "model.prompt=",
    }.items():
        log = trained(tmp_path / name, *options, override)
        logs[name] = values_of(entries_with(log, "loss"), "loss")
    np.testing.assert_allclose(logs["plain"], logs["less"], rtol=1e-5)
    assert abs(logs["plain"][0] - logs["none"][0]) > 1e-4
    model = AutoModel.from_pretrained(tmp_path / "less")
    assert model.config.prompt == "katze: "
    assert AutoModel.from_pretrained(tmp_path / "none").config.prompt == ""
    vectors = DocumentEmbedder.from_pretrained(tmp_path / "less", device="cpu").encode(texts)
    peer = sentence_transformers.SentenceTransformer(
        str(tmp_path / "less"), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_allclose(peer.encode(texts), vectors, rtol=0, atol=1e-5)
    bare = DocumentEmbedder(model.encoder, peer.tokenizer, prompt="katze: ").encode(texts)
    np.testing.assert_allclose(bare, vectors, rtol=0, atol=1e-5)


def test_resumes_without_the_encoder_as_if_never_stopped(encoders, rows_file, tmp_path):
    encoder = tmp_path / "encoder"
    whole = tmp_path / "whole"
    resumed = tmp_path / "run"
    shutil.copytree(encoders["bert"], encoder)
    options = ["--encoder", encoder, "--train", rows_file, *SMALL_RUN, *TMDE, "model.pooling=cls"]
    options.append("keep_checkpoints=true")
    trained(whole, *options)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoint-24")
    shutil.rmtree(encoder)
    trained(resumed, *options, "--resume")
    expected = load_file(whole / "checkpoint-24" / "model.safetensors")
    weights = load_file(resumed / "checkpoint-24" / "model.safetensors")
    assert set(weights) == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, atol=1e-6, rtol=1e-5)
    message = "pooling is 'mean', but the run started with 'cls'"
    assert message in failure(*options, "model.pooling=mean", "-o", resumed, "--resume")


def test_goes_on_from_a_model_of_its_own_kind(encoders, rows_file, tmp_path):
    start = tmp_path / "start"
    folder = tmp_path / "run"
    options = ["--train", rows_file, *SMALL_RUN, *TMDE]
    trained(start, "--encoder", encoders["xlm-roberta"], *options, "model.pooling=cls")
    frozen = [
        "max_steps=1",
        "eval_steps=1",
        "learning_rate=0.0",
        "encoder_learning_rate=0",
        "model.pooling=cls",
    ]
    trained(folder, "adapted", "--warm-start", start, *options, *frozen)
    nameless = [
        "adapted",
        "--warm-start",
        start,
        "--train",
        rows_file,
        *SMALL_RUN,
        "-o",
        tmp_path / "other",
    ]
    assert "teacher=encoder needs --encoder, found --warm-start" in failure(*nameless)
    listed = [*nameless, "objectives.distillation.teacher=[encoder, use.parquet]"]
    assert "teacher=encoder needs --encoder, found --warm-start" in failure(*listed)
    weights = load_file(start / "model.safetensors")
    assert_equal_weights(weights, load_file(folder / "model.safetensors"))
    record = json.loads((folder / "run.json").read_text())["warm_start"]
    assert record["tensors_kept"] == []
    assert record["tokens_mapped"] == 0
    # No token has these rows of the table, which are copied all the same.
    assert record["tokens_left"] == 3
    config = json.loads((folder / "config.json").read_text())
    expected = json.loads((start / "config.json").read_text())
    assert expected["decoder_embedding_scale"] > 10
    assert expected["pooling"] == "cls"
    for name in expected.keys() - {"architectures", "dtype"}:
        assert config[name] == expected[name], name
