"""`tmde add-language` as a user calls it: real processes, what they print, and mistakes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

from modeling_tmde.cli.main import app
from tests.training.added_language_helpers import NEW, OLD, SHORT, greek_rows, planted_bag, write_rows


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("add")
    planted_bag(folder / "bag")
    write_rows(folder / "new.parquet", greek_rows(300, 1, ("en", NEW)))
    write_rows(folder / "old.parquet", greek_rows(300, 2, OLD))
    write_rows(folder / "dev.parquet", greek_rows(60, 7))
    return folder


def command(place: Path, output: str, *more: str) -> list[str]:
    data = ["--train", str(place / "new.parquet"), "--replay", str(place / "old.parquet")]
    dev = ["--dev", f"planted={place / 'dev.parquet'}"]
    return ["add-language", str(place / "bag"), NEW, *data, *dev, "-o", str(place / output), *SHORT, *more]


def run(arguments: list[str]) -> subprocess.CompletedProcess:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "modeling_tmde.cli.main", *arguments]
    return subprocess.run(call, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.slow
def test_the_command_trains_reports_and_goes_on(place):
    done = run(command(place, "out", "--replay-share", "0.25", "--new-tokens", "40", "--max-drop", "50"))
    assert done.returncode == 0, done.stderr
    report = (place / "out" / "languages.md").read_text()
    assert done.stdout == f"{report}\nThe model is in {place / 'out'}\n"
    assert "(25.0%)" in report and "40 tokens were added" in report and "50 were allowed" in report
    assert "Of 1,200 rows, 900 are of new pairs and 300 of old ones" in done.stderr
    model, tokenizer = AutoModel.from_pretrained(place / "out"), AutoTokenizer.from_pretrained(place / "out")
    assert model.config.languages == [*OLD, NEW] and model.config.vocab_size == len(tokenizer)
    written = json.loads((place / "out" / "languages.json").read_text())
    assert written["max_drop"] == 50.0 and written["tokenizer"]["new_tokens"] == 40
    again = run(command(place, "out", "--resume", "--replay-share", "0.25", "--new-tokens", "40", "max_steps=8"))
    assert again.returncode == 0, again.stderr
    assert json.loads((place / "out" / "results.json").read_text())["steps"] == 8
    refused = run(command(place, "out"))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith(f"Error: {place / 'out'} is not empty: choose another folder")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({NEW: "de"}, "Error: Languages: found de, expected codes"),
        ({"new.parquet": "no.parquet"}, "no.parquet: found no such file or folder"),
        ({"old.parquet": "no.parquet"}, "no.parquet: found no such file or folder"),
        ({"bag": "gone"}, "gone: no folder"),
        ({"max_steps=6": "max_stps=6"}, "Error: Recipe key 'max_stps' is unknown; did you mean"),
        ({NEW: "xx"}, "found 'xx', expected one of the languages in the data"),
    ],
)
def test_a_mistake_is_one_clear_error(changes, message, place):
    arguments = command(place, "wrong")
    for old, new in changes.items():
        arguments = [new if value == old else value.replace(f"/{old}", f"/{new}") for value in arguments]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    (line,) = [line for line in result.stderr.splitlines() if "Error" in line]
    assert result.exit_code == 1 and line.startswith("Error: ") and message in line
    assert "Traceback" not in result.output and not (place / "wrong").exists()
