"""The `tmde` command.

A command is imported when it is called or when its help is shown, and its module imports nothing
heavy: whatever needs torch or transformers is imported within the command. So `tmde --help` and a
wrong option answer at once.
"""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from tmde import __version__
from tmde.cli.errors import CommandGroup


@dataclass(frozen=True)
class CommandSource:
    """Where a command or a group of commands is defined.

    Attributes:
        panel: The heading of `tmde --help` under which it is listed.
        module: The module that defines it.
        attribute: The name of a function, or of the `typer.Typer` of a group.
    """

    panel: str
    module: str
    attribute: str


COMMANDS = {
    "quickstart": CommandSource("Train", "tmde.cli.quickstart", "quickstart"),
    "train": CommandSource("Train", "tmde.cli.train", "train"),
    "recipes": CommandSource("Train", "tmde.cli.recipes", "recipes"),
    "add-language": CommandSource("Train", "tmde.cli.add_language", "add_language"),
    "embed": CommandSource("Embed and search", "tmde.cli.embed", "embed"),
    "index": CommandSource("Embed and search", "tmde.cli.index", "index"),
    "search": CommandSource("Embed and search", "tmde.cli.search", "search"),
    "demo": CommandSource("Embed and search", "tmde.cli.demo", "demo"),
    "align": CommandSource("Embed and search", "tmde.cli.align", "align"),
    "align-words": CommandSource("Embed and search", "tmde.cli.align_words", "align_words"),
    "mine": CommandSource("Embed and search", "tmde.cli.mine", "mine"),
    "dedupe": CommandSource("Embed and search", "tmde.cli.dedupe", "dedupe"),
    "clean": CommandSource("Embed and search", "tmde.cli.clean", "clean"),
    "calibrate": CommandSource("Embed and search", "tmde.cli.calibrate", "calibrate"),
    "compare": CommandSource("Measure", "tmde.cli.compare", "compare"),
    "eval": CommandSource("Measure", "tmde.cli.evaluate", "app"),
    "push": CommandSource("Share", "tmde.cli.push", "push"),
    "export": CommandSource("Share", "tmde.cli.export", "app"),
    "doctor": CommandSource("Help", "tmde.cli.doctor", "doctor"),
}


class LazyCommands(Mapping):
    """The commands by name; each is imported when it is first looked up."""

    def __init__(self, sources: Mapping[str, CommandSource]) -> None:
        self._sources = sources
        self._commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - typer does not export click's class
        if name not in self._commands:
            self._commands[name] = load_command(name, self._sources[name])
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def load_command(name: str, source: CommandSource) -> Any:
    """Import a command or a group of commands."""
    definition = getattr(importlib.import_module(source.module), source.attribute)
    if not isinstance(definition, typer.Typer):
        function = definition
        definition = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        definition.command(name)(function)
    command = cast("TyperCommand | TyperGroup", typer.main.get_command(definition))
    command.name = name
    command.rich_help_panel = source.panel
    return command


class MainGroup(CommandGroup):
    """The group of all commands, which imports only what was asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # The group never adds a command, so a mapping that cannot be changed will do.
        self.commands = cast("MutableMapping[str, Any]", LazyCommands(COMMANDS))

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - see LazyCommands
        """Return the names of all commands without importing any."""
        return list(self.commands)


app = typer.Typer(
    cls=MainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tmde {__version__}")
        raise typer.Exit()


@app.callback()
def tmde(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Train multilingual document embedders on parallel text, embed, search and evaluate."""
    if not sys.stderr.isatty():
        _hide_progress_bars_of_libraries()


def _hide_progress_bars_of_libraries() -> None:
    """Hide the progress bars of other libraries, which would write hundreds of lines into a log."""
    # The libraries read these variables when they are imported; transformers reads that of the Hub.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    # A program that calls the command may have imported them before.
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
    if "datasets" in sys.modules:
        import datasets

        datasets.disable_progress_bars()


def main() -> None:
    """Run the command; the entry point of the console script and of `python -m tmde`."""
    app()


if __name__ == "__main__":
    main()
