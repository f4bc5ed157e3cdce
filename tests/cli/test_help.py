"""The help of every command, as a newcomer reads it."""

import inspect
from collections import Counter

import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde.cli.main import app

MOST_OPTIONS = 14  # under one heading
COMMAND = typer.main.get_command(app)


def leaves(command, name: str = "") -> dict[str, typer.core.TyperCommand]:
    if not hasattr(command, "commands"):
        return {name: command}
    return {
        key: leaf
        for part, each in command.commands.items()
        for key, leaf in leaves(each, f"{name} {part}".strip()).items()
    }


LEAVES = leaves(COMMAND)
EACH = pytest.mark.parametrize(("name", "command"), LEAVES.items(), ids=list(LEAVES))


@EACH
def test_command_says_what_it_does(name, command):
    first = inspect.cleandoc(command.help).split("\n\n")[0]
    assert 10 < len(first) <= 130 and first.endswith(".")


@EACH
def test_every_option_is_explained(name, command):
    for item in command.params:
        assert item.help and item.help.rstrip("`'\"")[-1] in ".;)", f"tmde {name} {item.opts}: {item.help!r}"


@EACH
def test_many_options_stand_under_headings(name, command):
    options = [item for item in command.params if not isinstance(item, typer.core.TyperArgument)]
    panels = Counter(getattr(item, "rich_help_panel", None) for item in options)
    assert max(panels.values(), default=0) <= MOST_OPTIONS, panels


@EACH
def test_examples_are_indented_and_name_the_command(name, command):
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "400"})
    assert result.exit_code == 0 and "[dim]" not in result.output
    examples = [line for line in result.output.splitlines() if line.lstrip().startswith("tmde ")]
    assert all(line.startswith("     tmde") for line in examples), examples
    if name not in ("quickstart", "eval tasks"):  # which are their own examples
        assert examples


def test_commands_are_listed_in_the_order_of_use():
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output.splitlines()
    headings = [line.split()[1] for line in lines if line.startswith("╭─")]
    assert headings == ["Options", "Train", "Embed", "Measure", "Share"]
    listed = [line.split()[1] for line in lines if line.startswith("│ ") and line[2] not in " -"]
    assert listed[:3] == ["quickstart", "train", "add-language"] and set(listed) == set(COMMAND.commands)


@EACH
def test_nothing_in_brackets_is_lost(name, command):
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "400"}).output
    assert "languages='" not in shown and "languages= " not in shown  # rich takes [de, en] for a style
