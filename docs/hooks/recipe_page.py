"""The reference of the recipes, made from their YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tmde.training.packaged_files import recipe_files

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# The families by the architecture that a recipe names; a recipe without one is a T-MDE.
FAMILIES = {
    "tmde": "T-MDE: one vector between encoder and decoder",
    "bag": "Bags of subword vectors",
    "adapted": "Encoders from the Hub",
    "laser": "LASER and other recurrent encoders",
    "ntdv": "NTDV: layers between translation models",
    "encoder": "Transformer encoders without a decoder",
    "aligned": "One encoder for each language",
}


def recipes_markdown() -> str:
    """Return a table of all recipes of the package, and a section for each."""
    files = recipe_files()
    recipes = read_recipes(files)
    parts = [_table(recipes)]
    for family, title in FAMILIES.items():
        names = [name for name in recipes if _family(recipes[name]) == family]
        if not names:
            continue
        parts.append(f"## {title}")
        for name in names:
            parts.append(_section(name, recipes[name], files[name].read_text("utf-8")))
    return "\n\n".join(parts) + "\n"


def read_recipes(files: Mapping[str, Traversable]) -> dict[str, dict]:
    """Return the recipes by name.

    Raises:
        ValueError: A recipe has an architecture that no family of this page covers.
    """
    recipes = {}
    for name, path in files.items():
        recipe = yaml.safe_load(path.read_text("utf-8"))
        if _family(recipe) not in FAMILIES:
            raise ValueError(
                f"{name}: the architecture {_family(recipe)!r} has no title in FAMILIES of "
                f"{Path(__file__).name}: add one"
            )
        recipes[name] = recipe
    return recipes


def _family(recipe: dict) -> str:
    return recipe.get("model", {}).get("architecture", "tmde")


def _table(recipes: dict[str, dict]) -> str:
    lines = ["| recipe | what it trains |", "|---|---|"]
    for name, recipe in recipes.items():
        description = recipe["description"].replace("|", "\\|")
        lines.append(f"| [`{name}`](#{name}) | {description} |")
    return "\n".join(lines)


def _section(name: str, recipe: dict, text: str) -> str:
    """Return a heading, the description, the facts at a glance and the file itself."""
    parts = [f"### `{name}` {{ #{name} }}", f"{recipe['description']}."]
    if "source" in recipe:
        parts.append(f"Source: {recipe['source']}.")
    objectives = ", ".join(f"`{objective}`" for objective in recipe["objectives"])
    facts = [f"Objectives: {objectives}"]
    limit = recipe["training"].get("max_minutes")
    if limit is not None:
        facts.append(f"trains for {limit:g} minutes")
    parts.append("; ".join(facts) + ".")
    settings = _without_description(text)
    parts.append(f"```bash\n{_example(name, recipe)}\n```")
    parts.append(f'??? note "Settings of {name}.yaml"\n\n{_indented(fence(settings))}')
    return "\n\n".join(parts)


def _example(name: str, recipe: dict) -> str:
    """Return a command with the options that the recipe leaves open."""
    words = [f"tmde train {name}"]
    if "encoder" in recipe.get("model", {}) and recipe["model"]["encoder"] is None:
        words.append("--encoder HUB_ID_OR_FOLDER")
    if recipe["data"].get("train") is None:
        words.append("--train my_corpus/")
    words.append(f"-o runs/{name}")
    return " ".join(words)


def _without_description(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith(("description:", "source:")):
            lines.append(line)
    return "\n".join(lines)


def fence(text: str) -> str:
    """Return a block of YAML."""
    return f"```yaml\n{text.strip()}\n```"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
