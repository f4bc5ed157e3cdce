"""Values of a recipe: their types, as YAML writes them, and the errors of those that do not fit."""

from __future__ import annotations

import difflib
import functools
import operator
from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from modeling_tmde import TmdeError


class RecipeError(TmdeError):
    """An unknown recipe or key, or an invalid value."""


def unknown_name_message(kind: str, name: object, known: Iterable[str]) -> str:
    """Return a sentence about a name that is not among the known ones.

    Args:
        kind: What the name should be, such as "Recipe key".
        name: The name that was found.
        known: The names that exist. The closest ones are suggested; if none is close, all are
            listed.
    """
    known_names = sorted(known)
    close_names = difflib.get_close_matches(str(name), known_names, n=3)
    hint = f"known: {', '.join(known_names)}"
    if close_names:
        hint = f"did you mean {' or '.join(close_names)}?"
    return f"{kind} {name!r} is unknown; {hint}"


def section_message(section: str, recipe_name: str, problem: str) -> str:
    """Return a sentence about a problem in one section of a recipe."""
    return f"Section {section!r} of recipe {recipe_name}: {problem}"


# ---- Types


def _to_integer(value: Any) -> Any:
    """Return the integer that a float such as 1e6 stands for; any other value unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


WholeNumber = Annotated[int, BeforeValidator(_to_integer)]

TYPE_NAMES: dict[Any, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
    Any: "any value",
}
ITEM_NAMES: dict[Any, str] = {str: "texts", int: "integers", WholeNumber: "integers"}
STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)


def recipe_type(hint: Any) -> Any:
    """Return the type of a recipe's key for the annotation of the option that it sets.

    YAML does not tell 1 from 1.0: an integer is a valid number and stays one, and 1e6 is a valid
    integer.
    """
    if hint is int:
        return WholeNumber
    if hint is float:
        return float | int
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = list(get_args(hint))
    if float in members:
        members.append(int)
    elif int in members:
        members[members.index(int)] = WholeNumber
    return functools.reduce(operator.or_, members)


def takes_mapping(hint: Any) -> bool:
    """Return whether a mapping is a valid value of this type."""
    if get_origin(hint) in (Union, UnionType):
        return any(takes_mapping(member) for member in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return True
    return hint is dict or get_origin(hint) is dict


@functools.cache
def _type_adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=STRICT)


def read_value(key: str, value: Any, hint: Any) -> Any:
    """Return the value of a key as its type has it.

    Raises:
        RecipeError: The value is not of this type; names the key.
    """
    try:
        return _type_adapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise RecipeError(wrong_type_message(key, problem["input"], hint)) from error


def wrong_type_message(key: str, value: object, hint: Any) -> str:
    """Return a sentence about a value, or a part of one, that is not of the type of its key."""
    return f"{key}: found {value!r}, expected {describe_type(hint)}"


def describe_type(hint: Any) -> str:
    """Return what a value of this type is called, such as "an integer or null"."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin in (Union, UnionType):
        return _describe_union(arguments)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in arguments)
    if origin is list:
        return f"a list of {ITEM_NAMES.get(arguments[0], 'values')}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "a mapping"
    plain_type = origin or hint
    return TYPE_NAMES.get(plain_type, str(plain_type))


def _describe_union(members: Sequence[Any]) -> str:
    names = []
    for member in members:
        name = describe_type(member)
        if member is int and float in members:  # "a number" says it
            continue
        if name not in names:
            names.append(name)
    return " or ".join(names)
