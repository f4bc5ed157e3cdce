"""The command `tmde recipes`."""

from __future__ import annotations

import typer


def recipes() -> None:
    """List the recipes of `tmde train` with what they train and their papers."""
    described = described_recipes()
    width = max(len(name) for name in described)
    for name, description in described.items():
        typer.echo(f"{name:<{width}}  {description}")


def described_recipes() -> dict[str, str]:
    """Return a line about each recipe of the package, by name."""
    # `load_recipe` would import torch, and leaves out the source.
    import yaml

    from tmde.training.packaged_files import recipe_files

    described = {}
    for name, path in recipe_files().items():
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        described[name] = content["description"]
        if "source" in content:
            described[name] += f" [{content['source']}]"
    return described
