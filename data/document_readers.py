"""Readers of documents: rows of text files, and parquet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from .checks import CorpusError, Unquoted, bad_value
from .document_fields import Chunk, FieldSelection
from .document_files import DocumentFile, TextFolder
from .files import FileSource, NumberedRows, Row, blocks_of, column_of, read_rows
from .tables import TableKind, header_of, open_table
from .usual_columns import same_name

_TEXT_FIELDS = ("text",)
_TSV_FIELDS = ("id", "text")  # those of TSV without a header
_PEEKED_ROWS = 1000  # rows of JSONL that tell its fields where the types of all are not needed
_NO_HEADER_ADVICE = (
    "The first row must hold the names of the columns; --format tsv also reads lines of id, tab, "
    "text without such a row."
)


class Reader(Protocol):
    """Reads the documents of a file.

    Attributes:
        schema: The schema of the columns that are kept.
        rows: The number of documents, if it is known.
        fields: The names of all columns, kept or not.
        field_of_column: The fields of columns that differ from them by case alone. These columns
            are read by the names of their fields.
    """

    schema: pa.Schema
    rows: int | None
    fields: Sequence[str]
    field_of_column: Mapping[str, str]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents."""
        ...


def open_reader(
    file: DocumentFile, selection: FieldSelection, size: int, names_are_optional: bool
) -> Reader:
    """Return the reader of a file.

    Args:
        file: The file.
        selection: The fields that are read and kept.
        size: The number of documents in a chunk.
        names_are_optional: Whether TSV without a header is an id, a tab and a text.

    Raises:
        CorpusError: The file cannot be read, or lacks columns.
    """
    if file.format == "parquet":
        return ParquetReader(file, selection, size)
    if file.format in ("csv", "tsv"):
        return _table_reader(file, selection, size, names_are_optional)
    if file.format == "text":
        advice = "A line of text is a document; see --format."
        field_of_column = selection.find_columns(_TEXT_FIELDS, file.name, advice)
        return RowReader(file.name, _rows_of(file), _TEXT_FIELDS, selection, size, field_of_column)
    return _jsonl_reader(file, selection, size)


def open_folder_reader(folder: TextFolder, selection: FieldSelection, size: int) -> Reader:
    """Return the reader of a folder of texts; the arguments are those of `open_reader`.

    Raises:
        CorpusError: The folder lacks a field that was asked for.
    """
    advice = "A file is a document; its name is the id, and the folder `de/` names the language."
    field_of_column = selection.find_columns(folder.fields, folder.folder, advice)
    return RowReader(
        folder.folder,
        folder.rows,
        folder.fields,
        selection,
        size,
        field_of_column,
        row_count=len(folder.names),
    )


def _rows_of(file: DocumentFile) -> Callable[[], NumberedRows]:
    """Return a function that reads the rows of a file of text or JSONL from its beginning."""
    source = FileSource(file.format, (file.path,))
    return lambda: read_rows(source, file.name)


# ---- CSV and TSV


def _table_reader(
    file: DocumentFile, selection: FieldSelection, size: int, names_are_optional: bool
) -> Reader:
    kind: TableKind = "tsv" if file.format == "tsv" else "csv"
    fields: Sequence[str] = header_of(file.path, kind, file.name)
    names: Sequence[str] | None = None
    if names_are_optional and kind == "tsv" and same_name("text", fields) is None:
        names = _TSV_FIELDS
        fields = _TSV_FIELDS
    field_of_column: Mapping[str, str] = {}
    if fields:  # An empty file has no columns, and no documents that lack them.
        advice = _NO_HEADER_ADVICE if kind == "tsv" else ""
        field_of_column = selection.find_columns(fields, file.name, advice)

    def rows() -> NumberedRows:
        return open_table(file.path, kind, file.name, names)

    return RowReader(file.name, rows, fields, selection, size, field_of_column)


# ---- JSONL


def _jsonl_reader(file: DocumentFile, selection: FieldSelection, size: int) -> Reader:
    rows = _rows_of(file)
    fields, schema, row_count = _describe_jsonl(rows, selection, size, file.name)
    field_of_column: Mapping[str, str] = {}
    if row_count:
        field_of_column = selection.find_columns(fields, file.name)
    if field_of_column:
        # The types of the columns are found by the names of their fields.
        renamed_rows = _renamed(rows, field_of_column)
        _, schema, _ = _describe_jsonl(renamed_rows, selection, size, file.name)
    if not selection.keep:
        return RowReader(file.name, rows, fields, selection, size, field_of_column)
    return RowReader(file.name, rows, fields, selection, size, field_of_column, schema, row_count)


def _describe_jsonl(
    rows: Callable[[], NumberedRows], selection: FieldSelection, size: int, place: str
) -> tuple[list[str], pa.Schema, int]:
    """Return the fields of rows of JSONL, the schema of those that are kept, and their number.

    If no columns are kept, the first rows stand for all.

    Raises:
        CorpusError: Values have no common type.
    """
    numbered_rows = rows()
    if not selection.keep:
        numbered_rows = islice(numbered_rows, _PEEKED_ROWS)
    schema = _string_schema(selection.strings)
    row_count = 0
    names: dict[str, None] = {}  # an ordered set
    for numbers, block in blocks_of(numbered_rows, size):
        row_count += len(block)
        names.update(dict.fromkeys(chain.from_iterable(block)))
        for name in names:
            if name not in selection.strings and selection.keeps(name):
                schema = _widened(schema, name, block, numbers, place)
    return list(names), schema, row_count


def _string_schema(names: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


def _widened(
    schema: pa.Schema, name: str, rows: list[Row], numbers: Sequence[int], place: str
) -> pa.Schema:
    """Return a schema that also holds the values of a field in some rows."""
    try:
        values = pa.array(column_of(rows, name))
        value_schema = pa.schema([(name, values.type)])
        return pa.unify_schemas([schema, value_schema], promote_options="permissive")
    except (pa.ArrowException, ValueError, OverflowError) as error:
        description = Unquoted(
            f"values that a parquet file can't hold ({error}) from here to row {numbers[-1]}"
        )
        advice = "Correct the values."
        raise bad_value(place, numbers[0], name, description, "one type", advice) from None


# ---- Readers


def _renamed(
    rows: Callable[[], NumberedRows], field_of_column: Mapping[str, str]
) -> Callable[[], NumberedRows]:
    """Return a function that reads rows with the names of fields in place of their columns'."""

    def renamed_rows() -> NumberedRows:
        for number, row in rows():
            yield number, {field_of_column.get(name, name): row[name] for name in row}

    return renamed_rows


class RowReader:
    """Reads documents from rows of text.

    Args:
        place: The file in messages.
        rows: A function that reads the rows from the beginning.
        fields: The names of all fields.
        selection: The fields that are read and kept.
        size: The number of documents in a chunk.
        field_of_column: The fields of columns that differ from them by case alone.
        schema: The schema of the columns that are kept; None if all of them are strings.
        row_count: The number of rows, if it is known.
    """

    def __init__(
        self,
        place: str,
        rows: Callable[[], NumberedRows],
        fields: Sequence[str],
        selection: FieldSelection,
        size: int,
        field_of_column: Mapping[str, str],
        schema: pa.Schema | None = None,
        row_count: int | None = None,
    ) -> None:
        self._place = place
        self._rows = rows
        if field_of_column:
            self._rows = _renamed(rows, field_of_column)
        self._selection = selection
        self._size = size
        self.field_of_column = field_of_column
        self.fields: Sequence[str] = [field_of_column.get(name, name) for name in fields]
        self.rows = row_count
        if schema is None:
            # The fields of the text come first, as in a schema that is made of rows.
            names = dict.fromkeys(chain(selection.strings, filter(selection.keeps, self.fields)))
            schema = _string_schema(list(names))
        self.schema: pa.Schema = schema

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents, `size` at a time."""
        selection = self._selection
        for numbers, rows in blocks_of(self._rows(), self._size):
            for number, row in zip(numbers, rows, strict=True):
                selection.check_row(row, self._place, number)
            values = {name: column_of(rows, name) for name in selection.strings}
            texts = selection.texts_of(values, self._place, numbers)
            languages = selection.languages_of(values, self._place, numbers)
            # The table is made after the check, which names the row of a value that is no string.
            columns = pa.Table.from_pylist(rows, self.schema)
            files = [self._place] * len(rows)
            yield Chunk(files, numbers, columns, texts, languages)


class ParquetReader:
    """Reads documents of a parquet file.

    Args:
        file: The file.
        selection: The fields that are read and kept.
        size: The number of documents in a chunk.
    """

    def __init__(self, file: DocumentFile, selection: FieldSelection, size: int) -> None:
        self._place = file.name
        self._selection = selection
        self._size = size
        try:
            self._file = pq.ParquetFile(file.path, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, number=1) from None
        file_schema = self._file.schema_arrow
        self.rows: int | None = self._file.metadata.num_rows
        names = file_schema.names
        self.field_of_column: Mapping[str, str] = selection.find_columns(names, file.name)
        self.fields: Sequence[str] = [self.field_of_column.get(name, name) for name in names]
        self._columns: list[str] = []  # the kept ones, as the file names them
        kept_fields = []
        for name, field in zip(self.fields, file_schema, strict=True):
            if selection.keeps(name):
                self._columns.append(field.name)
                kept_fields.append(field.with_name(name))
        self.schema = pa.schema(kept_fields, file_schema.metadata)

    def _damaged(self, error: Exception, number: int) -> CorpusError:
        description = Unquoted(f"no parquet, or damaged data ({error})")
        advice = "See --format, or write the file again."
        return bad_value(self._place, number, None, description, "parquet", advice)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents, `size` at a time."""
        first_number = 1
        try:
            for table in self._tables():
                numbers = range(first_number, first_number + len(table))
                yield self._chunk(table, numbers)
                first_number += len(table)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, first_number) from None

    def _chunk(self, table: pa.Table, numbers: Sequence[int]) -> Chunk:
        selection = self._selection
        values: Mapping[str, list] = {name: table[name].to_pylist() for name in selection.strings}
        texts = selection.texts_of(values, self._place, numbers)
        languages = selection.languages_of(values, self._place, numbers)
        return Chunk([self._place] * len(table), numbers, table, texts, languages)

    def _tables(self) -> Iterator[pa.Table]:
        """Yield tables of `size` rows.

        A batch of pyarrow may have fewer, because it ends where a row group or a dictionary ends.
        """
        waiting = self.schema.empty_table()
        for batch in self._file.iter_batches(self._size, columns=self._columns):
            table = pa.Table.from_batches([batch]).rename_columns(self.schema.names)
            waiting = pa.concat_tables([waiting, table])
            while len(waiting) >= self._size:
                yield waiting[: self._size]
                waiting = waiting[self._size :]
        if len(waiting):
            yield waiting
