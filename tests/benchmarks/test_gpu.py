"""The script for a GPU: which steps it runs again, and what it writes."""

import json

import pytest
import torch
from typer.testing import CliRunner

from tests.benchmarks.test_alignment_benchmarks import load_script

script = load_script("gpu")


@pytest.fixture
def calls(monkeypatch):
    """The names of the steps that ran; each writes what the real one writes at its end."""
    names = []

    def make_step(name):
        def step(job, target):
            names.append(name)
            file = target
            if not target.suffix:
                target.mkdir()
                file = target / ("eval.json" if name == "quality" else "results.json")
            file.write_text(json.dumps({"step": name}))

        return step

    steps = {name: make_step(name) for name in script.STEPS}
    monkeypatch.setattr(script, "STEPS", steps)
    return names


def invoke(tmp_path, *options):
    app = script.typer.Typer()
    app.command()(script.main)
    arguments = [tmp_path / "work", "--data", tmp_path, "--json", tmp_path / "gpu.json", *options]
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_every_step_runs_once(tmp_path, calls):
    assert invoke(tmp_path, "--rehearse").exit_code == 0
    assert calls == list(script.STEPS)
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert content["settings"]["rehearsed"] is True
    assert content["results"]["base"] == {"step": "base"}
    assert content["results"]["training_speed"] == {"step": "training_speed.json"}
    # A step that was interrupted has no result.
    (tmp_path / "work" / "adapted" / "results.json").unlink()
    (tmp_path / "work" / "adapted").rmdir()
    calls.clear()
    assert invoke(tmp_path, "--rehearse").exit_code == 0
    assert calls == ["adapted"]


def test_a_rehearsal_is_never_reported_as_a_measurement(tmp_path, calls, monkeypatch):
    assert invoke(tmp_path, "--rehearse").exit_code == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    result = invoke(tmp_path)
    assert result.exit_code == 2
    assert "new folder" in " ".join(result.output.split())
    result = invoke(tmp_path, "--rehearse", "--encoder", "other")
    assert result.exit_code == 2


def test_without_a_gpu_it_says_so(tmp_path, calls, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(tmp_path)
    assert result.exit_code == 2
    assert "found no GPU" in result.output
    assert calls == []
