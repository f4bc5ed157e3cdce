"""LoRA: adapters alone learn, checkpoints open as any other model, and runs resume exactly."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

from modeling_tmde import TmdeError
from tests.conftest import make_dataset, make_rows, tiny_model
from tests.hub_encoders import save_encoder
from tests.training.logs import assert_equal_weights
from tests.training.trainers import tiny_trainer
from tmde import DocumentEmbedder, adapt_encoder
from tmde.cli.main import app
from tmde.training.arguments import TmdeTrainingArguments
from tmde.training.checkpoints import find_checkpoint
from tmde.training.distributed import load_weights
from tmde.training.lora import (
    ADAPTERS_NAME,
    add_adapters,
    has_adapters,
    merged_copy,
    save_adapters,
    unwrap_peft,
)
from tmde.training.objectives import OBJECTIVES
from tmde.training.optimization import special_rates
from tmde.training.parallel_model import ParallelModel
from tmde.training.recipe import RecipeError, load_recipe
from tmde.training.recipe.sections import LoraSection

peft = pytest.importorskip("peft")

LANGUAGES = ["de", "en"]
TEXTS = ["haus hund", "house"]
SMALL_RUN = [
    "objectives.distillation=null",
    "data.dev_rows=20",
    "eval_on_start=false",
    "eval_loss_rows=10",
    "per_device_train_batch_size=16",
    "train_max_length=40",
    "learning_rate=0.01",
    "warmup_steps=0",
    "bf16=false",
    "disable_tqdm=true",
    "dataloader_num_workers=0",
    "keep_checkpoints=true",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("encoders") / "bert", "bert")


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "rows.jsonl"
    make_dataset(make_rows(120, seed=5, languages=tuple(LANGUAGES))).to_json(path)
    return path


def adapted_model(folder: Path, **options):
    """A model on an encoder with adapters that change its vectors."""
    model = adapt_encoder(folder, languages=LANGUAGES, pivot_languages=["en"], dropout=0.0)
    add_adapters(model, LoraSection(**options))
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def embed(model: nn.Module, tokenizer) -> torch.Tensor:
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        return model.model(**inputs).pooler_output


def run(*arguments: str | Path):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_adapters_of_the_encoder_alone_learn(encoder):
    model = adapted_model(encoder)
    learning = {name for name, weight in model.model.named_parameters() if weight.requires_grad}
    assert learning
    assert all(".lora_" in name for name in learning)
    linear = sum(isinstance(module, nn.Linear) for module in model.model.encoder.modules())
    # A layer is its own matrix and two of the adapter.
    assert len(learning) == 2 * linear / 3
    assert not has_adapters(model.decoder)


def test_a_merged_copy_has_the_vectors_of_the_adapters(encoder):
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = adapted_model(encoder, r=4, alpha=6)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    bare = adapt_encoder(encoder, languages=LANGUAGES, pivot_languages=["en"]).eval()

    merged = merged_copy(model)

    torch.testing.assert_close(embed(merged, tokenizer), embed(model, tokenizer))
    assert (embed(model, tokenizer) - embed(bare, tokenizer)).abs().max() > 1e-2
    assert merged.state_dict().keys() == bare.state_dict().keys()
    assert_equal_weights(model.state_dict(), before)
    name = "model.encoder.encoder.layer.0.attention.self.query"
    product = before[f"{name}.lora_B.default.weight"] @ before[f"{name}.lora_A.default.weight"]
    expected = before[f"{name}.base_layer.weight"] + 6 / 4 * product
    torch.testing.assert_close(merged.state_dict()[f"{name}.weight"], expected)


def test_adapters_learn_at_the_rate_of_new_parameters(encoder, tmp_path):
    parallel = ParallelModel(adapted_model(encoder), {"infonce": OBJECTIVES["infonce"]()})
    arguments = TmdeTrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, encoder_learning_rate=1e-5
    )
    rates = special_rates(parallel, arguments)
    for name, parameter in parallel.encoder.named_parameters():
        assert (parameter in rates) == (".lora_" not in name)


def test_a_run_ends_in_a_model_like_any_other_and_resumes(encoder, rows_file, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "run"
    resumed = tmp_path / "resumed"
    options = ["--encoder", encoder, "--train", rows_file, "--lora", *SMALL_RUN]
    options += ["max_steps=6", "eval_steps=3", "model.lora.r=2"]
    result = run(*options, "-o", folder)
    assert result.exit_code == 0, result.output

    assert not (folder / ADAPTERS_NAME).exists()
    vectors = DocumentEmbedder.from_pretrained(folder, device="cpu").encode(TEXTS)
    model = AutoModel.from_pretrained(folder)
    assert not has_adapters(model)
    peer = sentence_transformers.SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_allclose(peer.encode(TEXTS), vectors, atol=1e-5)
    start = DocumentEmbedder.from_pretrained(encoder, device="cpu", pooling="mean").encode(TEXTS)
    assert abs(vectors - start).max() > 1e-3

    shutil.copytree(folder, resumed)
    shutil.rmtree(resumed / "checkpoint-6")
    result = run(*options, "-o", resumed, "--resume")
    assert result.exit_code == 0, result.output
    for name in ("model.safetensors", ADAPTERS_NAME):
        expected = load_file(folder / "checkpoint-6" / name)
        assert any("lora_A" in key for key in expected) == (name == ADAPTERS_NAME)
        assert_equal_weights(load_file(resumed / "checkpoint-6" / name), expected)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_trainer_saves_and_resumes_adapters_of_the_user(wrapped, tokenizer, tmp_path):
    """Those of `model.add_adapter(config)`, and those of `get_peft_model(model, config)`."""
    rows = make_rows(120, seed=2)

    def trainer(**arguments):
        model = tiny_model(seed=1)
        torch.manual_seed(4)
        config = peft.LoraConfig(r=2, target_modules=["q_proj", "fc1"])
        if wrapped:
            model = peft.get_peft_model(model, config)
        else:
            model.add_adapter(config)
        return tiny_trainer(
            tmp_path / "run", tokenizer, rows, model=model, save_strategy="steps", **arguments
        )

    whole = trainer(max_steps=4, save_steps=2)
    whole.train()
    whole.save_model(str(tmp_path / "saved"))
    expected = {name: weight.clone() for name, weight in whole.model.state_dict().items()}
    assert find_checkpoint(tmp_path / "run").name == "checkpoint-4"
    saved = DocumentEmbedder.from_pretrained(tmp_path / "saved", device="cpu").encode(TEXTS)
    embedder = DocumentEmbedder(whole.parallel_model.encoder.eval(), tokenizer)
    np.testing.assert_allclose(saved, embedder.encode(TEXTS), atol=1e-5)

    shutil.rmtree(tmp_path / "run" / "checkpoint-4")
    resumed = trainer(max_steps=4, save_steps=2)
    resumed.train(resume_from_checkpoint=True)
    assert_equal_weights(resumed.model.state_dict(), expected)


@pytest.mark.parametrize("kind", ["PromptEncoderConfig", "PrefixTuningConfig"])
def test_learned_prompts_are_refused(kind):
    config = getattr(peft, kind)(
        task_type="FEATURE_EXTRACTION",
        num_virtual_tokens=2,
        token_dim=32,
        num_layers=1,
        num_attention_heads=2,
    )
    model = peft.get_peft_model(tiny_model(seed=1), config)
    with pytest.raises(TmdeError, match=rf"PeftModel with {kind}.*use peft\.LoraConfig"):
        unwrap_peft(model)


def test_a_checkpoint_with_adapters_needs_a_model_with_adapters(encoder, tmp_path):
    model = adapted_model(encoder)
    merged_copy(model).save_pretrained(tmp_path)
    save_adapters(model, tmp_path)
    bare = adapt_encoder(encoder, languages=LANGUAGES, pivot_languages=["en"])
    with pytest.raises(TmdeError, match="was trained with adapters: resume it with --lora"):
        load_weights(bare, str(tmp_path))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.lora.r=0", r"lora: r=0 must lie in \[1, inf\)"),
        ("model.lora.rank=4", "lora: key 'rank' is unknown"),
        ("model.lora.alpha=high", "lora: alpha: found 'high', expected an integer"),
    ],
)
def test_options_are_checked(override, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe("adapted", [override], encoder="x/y")


def test_lora_needs_an_encoder_and_layers_that_it_has(encoder, rows_file, tmp_path):
    out = ["--train", rows_file, "-o", tmp_path / "run", *SMALL_RUN]
    refused = run("bag", "--lora", *out)
    assert "--lora trains adapters of a pretrained encoder" in " ".join(refused.output.split())
    refused = run("--encoder", encoder, "--lora", *out, "model.lora.target_modules=[nowhere]")
    message = " ".join(refused.output.split())
    assert "model.lora.target_modules=['nowhere']: Target modules" in message
