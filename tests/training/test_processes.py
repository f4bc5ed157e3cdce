"""Launchers: processes that would not train one model are refused, with what to type instead."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from modeling_tmde import TmdeError
from tests.training.test_train import TINY
from tests.training.trainers import ENVIRONMENT
from tmde.training.distributed import check_processes

LAUNCHER_VARIABLES = ("ACCELERATE_MIXED_PRECISION", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
ACCELERATE = {
    "ACCELERATE_MIXED_PRECISION": "no",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch) -> None:
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def set_variables(monkeypatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def arguments(world_size: int = 1, n_gpu: int = 0) -> SimpleNamespace:
    return SimpleNamespace(world_size=world_size, n_gpu=n_gpu, device=torch.device("cpu"))


def test_one_process_and_several_that_have_met_pass(monkeypatch):
    check_processes(arguments())
    check_processes(arguments(n_gpu=1))
    set_variables(monkeypatch, **ACCELERATE, WORLD_SIZE="2")
    check_processes(arguments(world_size=2, n_gpu=1))
    set_variables(monkeypatch, WORLD_SIZE="1")
    check_processes(arguments())


def test_processes_that_have_not_met_are_refused(monkeypatch):
    set_variables(monkeypatch, WORLD_SIZE="2")
    with pytest.raises(TmdeError, match="started 2 processes, .* On CPUs, set use_cpu=True"):
        check_processes(arguments())


def test_one_process_where_accelerate_was_asked_for_two_is_refused(monkeypatch):
    set_variables(monkeypatch, **ACCELERATE)
    with pytest.raises(TmdeError, match="started only one process.* `torchrun --nproc-per-node 2`"):
        check_processes(arguments())


def test_an_address_without_accelerate_is_no_launcher(monkeypatch):
    set_variables(monkeypatch, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    check_processes(arguments())


def test_several_gpus_in_one_process_are_refused():
    message = (
        "Found 2 visible GPUs .*`accelerate launch --num_processes 2 SCRIPT.*CUDA_VISIBLE_DEVICES=0"
    )
    with pytest.raises(TmdeError, match=message):
        check_processes(arguments(n_gpu=2))


# ---- Real launchers


def launch(folder: Path, *launcher: str) -> subprocess.CompletedProcess:
    """Train three steps in `folder/run` by a launcher."""
    command = [sys.executable, "-m", *launcher, "-m", "tmde", "train", "quickstart", *TINY]
    command += ["data.max_rows=200", "max_steps=3", "-o", str(folder / "run")]
    options = {"env": ENVIRONMENT, "capture_output": True, "text": True, "cwd": folder}
    return subprocess.run(command, timeout=300, **options)  # Otherwise a deadlock hangs.


@pytest.mark.nightly
@pytest.mark.parametrize("device", ["--cpu", "--num_machines=1"])
def test_accelerate_launch_on_cpus_does_not_train_silently_alone(device, tmp_path):
    launcher = ("accelerate.commands.accelerate_cli", "launch", device, "--num_processes=2")
    result = launch(tmp_path, *launcher)
    assert result.returncode != 0
    assert "`torchrun --nproc-per-node 2`" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_torchrun_trains_one_model_on_two_cpus_without_being_told_of_them(tmp_path):
    launcher = ("torch.distributed.run", "--standalone", "--nproc_per_node=2")
    result = launch(tmp_path, *launcher)
    assert result.returncode == 0, result.stderr[-3000:]
    assert '"processes": 2' in (tmp_path / "run" / "run.json").read_text()
