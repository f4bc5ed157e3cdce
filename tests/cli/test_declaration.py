"""Options that are declared once, as the fields of a dataclass."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer import Argument, Option
from typer.testing import CliRunner

from tmde.cli.declaration import command, keywords


@dataclass(kw_only=True)
class SharedOptions:
    model: Annotated[str, Option("--model", "-m", help="The model.")] = "default"
    width: Annotated[int | None, Option(help="The width.")] = None


@dataclass(kw_only=True)
class ExampleOptions(SharedOptions):
    source: Annotated[str, Argument(help="The source.")]
    count: Annotated[int, Option(help="The count.")] = 3
    fast: Annotated[bool, Option("--fast", help="Be fast.")] = False
    folds: Annotated[bool, Option(help="Make folds.")] = True


def run(*words):
    calls = []
    app = typer.Typer()

    @app.command()
    @command(ExampleOptions)
    def example(options: ExampleOptions) -> None:
        """Do something."""
        calls.append(options)

    result = CliRunner().invoke(app, list(words))
    return result, calls


def test_a_field_is_an_option():
    result, calls = run("a.txt", "-m", "b", "--count", "5", "--no-folds")
    assert result.exit_code == 0, result.output
    expected = ExampleOptions(source="a.txt", model="b", count=5, folds=False)
    assert calls == [expected]
    result, _ = run("--help")
    assert "Do something." in result.output
    assert "Be fast." in result.output


def test_a_field_without_a_default_is_required():
    result, calls = run()
    assert result.exit_code == 2
    assert calls == []


def test_the_keywords_of_a_group_are_the_options_that_are_set():
    options = ExampleOptions(source="a.txt", count=0)
    assert keywords(options, SharedOptions) == {"model": "default"}
    assert keywords(options, ExampleOptions) == {"source": "a.txt", "count": 0, "folds": True}
    assert keywords(options, ExampleOptions, without=("source",)) == {"count": 0, "folds": True}
    options = ExampleOptions(source="a.txt", fast=True, folds=False, width=2)
    assert keywords(options, SharedOptions) == {"model": "default", "width": 2}
    expected = {"source": "a.txt", "count": 3, "fast": True, "folds": False}
    assert keywords(options, ExampleOptions) == expected
