"""`tmde add-language` as a user calls it: what it trains and prints, and errors."""

import json
from pathlib import Path

import pytest

from tests.cli import conftest
from tests.training.added_language_helpers import NEW, SHORT, planted_place


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return planted_place(tmp_path_factory.mktemp("add"))


def run(place: Path, output: str, *more: str, **changes: str):
    words = ["add-language", "bag", NEW, "--train", "new.parquet", "--replay", "old.parquet"]
    words += ["--dev", "planted=dev.parquet", "-o"]
    arguments = [
        changes.get(word.partition(".")[0], word) for word in [*words, output, *SHORT, *more]
    ]
    return conftest.run(*arguments, env={"COLUMNS": "300"})


def test_the_command_trains_reports_and_goes_on(place, monkeypatch):
    monkeypatch.chdir(place)
    options = ("--replay-share", "0.25", "--new-tokens", "40", "--max-drop", "50", "cooldown=0")
    done = run(place, "out", *options, "keep_checkpoints=true")
    assert done.exit_code == 0, done.output
    report = (place / "out" / "languages.md").read_text()
    assert done.stdout.endswith(f"{report}\nThe model is in out\n")
    assert "(25.0%)" in report and "40 tokens were added" in report and "50 were allowed" in report
    again = run(place, "out", "--resume", *options, "max_steps=8", "keep_checkpoints=true")
    assert again.exit_code == 0, again.output
    assert json.loads((place / "out" / "results.json").read_text())["steps"] == 8
    refused = run(place, "out")
    assert refused.exit_code == 1 and "out is not empty: choose another folder" in refused.stderr
