"""Checks of the values of a comparison file; errors name file and key, what was found and what was expected."""

from __future__ import annotations

import difflib
from typing import Any


class ComparisonFileError(ValueError):
    """A comparison file, or a key of one, that does not exist or does not fit."""


def check_mapping(value: Any, what: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ComparisonFileError(f"{what}: found {value!r}, expected a mapping of keys to values")
    return dict(value or {})


def check_names(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise ComparisonFileError(f"{what}: found {value!r}, expected a list of names")
    return list(value)


def check_seeds(value: Any, what: str) -> list[int]:
    fits = isinstance(value, list) and value and len(set(map(str, value))) == len(value)
    if not fits or not all(type(seed) is int and seed >= 0 for seed in value):
        raise ComparisonFileError(f"{what}: found {value!r}, expected different whole numbers, such as [1, 2, 3]")
    return list(value)


def check_typed(value: Any, kind: type, what: str, expected: str) -> Any:
    if not isinstance(value, kind):
        raise ComparisonFileError(f"{what}: found {value!r}, expected {expected}")
    return value


def check_known(found: Any, known: set[str], what: str) -> None:
    if not isinstance(found, str) or found not in known:
        close = difflib.get_close_matches(str(found), known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
        raise ComparisonFileError(f"{what} {found!r} is unknown; {hint}")
