"""`tmde doctor`: what it finds, and what it calls a problem."""

import json
import re
import subprocess
import sys
from importlib import metadata

import pytest
import torch
from typer.testing import CliRunner

from tmde.cli import machine_report
from tmde.cli.errors import install_command
from tmde.cli.main import app


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(machine_report.constants, "HF_HUB_OFFLINE", True)


def read_json() -> dict:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_versions_are_those_that_are_installed(offline):
    report = read_json()
    assert report["versions"]["torch"] == metadata.version("torch")
    assert report["versions"]["transformers"] == metadata.version("transformers")
    assert "faiss-cpu" not in report["versions"]  # of an extra


def test_every_extra_of_the_package_has_a_purpose(offline):
    extras = set(metadata.metadata("tmde").get_all("Provides-Extra"))
    assert extras - machine_report._HIDDEN_EXTRAS == set(machine_report.EXTRA_PURPOSES)
    assert set(read_json()["extras"]) == set(machine_report.EXTRA_PURPOSES)


def test_a_missing_package_names_its_extra(offline, monkeypatch):
    installed_version = machine_report._installed_version

    def without_lancedb(package):
        return None if package == "lancedb" else installed_version(package)

    monkeypatch.setattr(machine_report, "_installed_version", without_lancedb)
    result = CliRunner().invoke(app, ["doctor"])
    assert f"missing lancedb: {install_command('search')}" in result.stdout


def test_a_version_that_is_too_old_is_a_problem(offline, monkeypatch):
    installed_version = machine_report._installed_version

    def with_old_datasets(package):
        return "1.0" if package == "datasets" else installed_version(package)

    monkeypatch.setattr(machine_report, "_installed_version", with_old_datasets)
    (problem,) = [item for item in read_json()["problems"] if "datasets" in item["finding"]]
    assert problem["advice"].startswith("pip install 'datasets>=")


def test_a_driver_beside_a_torch_without_cuda_is_a_problem(offline, monkeypatch):
    monkeypatch.setattr(machine_report.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    (problem,) = machine_report._device_problems()
    assert "built for CPUs" in problem.finding


def test_a_full_disk_is_a_problem(offline, monkeypatch):
    monkeypatch.setattr(machine_report, "_free_bytes", lambda folder: 2**29)
    findings = [problem["finding"] for problem in read_json()["problems"]]
    assert any(finding.startswith("only 0.5 GiB are free") for finding in findings)


def test_a_hub_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(machine_report.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(machine_report.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 does not answer" in read_json()["hub"]


def test_it_runs_in_a_fresh_interpreter():
    command = [sys.executable, "-m", "tmde", "doctor"]
    result = subprocess.run(command, capture_output=True, text=True, env=None)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    version = re.escape(metadata.version("tmde"))
    assert re.search(rf"^  tmde +{version}$", result.stdout, re.MULTILINE)
