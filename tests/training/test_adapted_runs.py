"""Whole runs of `tmde train --encoder`: a normal checkpoint that stands alone, resumed runs, rates, warm starts."""

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
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, set_seed

from modeling_tmde import AdaptedForConditionalGeneration, DocumentEmbedder
from modeling_tmde.training.building import build_model
from modeling_tmde.training.recipe import load_recipe
from modeling_tmde.training.train import train_recipe
from tests.training.adapted_helpers import KINDS, LANGUAGES, SMALL_RUN, failure, run


def trained(folder: Path, *arguments: str | Path) -> list[dict]:
    """The log of a run that must succeed."""
    result = run(*arguments, "-o", folder)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


# ---- The whole way


WITHOUT_PACKAGE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "modeling_tmde":
            raise ModuleNotFoundError(f"No module named {name!r} (blocked)", name=name)
sys.meta_path.insert(0, Blocker())
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
model = AutoModel.from_pretrained("run", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("run")
inputs = tokenizer(["haus hund", "house"], return_tensors="pt", padding=True)
save_file({"embedding": model(**inputs).pooler_output.detach().contiguous()}, "embedding.safetensors")
"""


@pytest.mark.parametrize("kind", ["bert", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_train_on_an_encoder_of_the_hub(kind, encoders, rows_file, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(encoders[kind], encoder)
    log = trained(tmp_path / "run", "--encoder", encoder, "--train", rows_file, *SMALL_RUN)
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert len(losses) == 6 and np.mean(losses[-2:]) < 0.9 * np.mean(losses[:2])
    assert all(np.isfinite(losses)) and log[0]["translation_nll"] < 1.3 * np.log(200)
    shutil.rmtree(encoder)  # the checkpoint stands alone
    whole, model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run"), AutoModel.from_pretrained(tmp_path / "run")
    assert type(whole) is AdaptedForConditionalGeneration and model.config.languages == LANGUAGES
    assert model.config.encoder_config.model_type == kind and model.config.pooling == "mean"
    before = AutoTokenizer.from_pretrained(encoders[kind])
    after = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert after.backend_tokenizer.to_str() == before.backend_tokenizer.to_str()
    assert (after.special_tokens_map, after.model_input_names) == (before.special_tokens_map, before.model_input_names)
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "run", device="cpu")
    vectors = embedder.encode(["haus hund", "house"])
    start = DocumentEmbedder.from_pretrained(encoders[kind], device="cpu", pooling="mean").encode(
        ["haus hund", "house"]
    )
    assert vectors.shape == (2, 32) and abs(vectors - start).max() > 1e-2  # the encoder has learned
    assert not list((tmp_path / "run").glob("tokenizer/*"))
    if kind == "modernbert":
        changes = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", WITHOUT_PACKAGE]
        process = subprocess.run(command, cwd=tmp_path, env=os.environ | changes, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr[-3000:]
        found = load_file(tmp_path / "embedding.safetensors")["embedding"].numpy()
        assert abs(found - vectors).max() < 1e-5


@pytest.mark.slow
def test_resumes_without_the_encoder_as_if_never_stopped(encoders, rows_file, tmp_path):
    encoder = tmp_path / "encoder"
    shutil.copytree(encoders["bert"], encoder)
    options = ["--encoder", encoder, "--train", rows_file, *SMALL_RUN]
    trained(tmp_path / "whole", *options)
    trained(tmp_path / "run", *options)
    for name in ("checkpoint-24", "model.safetensors", "results.json"):
        path = tmp_path / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(encoder)
    trained(tmp_path / "run", *options, "--resume")
    first, second = (load_file(tmp_path / name / "checkpoint-24" / "model.safetensors") for name in ("whole", "run"))
    assert set(first) == set(second)
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-6, rtol=1e-5)


def test_resumes_with_the_model_it_was_begun_with(encoders, rows_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(encoders["bert"], tmp_path / "encoder")
    options = ["--train", rows_file, *SMALL_RUN, "max_steps=2", "eval_steps=1"]
    folder = tmp_path / "run"
    trained(folder, "--encoder", "encoder", *options, "model.pooling=cls")
    before = (folder / "model.safetensors").read_bytes()
    again = [*options, "-o", folder, "--resume"]
    other = encoders["xlm-roberta"]
    found = failure("--encoder", other, *again, "model.pooling=cls")
    assert f"model.encoder is '{other}', and the run was begun with 'encoder'" in found and "pooling" not in found
    assert "model.pooling is 'mean', and the run was begun with 'cls'" in failure("--encoder", "encoder", *again)
    assert "model.architecture is 'tmde', and the run was begun with 'adapted'" in failure("small", *again)
    assert (folder / "model.safetensors").read_bytes() == before
    # By another path to it, and without a word of it.
    trained(folder, "--encoder", tmp_path / "encoder", *again[:-3], "--resume", "model.pooling=cls")
    trained(folder, "adapted", *again[:-3], "--resume", "model.pooling=cls")


@pytest.mark.slow
def test_goes_on_from_a_model_of_its_own_kind(encoders, rows_file, tmp_path):
    start = tmp_path / "start"
    trained(start, "--encoder", encoders["xlm-roberta"], "--train", rows_file, "model.pooling=cls", *SMALL_RUN[:-1])
    weights = load_file(start / "model.safetensors")
    frozen = ["max_steps=1", "eval_steps=1", "learning_rate=0.0", "encoder_learning_rate=0"]
    trained(
        tmp_path / "run",
        "adapted",
        "--warm-start",
        start,
        "--train",
        rows_file,
        *SMALL_RUN,
        *frozen,
        "model.pooling=cls",
    )
    for name, tensor in load_file(tmp_path / "run" / "model.safetensors").items():
        assert torch.equal(tensor, weights[name]), name
    record = json.loads((tmp_path / "run" / "run.json").read_text())["warm_start"]
    assert record["tensors_kept"] == [] and record["tokens_mapped"] == 0
    assert record["tokens_left"] == 3  # rows of the table that no token has, which are copied all the same
    configs = [json.loads((folder / "config.json").read_text()) for folder in (start, tmp_path / "run")]
    ignored = {"architectures", "dtype"}
    assert configs[0]["decoder_embedding_scale"] > 10 and configs[0]["pooling"] == "cls"
    assert all(configs[1][name] == value for name, value in configs[0].items() if name not in ignored)


def test_the_encoder_learns_at_its_own_rate(encoders, rows_file, tmp_path):
    """The first step of Adam moves every weight by the rate."""
    moved = {}
    start = AutoModel.from_pretrained(encoders["bert"]).state_dict()
    for rate in (0.0, 1e-5, 1e-4):
        recipe = load_recipe(
            "adapted",
            [*SMALL_RUN, "max_steps=1", "eval_steps=1", f"encoder_learning_rate={rate}", "learning_rate=0.01"],
            str(encoders["bert"]),
        )
        recipe.sections["training"] |= {"cooldown": 0.0, "weight_decay": 0.0, "max_grad_norm": 0.0}
        recipe.set("data.train", str(rows_file))
        trainer = train_recipe(recipe, tmp_path / str(rate))
        model = trainer.accelerator.unwrap_model(trainer.model).model
        name = "encoder.layer.1.output.dense.weight"
        moved[rate] = float((model.model.encoder.state_dict()[name] - start[name]).abs().median())
        set_seed(trainer.args.seed)
        begun = build_model(recipe, AutoTokenizer.from_pretrained(encoders["bert"])).decoder.layers[0].fc1.weight
        decoder = float((model.decoder.layers[0].fc1.weight - begun).abs().median())
        assert decoder == pytest.approx(0.01, rel=0.05)
        groups = {group["initial_lr"] for group in trainer.optimizer.param_groups}
        assert groups == {0.01} | ({rate} - {0.0})
    assert moved[0.0] == 0
    assert moved[1e-5] == pytest.approx(1e-5, rel=0.05) and moved[1e-4] == pytest.approx(1e-4, rel=0.05)
