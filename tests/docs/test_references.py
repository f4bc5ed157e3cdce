"""What the documentation names exists: commands, options, recipes and their keys, files and headings that it links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from modeling_tmde.cli.main import app
from modeling_tmde.training.recipe import load_recipe, recipe_names
from tests.docs.pages import ROOT, Block, shell_commands

MARKDOWN = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]
MARKDOWN += [ROOT / "RESULTS.md", ROOT / "CONTRIBUTING.md"]
TEMPLATES = sorted(ROOT.glob("hub_cards/*.jinja"))
COMMAND = typer.main.get_command(app)
_LAUNCHED = ("modeling_tmde.cli.main", "modeling_tmde.training.train")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(\[?=.*)?$|.*(\.\.\.|…|/|\.ya?ml$)")  # RECIPE, my_recipes/x.yaml


def code_of(text: str) -> list[tuple[int, str]]:
    """Code blocks and inline code of Markdown, with line numbers."""
    found, fenced, begin = [], None, 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            if fenced is not None:
                found.append((begin, "\n".join(fenced)))
            fenced, begin = ([], number + 1) if fenced is None else (None, 0)
        elif fenced is not None:
            fenced.append(line)
        else:
            found += [(number, code) for code in re.findall(r"`([^`]+)`", line)]
    return found


def commands_in(path: Path) -> list[tuple[str, list[str]]]:
    """Commands of `tmde` with their places."""
    text = re.sub(r"{[{%#].*?[}%#]}", "X", path.read_text("utf-8"))
    commands = []
    for number, code in code_of(text):
        for line, words in _words(path, number, code.replace("\\|", "|")):
            for module in _LAUNCHED:
                if module in words and words[0] != "tmde":
                    start = words.index(module) + 1
                    words = ["tmde", *(["train"] if module.endswith("train") else []), *words[start:]]
            if words[0] == "tmde":
                commands.append((f"{path.relative_to(ROOT)}:{line}", words[1:]))
    return commands


def _words(path: Path, number: int, code: str) -> list[tuple[int, list[str]]]:
    try:
        return shell_commands(Block(path.name, number, "bash", code))
    except Exception:  # Python, or a lone quote: no commands
        return []


def leaf_of(words: list[str]) -> tuple[typer.core.TyperCommand, list[str]]:
    """The sub-command of some words, and the words after its name."""
    command = COMMAND
    while hasattr(command, "commands"):
        if words and words[0] in command.commands:
            command, words = command.commands[words[0]], words[1:]
        elif command.name == "eval" and words and not words[0].startswith("-"):
            command = command.commands["run"]  # `tmde eval MODEL` is `tmde eval run MODEL`
        else:
            break
    return command, words


def options_of(command: typer.core.TyperCommand) -> set[str]:
    return {name for item in command.params for name in (*item.opts, *item.secondary_opts)} | {"--help"}


COMMANDS = [item for path in [*MARKDOWN, *TEMPLATES] for item in commands_in(path)]
ALL_OPTIONS = {"--version"}


def _collect(command: typer.core.TyperCommand) -> None:
    ALL_OPTIONS.update(options_of(command))
    for other in getattr(command, "commands", {}).values():
        _collect(other)


_collect(COMMAND)


def test_many_commands_were_found():
    assert len(COMMANDS) > 40
    assert {words[0] for _, words in COMMANDS if words} >= {"train", "embed", "eval", "search", "index"}


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_command_and_its_options_exist(place, words):
    command, rest = leaf_of(words)
    assert not words or command is not COMMAND or words[0].startswith(("-", ".")) or words[0].isupper(), words[0]
    given = {word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)}
    assert not given - options_of(command), f"{place}: tmde {command.name} has no {given - options_of(command)}"


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_recipe_and_its_keys_exist(place, words):
    if words[:1] != ["train"] or len(words) == 1 or words[1].startswith("-") or _PLACEHOLDER.match(words[1]):
        return
    assert words[1] in recipe_names()
    load_recipe(words[1], [word for word in words[2:] if re.match(r"[a-z_.]+=", word) and "..." not in word])


OPTIONS_OF_TMDE = [path for path in MARKDOWN if path.parent.name != "benchmarks"]  # whose scripts have their own


@pytest.mark.parametrize("path", OPTIONS_OF_TMDE, ids=[path.name for path in OPTIONS_OF_TMDE])
def test_options_named_alone_exist(path):
    others = {"--cpu", "--multi_gpu", "--num_processes"}  # of accelerate
    for number, code in code_of(path.read_text("utf-8")):
        if re.match(r"--[a-z]", code) and code.split()[0].partition("=")[0] not in ALL_OPTIONS | others:
            pytest.fail(f"{path.name}:{number}: no command has {code.split()[0]}")


def anchors_of(path: Path) -> set[str]:
    """Anchors that GitHub gives the headings."""
    anchors: dict[str, int] = {}
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ +(.+?)\s*#*$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors[slug] = anchors.get(slug, -1) + 1
    return {slug if not place else f"{slug}-{place}" for slug, last in anchors.items() for place in range(last + 1)}


@pytest.mark.parametrize("path", MARKDOWN, ids=[path.name for path in MARKDOWN])
def test_links_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name}: {target}: there is no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors_of(file), f"{path.name}: {target}: found {sorted(anchors_of(file))}"


def test_anchors_are_those_of_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Documents: long, many\n## `tmde x` and [a link](y)\n# Same\n# Same\n```\n# no heading\n```\n")
    assert anchors_of(page) == {"documents-long-many", "tmde-x-and-a-link", "same", "same-1"}
