"""`tmde compare` as a whole: comparisons from nothing, again, and after an interruption."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from modeling_tmde.eval.results import read_results
from tests.cli.compare_helpers import SHARED, TINY, change, content, write


def test_bad_input_is_told_without_a_traceback(tmp_path):
    file = write(tmp_path / "file.yaml", change("systems/bag/recipe", "bagg"))
    result = CliRunner().invoke(app, ["compare", file, "--train", "sample", "-o", str(tmp_path / "out")])
    assert result.exit_code == 1 and "There is no recipe 'bagg'" in result.output
    assert not (tmp_path / "out").exists()


def tmde(*arguments) -> list[str]:
    return [sys.executable, "-m", "modeling_tmde.cli.main", *map(str, arguments)]


@pytest.mark.slow
def test_a_comparison_from_nothing_and_again(tmp_path):
    """With a system that fails: the others are in the table; mended, what was finished is kept."""
    values = content()
    del values["start"], values["systems"]["warm"]
    values |= {"contrasts": [["bag", "other"]]}
    values["systems"]["other"] = {"recipe": "bag", "overrides": TINY | {"d_model": 8}, "title": "narrow"}
    values["systems"]["broken"] = {"recipe": "bag", "overrides": TINY | {"tokenizer.path": str(tmp_path / "nowhere")}}
    out = tmp_path / "out"
    command = tmde("compare", write(tmp_path / "file.yaml", values), "--train", "sample", "--dev", "sample", "-o", out)
    environment = os.environ | {"COLUMNS": "160"}
    first = subprocess.run([*command, "--jobs", "2"], capture_output=True, text=True, env=environment)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "train broken-42" in first.stderr and "nowhere" in first.stderr
    assert "eval broken-42: needs 'train broken-42', which failed" in first.stderr
    for word in ("TF-IDF", "bag", "narrow", "chance"):
        assert word in first.stdout
    table = json.loads((out / "table.json").read_text())
    assert {name: len(system["values"]) for name, system in table["systems"].items()} == {
        "bag": 2, "other": 2, "broken": 0
    }  # fmt: skip
    assert table["systems"]["bag"]["parameters"] > table["systems"]["other"]["parameters"]
    assert table["systems"]["other"]["differences_from_reference"] and table["contrasts"][0]["measures"]
    assert table["systems"]["bag"]["data"]["train"]["fingerprint"] and table["versions"]["torch"]
    assert 0 < table["systems"]["bag"]["words_per_cpu_second"] and table["tfidf"]["sample Cross"] > 0
    assert (
        len([r for n in ("bag-42", "other-42") for r in read_results(out / "eval" / n) if r.system == "TF-IDF"]) == 1
    )

    finished = (out / "runs" / "bag-42" / "results.json").stat().st_mtime_ns
    values["systems"]["broken"]["overrides"] = dict(TINY)
    write(tmp_path / "file.yaml", values)
    second = subprocess.run([*command, "--overwrite"], capture_output=True, text=True, env=environment)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "4 of 6 trainings and evaluations are finished already" in second.stdout
    assert "systems.broken.overrides.tokenizer.path" in second.stdout
    assert (out / "runs" / "bag-42" / "results.json").stat().st_mtime_ns == finished
    systems = json.loads((out / "table.json").read_text())["systems"]
    assert systems["broken"]["values"] == systems["bag"]["values"]  # the same recipe, data and seed


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_from_the_last_checkpoint(tmp_path):
    values = content(contrasts=None, start=None, systems={"bag": {"recipe": "bag", "overrides": dict(TINY)}})
    limits = {"max_steps": -1, "num_train_epochs": 1_000_000, "max_cpu_minutes": 0.5, "eval_steps": 20}
    values["shared"] = {"all": SHARED | limits}
    out = tmp_path / "out"
    command = tmde("compare", write(tmp_path / "file.yaml", values), "--train", "sample", "--dev", "sample", "-o", out)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = out / "runs" / "bag-42"
    deadline = time.monotonic() + 240
    while not list(run.glob("checkpoint-*/trainer_state.json")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command goes on from there" in " ".join(output.split())
    assert not (run / "results.json").exists()
    before = max(json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines())

    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stdout + again.stderr
    log = (out / "logs" / "bag-42.log").read_text()
    first, second = [line for line in log.splitlines() if line.startswith("$ tmde")]
    assert second == f"{first} --resume"
    losses = [line["step"] for line in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if "loss" in line]
    assert losses.count(losses[0]) == 1 and losses[-1] > before  # it did not begin again
    results = json.loads((run / "results.json").read_text())
    assert 0.5 <= results["cpu_minutes"] < 1.0
    assert json.loads((out / "table.json").read_text())["systems"]["bag"]["values"]
