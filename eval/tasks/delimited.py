"""Rows of CSV and TSV files, as spreadsheets and pandas write them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from tmde.data.checks import Unquoted, bad_value
from tmde.data.files import read_lines

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_SEPARATORS = (",", ";", "\t")
# The csv module refuses fields of more than 131,072 characters, and documents may be longer.
_LONGEST_FIELD = 2**31 - 1

NumberedFields = Iterator[tuple[int, list[str]]]


def is_delimited(path: str) -> bool:
    """Return whether the name of a file says CSV or TSV, gzipped or not."""
    return path.lower().endswith(SUFFIXES)


def read_delimited(path: str) -> list[tuple[int, dict[str, str]]]:
    """Return the numbered rows of a CSV or TSV file whose first row names the columns.

    The file is UTF-8, with or without a byte order mark. Of comma, semicolon and tab, the
    separator of a CSV file is the one that splits its first row into most fields. A field in
    double quotes may hold separators and line ends. Many TSV files have quotes that are plain
    characters: a TSV file that is not correctly quoted is read without quoting. Columns without a
    name and empty rows are left out.

    Args:
        path: The file, plain or gzipped.

    Returns:
        The rows with their numbers. The header is row 1, as in a spreadsheet.

    Raises:
        CorpusError: The bytes are no UTF-8, a column name occurs twice, or a row has another number
            of fields than the header.
    """
    lines = [line + "\n" for _, line in read_lines(path)]
    is_tsv = path.lower().removesuffix(".gz").endswith(".tsv")
    if is_tsv:
        separator = "\t"
        is_quoted = _has_quoted_fields(lines)
    else:
        separator = _find_separator(lines)
        is_quoted = True
    records = list(_parse(path, lines, separator, is_quoted))
    if not records:
        return []
    _, header = records[0]
    names = [name.strip() for name in header]
    _check_header(path, names)
    rows = []
    for number, fields in records[1:]:
        _check_field_count(path, number, fields, names)
        row = dict(zip(names, fields, strict=True))
        row.pop("", None)
        rows.append((number, row))
    return rows


def _find_separator(lines: Sequence[str]) -> str:
    """Return the separator that splits the header into most fields; a comma if none splits it."""
    field_counts = {}
    for separator in _SEPARATORS:
        header: list[str] = next(csv.reader(lines, delimiter=separator), [])
        field_counts[separator] = len(header)
    return max(_SEPARATORS, key=lambda separator: field_counts[separator])


def _has_quoted_fields(lines: Sequence[str]) -> bool:
    """Return whether the quotes of a TSV file are more than plain characters.

    Quotes have a meaning only if every quoted field is closed before a tab or a line end, and all
    rows then have equally many fields.
    """
    field_counts = set()
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        for fields in csv.reader(lines, delimiter="\t", strict=True):
            if fields:
                field_counts.add(len(fields))
    except csv.Error:
        return False
    finally:
        csv.field_size_limit(limit)
    return len(field_counts) <= 1


def _parse(path: str, lines: Sequence[str], separator: str, is_quoted: bool) -> NumberedFields:
    """Yield the numbered records that are not empty."""
    limit = csv.field_size_limit(_LONGEST_FIELD)
    number = 0
    if is_quoted:
        # A quote that is never closed would swallow all rows that follow.
        reader = csv.reader(lines, delimiter=separator, strict=True)
    else:
        reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
    try:
        for number, fields in enumerate(reader, 1):
            if any(field.strip() for field in fields):
                yield number, fields
    except csv.Error as error:
        advice = 'Write a quote inside a quoted field twice ("").'
        description = Unquoted(f"wrong quotes ({error})")
        raise bad_value(path, number + 1, None, description, "quoted CSV", advice) from error
    finally:
        csv.field_size_limit(limit)


def _check_header(path: str, names: Sequence[str]) -> None:
    """Raise CorpusError if two columns have the same name."""
    different_names = [name for name in names if name]
    if len(set(different_names)) < len(different_names):
        advice = "Rename or take out columns."
        raise bad_value(path, 1, "header", list(names), "different names", advice)


def _check_field_count(path: str, number: int, fields: list[str], names: Sequence[str]) -> None:
    """Raise CorpusError if a row has not as many fields as the header."""
    if len(fields) == len(names):
        return
    description = Unquoted(f"{len(fields)} field(s)")
    expected = f"{len(names)} ({', '.join(names)})"
    advice = "Quote fields that hold the separator, or correct the row."
    raise bad_value(path, number, None, description, expected, advice)
