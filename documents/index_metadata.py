"""Columns of a document index: one type for each in all segments, whatever came first, and filters on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from modeling_tmde.documents.index_files import Segment

OWN_COLUMNS = pa.schema([("id", pa.string()), ("text", pa.string()), ("digest", pa.binary())])
METADATA = "metadata."  # before the names of the other columns


class DocumentIndexError(ValueError):
    """What is wrong with an index, or with what it is asked to do."""


def unified_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One schema for all rows of an index.

    Raises:
        DocumentIndexError: A column whose types do not go together.
    """
    unified = OWN_COLUMNS
    for schema in schemas:
        for item in schema.remove_metadata():
            try:
                unified = pa.unify_schemas([unified, pa.schema([item])], promote_options="permissive")
            except pa.ArrowException:
                raise DocumentIndexError(
                    f"metadata: found {item.type} in {item.name.removeprefix(METADATA)!r}, expected "
                    f"{unified.field(item.name).type}, as in the documents of the index"
                ) from None
    return unified


def extended_schema(segments: Sequence[Segment], table: pa.Table) -> pa.Schema:
    """The schema of an index with new rows, to which all of its rows can be cast: a later merge does not fail.

    Args:
        segments: Of the index.
        table: New rows.

    Raises:
        DocumentIndexError: A column whose types do not go together, or not for the values that are there.
    """
    known = unified_schema([segment.schema for segment in segments])
    extended = unified_schema([known, table.schema])
    for item in known:
        if extended.field(item.name).type == item.type:
            continue  # what is there has been cast to it, or can be
        for segment in segments:
            if item.name in segment.schema.names:
                _checked_cast(segment.read_column(item.name), extended.field(item.name), table.field(item.name).type)
    for item in table.schema:
        _checked_cast(table.column(item.name), extended.field(item.name), item.type)
    return extended


def _checked_cast(column: pa.ChunkedArray, wanted: pa.Field, found: pa.DataType) -> None:
    try:
        column.cast(wanted.type)
    except pa.ArrowException as error:
        raise DocumentIndexError(
            f"metadata: found {found} in {wanted.name.removeprefix(METADATA)!r}, which would make the column "
            f"{wanted.type}, and not all of its values can be that ({error}); give the type of the index's documents"
        ) from None


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its types; nulls for those that are missing."""
    names = set(table.column_names)
    columns = [
        table.column(item.name).cast(item.type) if item.name in names else pa.nulls(len(table), item.type)
        for item in schema
    ]
    return pa.table(columns, schema=schema)


def filter_values(filter: Mapping[str, Any], schema: pa.Schema) -> dict[str, pa.Array]:
    """The values that are wanted in each column, by its name, of its type (of its elements', where it holds lists).

    Args:
        filter: A value, or several of which one will do, for each name.
        schema: Of all documents.

    Raises:
        DocumentIndexError: A name that no document has, or a value that cannot be one of the column.
    """
    wanted = {}
    for name, value in filter.items():
        if not isinstance(name, str) or METADATA + name not in schema.names:
            known = sorted(known.removeprefix(METADATA) for known in schema.names if known.startswith(METADATA))
            raise DocumentIndexError(f"filter: found {name!r}, expected a name of the metadata: {known}")
        values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        kind = schema.field(METADATA + name).type
        kind = kind.value_type if _holds_lists(kind) else kind
        if pa.types.is_nested(kind):
            raise DocumentIndexError(
                f"filter: {name!r} holds {kind}; expected a column of values, or of lists of them"
            )
        try:
            if pa.types.is_null(kind):  # no document has a value
                values = [each for each in values if each is None]
            wanted[METADATA + name] = pa.array(values, None if values else kind).cast(kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DocumentIndexError(
                f"filter: found {values} for {name!r}, expected values of type {kind} ({error})"
            ) from None
    return wanted


def matching(segment: Segment, wanted: Mapping[str, pa.Array], schema: pa.Schema) -> np.ndarray:
    """(rows,) whether each row has one of the wanted values in each column; a list: among its elements.

    Args:
        segment: Whose columns may have other types than those of `schema`, or be missing: null, which only None is.
        wanted: From `filter_values`.
        schema: Of all documents.
    """
    allowed = np.ones(len(segment.live), bool)
    for name, values in wanted.items():
        if name not in segment.schema.names:
            allowed &= values.null_count > 0
            continue
        column = segment.column(name).cast(schema.field(name).type)
        if _holds_lists(column.type):
            found = (column.is_null().to_numpy()) & (values.null_count > 0)
            start = 0
            for chunk in column.chunks:
                hits = pc.is_in(pc.list_flatten(chunk), value_set=values).to_numpy(zero_copy_only=False)
                found[start + pc.list_parent_indices(chunk).to_numpy()[hits]] = True
                start += len(chunk)
            allowed &= found
        else:
            allowed &= pc.is_in(column, value_set=values).to_numpy()
    return allowed


def different_values(segment: Segment, name: str) -> set[Any]:
    """Of the rows that are not deleted, under one name of the metadata; None: of a row without a value.

    Raises:
        DocumentIndexError: The name holds neither values nor lists of them.
    """
    if METADATA + name not in segment.schema.names:
        return {None} if len(segment) else set()
    column = segment.column(METADATA + name).filter(pa.array(segment.live))
    nothing = {None} if column.null_count else set()
    if _holds_lists(column.type):
        column = pc.list_flatten(column)
    if pa.types.is_nested(column.type):
        raise DocumentIndexError(f"{name!r} holds {column.type}; expected a column of values, or of lists of them")
    return nothing.union(column.unique().to_pylist())


def _holds_lists(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
