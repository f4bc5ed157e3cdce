"""The metadata of an index as columns of its table: names, types, values, and filters by them.

A column has one type: string, whole number (int64), number (float64), true or false, or a list of
one of those. Other values are kept as strings: a mapping as JSON, a date as `str` writes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas
import pyarrow as pa

from modeling_tmde import TmdeError

Row = dict[str, Any]

# Columns that every table has. `embedded_language` decides the vector of a document; `language`
# is a column of the metadata.
FIXED_COLUMNS = ("id", "text", "embedded_language", "passages", "vector")
_OTHER_CHARACTER = re.compile(r"[^\w -]")
_EMPTY_NAME = "%"
# A column of LanceDB cannot be cast in place. Its copy is made under this suffix, the two change
# their names in one commit, and the old one is dropped. No name of metadata has these suffixes,
# because "%" is followed by two hexadecimal digits there.
_NEW = "%new"
_OLD = "%old"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_INT64 = np.iinfo(np.int64)
# A bool is an int for `isinstance`, and stands first.
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
_DESCRIPTIONS = {
    pa.bool_(): "true or false",
    pa.int64(): "a whole number",
    pa.float64(): "a number",
    pa.string(): "a string",
    pa.null(): "nothing",
}


# ---- Names


def column_of(name: str) -> str:
    """Return the column of a name of the metadata.

    It is the name itself if that consists of letters, digits, "_", "-" and spaces, does not begin
    with "_" and is not one of `FIXED_COLUMNS`. Other characters are percent-encoded, since LanceDB
    refuses some of them: `a.b` is in the column `a%2Eb`, and `text` in `%74ext`.
    """
    if not name:
        return _EMPTY_NAME
    encoded = _OTHER_CHARACTER.sub(_percent_encoded, name)
    if name in FIXED_COLUMNS or name.startswith("_"):
        encoded = f"%{ord(name[0]):02X}{encoded[1:]}"
    return encoded


def name_of(column: str) -> str:
    """Return the name of the metadata that is in a column."""
    if column == _EMPTY_NAME:
        return ""
    return unquote(column)


def metadata_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type of each name of the metadata that has a column."""
    types = {}
    for field in schema:
        if field.name not in FIXED_COLUMNS and not field.name.endswith((_NEW, _OLD)):
            types[name_of(field.name)] = field.type
    return types


def quoted_column(column: str) -> str:
    """Return a column as SQL."""
    return f"`{column}`"


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


# ---- Values


def stored_values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as they are stored, without names that have no value.

    What pandas and parquet write for missing values (NaN, infinity, NaT, NA) are no values.
    """
    values = {}
    for name, value in metadata.items():
        stored = _stored_value(value)
        if stored is not None:
            values[name] = stored
    return values


def _stored_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return _stored_list(value)
    return _stored_scalar(value)


def _stored_list(elements: Sequence[Any]) -> list[Any]:
    """Return a list whose elements have one type; those of several types become strings."""
    stored = [_stored_scalar(element) for element in elements]
    if _type_of_list(stored) is not None:
        return stored
    return [None if element is None else plain(element) for element in stored]


def _stored_scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if _INT64.min <= value <= _INT64.max else str(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    if pandas.api.types.is_scalar(value) and pandas.isna(value):
        return None
    return str(value)


def plain(value: Any) -> str:
    """Return a value as text: 1998 and 1998.0 as "1998", True as "true"."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def column_values(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    """Return the stored values of n documents, None for a document without one, as a column."""
    # Arrow refuses whole numbers that a float cannot hold exactly.
    if type == pa.float64():
        values = [None if value is None else float(value) for value in values]
    elif type == pa.list_(pa.float64()):
        values = [None if value is None else _floats(value) for value in values]
    return pa.array(values, type)


def _floats(elements: Sequence[float | None]) -> list[float | None]:
    return [None if element is None else float(element) for element in elements]


# ---- Types


def widened_types(types: Mapping[str, pa.DataType], rows: Iterable[Row]) -> dict[str, pa.DataType]:
    """Return the types of all names after rows are added.

    A column of whole numbers becomes one of numbers if a row has a fraction.

    Args:
        types: The types of the columns that there are.
        rows: Documents with `id` and `metadata`, as stored.

    Raises:
        TmdeError: A value has another type than the column, or than the documents before it.
    """
    widened = dict(types)
    for row in rows:
        for name, value in row["metadata"].items():
            type = _type_of(value)
            expected = widened.get(name, type)
            common = _common_type(expected, type)
            if common is None:
                raise TmdeError(
                    f"document {row['id']!r}: metadata {name!r} is {value!r:.60} "
                    f"({_description(type)}), expected {_description(expected)}, as in "
                    "earlier documents; give all values of a name the same type"
                )
            widened[name] = common
    for name, type in widened.items():
        if type == pa.list_(pa.null()):
            widened[name] = pa.list_(pa.string())  # All lists are empty so far.
    return widened


def _type_of(value: Any) -> pa.DataType:
    """Return the type of a stored value; that of an empty list has elements of type null."""
    if isinstance(value, list):
        return pa.list_(_type_of_list(value))
    return _type_of_scalar(value)


def _type_of_scalar(value: bool | int | float | str) -> pa.DataType:
    for python_type, type in _TYPES.items():
        if isinstance(value, python_type):
            return type
    raise AssertionError(f"{value!r} is not a stored value")


def _type_of_list(elements: Sequence[Any]) -> pa.DataType | None:
    """Return the common type of scalars; None if there is none."""
    common: pa.DataType | None = pa.null()
    for element in elements:
        if element is not None and common is not None:
            common = _common_scalar(common, _type_of_scalar(element))
    return common


def _common_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of two; None if there is none."""
    if pa.types.is_list(first) and pa.types.is_list(second):
        element = _common_scalar(first.value_type, second.value_type)
        return None if element is None else pa.list_(element)
    return _common_scalar(first, second)


def _common_scalar(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return None


def _description(type: pa.DataType) -> str:
    if pa.types.is_list(type):
        return f"a list, each element {_DESCRIPTIONS[type.value_type]}"
    return _DESCRIPTIONS[type]


# ---- The table


def add_columns(table: Any, types: Mapping[str, pa.DataType]) -> None:
    """Give a LanceDB table the columns of new names of the metadata, or wider ones.

    Each step is a commit after which the table holds the same documents with the same metadata.

    Args:
        table: The table.
        types: The types of all names, as `widened_types` returns them.
    """
    # A process that was killed while it widened a column has left another one.
    leftovers = [name for name in table.schema.names if name.endswith((_NEW, _OLD))]
    if leftovers:
        table.drop_columns(leftovers)
    present = metadata_types(table.schema)
    new_fields = []
    for name, type in types.items():
        if name not in present:
            new_fields.append(pa.field(column_of(name), type))
        elif present[name] != type:
            _widen(table, column_of(name), type)
    if new_fields:
        table.add_columns(pa.schema(new_fields))


def _widen(table: Any, column: str, type: pa.DataType) -> None:
    """Make a column of whole numbers, or of lists of them, one of numbers."""
    sql_type = "List(Float64)" if pa.types.is_list(type) else "Float64"
    table.add_columns({column + _NEW: f"arrow_cast({quoted_column(column)}, '{sql_type}')"})
    table.alter_columns(
        {"path": column, "rename": column + _OLD},
        {"path": column + _NEW, "rename": column},
    )
    table.drop_columns([column + _OLD])


# ---- Filters, as conditions in SQL


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
