"""FSDP2 on two processes: the same training as in one, and checkpoints like any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training import worker_fsdp as worker

ROOT = Path(__file__).parents[2]
TINY = {"max_steps": 3, "eval_steps": 3, "logging_steps": 1, "warmup_steps": 2}
BAG = {name: None for name in ("eval_minutes", "max_minutes")} | TINY | {"vocab_size": 400, "d_model": 32}
OVERRIDES = [
    *(f"{name}={value}" for name, value in TINY.items()),
    # First a bag is trained, so that two models are sharded one after the other.
    "warm_start.recipe=bag",
    f"warm_start.overrides={json.dumps(BAG)}",
    "vocab_size=400",
    "data.train=sample",
    "data.max_rows=200",
    "data.dev_rows=20",
    "d_model=32",
    "encoder_layers=3",
    "encoder_attention_heads=4",
    "decoder_attention_heads=4",
    "encoder_ffn_dim=48",
    "decoder_ffn_dim=48",
    "max_position_embeddings=128",
    "train_max_length=64",
    "embed_max_length=64",
    "micro_batch_tokens=600",
    "gradient_accumulation_steps=1",
    "batch_tokens=null",
    "eval_pairs=[de-en]",
    "use_cpu=true",
    "bf16=false",
    "disable_tqdm=true",
    "fsdp=true",
    "fsdp_config={version: 2}",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer) -> Path:
    """What `worker_fsdp.py` trained on two processes."""
    folder = tmp_path_factory.mktemp("fsdp")
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "overrides.yaml").write_text(yaml.safe_dump(OVERRIDES))
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", worker.__file__, folder],
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
        capture_output=True,
        text=True,
        timeout=240,  # a deadlock
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return folder


def log_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def assert_same_weights(found: Path, expected: Path) -> None:
    weights, others = (load_file(path / "model.safetensors") for path in (found, expected))
    assert set(weights) == set(others)
    for name, value in others.items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=2e-5)


def assert_same_log(found: Path, expected: Path, from_step: int = 0) -> None:
    logs = [[entry for entry in log_of(path) if entry["step"] > from_step] for path in (found, expected)]
    assert [set(entry) for entry in logs[0]] == [set(entry) for entry in logs[1]]
    estimates = ("rows", "minutes", "second", "data_wait", "padding", "total_flos", "runtime")
    estimates += ("train_loss",) if from_step else ()
    for entry, other in zip(*logs, strict=True):
        compared = {name: value for name, value in entry.items() if not any(part in name for part in estimates)}
        assert compared == pytest.approx({name: other[name] for name in compared}, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_two_processes_train_and_evaluate_as_one_that_accumulates(folder, tokenizer, tmp_path):
    trainer = worker.run(tokenizer, tmp_path, gradient_accumulation_steps=4)
    assert_same_log(folder / "run", tmp_path)
    for name in ("checkpoint-2", "checkpoint-4", "best"):
        assert_same_weights(folder / "run" / name, tmp_path / name)
    start = worker.parallel_model().model.state_dict()
    weights = load_file(folder / "run" / "checkpoint-4" / "model.safetensors")
    assert max((weights[name] - start[name]).abs().max() for name in weights) > 1e-3  # something was learned
    for rank in (0, 1):
        held = json.loads((folder / f"run-{rank}.json").read_text())
        assert held["best"] == trainer.state.best_global_step
        assert 0.4 * held["whole"] < held["numbers"] < 0.6 * held["whole"]
        assert held["units"] == ["FSDPParallelModel", "FSDPTmdeDecoderLayer", "FSDPTmdeEncoderLayer"]


@pytest.mark.slow
def test_resumed_run_ends_as_one_that_was_not_interrupted(folder):
    assert_same_log(folder / "resumed", folder / "run", from_step=2)
    for name in ("checkpoint-4", "best"):
        assert_same_weights(folder / "resumed" / name, folder / "run" / name)


@pytest.mark.slow
def test_checkpoints_open_as_any_folder(folder):
    path = folder / "run" / "checkpoint-4"
    batch = AutoTokenizer.from_pretrained(path)(["Das Haus ist alt."], return_tensors="pt")
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert AutoModel.from_pretrained(path).eval()(**inputs).pooler_output.isfinite().all()
    assert AutoModelForSeq2SeqLM.from_pretrained(path).generate(**inputs, target_language="en").shape[0] == 1


@pytest.mark.slow
def test_recipe_trains_to_a_folder_of_the_best_model(folder):
    results = json.loads((folder / "recipe" / "results.json").read_text())
    best = folder / "recipe" / f"checkpoint-{results['best_step']}"
    assert_same_weights(folder / "recipe", best)
    assert not (folder / "recipe" / ".final.tmp").exists()
    assert json.loads((folder / "recipe" / "run.json").read_text())["warm_start"]["tokens_copied"] > 0
    assert (folder / "recipe" / "warm_start" / "results.json").exists()


@pytest.mark.slow
def test_what_accelerate_would_ignore_is_refused(folder):
    for rank in (0, 1):
        found = (folder / f"refused-{rank}.txt").read_text()
        assert found.startswith("fsdp: found processes on cpu")
