"""Read tables of text: CSV with any of three separators, and TSV.

In CSV, a field may be quoted, and then hold separators, line ends and doubled quotes. In TSV, a
quote is a plain character, because most files of sentences are written so: a reader that believes
in quotes would lose all rows between two of them.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal

from .checks import CorpusError, Unquoted, bad_value
from .lines import NumberedRows, read_lines

TableKind = Literal["csv", "tsv"]

_SEPARATOR_LINE = "sep="  # Excel reads and writes it before the header: `sep=;`.
_SEPARATORS = (",", ";", "\t")  # The first one is taken where all occur equally often.
# A document is longer than the 131,072 characters that the csv module allows by default. This is
# the largest number that it takes on every system.
_LONGEST_FIELD = 2**31 - 1
_Record = tuple[int, list[str]]  # the number of its first line, from 1, and its fields


def open_table(
    path: str, kind: TableKind, place: str | None = None, names: Sequence[str] | None = None
) -> NumberedRows:
    """Yield the rows of a table, each with the number of the line on which it begins.

    Columns without a name, such as the index that pandas writes, are left out. Blank lines are
    skipped.

    Args:
        path: A file, plain or gzipped, in UTF-8.
        kind: `"csv"` for commas, semicolons or tabs, whichever makes most columns of the header,
            or the separator of a first line `sep=;`; `"tsv"` for tabs without quoting.
        place: Its name in messages.
        names: The names of the columns; None if the first row holds them.

    Raises:
        CorpusError: The file is damaged or not UTF-8, two columns have one name, or a row has too
            many or too few fields.
        OSError: There is no such file.
    """
    place = place or path
    records = _records(path, kind, place)
    if names is None:
        header = next(records, None)
        if header is None:
            return
        names = _checked_names(header, place)
    for number, fields in records:
        if len(fields) != len(names):
            raise _wrong_width(fields, names, kind, place, number)
        row = dict(zip(names, fields, strict=True))
        row.pop("", None)
        yield number, row


def header_of(path: str, kind: TableKind, place: str | None = None) -> list[str]:
    """Return the names of the columns, those without a name left out; none for an empty file.

    Raises:
        CorpusError: See `open_table`.
    """
    place = place or path
    header = next(_records(path, kind, place), None)
    if header is None:
        return []
    return [name for name in _checked_names(header, place) if name]


def _records(path: str, kind: TableKind, place: str) -> Iterator[_Record]:
    lines = (f"{line}\n" for _, line in read_lines(path, place))
    if kind == "tsv":
        return _tsv_records(lines)
    return _csv_records(lines, place)


def _tsv_records(lines: Iterable[str]) -> Iterator[_Record]:
    for number, line in enumerate(lines, 1):
        if line.strip(" \n"):
            yield number, line.removesuffix("\n").split("\t")


def _csv_records(lines: Iterator[str], place: str) -> Iterator[_Record]:
    first_line = next(lines, None)
    if first_line is None:
        return
    line_number = 0  # of the line before those that the reader gets
    if first_line.lower().startswith(_SEPARATOR_LINE):
        separator = first_line[len(_SEPARATOR_LINE)]
        line_number = 1
    else:
        separator = _separator_of(first_line)
        lines = chain([first_line], lines)
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    number = line_number + 1
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            description = Unquoted(f"a broken quotation ({error})")
            expected = "quotes doubled within quoted fields, and closed"
            advice = (
                "Correct the quotes of this row. If quotes are plain characters and tabs separate "
                "the fields, read the file as TSV."
            )
            raise bad_value(place, number, None, description, expected, advice) from None
        if any(field.strip() for field in fields):
            yield number, fields
        number = line_number + reader.line_num + 1


def _separator_of(header_line: str) -> str:
    """Return the separator that cuts the header into most columns."""
    column_counts = {}
    for separator in _SEPARATORS:
        fields = next(csv.reader([header_line], delimiter=separator), [])
        column_counts[separator] = len(fields)
    return max(column_counts, key=column_counts.__getitem__)


def _checked_names(header: _Record, place: str) -> list[str]:
    """Return the names of the columns, "" for one without.

    Raises:
        CorpusError: Two columns have one name.
    """
    number, fields = header
    names = [field.strip() for field in fields]
    given_names = [name for name in names if name]
    if len(set(given_names)) < len(given_names):
        advice = "Rename or take out columns."
        raise bad_value(place, number, "header", given_names, "different names", advice)
    return names


def _wrong_width(
    fields: Sequence[str], names: Sequence[str], kind: TableKind, place: str, number: int
) -> CorpusError:
    description = Unquoted(f"{len(fields)} field(s)")
    expected = f"{len(names)} ({', '.join(names)})"
    advice = "Correct the separators or quotes of the row, or delete it."
    if kind == "tsv":
        advice = (
            "Correct the tabs of the row, or delete it. If fields with line ends are quoted, read "
            "the file as CSV, which may have tabs too (--format csv)."
        )
    return bad_value(place, number, None, description, expected, advice)
