"""Recipes are read from the package and from YAML files, and changed by `key=value`.

A key is `section.key`, `objectives.name.key`, or a bare `key` that only one section has. A key
whose value is a mapping may be followed by one of that mapping, as in `encoder_config.d_model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from transformers.utils import logging

from tmde.data.plain_yaml import PlainLoader
from tmde.training.packaged_files import recipe_files
from tmde.training.recipe.architectures import ADAPTED, DEFAULT_ARCHITECTURE
from tmde.training.recipe.options import model_keys, named_architecture, training_keys
from tmde.training.recipe.schema import (
    SECTIONS,
    Recipe,
    Sections,
    read_sections,
    validate_recipe,
)
from tmde.training.recipe.sections import PLAIN_SECTIONS
from tmde.training.recipe.values import RecipeError, takes_mapping, unknown_name_message

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable  # Python 3.10 has no such module.

logger = logging.get_logger("tmde.training")

# As the `teacher` of a loss, this stands for the encoder that the recipe trains.
ENCODER_AS_TEACHER = "encoder"


def load_recipe(
    name_or_path: str,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    encoder: str | None = None,
) -> Recipe:
    """Return a packaged recipe or one from a YAML file, with overrides applied.

    A teacher named `encoder` becomes the recipe's encoder, with its prompt.

    Args:
        name_or_path: The name of a packaged recipe, or the path of a YAML file.
        overrides: Settings as `key=value` strings, or as a mapping.
        encoder: The folder or Hub id of an encoder that replaces the recipe's model. The `model`
            section is taken from the `adapted` recipe; other sections are unchanged.

    Raises:
        RecipeError: The recipe or a key does not exist, or a value is invalid.

    Example:
        ```python
        from tmde import load_recipe

        recipe = load_recipe("small", ["learning_rate=3e-4", "max_minutes=5"])
        ```
    """
    name = Path(name_or_path).stem
    description, sections = _read_recipe(name_or_path)
    if encoder is not None:
        _put_on_encoder(sections, name, encoder)
    if not isinstance(overrides, Mapping):
        overrides = dict(parse_override(override) for override in overrides)
    for key, value in overrides.items():
        set_value(sections, key, value)
    _name_teachers(sections)
    return validate_recipe(name, description, sections)


def has_encoder_as_teacher(options: Mapping[str, Any]) -> bool:
    """Return whether a teacher of a loss with these options is the encoder that is trained."""
    teacher = options.get("teacher")
    if isinstance(teacher, list):
        return ENCODER_AS_TEACHER in teacher
    return bool(teacher == ENCODER_AS_TEACHER)


def packaged_names() -> list[str]:
    """Return the names of the packaged recipes in alphabetical order."""
    return list(recipe_files())


def read_yaml(
    name_or_path: str, packaged_files: Mapping[str, Traversable], kind: str
) -> dict[str, Any]:
    """Return the mapping in a YAML file, or in one that comes with the package.

    Args:
        name_or_path: The name of a file that comes with the package, or a path.
        packaged_files: The files that come with the package, by name.
        kind: What the file holds, for the error message, such as "Recipe".

    Raises:
        RecipeError: There is no such file, or it is not a mapping.
    """
    path = packaged_files.get(name_or_path, Path(name_or_path))
    if not path.is_file():
        reason = unknown_name_message(kind, name_or_path, packaged_files)
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
    content = read_yaml(name_or_path, recipe_files(), "Recipe")
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
            f"Recipe {name} on {encoder}: the model comes from recipe adapted; sizes, "
            "tokenizer and warm start are ignored. If learning_rate is too high for a "
            "pretrained encoder, set encoder_learning_rate"
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


# ---- Changes of keys


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return a recipe with some values changed.

    Args:
        recipe: The recipe, which is not changed.
        settings: Values by key: `section.key`, `objectives.name.key`, or a bare `key` that exists
            in only one section.

    Raises:
        RecipeError: A key does not exist, or a value is invalid.
    """
    sections: Sections = recipe.settings()
    for key, value in settings.items():
        set_value(sections, key, value)
    return validate_recipe(recipe.name, recipe.description, sections)


def with_overrides(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """Return a recipe with `key=value` overrides applied, see `with_settings`."""
    return with_settings(recipe, dict(parse_override(override) for override in overrides))


def with_sections(recipe: Recipe, **sections: Mapping[str, Any]) -> Recipe:
    """Return a recipe with whole sections replaced."""
    content = read_sections({**recipe.settings(), **sections}, recipe.name)
    return validate_recipe(recipe.name, recipe.description, content)


def parse_override(override: str) -> tuple[str, Any]:
    """Return the key and the value of an override, parsed as YAML.

    Raises:
        RecipeError: The override is not `key=value`, or the value is not YAML.
    """
    key, separator, text = override.partition("=")
    key = key.strip()
    if not separator:
        message = f"Override {override!r} is not of the form key=value, such as learning_rate=3e-4"
        if Path(override).exists():
            message += f"; did you mean --train {override}?"
        raise RecipeError(message)
    try:
        value = yaml.load(text, PlainLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"The value of {override} is not YAML: {error}") from error
    if key in ("prompt", "model.prompt") and not isinstance(value, str):
        return key, text  # "query: " is a mapping in YAML
    return key, value


def full_key(recipe: Recipe, key: str) -> str:
    """Return the full name of a recipe's key, `section.key`.

    Raises:
        RecipeError: No section has this key.
    """
    sections: Sections = recipe.settings()
    section, path = _find_section(sections, key)
    return f"{section}.{path}"


def set_value(sections: Sections, key: str, value: Any) -> None:
    """Set one key of sections that are not validated yet, in place.

    Raises:
        RecipeError: No section has this key, or it names a section.
    """
    section, path = _find_section(sections, key)
    values = sections[section]
    name, option = _split_path(path)
    if section == "objectives" and not option and value is None:
        values.pop(name, None)  # `objectives.distance=null` removes the loss
    elif option and _holds_mapping(section, name, sections):
        options = values.get(name)
        if not isinstance(options, Mapping):
            options = {}
        values[name] = {**options, option: value}
    else:
        values[path] = value


def _split_path(path: str) -> tuple[str, str]:
    """Return the key of a section, and the key below it; "" if there is none.

    The import path of a loss may have dots before its colon, as in `my.losses:CosineMargin.weight`.
    """
    module, colon, rest = path.rpartition(":")
    name, _, option = rest.partition(".")
    return f"{module}{colon}{name}", option


def _find_section(sections: Sections, key: str) -> tuple[str, str]:
    """Return the section of a key, and the rest of the key."""
    first, _, rest = key.partition(".")
    if first in SECTIONS and rest:
        return first, rest
    if key in SECTIONS:
        raise RecipeError(f"Recipe key {key!r} is a whole section; set one of its keys, {key}.KEY")
    matching_sections = []
    known_keys: set[str] = set()
    for section in SECTIONS:
        section_keys = _types_by_key(section, sections)
        known_keys.update(section_keys)
        if first in section_keys:
            matching_sections.append(section)
    if len(matching_sections) != 1:
        raise RecipeError(unknown_name_message("Recipe key", key, known_keys))
    return matching_sections[0], key


def _holds_mapping(section: str, key: str, sections: Sections) -> bool:
    """Return whether the value of a key is a mapping, whose keys may be set one by one."""
    if section == "objectives" or isinstance(sections[section].get(key), Mapping):
        return True
    return takes_mapping(_types_by_key(section, sections).get(key))


def _types_by_key(section: str, sections: Sections) -> dict[str, Any]:
    """Return the keys of a section with their types; losses have no keys without their name.

    Raises:
        RecipeError: The `model` section names an architecture that does not exist.
    """
    if section == "objectives":
        return {}
    if section == "model":
        architecture = named_architecture(sections["model"])
        return {name: key.type for name, key in model_keys(architecture).items()}
    if section == "training":
        return {name: key.type for name, key in training_keys().items()}
    fields = PLAIN_SECTIONS[section].model_fields
    return {name: field.annotation for name, field in fields.items()}
