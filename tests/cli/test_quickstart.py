"""The end of `tmde quickstart`: what was learned, what to try next, and what Ctrl-C leaves."""

import re
import shlex
import signal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.conftest import save, tiny_model
from tmde.cli import run_quickstart as quickstart
from tmde.cli.main import app
from tmde.data import load_parallel
from tmde.training.interruption import RunInterrupted

ACCURACIES = {
    "cT-MDE": {"de": 0.9, "en": 1.0, "es": 0.8, "fr": 0.7, "it": 0.6},  # 0.75 without English
    "TF-IDF": {"de": 0.5, "en": 1.0, "es": 0.4, "fr": 0.3, "it": 0.4},  # 0.40
}


@pytest.fixture
def ending(tmp_path: Path, tokenizer, monkeypatch, capsys) -> str:
    """What a quickstart in a folder with a space in its name prints at its end."""
    monkeypatch.setattr(quickstart, "TEST_DOCUMENTS", 4)
    monkeypatch.setattr(quickstart, "EXAMPLE_ROWS", 20)
    output = tmp_path / "my quickstart"
    model_folder = output / "model"
    save(model_folder, tiny_model(), tokenizer)
    quickstart._print_next_steps(output, model_folder, ACCURACIES, seed=1)
    return capsys.readouterr().out


def commands_in(ending: str) -> dict[str, list[str]]:
    """Return the words of each printed command by its name."""
    commands = {}
    for line in re.findall(r"^   tmde (.+)$", ending, re.MULTILINE):
        words = shlex.split(line)
        commands[words[0]] = words
    return commands


def test_what_was_learned_is_the_mean_of_the_other_languages(ending):
    sentence = " ".join(ending.partition("Next")[0].split())
    assert (
        "is right on 75% of the documents in other languages with the tiny model, and on 40% with"
        in sentence
    )


def test_the_command_that_embeds_works_as_it_stands(ending):
    words = commands_in(ending)["embed"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert Path(words[words.index("-o") + 1]).is_file()


def test_the_commands_that_index_and_search_work_as_they_stand(ending):
    pytest.importorskip("lancedb")
    commands = commands_in(ending)
    for name in ("index", "search"):
        result = CliRunner().invoke(app, commands[name])
        assert result.exit_code == 0, result.output


def test_the_command_that_trains_finds_its_rows(ending):
    words = commands_in(ending)["train"]
    rows = load_parallel(words[words.index("--train") + 1], languages=["de", "en"])
    assert len(rows) == 20


def test_an_interrupted_quickstart_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")

    def interrupt(*args):
        raise RunInterrupted(number=signal.SIGTERM)

    monkeypatch.setattr(quickstart, "_run_steps", interrupt)
    with pytest.raises(typer.Exit) as caught:
        quickstart.run_quickstart(tmp_path / "a b", seed=3)
    assert caught.value.exit_code == 143
    output = capsys.readouterr().out
    assert f"tmde quickstart -o '{tmp_path / 'a b'}' --seed 3" in output
