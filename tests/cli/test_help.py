"""The help of every command, as a newcomer reads it."""

import inspect

import pytest
import typer
from typer.testing import CliRunner

from modeling_tmde.cli.main import app

COMMAND = typer.main.get_command(app)


def leaves(command, name: str = "") -> dict[str, typer.core.TyperCommand]:
    if not hasattr(command, "commands"):
        return {name: command}
    parts = {part: leaves(each, f"{name} {part}".strip()) for part, each in command.commands.items()}
    return {key: leaf for part in parts.values() for key, leaf in part.items()}


LEAVES = leaves(COMMAND)


@pytest.mark.parametrize(("name", "command"), LEAVES.items(), ids=list(LEAVES))
def test_help_explains_a_command_and_every_option(name, command):
    first = inspect.cleandoc(command.help).split("\n\n")[0]
    assert 10 < len(first) <= 130 and first.endswith(".")
    for item in command.params:
        assert item.help and item.help.rstrip("`'\"")[-1] in ".;)", f"tmde {name} {item.opts}: {item.help!r}"
    result = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    examples = [line for line in result.output.splitlines() if line.lstrip().startswith(f"tmde {name}")]
    assert examples or name in ("quickstart", "eval run", "eval tasks"), result.output
