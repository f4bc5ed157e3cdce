"""The help of every command, as a newcomer reads it."""

import pytest
import typer
from typer.testing import CliRunner

from tmde.cli.main import app

COMMAND = typer.main.get_command(app)


def leaves(command, name: str = "") -> dict[str, typer.core.TyperCommand]:
    if not hasattr(command, "commands"):
        return {name: command}
    parts = {
        part: leaves(each, f"{name} {part}".strip()) for part, each in command.commands.items()
    }
    return {key: leaf for part in parts.values() for key, leaf in part.items()}


LEAVES = leaves(COMMAND)


@pytest.mark.parametrize(("name", "command"), LEAVES.items(), ids=list(LEAVES))
def test_help_explains_a_command_and_every_option(name, command):
    assert command.help
    assert all(item.help for item in command.params)
    result = CliRunner().invoke(app, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output
