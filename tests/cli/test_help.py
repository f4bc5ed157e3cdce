"""The help of every command, as a newcomer reads it."""

import pytest
import typer
from typer.testing import CliRunner

from tmde.cli.main import COMMANDS, app

COMMAND = typer.main.get_command(app)


def leaves(command, name: str = "") -> dict[str, typer.core.TyperCommand]:
    """The commands without subcommands, by all words of their names."""
    if not hasattr(command, "commands"):
        return {name: command}
    commands = {}
    for part, child in command.commands.items():
        commands |= leaves(child, f"{name} {part}".strip())
    return commands


LEAVES = leaves(COMMAND)


def test_a_command_and_its_options_are_explained():
    for name, command in LEAVES.items():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, (name, parameter.name)


@pytest.mark.parametrize("name", LEAVES)
def test_help_is_shown(name):
    result = CliRunner().invoke(app, [*name.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_the_help_of_tmde_lists_every_command_in_its_panel():
    output = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output
    titles = ["Train", "Embed and search", "Measure", "Share"]
    positions = [output.index(f"─ {title} ─") for title in titles]
    assert positions == sorted(positions)
    for name, source in COMMANDS.items():
        panel_start = output.index(f"─ {source.panel} ─")
        panel = output[panel_start : output.index("╰", panel_start)]
        assert f"│ {name} " in panel
