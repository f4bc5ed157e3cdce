"""Change keys of a recipe.

A key is `section.key`, `objectives.name.key`, or a bare `key` that only one section has. A key
whose value is a mapping may be followed by one of that mapping, as in `encoder_config.d_model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tmde.data.plain_yaml import PlainLoader
from tmde.training.recipe.architectures import ARCHITECTURES
from tmde.training.recipe.errors import RecipeError, unknown_name_message
from tmde.training.recipe.generated_sections import architecture_tag
from tmde.training.recipe.schema import (
    SECTIONS,
    Recipe,
    read_sections,
    section_class,
    validate_recipe,
)
from tmde.training.recipe.sections import Section
from tmde.training.recipe.values import takes_mapping

Sections = dict[str, dict[str, Any]]


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """Return the recipe with other values.

    Args:
        recipe: The recipe, which stays as it is.
        settings: Values by key: `section.key`, `objectives.name.key`, or a bare `key` that only one
            section has.

    Raises:
        RecipeError: There is no such key, or the value does not fit.
    """
    sections: Sections = recipe.settings()
    for key, value in settings.items():
        set_value(sections, key, value)
    return validate_recipe(recipe.name, recipe.description, sections)


def with_overrides(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """Return the recipe with overrides of the form `key=value` applied, see `with_settings`."""
    sections: Sections = recipe.settings()
    apply_overrides(sections, overrides)
    return validate_recipe(recipe.name, recipe.description, sections)


def with_sections(recipe: Recipe, **sections: Mapping[str, Any]) -> Recipe:
    """Return the recipe with whole sections replaced."""
    content = read_sections({**recipe.settings(), **sections}, recipe.name)
    return validate_recipe(recipe.name, recipe.description, content)


def apply_overrides(sections: Sections, overrides: Iterable[str]) -> None:
    """Apply overrides of the form `key=value` to sections that are not validated yet, in place."""
    for override in overrides:
        key, value = parse_override(override)
        set_value(sections, key, value)


def parse_override(override: str) -> tuple[str, Any]:
    """Return the key of an override and its value, which is read as YAML.

    Raises:
        RecipeError: It is not of the form `key=value`, or the value is not YAML.
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
    """Return a key of a recipe with its section, `section.key`.

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
        section_keys = _bare_keys(section, sections)
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
    field = _key_class(section, sections).model_fields.get(key)
    return field is not None and takes_mapping(field.annotation)


def _bare_keys(section: str, sections: Sections) -> Iterable[str]:
    """Return the keys of a section that may be written without its name."""
    if section == "objectives":
        return ()
    return _key_class(section, sections).model_fields.keys()


def _key_class(section: str, sections: Sections) -> type[Section]:
    """Return the class of a section.

    Raises:
        RecipeError: The `model` section names an architecture that does not exist.
    """
    architecture = architecture_tag(sections["model"])
    if architecture not in ARCHITECTURES:
        raise RecipeError(unknown_name_message("model.architecture", architecture, ARCHITECTURES))
    return section_class(section, sections[section])
