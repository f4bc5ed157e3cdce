"""Documents of a file, of stdin or of a folder, in chunks.

A file is text, CSV, TSV, JSONL or parquet, plain or gzipped. A folder holds texts, one document a
file, or tables.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

import pyarrow as pa

from modeling_tmde import TmdeError

from .checks import Unquoted, bad_value
from .document_fields import Chunk, FieldSelection, missing_columns
from .document_files import DocumentFile, InputFormat, TextFolder, files_of, find_documents
from .document_readers import Reader, open_folder_reader, open_reader

__all__ = ["VECTOR_COLUMN", "Chunk", "Documents", "InputFormat", "missing_columns"]

VECTOR_COLUMN = "embedding"

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

    Attributes:
        name: The source in messages.
        chunks: Its documents, read as they are asked for.
        first_chunk: The first of them; None if there is no document.
        schema: The schema of the columns that are kept.
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
    ) -> None:
        text_fields = text_fields_of(field)
        _check_language_field(text_fields, language_field)
        self.name = "stdin" if source == "-" else source
        source_files = find_documents(stack, source, format, left_out)
        self.files: list[Path] = list(files_of(source_files))
        self.text_folder: TextFolder | None = None
        if isinstance(source_files, TextFolder):
            self.text_folder = source_files
        if language_field is None:
            language_field = _language_field_of(source_files)
        self.language_field = language_field
        selection = FieldSelection(text_fields, language_field, keep_columns, required or {})
        # A user who names the format knows the file; a suffix alone does not tell of a header.
        names_are_optional = format == "tsv" and field is None
        readers = _open_readers(source_files, selection, size, names_are_optional)
        self.schema = _common_schema(readers, self.name)
        self.rows = _row_count(readers)
        fields: dict[str, None] = {}  # in order of appearance
        for reader in readers:
            fields |= dict.fromkeys(reader.fields)
        self.fields: list[str] = list(fields)
        _tell_renamed(readers, self.name)
        chunks = readers[0].chunks()
        if len(readers) > 1:
            chunks = _filled(_chunks_of(readers, self.schema), size)
        # The first chunk is read now, before a model is loaded, because most mistakes show there.
        first_chunks = list(islice(chunks, 1))
        self.first_chunk: Chunk | None = None
        if first_chunks:
            self.first_chunk = first_chunks[0]
        self.chunks: Iterator[Chunk] = chain(first_chunks, chunks)


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


def _language_field_of(source_files: list[DocumentFile] | TextFolder) -> str | None:
    """Return the field of the languages that a folder of texts names by its folders."""
    if isinstance(source_files, TextFolder) and source_files.has_languages:
        return "language"
    return None


def _open_readers(
    source_files: list[DocumentFile] | TextFolder,
    selection: FieldSelection,
    size: int,
    names_are_optional: bool,
) -> list[Reader]:
    if isinstance(source_files, TextFolder):
        return [open_folder_reader(source_files, selection, size)]
    return [open_reader(file, selection, size, names_are_optional) for file in source_files]


def _tell_renamed(readers: Sequence[Reader], place: str) -> None:
    """Log each column that is taken for a field although it differs from it by case."""
    field_of_column: dict[str, str] = {}
    for reader in readers:
        field_of_column |= reader.field_of_column
    for column, field in field_of_column.items():
        logger.warning("%s: the column %r is read as %r", place, column, field)


def _common_schema(readers: Sequence[Reader], place: str) -> pa.Schema:
    """Return the schema of the kept columns of all files.

    Raises:
        CorpusError: A column has values of different types.
    """
    if len(readers) == 1:
        return readers[0].schema
    schemas = [reader.schema.remove_metadata() for reader in readers]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        description = Unquoted(f"files whose columns differ ({error})")
        advice = "Write the column in the same way in all files."
        raise bad_value(place, None, None, description, "one type a column", advice) from None


def _row_count(readers: Sequence[Reader]) -> int | None:
    """Return the number of all documents; None if it is not known of one file."""
    total = 0
    for reader in readers:
        if reader.rows is None:
            return None
        total += reader.rows
    return total


def _chunks_of(readers: Iterable[Reader], schema: pa.Schema) -> Iterator[Chunk]:
    """Yield the chunks of all files with the columns of one schema."""
    for reader in readers:
        for chunk in reader.chunks():
            columns = _with_schema(chunk.columns, schema)
            yield Chunk(chunk.files, chunk.numbers, columns, chunk.texts, chunk.languages)


def _with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; those that it lacks are null."""
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(len(table), field.type))
    return pa.table(columns, schema=schema)


def _filled(chunks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Yield chunks of `size` documents that hold those of smaller ones, in the same order.

    A folder may have thousands of files of a few documents, and a model works on many at once.
    """
    waiting: list[Chunk] = []
    waiting_count = 0
    for chunk in chunks:
        waiting.append(chunk)
        waiting_count += len(chunk.texts)
        if waiting_count >= size:
            joined = _joined(waiting)
            yield _slice(joined, 0, size)
            waiting = [_slice(joined, size, waiting_count)]
            waiting_count -= size
    if waiting_count:
        yield _joined(waiting)


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return one chunk with the documents of several; either all have languages, or none has."""
    files: list[str] = []
    numbers: list[int] = []
    tables: list[pa.Table] = []
    texts: list[str] = []
    languages: list[str] = []
    for chunk in chunks:
        files += chunk.files
        numbers += chunk.numbers
        tables.append(chunk.columns)
        texts += chunk.texts
        if chunk.languages is not None:
            languages += chunk.languages
    return Chunk(
        files=files,
        numbers=numbers,
        columns=pa.concat_tables(tables),
        texts=texts,
        languages=None if chunks[0].languages is None else languages,
    )


def _slice(chunk: Chunk, start: int, end: int) -> Chunk:
    languages = None
    if chunk.languages is not None:
        languages = chunk.languages[start:end]
    return Chunk(
        files=chunk.files[start:end],
        numbers=chunk.numbers[start:end],
        columns=chunk.columns[start:end],
        texts=chunk.texts[start:end],
        languages=languages,
    )
