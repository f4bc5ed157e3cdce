"""Read tables of text: CSV with any of three separators, and TSV, with quotes or without.

In CSV, a field may be quoted, and then hold separators, line ends and doubled quotes. A TSV file
may be quoted in the same way, as pandas and Excel write it. Or its quotes are plain characters, as
in most files of sentences: a reader that believes in those would lose all rows between two of them.

The quotes of a TSV file are decided where a field first begins with one; before that, both ways to
read are the same. From there on, 4 million characters are read in both ways. The file is quoted if

- each of those quotes is closed before a tab or a line end, and doubled within a quoted field;
- then all rows have as many fields as the first row;
- the first row is quoted, or a quoted field holds a tab, a line end, a doubled quote or a comma,
  for which pandas or Excel quote;
- and no row is lost: where all lines have as many tabs as the first row, each of them is a row, and
  no quoted field may hold a line end.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from .checks import CorpusError, Unquoted, bad_value
from .lines import NumberedRows, read_lines

TableKind = Literal["csv", "tsv"]

_TAB = "\t"
_SEPARATOR_LINE = "sep="  # Excel reads and writes it before the header: `sep=;`.
_SEPARATORS = (",", ";", _TAB)  # The first one is taken where all occur equally often.
# A document is longer than the 131,072 characters that the csv module allows by default. This is
# the largest number that it takes on every system.
_LONGEST_FIELD = 2**31 - 1
# Characters of a TSV file that tell what its quotes are: thousands of sentences or documents.
_DECIDING_CHARACTERS = 4_000_000
_QUOTED_CHARACTERS = re.compile(r'[\t\n,"]')  # Excel quotes fields with commas also in TSV.
_CSV_ADVICE = (
    "Correct the quotes of this row. If quotes are plain characters and tabs separate the fields, "
    "read the file as TSV."
)
_TSV_ADVICE = "Correct the quotes of this row; the rows before it are quoted as in CSV."
_Record = tuple[int, list[str]]  # the number of its first line, from 1, and its fields


def open_table(
    path: str, kind: TableKind, place: str | None = None, names: Sequence[str] | None = None
) -> NumberedRows:
    """Yield the rows of a table, each with the number of the line on which it begins.

    Columns without a name, such as the index that pandas writes, are left out. Blank lines and rows
    of empty fields are skipped.

    Args:
        path: A file, plain or gzipped, in UTF-8.
        kind: `"csv"` for commas, semicolons or tabs, whichever makes most columns of the header (of
            those that fit the second row, if some do), or the separator of a first line `sep=;`;
            `"tsv"` for tabs, and quotes as the file
            has them (see the top of this module).
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
    """Return the records that are not empty, the header among them."""
    lines = _lines_of(path, place)
    if kind == "tsv":
        return _tsv_records(lines, place)
    return _csv_records(lines, place)


def _lines_of(path: str, place: str) -> Iterator[str]:
    """Yield the lines of a table with their ends, all of them as a line feed.

    A carriage return in the first line tells that it ends lines, as old Macs wrote them.
    """
    lines = (line for _, line in read_lines(path, place))
    first_line = next(lines, None)
    if first_line is None:
        return
    has_old_ends = "\r" in first_line
    for line in chain([first_line], lines):
        if has_old_ends:
            for part in line.split("\r"):
                yield f"{part}\n"
        else:
            yield f"{line}\n"


def _checked_names(header: _Record, place: str) -> list[str]:
    """Return the names of the columns, "" for one without.

    Raises:
        CorpusError: Two columns have one name.
    """
    number, fields = header
    names = [field.strip() for field in fields]
    filled_names = [name for name in names if name]
    if len(set(filled_names)) < len(filled_names):
        advice = "Rename or take out columns."
        raise bad_value(place, number, "header", filled_names, "different names", advice)
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


# ---- CSV


def _csv_records(lines: Iterator[str], place: str) -> Iterator[_Record]:
    first_line = next(lines, None)
    if first_line is None:
        return iter(())
    if not first_line.lower().startswith(_SEPARATOR_LINE):
        return _records_of_unknown_separator(first_line, lines, 1, place)
    separator = first_line[len(_SEPARATOR_LINE) :].removesuffix("\n")
    if separator:
        separator = _checked_separator(separator, place)
        return _quoted_records(lines, 2, separator, place)
    header_line = next(lines, None)
    if header_line is None:
        return iter(())
    return _records_of_unknown_separator(header_line, lines, 2, place)


def _checked_separator(text: str, place: str) -> str:
    """Return the separator that stands after `sep=`: the first character.

    Raises:
        CorpusError: It is a quote.
    """
    separator = text[0]
    if separator == '"':
        expected = "a separator, such as sep=;"
        advice = "Correct or delete the line."
        raise bad_value(place, 1, None, f"{_SEPARATOR_LINE}{text}", expected, advice)
    return separator


def _records_of_unknown_separator(
    first_line: str, lines: Iterator[str], first_number: int, place: str
) -> Iterator[_Record]:
    first_lines = _first_lines(first_line, lines)
    separator = _separator_of(first_lines)
    return _quoted_records(chain(first_lines, lines), first_number, separator, place)


def _separator_of(first_lines: Sequence[str]) -> str:
    """Return the separator that cuts the header into most columns.

    One that cuts the second record into as many columns as the header goes before.
    """
    scores = {}
    for separator in _SEPARATORS:
        header_width, second_width = _first_widths(first_lines, separator)
        fits = header_width > 1 and second_width == header_width
        scores[separator] = (fits, header_width)
    return max(scores, key=scores.__getitem__)


def _first_widths(lines: Iterable[str], separator: str) -> tuple[int, int]:
    """Return the numbers of fields of the first two records; 0 for one that is not there."""
    csv.field_size_limit(_LONGEST_FIELD)
    widths: list[int] = []
    # Broken quotes are not the matter here: the records that follow from the separator tell them.
    reader = csv.reader(lines, delimiter=separator)
    while len(widths) < 2:
        try:
            fields = next(reader)
        except (StopIteration, csv.Error):
            break
        if _has_content(fields):
            widths.append(len(fields))
    widths += [0, 0]
    return widths[0], widths[1]


def _quoted_records(
    lines: Iterable[str], first_number: int, separator: str, place: str, advice: str = _CSV_ADVICE
) -> Iterator[_Record]:
    """Yield the records of lines with quoted fields.

    Args:
        lines: The lines, with their ends.
        first_number: The number of the first of them.
        separator: The character between two fields.
        place: The name of the file in messages.
        advice: What to do about broken quotes.

    Raises:
        CorpusError: A quote is not closed, or not doubled within a quoted field.
    """
    reader = _csv_reader(lines, separator)
    number = first_number
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            description = Unquoted(f"a broken quotation ({error})")
            expected = "quotes doubled within quoted fields, and closed"
            raise bad_value(place, number, None, description, expected, advice) from None
        if _has_content(fields):
            yield number, fields
        number = first_number + reader.line_num


def _csv_reader(lines: Iterable[str], separator: str) -> Any:  # noqa: ANN401 - has no public type
    csv.field_size_limit(_LONGEST_FIELD)
    return csv.reader(lines, delimiter=separator, strict=True)


def _has_content(fields: Iterable[str]) -> bool:
    return any(field.strip() for field in fields)


# ---- TSV


def _tsv_records(lines: Iterator[str], place: str) -> Iterator[_Record]:
    """Yield the records of a TSV file: plain ones up to the first quote, which decides the others.

    Raises:
        CorpusError: The file is quoted, and a later quote is not closed or not doubled.
    """
    width = None
    for number, line in enumerate(lines, 1):
        if _has_quoted_field(line):
            first_lines = _first_lines(line, lines)
            other_lines = chain(first_lines, lines)
            if _are_quoted(first_lines, width):
                yield from _quoted_records(other_lines, number, _TAB, place, _TSV_ADVICE)
            else:
                yield from _plain_records(other_lines, number)
            return
        for record in _plain_records([line], number):
            width = width or len(record[1])
            yield record


def _plain_records(lines: Iterable[str], first_number: int) -> Iterator[_Record]:
    for number, line in enumerate(lines, first_number):
        fields = line.removesuffix("\n").split(_TAB)
        if _has_content(fields):
            yield number, fields


def _has_quoted_field(line: str) -> bool:
    """Return whether a field of a line begins with a quote."""
    return line.startswith('"') or '\t"' in line


def _first_lines(line: str, lines: Iterator[str]) -> list[str]:
    """Return a line and those after it that decide how a table is read."""
    first_lines = [line]
    characters = len(line)
    while characters < _DECIDING_CHARACTERS:
        next_line = next(lines, None)
        if next_line is None:
            break
        first_lines.append(next_line)
        characters += len(next_line)
    return first_lines


def _are_quoted(lines: Sequence[str], width: int | None) -> bool:
    """Return whether quotes of a TSV file have a meaning; see the top of this module.

    Args:
        lines: Lines of the file, the first of which has a field that begins with a quote.
        width: The number of fields of the rows before them; None if there are none.
    """
    record_count = 0
    quoted_widths = set() if width is None else {width}
    plain_widths = set(quoted_widths)
    is_proven = width is None  # The first row is quoted.
    reader = _csv_reader(lines, _TAB)
    lines_before = 0
    try:
        for fields in reader:
            record_count += 1
            if _has_content(fields):
                quoted_widths.add(len(fields))
            text = "".join(lines[lines_before : reader.line_num])
            is_proven = is_proven or _needs_quotes(fields, text)
            lines_before = reader.line_num
    except csv.Error:
        # The last record may be cut off, as the lines after it are not read. It has a line end.
        if reader.line_num < len(lines) or not _is_cut_off(lines):
            return False
        is_proven = True
    if len(quoted_widths) > 1 or not is_proven:
        return False
    for _, fields in _plain_records(lines, 1):
        plain_widths.add(len(fields))
    return len(plain_widths) > 1 or record_count == len(lines)


def _needs_quotes(fields: Sequence[str], text: str) -> bool:
    """Return whether a field is quoted because of what it holds.

    Args:
        fields: The fields of a record.
        text: The record as it stands in the file.
    """
    for field in fields:
        if _QUOTED_CHARACTERS.search(field) is None:
            continue
        doubled = field.replace('"', '""')
        if f'"{doubled}"' in text:
            return True
    return False


def _is_cut_off(lines: Sequence[str]) -> bool:
    """Return whether the file may go on after these lines."""
    return sum(map(len, lines)) >= _DECIDING_CHARACTERS
