"""Documents of a file, of stdin or of a folder, in chunks.

A file is text, CSV, TSV, JSONL or parquet, plain or gzipped. A folder holds texts, one document a
file, or tables.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from modeling_tmde import TmdeError

from .checks import CorpusError, Unquoted, bad_value
from .document_fields import Chunk, FieldSelection, missing_columns
from .document_files import InputFormat, TextFolder, find_documents
from .lines import shown_path
from .tables import FILE, LINE, ROW, Quoting, Table, fields_of, is_json, values_of
from .usual_columns import same_name

__all__ = ["VECTOR_COLUMN", "Chunk", "Documents", "InputFormat", "missing_columns"]

VECTOR_COLUMN = "embedding"
_TSV_FIELDS = ("id", "text")  # those of TSV without a header
_ADVICE_OF_FORMAT = {
    "text": "A line of text is a document; see --format.",
    "texts": "A file is a document; its name is the id, and the folder `de/` names the language.",
    "tsv": (
        "The first row must hold the names of the columns; --format tsv also reads lines of id, "
        "tab, text without such a row."
    ),
}

logger = logging.getLogger("tmde.data")


class Documents:
    """An open source of documents.

    Args:
        stack: Closes and removes what was opened.
        source: A file, `-` for stdin, which is copied to a temporary file, or a folder.
        format: None for the format of the suffix, or text for stdin. A line of text is a document;
            CSV and TSV have a header. If `"tsv"` is named and the first row has no field `text`, a
            line of it is an id, a tab and the text.
        field: The field or column of the text, or several, which are joined by a blank line; None
            is "text".
        keep_columns: Whether chunks hold all columns; or the names of those that they hold beside
            the text and the language, as far as the file has them.
        size: The number of documents in a chunk.
        language_field: The field or column of each text's language; None for the folders `de/`,
            `en/` ... of a folder of texts that has them.
        required: Further columns that must be there, each with the option that names it.
        left_out: A folder whose files are no documents, though it may be in that of the source.
        quoting: Whether fields of CSV and TSV may be quoted (`"minimal"`), or quotes are plain
            characters (`"none"`). None to find out.

    Attributes:
        name: The source in messages.
        chunks: Its documents, read as they are asked for.
        first_chunk: The first of them; None if there is no document.
        rows: The number of documents, if it is known.
        fields: The names of all columns, kept or not.
        files: The files that are read.
        text_folder: The folder whose files are one document each; None if there is none.
        language_field: The field or column of each text's language; None if no one is known.

    Raises:
        TmdeError: The input can't be read, or lacks columns; while iterating over `chunks`, also a
            bad row.
        OSError: There is no such file.
    """

    def __init__(
        self,
        stack: ExitStack,
        source: str,
        format: InputFormat | None,
        field: str | Sequence[str] | None,
        keep_columns: bool | Sequence[str],
        size: int,
        language_field: str | None = None,
        required: Mapping[str, str] | None = None,
        left_out: Path | None = None,
        quoting: Quoting | None = None,
    ) -> None:
        text_fields = text_fields_of(field)
        _check_language_field(text_fields, language_field)
        self.name = "stdin" if source == "-" else shown_path(source)
        tables = find_documents(stack, source, format, left_out, quoting)
        self.files: list[Path] = [Path(path) for table in tables for path in table.paths]
        self.text_folder: TextFolder | None = None
        if isinstance(tables[0], TextFolder):
            self.text_folder = tables[0]
            if language_field is None and tables[0].has_languages:
                language_field = "language"
        self.language_field = language_field
        selection = FieldSelection(text_fields, language_field, keep_columns, required or {})
        if format == "tsv" and field is None:
            # A user who names the format knows the file; a suffix alone does not tell of a header.
            tables = [_with_header(tables[0])]
        self._readers = [_Reader(table, selection) for table in tables]
        self.rows = _row_count(tables)
        fields: dict[str, None] = {}  # in order of appearance
        for reader in self._readers:
            fields |= dict.fromkeys(reader.fields)
        self.fields: list[str] = list(fields)
        _tell_renamed(self._readers, self.name)
        chunks = self.read(size)
        # The first chunk is read now, before a model is loaded, because most mistakes show there.
        first_chunks = list(islice(chunks, 1))
        self.first_chunk: Chunk | None = None
        if first_chunks:
            self.first_chunk = first_chunks[0]
        self.chunks: Iterator[Chunk] = chain(first_chunks, chunks)

    def read(self, size: int) -> Iterator[Chunk]:
        """Yield all documents from the first, `size` at a time; the last chunk may have fewer.

        A folder may have thousands of files of a few documents, and a model works on many at once.
        """
        parts = chain.from_iterable(reader.chunks(size) for reader in self._readers)
        waiting: list[Chunk] = []
        waiting_count = 0
        for chunk in parts:
            waiting.append(chunk)
            waiting_count += len(chunk.texts)
            if waiting_count >= size:
                surplus = waiting_count - size
                end = len(chunk.texts) - surplus
                waiting[-1] = _slice(chunk, 0, end)
                yield _joined(waiting)
                waiting = [_slice(chunk, end, len(chunk.texts))]
                waiting_count = surplus
        if waiting_count:
            yield _joined(waiting)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are kept, with a type for the values of all files.

        Files of JSON Lines are read whole.

        Raises:
            CorpusError: A column has values of different types.
        """
        if len(self._readers) == 1 and self._readers[0].is_parquet:
            # As it is in the file, with the features of `datasets` in its metadata.
            (batch,) = self._readers[0].typed_batches()
            return batch.schema
        types: dict[str, _ColumnType] = {}
        for reader in self._readers:
            for batch in reader.typed_batches():
                for name in fields_of(batch):
                    types.setdefault(name, _ColumnType(name)).widen(batch)
        return pa.schema([column.field for column in types.values()])


def text_fields_of(field: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the fields of the text, each once: "text" if none is named."""
    if not field:
        return ("text",)
    if isinstance(field, str):
        return (field,)
    return tuple(dict.fromkeys(field))


def _check_language_field(text_fields: Sequence[str], language_field: str | None) -> None:
    """Raise `TmdeError` if the text and its language are one field."""
    if language_field in text_fields:
        raise TmdeError(
            f"--language-field {language_field}: found the field of the text, expected the "
            "field that holds its language"
        )


def _with_header(table: Table) -> Table:
    """Return a table of TSV with the names of its columns, if its first row does not hold them."""
    if same_name("text", table.fields()) is None:
        return replace(table, header=_TSV_FIELDS)
    return table


class _Reader:
    """Reads the documents of a table.

    Args:
        table: The table.
        selection: The fields that are read and kept.

    Attributes:
        fields: The names of all columns, kept or not.
        field_of_column: The fields of columns that differ from them by case alone. These columns
            are read by the names of their fields.
        is_parquet: Whether the table is a file of parquet.

    Raises:
        CorpusError: The file cannot be read, or lacks columns.
    """

    def __init__(self, table: Table, selection: FieldSelection) -> None:
        self._table = table
        self._selection = selection
        self.is_parquet = table.format == "parquet"
        names = table.fields()
        self.field_of_column: Mapping[str, str] = {}
        if names:  # An empty file has no columns, and no documents that lack them.
            advice = _ADVICE_OF_FORMAT.get(table.format, "")
            self.field_of_column = self._find_columns(names, advice)
        self.fields = [self.field_of_column.get(name, name) for name in names]

    def _find_columns(self, names: list[str], advice: str) -> dict[str, str]:
        """Return the field of each column; rows of JSON Lines may have it further down alone."""
        try:
            return self._selection.find_columns(names, self._table.place, advice)
        except CorpusError:
            if not self._table.has_different_rows:
                raise
        all_names: dict[str, None] = {}
        for _, row in self._table.rows():
            all_names |= dict.fromkeys(row)
        return self._selection.find_columns(list(all_names), self._table.place, advice)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yield the documents, at most `size` at a time."""
        for batch in self._table.batches(size):
            kept = self._kept(batch)
            texts = self._selection.texts_of(kept, self._table.place)
            languages = self._selection.languages_of(kept, self._table.place)
            yield Chunk([kept], texts, languages)

    def typed_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows that tell the types of the kept columns: all rows of JSON Lines, or none."""
        if self.is_parquet:
            schema = self._table.parquet_file().schema_arrow
            yield self._kept(pa.RecordBatch.from_pylist([], schema))
        elif self._table.has_different_rows:
            yield from map(self._kept, self._table.batches())
        else:
            columns = dict.fromkeys(self.fields, pa.array([], pa.string()))
            yield self._kept(pa.RecordBatch.from_pydict(columns))

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that are kept, by the names of their fields."""
        names = []
        columns = []
        for column in batch.schema:
            name = self.field_of_column.get(column.name, column.name)
            if column.name in (FILE, ROW, LINE) or self._selection.keeps(name):
                names.append(column.with_name(name))
                columns.append(batch[column.name])
        schema = pa.schema(names, batch.schema.metadata)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class _ColumnType:
    """The type of the values of a column in all files.

    Attributes:
        name: The column.
        type: The type of the values so far.
    """

    name: str
    type: pa.DataType = pa.null()

    @property
    def field(self) -> pa.Field:
        """The column as a field of a schema."""
        return pa.field(self.name, self.type)

    def widen(self, batch: pa.RecordBatch) -> None:
        """Let the type hold the values of some rows, too.

        Raises:
            CorpusError: It cannot.
        """
        field = batch.schema.field(self.name)
        if not is_json(field):
            self._widen_to(field.type, batch)
            return
        values = values_of(batch, self.name)
        try:
            self._widen_to(pa.array(values).type, batch)
        except (pa.ArrowException, OverflowError, CorpusError):
            for number, value in zip(values_of(batch, ROW), values, strict=True):
                self._widen_to(pa.array([value]).type, batch, number, value)

    def _widen_to(
        self, type: pa.DataType, batch: pa.RecordBatch, number: int | None = None, value: Any = None
    ) -> None:
        own_schema = pa.schema([self.field])
        other_schema = pa.schema([pa.field(self.name, type)])
        try:
            schema = pa.unify_schemas([own_schema, other_schema], promote_options="permissive")
        except pa.ArrowException:
            found = Unquoted(f"values of type {type}") if number is None else value
            advice = "Write the column in the same way in all rows and files."
            raise bad_value(
                _place_of(batch),
                number,
                self.name,
                found,
                f"{self.type} values as in the rows before",
                advice,
            ) from None
        self.type = schema.field(0).type


def _place_of(batch: pa.RecordBatch) -> str:
    """Return the file of a batch in messages."""
    files = values_of(batch, FILE)
    return files[0] if files else "the input"


def _tell_renamed(readers: Sequence[_Reader], place: str) -> None:
    """Log each column that is taken for a field although it differs from it by case."""
    field_of_column: dict[str, str] = {}
    for reader in readers:
        field_of_column |= reader.field_of_column
    for column, field in field_of_column.items():
        logger.warning("%s: the column %r is read as %r", place, column, field)


def _row_count(tables: Sequence[Table]) -> int | None:
    """Return the number of all documents; None if it is not known of one file."""
    total = 0
    for table in tables:
        count = table.row_count()
        if count is None:
            return None
        total += count
    return total


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return one chunk with the documents of several; either all have languages, or none has."""
    batches: list[pa.RecordBatch] = []
    texts: list[str] = []
    languages: list[str] = []
    for chunk in chunks:
        batches += chunk.batches
        texts += chunk.texts
        if chunk.languages is not None:
            languages += chunk.languages
    return Chunk(batches, texts, None if chunks[0].languages is None else languages)


def _slice(chunk: Chunk, start: int, end: int) -> Chunk:
    """Return some documents of a chunk of one batch."""
    languages = None
    if chunk.languages is not None:
        languages = chunk.languages[start:end]
    batches = [batch.slice(start, end - start) for batch in chunk.batches]
    return Chunk(batches, chunk.texts[start:end], languages)
