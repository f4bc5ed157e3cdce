"""Filters of an index by metadata: tags that stand for names and values, and conditions in SQL.

A row has a tag for every name of its metadata, and one for every name with its value. So filters
work for names that nobody knew when the table was made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def dump_metadata(metadata: Mapping[str, Any]) -> str:
    """Return metadata as JSON, equal for equal metadata; values that JSON lacks are strings."""
    return json.dumps(metadata, ensure_ascii=False, sort_keys=True, default=str)


def load_metadata(text: str) -> dict[str, Any]:
    """Return the metadata of a row; NaN and Infinity, which parquet and pandas write, are None."""
    return json.loads(text, parse_constant=lambda name: None)


def tags_of(metadata: Mapping[str, Any]) -> list[str]:
    """Return the tags of the names of metadata, and of the names with their values or elements."""
    tags = [_tag(name) for name in metadata]
    for name, value in metadata.items():
        elements = value if isinstance(value, list | tuple) else [value]
        tags += [_tag(name, element) for element in elements]
    return tags


def has_name(name: str) -> str:
    """Return the condition that a row has a value under this name."""
    return f"array_has(tags, {_quoted(_tag(name))})"


def has_value(name: str, wanted: Any) -> str:
    """Return the condition that the value under a name is the wanted one.

    Args:
        name: A name of metadata.
        wanted: A value, or several of which one must match. None matches rows without a value.
    """
    values = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    conditions = []
    for value in values:
        if value is not None:
            conditions.append(f"array_has(tags, {_quoted(_tag(name, value))})")
    if None in values:
        conditions.append(f"NOT {has_name(name)}")
    if not conditions:
        return "(false)"
    return f"({' OR '.join(conditions)})"


def has_id(ids: Iterable[str]) -> str:
    """Return the condition that the id is one of these."""
    listed = ", ".join(_quoted(id) for id in ids)
    if not listed:
        return "false"
    return f"id IN ({listed})"


def _tag(name: str, *values: Any) -> str:
    """Return a tag, equal for values that look alike: 1998, 1998.0 and "1998"; True and "true"."""
    return json.dumps([name, *map(_plain, values)], ensure_ascii=False)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _quoted(text: str) -> str:
    """Return a string of SQL."""
    return "'" + text.replace("'", "''") + "'"
