"""Filters of an index by ids and metadata, as conditions in SQL over the columns of its table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tmde.documents.index_columns import column_of, plain, quoted_column

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_INT64 = np.iinfo(np.int64)


def has_name(name: str) -> str:
    """Return the condition that a document has a value under a name that has a column."""
    return f"{quoted_column(column_of(name))} IS NOT NULL"


def has_value(name: str, type: pa.DataType, wanted: Any) -> str:
    """Return the condition that the value under a name is the wanted one.

    Args:
        name: A name of metadata that has a column.
        type: The type of that column.
        wanted: A value, or several of which one must match, in their own type or in the decimal
            form of a number. None matches documents without a value.
    """
    column = quoted_column(column_of(name))
    is_list = pa.types.is_list(type)
    scalar_type = type.value_type if is_list else type
    values = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    conditions = []
    for value in values:
        if value is None:
            conditions.append(f"{column} IS NULL")
            continue
        literal = _literal(plain(value), scalar_type)
        if literal is None:
            continue
        if is_list:
            conditions.append(f"array_has({column}, {literal})")
        else:
            conditions.append(f"{column} = {literal}")
    if not conditions:
        return "(false)"
    return f"({' OR '.join(conditions)})"


def has_id(ids: Iterable[str]) -> str:
    """Return the condition that the id is one of these."""
    listed = ", ".join(_quoted(id) for id in ids)
    if not listed:
        return "false"
    return f"id IN ({listed})"


def _literal(text: str, type: pa.DataType) -> str | None:
    """Return a text as a value of a type in SQL; None if it is no value of that type."""
    if pa.types.is_string(type):
        return _quoted(text)
    if pa.types.is_boolean(type):
        return text if text in ("true", "false") else None
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    if pa.types.is_floating(type):
        return repr(number) if np.isfinite(number) else None
    if not number.is_integer():
        return None
    # Large whole numbers keep the digits that a float loses.
    whole = int(text) if text.lstrip("+-").isdecimal() else int(number)
    return str(whole) if _INT64.min <= whole <= _INT64.max else None


def _quoted(text: str) -> str:
    """Return a string of SQL."""
    return "'" + text.replace("'", "''") + "'"
