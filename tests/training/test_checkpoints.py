"""Checkpoints that lack what a run resumes with are refused."""

import shutil
from pathlib import Path

import pytest
import torch

from modeling_tmde import TmdeError
from tests.conftest import make_rows
from tests.training.trainers import tiny_trainer
from tmde.training.checkpoints import check_resumable, check_undamaged, find_checkpoint


def save(folder: Path, *files: str) -> Path:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            torch.save({}, file)
    return folder


@pytest.mark.parametrize(
    ("optimizer", "rng"),
    [
        ("optimizer.pt", "rng_state.pth"),
        ("optimizer.pt", "rng_state_1.pth"),
        # FSDP with sharded and with whole states
        ("optimizer_0/.metadata", "rng_state_0.pth"),
        ("optimizer.bin", "rng_state_0.pth"),
    ],
)
def test_layouts_of_transformers_are_accepted(optimizer, rng, tmp_path):
    check_resumable(save(tmp_path / "all", optimizer, rng, "scheduler.pt"))
    with pytest.raises(TmdeError, match="lacks the state of optimizer, as"):
        check_resumable(save(tmp_path / "no_optimizer", rng, "scheduler.pt"))
    with pytest.raises(TmdeError, match="lacks the state of schedule, as"):
        check_resumable(save(tmp_path / "no_schedule", optimizer, rng))
    with pytest.raises(TmdeError, match="lacks the state of random numbers, as"):
        check_resumable(save(tmp_path / "no_rng", optimizer, "scheduler.pt"))


@pytest.fixture(scope="module")
def trained(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    options = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}
    tiny_trainer(folder, tokenizer, make_rows(60), max_steps=2, **options).train()
    return folder


@pytest.mark.parametrize(
    "name", ["trainer_state.json", "optimizer.pt", "rng_state.pth", "model.safetensors"]
)
def test_a_checkpoint_with_a_file_that_was_cut_off_is_skipped(name, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    assert find_checkpoint(run) == run / "checkpoint-2"
    path = run / "checkpoint-2" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert find_checkpoint(run) == run / "checkpoint-1"
    with pytest.raises(TmdeError, match=f"checkpoint-2 is damaged: {name}: "):
        check_undamaged(run / "checkpoint-2")


def test_a_changed_byte_of_an_optimizer_is_damage(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    path = run / "checkpoint-2" / "optimizer.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert find_checkpoint(run) == run / "checkpoint-1"


@pytest.mark.parametrize("only_model", [False, True])
def test_checkpoints_of_the_trainer(only_model, tokenizer, tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        tokenizer,
        make_rows(60),
        max_steps=1,
        save_strategy="steps",
        save_only_model=only_model,
    )
    trainer.train()
    folder = tmp_path / "checkpoint-1"
    if not only_model:
        check_resumable(folder)
        return
    message = "optimizer, schedule, random numbers, as .* save_only_model=true .* --warm-start"
    with pytest.raises(TmdeError, match=message):
        check_resumable(folder)
