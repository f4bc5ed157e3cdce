"""Documents of one file or of stdin, in chunks: text, TSV, JSONL or parquet."""

import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from .checks import Words, bad_value
from .files import FileSource, Row, blocks_of, check_text, read_rows

VECTOR_COLUMN = "embedding"
InputFormat = Literal["text", "jsonl", "tsv", "parquet"]
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_NO_TEXT = {".csv", ".tsv", ".gz", ".bz2", ".xz", ".zst", ".zip", ".arrow", ".npy", ".xml", ".html", ".pdf"}
_NAMES = {"text": ("text",), "tsv": ("id", "text")}  # the fields of a line


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Args:
        numbers: Their rows in the file, as an editor counts lines, from 1.
        texts: One a document.
        columns: The columns that are kept, if any.
        languages: The language of each text, if a field of the input holds it.
    """

    numbers: Sequence[int]
    texts: list[str]
    columns: pa.Table | None = None
    languages: list[str] | None = None


@dataclass
class Documents:
    """An open input.

    Args:
        name: The file in messages.
        path: Where it is read.
        kind: A value of [`InputFormat`].
        options: The fields of strings: that of the text, perhaps that of the language; with the options that name
            them.
        keep_columns: As in [`open_documents`].
        size: Documents in a chunk.

    Attributes:
        chunks: Its documents, read as they are asked for.
        schema: Of the columns that are kept, if any.
        rows: How many documents there are, if that is known.
        fields: The names of all columns, kept or not.
    """

    name: str
    path: str
    kind: str
    options: dict[str, str]
    keep_columns: bool | Sequence[str]
    size: int

    def __post_init__(self) -> None:
        self.fields, self.rows, self.schema = _NAMES.get(self.kind, ()), None, None
        if self.kind == "parquet":
            chunks = self._parquet_chunks()
        else:
            if self.keep_columns:
                self._infer_schema()
            chunks = self._line_chunks()
        # The first chunk is read now, before a model is loaded: most mistakes show there.
        self.chunks: Iterator[Chunk] = itertools.chain(list(itertools.islice(chunks, 1)), chunks)

    def place(self, number: int, field: str) -> str:
        """Return where a value stands, for an error."""
        return f"{self.name}, row {number}, field '{field}'"

    def _keeps(self, column: str) -> bool:
        return self.keep_columns is True or column in self.options or column in (self.keep_columns or ())

    def _check_there(self, found: Iterable[str], number: int | None) -> None:
        for column, option in self.options.items():
            if column not in found:
                found = Words(f"no such field among {list(found)}")
                raise bad_value(self.name, number, column, found, "strings", f"See {option}.")

    def _chunk(self, numbers: Sequence[int], texts: Iterable[list], columns: pa.Table | None) -> Chunk:
        texts = list(texts)
        for column, values in zip(self.options, texts, strict=True):
            for number, value in zip(numbers, values, strict=True):
                check_text(value, self.name, number, column)
        return Chunk(numbers, texts[0], columns, *texts[1:])

    def _blocks(self) -> Iterator[tuple[list[int], list[Row]]]:
        source = FileSource(self.kind, (self.path,))
        return blocks_of(read_rows(source, self.name, _NAMES.get(self.kind, ())), self.size)

    def _line_chunks(self) -> Iterator[Chunk]:
        for numbers, rows in self._blocks():
            for number, row in zip(numbers, rows, strict=True):
                self._check_there(row, number)
            chunk = self._chunk(numbers, ([row[column] for row in rows] for column in self.options), None)
            if self.schema:
                columns = {column: [row.get(column) for row in rows] for column in self.schema.names}
                chunk = replace(chunk, columns=pa.table(columns, schema=self.schema))
            yield chunk

    def _infer_schema(self) -> None:
        """Find the types of the fields that are kept, the number of rows, and the names of all fields."""
        self.schema, self.rows, fields = pa.schema([(column, pa.string()) for column in self.options]), 0, {}
        for numbers, rows in self._blocks():
            self.rows += len(rows)
            fields |= dict.fromkeys(itertools.chain.from_iterable(rows))
            for key in fields:
                if key in self.options or not self._keeps(key):
                    continue
                try:
                    found = pa.schema([(key, pa.array([row.get(key) for row in rows]).type)])
                    self.schema = pa.unify_schemas([self.schema, found], promote_options="permissive")
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    found = Words(f"values that a parquet file can't hold ({error}) from here to row {numbers[-1]}")
                    raise bad_value(self.name, numbers[0], key, found, "one type", "Correct the values.") from None
        self.fields = list(fields)

    def _parquet_chunks(self) -> Iterator[Chunk]:
        try:
            file = pq.ParquetFile(self.path, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            found = Words(f"no parquet ({error})")
            raise bad_value(self.name, None, None, found, "parquet", "See --format.") from None
        self.rows, self.fields = file.metadata.num_rows, file.schema_arrow.names
        self._check_there(self.fields, None)
        schema = pa.schema([item for item in file.schema_arrow if self._keeps(item.name)], file.schema_arrow.metadata)
        self.schema = schema if self.keep_columns else None
        return self._regrouped(file.iter_batches(self.size, columns=schema.names), schema.empty_table())

    def _regrouped(self, batches: Iterator[pa.RecordBatch], waiting: pa.Table) -> Iterator[Chunk]:
        """Yield chunks of `size` rows: a batch of pyarrow may end where a row group or a dictionary ends."""
        done = 1
        try:
            for batch in itertools.chain(batches, [None]):
                waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])]) if batch else waiting
                while len(waiting) >= self.size or (batch is None and len(waiting)):
                    table, waiting = waiting[: self.size], waiting[self.size :]
                    texts = (table[column].to_pylist() for column in self.options)
                    yield self._chunk(range(done, done + len(table)), texts, table if self.keep_columns else None)
                    done += len(table)
        except (pa.ArrowException, OSError) as error:
            found = Words(f"damaged data ({error})")
            raise bad_value(self.name, done, None, found, "parquet", "Write the file again.") from None


def open_documents(
    stack: ExitStack,
    source: str,
    format: InputFormat | None,
    field: str | None,
    keep_columns: bool | Sequence[str],
    size: int,
    language_field: str | None = None,
) -> Documents:
    """Open a file, or stdin as `-`, which is copied to a temporary file.

    Args:
        stack: Closes and removes what was opened.
        format: None for that of the suffix, text for stdin. A line of text is a document; one of TSV is an id, a tab
            and the text.
        field: JSONL field or parquet column of the text; None is "text".
        keep_columns: Chunks hold all columns, or the text and those of these names that there are.
        size: Documents in a chunk.
        language_field: JSONL field or parquet column of each text's language.

    Raises:
        ValueError: The input can't be read; while iterating over `chunks`, also a bad row.
    """
    suffix = Path(source).suffix.lower()
    kind = format or _SUFFIXES.get(suffix, "text")
    if not format and suffix in _NO_TEXT and source != "-":
        raise ValueError(f"{source}: {suffix} is not an input format; give --format, or pipe text into -")
    for option, value in (("--field", field), ("--language-field", language_field)):
        if kind in _NAMES and value is not None:
            names = " and ".join(_NAMES[kind])
            raise ValueError(f"{option} {value}: {source} is read as {kind}, whose fields are {names}; see --format")
    name = path = "stdin" if source == "-" else source
    if source != "-" and not Path(source).exists() or Path(source).is_dir():
        expected = 'one file of text, TSV, JSONL ({"id": ..., "text": ...} a line) or parquet'
        found = Words("a folder" if Path(source).is_dir() else "no such file")
        raise bad_value(name, None, None, found, expected, "Correct the path.")
    if source == "-" or not Path(source).is_file():  # parquet and JSONL are read twice
        spool = stack.enter_context(tempfile.NamedTemporaryFile())
        stream = sys.stdin.buffer if source == "-" else stack.enter_context(open(source, "rb"))
        shutil.copyfileobj(stream, spool)
        spool.flush()
        path = spool.name
    options = {field or "text": "--field"} | ({language_field: "--language-field"} if language_field else {})
    return Documents(name, path, kind, options, keep_columns, size)
