"""`tmde add-language` as a user calls it: what it trains and prints, and errors."""

import json
from pathlib import Path

import pytest

from tests.cli import conftest
from tests.training.added_language_helpers import (
    NEW,
    SHORT,
    ciphered_rows,
    planted_place,
    write_rows,
)
from tmde.data.sample import sample_sentences
from tmde.embedding.document_embedder import DocumentEmbedder


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


def packaged_place(folder: Path) -> Path:
    """Write rows of a language in Greek letters beside English, and of two old languages."""
    write_rows(folder / "new.parquet", ciphered_rows(300))
    write_rows(folder / "new_dev.parquet", ciphered_rows(40, seed=7))
    old_rows = []
    for row in sample_sentences(60, "train")["translation"]:
        old_rows.append({"de": row["de"], "en": row["en"]})
    write_rows(folder / "old.parquet", old_rows)
    return folder


def add_to_packaged(model: str, *more: str):
    words = ["add-language", model, NEW, "--train", "new.parquet", "--replay", "old.parquet"]
    words += ["--dev", "new=new_dev.parquet", "-o", "out", "max_steps=2", "max_minutes=null"]
    return conftest.run(*words, *more, env={"COLUMNS": "300"})


def test_default_takes_a_language_of_another_script(tmp_path, monkeypatch):
    monkeypatch.chdir(packaged_place(tmp_path))
    done = add_to_packaged("default", "--new-tokens", "500", "token_cache_dir=null")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "languages.json").read_text())
    assert report["tokenizer"]["new_tokens"] > 200
    found = report["means"]["new_sentences"]
    assert found["after"] > found["before"] + 0.1
    embedder = DocumentEmbedder.from_pretrained(tmp_path / "out")
    assert embedder.languages == ["de", "en", "es", "fr", "it", NEW]


@pytest.mark.parametrize(
    ("model", "options"), [("accurate", []), ("tmde", []), ("default", ["--new-tokens=0"])]
)
def test_a_script_that_the_tokenizer_lacks_is_refused(model, options, tmp_path, monkeypatch):
    monkeypatch.chdir(packaged_place(tmp_path))
    done = add_to_packaged(model, *options)
    assert done.exit_code == 1
    assert f"{NEW}: the tokenizer of {model} does not know" in done.stderr
    assert not (tmp_path / "out").exists()
