"""Read the rows of tables of text: CSV, with `,`, `;` or tabs between its cells, and TSV."""

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import chain

from .checks import CorpusError, Unquoted, bad_value
from .lines import read_lines

TableRows = Iterator[tuple[int, dict[str, str]]]

SEPARATORS = ",;\t"
SEPARATOR_LINE = "sep="  # Excel writes it before the header, and reads it.
LARGEST_CELL = 2**31 - 1  # characters; `csv` refuses cells of more than 131,072 by default


def open_table(path: str | os.PathLike, place: str | None = None) -> TableRows:
    """Yield the numbered rows of a CSV or TSV file, plain or gzipped, by its suffix.

    Args:
        path: The file.
        place: Its name in messages.

    Yields:
        The number of a row, where the header is row 1, and its cells by column.

    Raises:
        CorpusError: See [`csv_rows`] and [`tsv_rows`].
    """
    path = os.fspath(path)
    if path.lower().removesuffix(".gz").endswith(".csv"):
        return csv_rows(path, place or path)
    return tsv_rows(path, place or path)


def tsv_rows(path: str, place: str, names: Sequence[str] = ()) -> TableRows:
    """Yield the rows of a TSV file, where a quote is just a character and a line is a row.

    Args:
        path: The file.
        place: Its name in messages.
        names: The columns; if there are none, the first line names them.

    Raises:
        CorpusError: Two columns have one name, a row has another number of cells than the header,
            or a line is not UTF-8.
    """
    lines = read_lines(path, place)
    if not names:
        _, header = next(lines, (1, ""))
        names = header.split("\t")
        _check_names(names, place)
    for number, line in lines:
        if not line.strip(" "):
            continue
        values = line.split("\t")
        if len(values) != len(names):
            advice = (
                "Correct the tabs of the row, or delete it. If the file quotes its cells, name it "
                ".csv."
            )
            raise _cell_count_error(place, number, values, names, advice)
        yield number, dict(zip(names, values, strict=True))


def csv_rows(path: str, place: str, names: Sequence[str] = ()) -> TableRows:
    r"""Yield the rows of a CSV file, whose cells may be quoted and hold ends of lines.

    The separator is the one of `,`, `;` and tab that gives the header the most cells, or the one
    that a first line `sep=;` names. Columns without a name are left out.

    Args:
        path: The file.
        place: Its name in messages.
        names: The columns; if there are none, the first row names them.

    Yields:
        The number of a row, as a spreadsheet shows it, and its cells.

    Raises:
        CorpusError: Two columns have one name, a row has another number of cells than the header,
            a quote is never closed, or a line is not UTF-8.
    """
    numbered_lines = read_lines(path, place)
    lines = (line + "\n" for _, line in numbered_lines)
    first_line = next(lines, "")
    skipped_rows = 0
    if first_line.lower().startswith(SEPARATOR_LINE):
        skipped_rows = 1
        separator = first_line[len(SEPARATOR_LINE) :][:1]
    else:
        separator = separator_of(first_line)
        lines = chain([first_line], lines)
    rows = _parsed_rows(lines, separator, place, skipped_rows)
    if not names:
        _, header = next(rows, (1, []))
        names = [name.strip() for name in header]
        _check_names([name for name in names if name], place)
    for number, values in rows:
        if not any(values):
            continue
        if len(values) != len(names):
            advice = (
                f"Correct the row: cells are separated by {separator!r}, and a cell that holds one "
                'stands in quotes ("...").'
            )
            raise _cell_count_error(place, number, values, names, advice)
        row = dict(zip(names, values, strict=True))
        row.pop("", None)
        yield number, row


def separator_of(header: str) -> str:
    """Return the one of `,`, `;` and tab that gives a header the most cells."""
    cell_counts = {}
    for separator in SEPARATORS:
        cell_counts[separator] = len(next(csv.reader([header], delimiter=separator)))
    return max(cell_counts, key=cell_counts.__getitem__)


def _parsed_rows(
    lines: Iterator[str], separator: str, place: str, skipped_rows: int
) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbered rows of cells, where a blank line is a row without cells."""
    # The limit is the process's. A higher one harms no other reader.
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
    number = skipped_rows
    try:
        for number, values in enumerate(
            csv.reader(lines, delimiter=separator, strict=True), skipped_rows + 1
        ):
            yield number, values
    except csv.Error as error:
        description = Unquoted(f"a quote that is not closed, or is followed by text ({error})")
        advice = (
            'Double the quotes inside a quoted cell (""). If quotes are just characters in this '
            "file, separate its cells by tabs and name it .tsv."
        )
        raise bad_value(place, number + 1, None, description, "cells of CSV", advice) from None


def _check_names(names: Sequence[str], place: str) -> None:
    """Raise [`CorpusError`] if two columns have one name."""
    if len(set(names)) < len(names):
        advice = "Rename or take out columns."
        raise bad_value(place, 1, "header", list(names), "different names", advice)


def _cell_count_error(
    place: str, number: int, values: Sequence[str], names: Sequence[str], advice: str
) -> CorpusError:
    description = Unquoted(f"{len(values)} field(s)")
    expected = f"{len(names)} ({', '.join(names)})"
    return bad_value(place, number, None, description, expected, advice)
