"""Checkpoints that lack what a run resumes with are refused."""

from pathlib import Path

import pytest

from modeling_tmde import TmdeError
from tests.conftest import make_rows
from tests.training.trainers import tiny_trainer
from tmde.training.checkpoints import check_resumable


def save(folder: Path, *files: str) -> Path:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
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
