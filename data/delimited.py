"""Read CSV and TSV: columns of strings, in batches, each row with the number of its first line.

In CSV, a field may be quoted, and then hold separators, line ends and doubled quotes. A TSV file
may be quoted in the same way, as pandas and Excel write it. Or its quotes are plain characters, as
in most files of sentences: a reader that believes in those would lose all rows between two of them.

Nobody can tell both kinds of TSV apart by one row, so the whole file is looked at, up to 1 GiB. It
is quoted if

- each quote that begins a field is closed before a tab or a line end, and doubled within the field;
- then all rows have as many fields as the first row;
- the first row is quoted, or a quoted field holds a tab, a line end or a doubled quote, or all
  fields with commas are quoted, as Excel does;
- and no row is lost: where all lines have as many tabs as the first row, each of them is a row, and
  no quoted field may hold a line end.

A user who knows better says so by `quoting`.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from .checks import CorpusError, Unquoted, bad_value
from .lines import text_blocks

TableKind = Literal["csv", "tsv"]
Quoting = Literal["minimal", "none"]

_TAB = "\t"
_SEPARATOR_LINE = "sep="  # Excel reads and writes it before the header: `sep=;`.
_SEPARATORS = (",", ";", _TAB)  # The first one is taken where all occur equally often.
# A document is longer than the 131,072 characters that the csv module allows by default. This is
# the largest number that it takes on every system.
_LONGEST_FIELD = 2**31 - 1
_DECIDING_CHARACTERS = 2**30  # of a TSV file, which tell what its quotes are
_STRONG_EVIDENCE = re.compile(r'[\t\n"]')  # Every writer quotes fields with one of these.


def _option(quoting: Quoting) -> str:
    """Return how the user says what the quotes are."""
    return (
        f"--quoting {quoting} (tmde eval: --set labeled_documents.quoting={quoting}; in Python: "
        f'quoting="{quoting}")'
    )


class Columns(NamedTuple):
    """Some rows of a table.

    Attributes:
        numbers: The number of the line on which each row begins, (rows,).
        arrays: The strings of each column, by name.
        errors: The errors of rows that have too many or too few fields, by their positions. Such a
            row has no strings.
    """

    numbers: np.ndarray
    arrays: dict[str, pa.Array]
    errors: dict[int, CorpusError]


@dataclass(frozen=True)
class _Layout:
    """How the rows of a file are written.

    Attributes:
        place: The file in messages.
        kind: `"csv"` or `"tsv"`.
        separator: The character between two fields.
        is_quoted: Whether quotes have a meaning.
        names: The names of the columns, "" for one without.
        first_number: The number of the first line of the block that is read, for messages.
    """

    place: str
    kind: TableKind
    separator: str
    is_quoted: bool
    names: tuple[str, ...] = ()
    first_number: int = 1


def read_delimited(
    path: str,
    kind: TableKind,
    place: str,
    names: Sequence[str] = (),
    quoting: Quoting | None = None,
) -> Iterator[Columns]:
    """Yield the rows of a table, a block of lines at a time.

    Columns without a name, such as the index that pandas writes, are left out. Blank lines are
    skipped, as pandas does; a row of empty fields is a row.

    Args:
        path: A file, plain or gzipped, in UTF-8.
        kind: `"csv"` for commas, semicolons or tabs, whichever makes most columns of the header (of
            those that fit the second row, if some do), or the separator of a first line `sep=;`;
            `"tsv"` for tabs, and quotes as the file has them (see the top of this module).
        place: Its name in messages.
        names: The names of the columns; none if the first row holds them.
        quoting: `"minimal"` if fields may be quoted, `"none"` if quotes are plain characters; None
            to find out.

    Raises:
        CorpusError: The file is damaged or not UTF-8, two columns have one name, or a quote is not
            closed.
        OSError: There is no such file.
    """
    layout, blocks, number = _open(path, kind, place, names, quoting)
    for block in blocks:
        columns = _parsed_by_arrow(block, number, layout)
        if columns is None:
            lines = _Lines(block, blocks)
            records = _records(lines, replace(layout, first_number=number))
            columns = _columns_of(records, number, layout)
            number += len(lines.all)
        else:
            number += len(columns.numbers)
        if len(columns.numbers):
            yield columns


def header_of(path: str, kind: TableKind, place: str, quoting: Quoting | None = None) -> list[str]:
    """Return the names of the columns, those without a name left out; none for an empty file.

    Raises:
        CorpusError: See `read_delimited`.
    """
    layout, _, _ = _open(path, kind, place, (), quoting)
    return [name for name in layout.names if name]


def _open(
    path: str, kind: TableKind, place: str, names: Sequence[str], quoting: Quoting | None
) -> tuple[_Layout, Iterator[str], int]:
    """Return the layout of a file, the blocks of its rows, and the number of their first line."""
    csv.field_size_limit(_LONGEST_FIELD)
    blocks = text_blocks(path, place)
    first_block = next(blocks, "")
    number = 1
    separator = _TAB
    if kind == "csv":
        separator, first_block, number = _separator_of(first_block, place)
    is_quoted = quoting == "minimal" or (quoting is None and kind == "csv")
    if quoting is None and kind == "tsv":
        is_quoted = _are_quoted(path, place)
    layout = _Layout(place, kind, separator, is_quoted, tuple(names))
    if names:
        return layout, chain([first_block], blocks), number
    lines = _Lines(first_block, blocks)
    layout = replace(layout, first_number=number)
    header = next(_records(lines, layout), None)
    if header is None:
        return layout, iter(()), number
    start, end, fields = header
    layout = replace(layout, names=tuple(_checked_names(fields, place, number + start)))
    rest = "".join(lines.all[end:])
    return layout, chain([rest], blocks), number + end


def _checked_names(fields: Sequence[str], place: str, number: int) -> list[str]:
    """Return the names of the columns, "" for one without.

    Raises:
        CorpusError: Two columns have one name.
    """
    names = [field.strip() for field in fields]
    filled_names = [name for name in names if name]
    if len(set(filled_names)) < len(filled_names):
        advice = "Rename or take out columns."
        raise bad_value(place, number, "header", filled_names, "different names", advice)
    return names


# ---- The separator of CSV


def _separator_of(block: str, place: str) -> tuple[str, str, int]:
    """Return the separator, the block without a line that names it, and the number of its line."""
    if not block.lower().startswith(_SEPARATOR_LINE):
        return _usual_separator(block), block, 1
    line, _, rest = block.partition("\n")
    separator = line[len(_SEPARATOR_LINE) :][:1]
    if not separator:
        return _usual_separator(rest), rest, 2
    if separator == '"':
        expected = "a separator, such as sep=;"
        raise bad_value(place, 1, None, line, expected, "Correct or delete the line.")
    return separator, rest, 2


def _usual_separator(block: str) -> str:
    """Return the separator that cuts the header into most columns.

    One that cuts the second record into as many columns as the header goes before.
    """
    scores = {}
    for separator in _SEPARATORS:
        header_width, second_width = _first_widths(block, separator)
        fits = header_width > 1 and second_width == header_width
        scores[separator] = (fits, header_width)
    return max(scores, key=scores.__getitem__)


def _first_widths(block: str, separator: str) -> tuple[int, int]:
    """Return the numbers of fields of the first two records; 0 for one that is not there."""
    widths: list[int] = []
    # Broken quotes are not the matter here: the records that follow from the separator tell them.
    reader = csv.reader(io.StringIO(block, newline="\n"), delimiter=separator)
    while len(widths) < 2:
        try:
            fields = next(reader)
        except (StopIteration, csv.Error):
            break
        if any(field.strip() for field in fields):
            widths.append(len(fields))
    widths += [0, 0]
    return widths[0], widths[1]


# ---- Records

_Record = tuple[int, int, list[str]]  # the positions of its first line and after its last; fields


class _Lines:
    """The lines of a block and, as long as a quoted field is open at its end, of the next blocks.

    Args:
        block: The block.
        blocks: The blocks after it.

    Attributes:
        text: The block.
        all: The lines of the blocks that were begun.
    """

    def __init__(self, block: str, blocks: Iterator[str]) -> None:
        self._blocks = blocks
        self.text = block
        self.all: list[str] = list(io.StringIO(block, newline="\n"))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts())

    def _parts(self) -> Iterator[list[str]]:
        yield self.all.copy()
        for block in self._blocks:
            lines = list(io.StringIO(block, newline="\n"))
            self.all += lines
            yield lines


def _records(lines: _Lines, layout: _Layout) -> Iterator[_Record]:
    """Yield the records of lines, without blank lines.

    Raises:
        CorpusError: A quote is not closed, or not doubled within a quoted field.
    """
    if not layout.is_quoted:
        return _plain_records(lines, layout.separator)
    has_blanks = False
    if layout.kind == "csv":
        separator = re.escape(layout.separator)
        content = '[^"]*(?:""[^"]*)*'
        # Quoted fields without blanks before them are matched as a whole: they may hold a line
        # that looks like a quote after blanks. A quoted field may go on in the next block.
        field = rf'(?:^|{separator})( *)"{content}(?:" *(?={separator}|$)|\Z)'
        quoted_fields = re.finditer(field, lines.text, re.MULTILINE)
        has_blanks = any(match[1] for match in quoted_fields)
    return _quoted_records(lines, layout, has_blanks)


def _is_blank(text: str, separator: str) -> bool:
    """Return whether lines hold nothing; a tab is nothing unless it separates empty fields."""
    if separator == _TAB:
        return not text.strip(" \n")
    return not text.strip(" \t\n")


def _plain_records(lines: _Lines, separator: str) -> Iterator[_Record]:
    for position, line in enumerate(lines.all):
        if not _is_blank(line, separator):
            yield position, position + 1, line.removesuffix("\n").split(separator)


def _quoted_records(lines: _Lines, layout: _Layout, has_blanks: bool = False) -> Iterator[_Record]:
    """Yield the records of lines; `has_blanks` if blanks may stand between separator and quote."""
    reader = csv.reader(
        iter(lines), delimiter=layout.separator, strict=True, skipinitialspace=has_blanks
    )
    start = 0
    try:
        for fields in reader:
            end = reader.line_num
            if len(fields) > 1 or not _is_blank("".join(lines.all[start:end]), layout.separator):
                yield start, end, fields
            start = end
            if end == len(lines.all):
                return  # No field is open, and the next block is not needed.
    except csv.Error as error:
        description = Unquoted(f"a broken quotation ({error})")
        expected = "quotes doubled within quoted fields, and closed"
        hint = "; the rows before it are quoted as in CSV" if layout.kind == "tsv" else ""
        option = _option("none")
        advice = (
            f"Correct the quotes of this row{hint}. If quotes are plain characters, pass {option}."
        )
        number = layout.first_number + start
        raise bad_value(layout.place, number, None, description, expected, advice) from None


# ---- Columns


def _parsed_by_arrow(block: str, first_number: int, layout: _Layout) -> Columns | None:
    """Return the rows of a block without quotes, a line each.

    The result is None if a line may be something else than a row; the parser that knows of quotes,
    blank lines and errors reads it then.
    """
    has_quotes = layout.is_quoted and '"' in block
    has_blank_lines = block.startswith("\n") or "\n\n" in block
    if has_quotes or has_blank_lines or "\r" in block or len(layout.names) < 2:
        return None
    if not layout.separator.isascii():
        return None
    # The names may occur twice, as "" for several columns without a name.
    positions = [str(position) for position in range(len(layout.names))]
    data = block.encode()
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(column_names=positions, use_threads=False, block_size=len(data) + 1),
            pa_csv.ParseOptions(
                delimiter=layout.separator, quote_char=False, ignore_empty_lines=False
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(positions, pa.string()),
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid:
        return None  # A row has too many or too few fields.
    arrays = {}
    for name, column in zip(layout.names, table.columns, strict=True):
        if name:
            arrays[name] = column.combine_chunks()
    return Columns(np.arange(first_number, first_number + len(table)), arrays, {})


def _columns_of(records: Iterable[_Record], first_number: int, layout: _Layout) -> Columns:
    """Return records as columns.

    Args:
        records: The records of a block.
        first_number: The number of the first line of the block.
        layout: The layout of the file.
    """
    width = len(layout.names)
    starts: list[int] = []
    columns: list[list[str | None]] = [[] for _ in layout.names]
    no_fields: list[str | None] = [None] * width
    errors = {}
    for start, _, fields in records:
        if len(fields) != width:
            errors[len(starts)] = _wrong_width(fields, first_number + start, layout)
            values_of_row: Sequence[str | None] = no_fields
        else:
            values_of_row = fields
        starts.append(start)
        # Lists of strings, and not of rows: Python's garbage collector would go through those.
        for values, field in zip(columns, values_of_row, strict=True):
            values.append(field)
    arrays = {}
    for name, values in zip(layout.names, columns, strict=True):
        if name:
            arrays[name] = pa.array(values, pa.string())
    return Columns(first_number + np.array(starts, np.int64), arrays, errors)


def _wrong_width(fields: Sequence[str], number: int, layout: _Layout) -> CorpusError:
    description = Unquoted(f"{len(fields)} field(s)")
    expected = f"{len(layout.names)} ({', '.join(layout.names)})"
    advice = "Correct the separators or quotes of the row, or delete it."
    if layout.kind == "tsv" and not layout.is_quoted:
        advice = (
            "Correct the tabs of the row, or delete it. If fields with line ends are quoted, pass "
            f"{_option('minimal')}."
        )
    return bad_value(layout.place, number, None, description, expected, advice)


# ---- Quotes of TSV


@dataclass
class _Evidence:
    """What the rows of a TSV file say about its quotes.

    Attributes:
        is_certain: Whether a field is quoted that every writer quotes, or the first row is.
        has_quoted_comma: Whether a field with a comma is quoted.
        has_plain_comma: Whether a field with a comma is not.
        joins_lines: Whether a quoted field holds a line end.
        is_plain_table: Whether all lines have as many tabs as the first row.
    """

    is_certain: bool = False
    has_quoted_comma: bool = False
    has_plain_comma: bool = False
    joins_lines: bool = False
    is_plain_table: bool = True

    def add(self, fields: Sequence[str], text: str) -> None:
        """Look at a record: its fields, and its text in the file."""
        for field in fields:
            has_comma = "," in field
            if not has_comma and _STRONG_EVIDENCE.search(field) is None:
                continue
            doubled = field.replace('"', '""')
            is_quoted = f'"{doubled}"' in text
            self.is_certain |= is_quoted and _STRONG_EVIDENCE.search(field) is not None
            self.has_quoted_comma |= is_quoted and has_comma
            self.has_plain_comma |= has_comma and not is_quoted
        lines = text.removesuffix("\n").split("\n")
        tabs = len(fields) - 1
        self.joins_lines |= len(lines) > 1
        self.is_plain_table &= all(line.count(_TAB) == tabs for line in lines)

    @property
    def is_proven(self) -> bool:
        """Whether some field is quoted because of what it holds."""
        return self.is_certain or (self.has_quoted_comma and not self.has_plain_comma)

    @property
    def loses_rows(self) -> bool:
        """Whether lines that are rows would be taken for parts of one."""
        return self.joins_lines and self.is_plain_table


def _are_quoted(path: str, place: str) -> bool:
    """Return whether quotes of a TSV file have a meaning; see the top of this module.

    Raises:
        CorpusError: A file of one column may be read in both ways, with different rows.
    """
    layout = _Layout(place, "tsv", _TAB, is_quoted=True)
    evidence = _Evidence()
    width = None
    characters = 0
    blocks = text_blocks(path, place)
    for block in blocks:
        if characters >= _DECIDING_CHARACTERS:
            break
        characters += len(block)
        if width is not None and not _has_quoted_field(block):
            evidence.has_plain_comma |= "," in block
            continue
        lines = _Lines(block, blocks)
        try:
            for start, end, fields in _quoted_records(lines, layout):
                text = "".join(lines.all[start:end])
                if width is None:
                    width = len(fields)
                    evidence.is_certain = _has_quoted_field(text)
                if len(fields) != width:
                    return False
                evidence.add(fields, text)
        except CorpusError:
            return False
    if not evidence.is_proven:
        return False
    if width == 1 and evidence.loses_rows:
        description = Unquoted("quotes around several lines in a file of one column")
        advice = (
            "Say what the quotes are: --quoting minimal if a quoted text may have several lines, "
            f"or if each line is a row, {_option('none')}."
        )
        raise bad_value(place, None, None, description, "unambiguous rows", advice)
    return not evidence.loses_rows


def _has_quoted_field(text: str) -> bool:
    """Return whether a field of some lines begins with a quote."""
    return text.startswith('"') or '\n"' in text or '\t"' in text
