"""Recipes that come with the package, and YAML files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from transformers.utils import logging

from tmde.data.plain_yaml import PlainLoader
from tmde.training.recipe.architectures import ADAPTED, DEFAULT_ARCHITECTURE
from tmde.training.recipe.errors import RecipeError, unknown_name_message
from tmde.training.recipe.overrides import Sections, apply_overrides
from tmde.training.recipe.schema import Recipe, read_sections, validate_recipe

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # Python 3.10 has no such module.

logger = logging.get_logger("tmde.training")

RECIPES = "tmde.training.recipes"  # The package that holds the YAML files.
# As the `teacher` of a loss, this stands for the encoder that the recipe trains.
ENCODER_AS_TEACHER = "encoder"


def load_recipe(
    name_or_path: str, overrides: Iterable[str] = (), encoder: str | None = None
) -> Recipe:
    """Return a recipe of the package or of a YAML file, with overrides applied.

    A teacher `encoder` of a loss becomes the encoder of the recipe, with its prompt.

    Args:
        name_or_path: The name of a recipe that comes with the package, or the path of a YAML file.
        overrides: Keys and values, `key=value`.
        encoder: Folder or Hub id of an encoder that takes the place of the recipe's model: the
            `model` section becomes that of the recipe `adapted`; data, objectives and training
            stay.

    Raises:
        RecipeError: There is no such recipe or key, or a value does not fit.
    """
    name = Path(name_or_path).stem
    description, sections = _read_recipe(name_or_path)
    if encoder is not None:
        _put_on_encoder(sections, name, encoder)
    apply_overrides(sections, overrides)
    _name_teachers(sections)
    return validate_recipe(name, description, sections)


def has_encoder_as_teacher(options: Mapping[str, Any]) -> bool:
    """Return whether a teacher of a loss with these options is the encoder that is trained."""
    teacher = options.get("teacher")
    if isinstance(teacher, list):
        return ENCODER_AS_TEACHER in teacher
    return bool(teacher == ENCODER_AS_TEACHER)


def packaged_names(package: str = RECIPES) -> list[str]:
    """Return the names of the YAML files in a package, by default those of the recipes."""
    names = []
    for path in resources.files(package).iterdir():
        if path.name.endswith(".yaml"):
            names.append(path.name.removesuffix(".yaml"))
    return sorted(names)


def read_yaml(name_or_path: str, package: str, kind: str) -> dict[str, Any]:
    """Return the mapping in a YAML file, or in one that comes with a package.

    Args:
        name_or_path: The name of a file that comes with the package, or a path.
        package: The package.
        kind: What the file holds, for the error message, such as "Recipe".

    Raises:
        RecipeError: There is no such file, or it is not a mapping.
    """
    names = packaged_names(package)
    path: Traversable = Path(name_or_path)
    if name_or_path in names:
        path = resources.files(package).joinpath(f"{name_or_path}.yaml")
    if not path.is_file():
        reason = unknown_name_message(kind, name_or_path, names)
        raise RecipeError(f"{reason} (or give the path of a YAML file)")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), PlainLoader)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecipeError(f"{name_or_path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(
            f"{name_or_path}: found {content!r}, expected a mapping of keys to values"
        )
    return content


def _read_recipe(name_or_path: str) -> tuple[str, Sections]:
    """Return the description of a recipe and its sections, which are not validated yet."""
    content = read_yaml(name_or_path, RECIPES, "Recipe")
    description = content.pop("description", "")
    content.pop("source", None)
    return description, read_sections(content, Path(name_or_path).stem)


def _put_on_encoder(sections: Sections, name: str, encoder: str) -> None:
    """Make the model of a recipe that of `adapted` on an encoder of the Hub, in place."""
    if sections["model"].get("architecture", DEFAULT_ARCHITECTURE) != ADAPTED:
        _, adapted = _read_recipe(ADAPTED)
        sections["model"] = adapted["model"]
        sections["tokenizer"] = {}
        sections["warm_start"] = {}
        logger.warning(
            f"Recipe {name} on {encoder}: the model is that of recipe adapted; sizes, tokenizer "
            "and warm start are left out. If learning_rate is high for a pretrained encoder, set "
            "encoder_learning_rate"
        )
    sections["model"]["encoder"] = str(encoder)


def _name_teachers(sections: Sections) -> None:
    """Replace the teacher `encoder` of a loss by the encoder of the recipe and its prompt."""
    encoder = sections["model"].get("encoder")
    if not encoder:
        return
    prompt = sections["model"].get("prompt")
    for name, options in sections["objectives"].items():
        if not isinstance(options, dict) or not has_encoder_as_teacher(options):
            continue
        teacher = options["teacher"]
        named_teacher: Any = encoder
        named_prompt: Any = prompt
        if isinstance(teacher, list):
            named_teacher = [encoder if one == ENCODER_AS_TEACHER else one for one in teacher]
            named_prompt = [prompt if one == ENCODER_AS_TEACHER else None for one in teacher]
        sections["objectives"][name] = {
            "teacher_prompt": named_prompt,
            **options,
            "teacher": named_teacher,
        }
