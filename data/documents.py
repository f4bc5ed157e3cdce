"""Documents of one file or of stdin, in chunks: text, TSV, JSONL or parquet."""

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError

from .checks import CorpusError, Unquoted, bad_value
from .files import FileSource, Row, blocks_of, check_text, column_of, read_rows

VECTOR_COLUMN = "embedding"
InputFormat = Literal["text", "jsonl", "tsv", "parquet"]

_FORMAT_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
# A file with one of these suffixes is not taken for text, unless the user says so.
_NO_TEXT = {
    ".csv",
    ".tsv",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".zip",
    ".arrow",
    ".npy",
    ".xml",
    ".html",
    ".pdf",
}
_FIELDS_OF_LINES = {"text": ("text",), "tsv": ("id", "text")}


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Attributes:
        numbers: Their rows in the file, as an editor counts lines, from 1.
        columns: The columns that are kept.
        texts: The text of each document.
        languages: The language of each text, if a field of the input holds it.
    """

    numbers: Sequence[int]
    columns: pa.Table
    texts: list[str]
    languages: list[str] | None = None


class Documents:
    """An open file, or stdin as `-`, which is copied to a temporary file.

    Args:
        stack: Closes and removes what was opened.
        source: The file.
        format: None for the format of the suffix, or text for stdin. A line of text is a document;
            a line of TSV is an id, a tab and the text.
        field: The JSONL field or parquet column of the text; None is "text".
        keep_columns: Whether chunks hold all columns; or the names of those that they hold beside
            the text and the language, as far as the file has them.
        size: The number of documents in a chunk.
        language_field: The JSONL field or parquet column of each text's language.

    Attributes:
        name: The file in messages.
        chunks: Its documents, read as they are asked for.
        schema: The schema of the columns that are kept.
        rows: The number of documents, if it is known.
        fields: The names of all columns, kept or not.

    Raises:
        TmdeError: The input can't be read; while iterating over `chunks`, also a bad row.
        OSError: There is no such file.
    """

    def __init__(
        self,
        stack: ExitStack,
        source: str,
        format: InputFormat | None,
        field: str | None,
        keep_columns: bool | Sequence[str],
        size: int,
        language_field: str | None = None,
    ):
        kind = format or _format_of(source)
        _check_field_options(kind, field, language_field)
        self.name = "stdin" if source == "-" else source
        fields = _FieldSelection(field or "text", language_field, keep_columns)
        path = _readable_path(stack, source)
        reader: _ParquetReader | _LineReader
        if kind == "parquet":
            reader = _ParquetReader(self.name, path, fields, size)
        else:
            reader = _LineReader(self.name, path, fields, size, kind)
        self.schema = reader.schema
        self.rows = reader.rows
        self.fields = reader.fields
        chunks = reader.chunks()
        # The first chunk is read now, before a model is loaded, because most mistakes show there.
        first_chunks = list(islice(chunks, 1))
        self.chunks: Iterator[Chunk] = chain(first_chunks, chunks)

    def place(self, number: int, field: str) -> str:
        """Return where a value stands, for an error."""
        return f"{self.name}, row {number}, field '{field}'"


def _format_of(source: str) -> str:
    """Return the format that the suffix of a file says.

    Raises:
        TmdeError: The suffix is that of no input format.
    """
    suffix = Path(source).suffix.lower()
    if suffix in _NO_TEXT:
        raise TmdeError(
            f"{source}: {suffix} is not an input format; give --format, or pipe text into -"
        )
    return _FORMAT_BY_SUFFIX.get(suffix, "text")


def _check_field_options(kind: str, field: str | None, language_field: str | None) -> None:
    """Check the options that name a field.

    Raises:
        TmdeError: The format has no named fields, or the text and its language are one field.
    """
    if kind not in _FIELDS_OF_LINES:
        if language_field == (field or "text"):
            raise TmdeError(
                f"--language-field {language_field}: found the field of the text, expected the "
                "field that holds its language"
            )
        return
    for option, value in (("--field", field), ("--language-field", language_field)):
        if value is not None:
            names = " and ".join(_FIELDS_OF_LINES[kind])
            raise TmdeError(f"{option} {value}: {kind} has the fields {names}; see --format")


def _readable_path(stack: ExitStack, source: str) -> str:
    """Return the path of a file that can be read twice, as parquet and JSONL are.

    Stdin and pipes are copied to a temporary file.
    """
    if source != "-" and Path(source).is_file():
        return source
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    path = Path(folder, "documents")
    with path.open("wb") as copy:
        if source == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(source, "rb") as stream:
                shutil.copyfileobj(stream, copy)
    return str(path)


@dataclass(frozen=True)
class _FieldSelection:
    """The fields of a document that are read and kept.

    Attributes:
        text: The field of the text.
        language: The field of its language.
        keep: Whether all columns are kept, or the names of those that are.
    """

    text: str
    language: str | None
    keep: bool | Sequence[str]

    @property
    def options(self) -> dict[str, str]:
        """The fields that must hold strings, each with the option that names it."""
        options = {self.text: "--field"}
        if self.language is not None:
            options[self.language] = "--language-field"
        return options

    def keeps(self, column: str) -> bool:
        if column in self.options:
            return True
        if isinstance(self.keep, bool):
            return self.keep
        return column in self.keep

    def chunk(self, numbers: Sequence[int], columns: pa.Table, strings: list[list]) -> Chunk:
        """Return a chunk.

        Args:
            numbers: The rows in the file.
            columns: The columns that are kept.
            strings: The values of each field of `options`.
        """
        texts = strings[0]
        languages = None
        if self.language is not None:
            languages = strings[1]
        return Chunk(numbers=numbers, columns=columns, texts=texts, languages=languages)

    def check_present(self, columns: Iterable[str], place: str, number: int | None) -> None:
        """Raise [`CorpusError`] if a field that must hold strings is not among the columns."""
        for field, option in self.options.items():
            if field not in columns:
                description = Unquoted(f"no such field among {list(columns)}")
                raise bad_value(place, number, field, description, "strings", f"See {option}.")

    def check_strings(self, strings: list[list], place: str, numbers: Sequence[int]) -> None:
        """Raise [`CorpusError`] if a value of the fields of `options` is not a string.

        Args:
            strings: The values of each field.
            place: The file in messages.
            numbers: The rows of the values.
        """
        for field, values in zip(self.options, strings, strict=True):
            for number, value in zip(numbers, values, strict=True):
                check_text(value, place, number, field)


class _LineReader:
    """Reads documents of text, TSV or JSONL, one a line.

    Args:
        place: The file in messages.
        path: The file.
        selection: The fields that are read and kept.
        size: The number of documents in a chunk.
        kind: The format.

    Attributes:
        schema, rows, fields: As in [`Documents`].
    """

    def __init__(
        self, place: str, path: str, selection: _FieldSelection, size: int, kind: str
    ) -> None:
        self.place = place
        self.path = path
        self.selection = selection
        self.size = size
        self.kind = kind
        self.fields: Sequence[str] = _FIELDS_OF_LINES.get(kind, ())
        self.rows: int | None = None
        self.schema = pa.schema([(field, pa.string()) for field in selection.options])
        if selection.keep:
            self._infer_schema()

    def _blocks(self) -> Iterator[tuple[list[int], list[Row]]]:
        source = FileSource(self.kind, (self.path,))
        names = _FIELDS_OF_LINES.get(self.kind, ())
        return blocks_of(read_rows(source, self.place, names), self.size)

    def _infer_schema(self) -> None:
        """Find the types of the kept fields, the number of rows and the names of all fields."""
        row_count = 0
        names: dict[str, None] = {}  # an ordered set
        for numbers, rows in self._blocks():
            row_count += len(rows)
            names.update(dict.fromkeys(chain.from_iterable(rows)))
            for name in names:
                if name not in self.selection.options and self.selection.keeps(name):
                    self._add_type(name, rows, numbers)
        self.rows = row_count
        self.fields = list(names)

    def _add_type(self, name: str, rows: list[Row], numbers: list[int]) -> None:
        """Widen the schema by the values of a field in some rows."""
        try:
            values = pa.array(column_of(rows, name))
            value_schema = pa.schema([(name, values.type)])
            self.schema = pa.unify_schemas(
                [self.schema, value_schema], promote_options="permissive"
            )
        except (pa.ArrowException, ValueError, OverflowError) as error:
            description = Unquoted(
                f"values that a parquet file can't hold ({error}) from here to row {numbers[-1]}"
            )
            raise bad_value(
                self.place, numbers[0], name, description, "one type", "Correct the values."
            ) from None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents."""
        for numbers, rows in self._blocks():
            for number, row in zip(numbers, rows, strict=True):
                self.selection.check_present(row, self.place, number)
            strings = [column_of(rows, field) for field in self.selection.options]
            self.selection.check_strings(strings, self.place, numbers)
            # The table is made after the check, which names the row of a value that is no string.
            columns = pa.Table.from_pylist(rows, self.schema)
            yield self.selection.chunk(numbers, columns, strings)


class _ParquetReader:
    """Reads documents of a parquet file. Arguments and attributes are those of [`_LineReader`]."""

    def __init__(self, place: str, path: str, selection: _FieldSelection, size: int) -> None:
        self.place = place
        self.selection = selection
        self.size = size
        try:
            self.file = pq.ParquetFile(path, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, number=1) from None
        file_schema = self.file.schema_arrow
        self.rows = self.file.metadata.num_rows
        self.fields: Sequence[str] = file_schema.names
        selection.check_present(self.fields, place, None)
        kept_fields = [field for field in file_schema if selection.keeps(field.name)]
        self.schema = pa.schema(kept_fields, file_schema.metadata)

    def _damaged(self, error: Exception, number: int) -> CorpusError:
        description = Unquoted(f"no parquet, or damaged data ({error})")
        advice = "See --format, or write the file again."
        return bad_value(self.place, number, None, description, "parquet", advice)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents, `size` at a time."""
        first_number = 1
        try:
            for table in self._tables():
                numbers = range(first_number, first_number + len(table))
                strings = [table[field].to_pylist() for field in self.selection.options]
                self.selection.check_strings(strings, self.place, numbers)
                yield self.selection.chunk(numbers, table, strings)
                first_number += len(table)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error, first_number) from None

    def _tables(self) -> Iterator[pa.Table]:
        """Yield tables of `size` rows.

        A batch of pyarrow may have fewer, because it ends where a row group or a dictionary ends.
        """
        waiting = self.schema.empty_table()
        for batch in self.file.iter_batches(self.size, columns=self.schema.names):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            while len(waiting) >= self.size:
                yield waiting[: self.size]
                waiting = waiting[self.size :]
        if len(waiting):
            yield waiting
