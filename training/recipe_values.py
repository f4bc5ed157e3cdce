"""Are the values of a recipe of the kinds that its readers take? What a word in a number's place does shows late."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType
from typing import Any

_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


def wrong_value(values: Mapping[str, Any], reader: Callable, words: Mapping[str, str]) -> str | None:
    """What is wrong with the first value that is no number, or no switch, where its reader takes nothing else.

    Args:
        values: By key; None is never wrong.
        reader: Class or function whose annotations have the keys; those of other kinds are not looked at.
        words: That keys take as well, such as `{"bf16": "auto"}`.

    Returns:
        None if all is well.
    """
    for key, value in values.items():
        kind = _kinds(reader).get(key)
        if kind is None or value is None or value == words.get(key) or _fits(value, kind):
            continue
        return f"{key}: found {value!r}, expected {_KINDS[kind]}"
    return None


def _fits(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())  # 1e6
    return isinstance(value, (int, float))


@cache
def _kinds(reader: Callable) -> dict[str, type]:
    """By key, `bool`, `int` or `float` where the annotation is that, or that or None."""
    found = {}
    for key, hint in typing.get_type_hints(reader).items():
        kinds = set(typing.get_args(hint) or (hint,)) - {NoneType}
        if len(kinds) == 1 and (kind := kinds.pop()) in _KINDS:
            found[key] = kind
    return found
