"""Types of values as YAML writes them, and their names in error messages."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator


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
        return union_of([*members, int])
    if int in members:
        members[members.index(int)] = WholeNumber
    return union_of(members)


def union_of(types: Sequence[Any]) -> Any:
    """Return the union of types that are known only when the program runs."""
    return functools.reduce(operator.or_, types)


def takes_mapping(hint: Any) -> bool:
    """Return whether a mapping is a valid value of this type."""
    if get_origin(hint) in (Union, UnionType):
        return any(takes_mapping(member) for member in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return True
    return hint is dict or get_origin(hint) is dict


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
    return _describe_plain(origin or hint)


def _describe_plain(plain_type: Any) -> str:
    if isinstance(plain_type, type) and issubclass(plain_type, BaseModel):
        return "a mapping"
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
