"""Documents of a file, of stdin or of a folder, in chunks.

A file is text, CSV, TSV, JSONL or parquet, plain or gzipped. A folder holds texts, one document a
file, or tables.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import pyarrow as pa

from modeling_tmde import TmdeError

from .checks import CorpusError, Unquoted, bad_value
from .document_fields import Chunk, FieldSelection, missing_columns
from .document_files import InputFormat, TextFolder, find_documents
from .lines import shown_path
from .report import MAX_EXAMPLES
from .tables import (
    BAD,
    FILE,
    LINE,
    ROW,
    UNIT_FORMATS,
    Quoting,
    Table,
    fields_of,
    values_of,
)
from .usual_columns import same_name

__all__ = ["VECTOR_COLUMN", "BadRows", "Chunk", "Documents", "InputFormat", "missing_columns"]

VECTOR_COLUMN = "embedding"
_TSV_FIELDS = ("id", "text")  # those of TSV without a header
_ADVICE_OF_FORMAT = {
    "text": "A line of text is a document; see --format.",
    "texts": "A file is a document; its name is the id, and the folder `de/` names the language.",
    **dict.fromkeys(
        UNIT_FORMATS.values(),
        "A unit has a text in each language, and those of one are documents: --field de. Units "
        "without a text in it are left out.",
    ),
    "tsv": (
        "The first row must hold the names of the columns; --format tsv also reads lines of id, "
        "tab, text without such a row."
    ),
}

BadRows = Literal["report", "raise"]

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
        bad_rows: `"report"` to leave out rows that cannot be read, and log which and why; `"raise"`
            to stop at the first one.
        marks_headings: Whether the headings of Markdown and HTML begin with `#`.

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
        TmdeError: The input can't be read, or lacks columns; with `bad_rows="raise"`, and while
            iterating over `chunks`, also a bad row.
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
        bad_rows: BadRows = "report",
        marks_headings: bool = False,
    ) -> None:
        if bad_rows not in ("report", "raise"):
            raise TmdeError(f"bad_rows: found {bad_rows!r}, expected 'report' or 'raise'")
        self._bad_rows = _BadRows(bad_rows == "raise")
        text_fields = text_fields_of(field)
        _check_language_field(text_fields, language_field)
        self.name = "stdin" if source == "-" else shown_path(source)
        tables = find_documents(stack, source, format, left_out, quoting)
        self.files: list[Path] = [Path(path) for table in tables for path in table.paths]
        self.text_folder: TextFolder | None = None
        if isinstance(tables[0], TextFolder):
            self.text_folder = replace(tables[0], marks_headings=marks_headings)
            tables = [self.text_folder]
            if language_field is None and self.text_folder.has_languages:
                language_field = "language"
        self.language_field = language_field
        selection = FieldSelection(text_fields, language_field, keep_columns, required or {})
        if format == "tsv" and field is None:
            # A user who names the format knows the file; a suffix alone does not tell of a header.
            tables = [_with_header(tables[0])]
        self._readers = [_Reader(table, selection, self._bad_rows) for table in tables]
        counts = [table.row_count() for table in tables]
        self.rows = None if None in counts else sum(count or 0 for count in counts)
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
        elif self._bad_rows.first is not None:
            raise self._bad_rows.first  # No row is left.
        self.chunks: Iterator[Chunk] = chain(first_chunks, chunks)

    def read(self, size: int) -> Iterator[Chunk]:
        """Yield all documents from the first, at most `size` at a time.

        Small files are joined: a folder may have thousands of files of a few documents, and a model
        works on many at once.
        """
        waiting: list[Chunk] = []
        count = 0
        for chunk in chain.from_iterable(reader.chunks(size) for reader in self._readers):
            if count + len(chunk.texts) > size:
                yield _joined(waiting)
                waiting = []
                count = 0
            waiting.append(chunk)
            count += len(chunk.texts)
            if count == size:  # The next documents may be bad, and these are not to be lost.
                yield _joined(waiting)
                waiting = []
                count = 0
        if waiting:
            yield _joined(waiting)
        self._bad_rows.end_pass(self.name)

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
        types: dict[str, pa.DataType] = {}
        for reader in self._readers:
            for batch in reader.typed_batches():
                for name in fields_of(batch):
                    types[name] = _wider_type(types.get(name, pa.null()), batch, name)
        return pa.schema(list(types.items()))


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
            f"--language-field {language_field}: found the text column, expected the column "
            "of language codes"
        )


def _with_header(table: Table) -> Table:
    """Return a table of TSV with the names of its columns, if its first row does not hold them."""
    if same_name("text", table.fields()) is None:
        return replace(table, header=_TSV_FIELDS)
    return table


class _BadRows:
    """Reports rows that cannot be read, or raises the error of the first.

    Args:
        raises: Whether it raises.

    Attributes:
        first: The first error; None if no row is bad.
    """

    def __init__(self, raises: bool) -> None:
        self._raises = raises
        self._count = 0  # in this pass over the documents
        self._told: set[str] = set()
        self.first: CorpusError | None = None

    def add(self, error: CorpusError) -> None:
        """Log an error, unless an earlier pass has; of many, the first ones."""
        if self._raises:
            raise error
        self._count += 1
        self.first = self.first or error
        message = str(error)
        if len(self._told) < MAX_EXAMPLES and message not in self._told:
            self._told.add(message)
            logger.warning("Left out a bad row. %s", message)

    def end_pass(self, name: str) -> None:
        """Log the number of bad rows if not all were told."""
        if self._count > len(self._told):
            logger.warning("%s: %d bad rows were skipped", name, self._count)
        self._count = 0


class _Reader:
    """Reads the documents of a table.

    Args:
        table: The table.
        selection: The fields that are read and kept.
        bad_rows: Takes the errors of rows.

    Attributes:
        fields: The names of all columns, kept or not.
        field_of_column: The fields of columns that differ from them by case alone. These columns
            are read by the names of their fields.
        is_parquet: Whether the table is a file of parquet.

    Raises:
        CorpusError: The file cannot be read, or lacks columns.
    """

    def __init__(self, table: Table, selection: FieldSelection, bad_rows: _BadRows) -> None:
        self._table = table
        self._selection = selection
        self._bad_rows = bad_rows
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
        for batch in self._table.batches(keep_bad=True):
            all_names |= dict.fromkeys(fields_of(batch))
        return self._selection.find_columns(list(all_names), self._table.place, advice)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Yield the documents, at most `size` at a time."""
        for batch in self._table.batches(size, keep_bad=True):
            kept = self._kept(self._readable(batch))
            try:
                chunk = self._chunk(kept)
            except CorpusError:
                chunk = self._chunk(self._without_bad_rows(kept))
            if chunk.texts:
                yield chunk

    def _chunk(self, batch: pa.RecordBatch) -> Chunk:
        texts = self._selection.texts_of(batch, self._table.place)
        languages = self._selection.languages_of(batch, self._table.place)
        return Chunk([batch], texts, languages)

    def _readable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that could be read, and of units those with a text."""
        is_readable = []
        for reason in values_of(batch, BAD):
            is_readable.append(reason is None)
            if reason is not None:
                self._bad_rows.add(CorpusError(reason))
        if self._table.format in UNIT_FORMATS.values():
            for position, has_text in enumerate(self._has_text(batch)):
                is_readable[position] &= has_text
        if all(is_readable):
            return batch
        return batch.filter(pa.array(is_readable, pa.bool_()))

    def _has_text(self, batch: pa.RecordBatch) -> list[bool]:
        """Return whether each row has a text in one of the chosen fields."""
        has_text = [False] * len(batch)
        for column in batch.schema.names:
            if self.field_of_column.get(column, column) in self._selection.texts:
                for position, value in enumerate(values_of(batch, column)):
                    has_text[position] |= bool(value)
        return has_text

    def _without_bad_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch whose text and language are texts."""
        is_good = []
        for position in range(len(batch)):
            try:
                self._chunk(batch.slice(position, 1))
                is_good.append(True)
            except CorpusError as error:
                self._bad_rows.add(error)
                is_good.append(False)
        return batch.filter(pa.array(is_good, pa.bool_()))

    def typed_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows that tell the types of the kept columns: all rows of JSON Lines, or none."""
        if self.is_parquet:
            schema = self._table.parquet_file().schema_arrow
            yield self._kept(pa.RecordBatch.from_pylist([], schema))
        elif self._table.has_different_rows:
            for batch in self._table.batches(keep_bad=True):
                yield self._kept(self._readable(batch))
        else:
            columns = dict.fromkeys(self.fields, pa.array([], pa.string()))
            yield self._kept(pa.RecordBatch.from_pydict(columns))

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that are kept, by the names of their fields."""
        fields = []
        columns = []
        for field in batch.schema:
            name = self.field_of_column.get(field.name, field.name)
            is_own = name in (FILE, ROW, LINE)
            if is_own or (name != BAD and self._selection.keeps(name)):
                fields.append(field.with_name(name))
                columns.append(batch[field.name])
        schema = pa.schema(fields, batch.schema.metadata)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _wider_type(type: pa.DataType, batch: pa.RecordBatch, name: str) -> pa.DataType:
    """Return a type for the values of a column of a batch, and for those of another type.

    Raises:
        CorpusError: There is none.
    """
    if not isinstance(batch[name].type, pa.JsonType):
        found = Unquoted(f"values of type {batch[name].type}")
        return _unified(type, batch[name].type, batch, None, name, found)
    values = values_of(batch, name)
    try:
        return _unified(type, pa.array(values).type, batch, None, name, None)
    except (pa.ArrowException, OverflowError, CorpusError):
        pass  # A value is to blame.
    for number, value in zip(values_of(batch, ROW), values, strict=True):
        type = _unified(type, pa.array([value]).type, batch, number, name, value)
    return type


def _unified(
    type: pa.DataType,
    other: pa.DataType,
    batch: pa.RecordBatch,
    number: int | None,
    name: str,
    found: object,
) -> pa.DataType:
    """Return a type for the values of two; raise the error of a row of a batch if there is none."""
    schemas = [pa.schema([(name, type)]), pa.schema([(name, other)])]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        files = values_of(batch, FILE)
        place = files[0] if files else "the input"
        expected = f"{type} values as in the rows before"
        advice = "Write the column in the same way in all rows and files."
        raise bad_value(place, number, name, found, expected, advice) from None


def _tell_renamed(readers: Sequence[_Reader], place: str) -> None:
    """Log each column that is taken for a field although it differs from it by case."""
    field_of_column: dict[str, str] = {}
    for reader in readers:
        field_of_column |= reader.field_of_column
    for column, field in field_of_column.items():
        logger.warning("%s: the column %r is read as %r", place, column, field)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return one chunk with the documents of several; either all have languages, or none has."""
    languages = None
    if chunks[0].languages is not None:
        languages = list(chain.from_iterable(chunk.languages or () for chunk in chunks))
    return Chunk(
        batches=list(chain.from_iterable(chunk.batches for chunk in chunks)),
        texts=list(chain.from_iterable(chunk.texts for chunk in chunks)),
        languages=languages,
    )
