"""Types of values as YAML writes them, and their names in error messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator

TYPE_NAMES: dict[Any, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
}


def _to_integer(value: Any) -> Any:
    """Return the integer that a float such as 1e6 stands for; any other value unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


WholeNumber = Annotated[int, BeforeValidator(_to_integer)]


def recipe_type(hint: Any) -> Any:
    """Return the type of a recipe's key for the annotation of the option that it sets.

    YAML does not tell 1 from 1.0: an integer is a valid number and stays one, and 1e6 is a valid
    integer.
    """
    if hint is int:
        return WholeNumber
    if hint is float:
        return Union[float, int]  # noqa: UP007 (a value, not an annotation)
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = get_args(hint)
    if float in members:
        return Union[(*members, int)]
    return Union[tuple(WholeNumber if member is int else member for member in members)]


def describe_type(hint: Any) -> str:
    """Return what a value of this type is called, such as "an integer or null"."""
    if hint is Any:
        return "any value"
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return describe_type(arguments[0])
    if origin in (Union, UnionType):
        return _describe_union(arguments)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in arguments)
    if origin is list:
        return f"a list of {_plural(arguments[0])}"
    plain_type = origin or hint
    if isinstance(plain_type, type) and issubclass(plain_type, BaseModel):
        return "a mapping"
    return TYPE_NAMES.get(plain_type, str(hint))


def _describe_union(members: Sequence[Any]) -> str:
    names = []
    for member in members:
        name = describe_type(member)
        if member is int and float in members:  # "a number" says it
            continue
        if name not in names:
            names.append(name)
    return " or ".join(names)


def _plural(hint: Any) -> str:
    plurals = {str: "texts", int: "integers", float: "numbers"}
    return plurals.get(hint, "values")
