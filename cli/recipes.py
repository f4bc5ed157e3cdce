"""The command `tmde recipes`."""

from __future__ import annotations

from importlib import resources

import typer

PACKAGE = "tmde.training.recipes"


def recipes() -> None:
    """List the recipes of `tmde train`: what each trains, and the paper whose system it is."""
    described = described_recipes()
    width = max(len(name) for name in described)
    for name, description in described.items():
        typer.echo(f"{name:<{width}}  {description}")


def described_recipes() -> dict[str, str]:
    """Return a line about each recipe of the package, by name."""
    # `load_recipe` would import torch, and leaves out the source.
    import yaml

    described = {}
    for path in sorted(resources.files(PACKAGE).iterdir(), key=lambda path: path.name):
        name, _, suffix = path.name.rpartition(".")
        if suffix != "yaml":
            continue
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        described[name] = content["description"]
        if "source" in content:
            described[name] += f" [{content['source']}]"
    return described
