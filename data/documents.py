"""Documents of one file or of stdin, in chunks: text, TSV, JSONL or parquet."""

import io
import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from .checks import Words, bad_value
from .files import check_text, column_values, parse_json, read_lines, split_fields

VECTOR_COLUMN = "embedding"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_NO_TEXT = {".csv", ".tsv", ".gz", ".bz2", ".xz", ".zst", ".zip", ".arrow", ".npy", ".xml", ".html", ".pdf"}
_NAMES = {"text": ("text",), "tsv": ("id", "text")}  # the fields of a line


class InputFormat(str, Enum):
    text = "text"
    jsonl = "jsonl"
    tsv = "tsv"
    parquet = "parquet"


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Args:
        numbers: Their rows in the file, as an editor counts lines, from 1.
        texts: None where the chunk was not wanted.
        columns: The columns that are kept, if any.
        languages: The language of each text, if a field of the input holds it.
    """

    numbers: Sequence[int]
    texts: list[str] | None = None
    columns: pa.Table | None = None
    languages: list[str] | None = None

    @property
    def rows(self) -> int:
        return len(self.numbers)


@dataclass
class Documents:
    """An open input.

    Args:
        name: The file in messages.
        chunks: Its documents, read as they are asked for.
        schema: Of the columns that are kept, if any.
        rows: How many documents there are, if that is known.
        fields: The names of all columns, kept or not.
    """

    name: str
    chunks: Iterator[Chunk]
    schema: pa.Schema | None = None
    rows: int | None = None
    fields: Sequence[str] = ()

    def place(self, number: int, field: str) -> str:
        """Return where a value stands, for an error."""
        return f"{self.name}, row {number}, field '{field}'"


@dataclass(frozen=True)
class _Request:
    """What is read of an input; see `open_documents`."""

    name: str
    kind: str
    field: str
    keep_columns: bool | Sequence[str]
    size: int
    wanted: Callable[[int], bool]
    language_field: str | None

    @property
    def options(self) -> dict[str, str]:
        """The options that name the fields of strings."""
        named = {self.field: "--field"}
        return named if self.language_field is None else named | {self.language_field: "--language-field"}

    def keeps(self, column: str) -> bool:
        return self.keep_columns is True or column in self.options or column in (self.keep_columns or ())

    def missing(self, number: int | None, field: str, found: Iterable[str]) -> ValueError:
        found = Words(f"no such field among {list(found)}")
        return bad_value(self.name, number, field, found, "strings", f"See {self.options[field]}.")


def open_documents(
    stack: ExitStack,
    source: str,
    format: InputFormat | None,
    field: str | None,
    keep_columns: bool | Sequence[str],
    size: int,
    wanted: Callable[[int], bool] = lambda number: True,
    language_field: str | None = None,
) -> Documents:
    """Open a file, or stdin as `-`. It is closed with `stack`.

    Args:
        format: None for that of the suffix, text for stdin. A line of text is a document; one of TSV is an id, a tab
            and the text.
        field: JSONL field or parquet column of the text; None is "text".
        keep_columns: Chunks hold all columns, or the text and those of these names that there are.
        size: Documents in a chunk.
        wanted: Is asked once a chunk, by its number from 0 and in order, whether to parse it.
        language_field: JSONL field or parquet column of each text's language.

    Raises:
        ValueError: The input can't be read; while iterating over `chunks`, also a bad row.
    """
    suffix = Path(source).suffix.lower()
    kind = format.value if format else _SUFFIXES.get(suffix, "text")
    if not format and suffix in _NO_TEXT and source != "-":
        raise ValueError(f"{source}: {suffix} is not an input format; give --format, or pipe text into -")
    for option, value in (("--field", field), ("--language-field", language_field)):
        if kind in _NAMES and value is not None:
            names = " and ".join(_NAMES[kind])
            raise ValueError(f"{option} {value}: {source} is read as {kind}, whose fields are {names}; see --format")
    name = "stdin" if source == "-" else source
    try:
        stream = sys.stdin.buffer if source == "-" else stack.enter_context(open(source, "rb"))
    except OSError as error:
        expected = 'one file of text, TSV, JSONL ({"id": ..., "text": ...} a line) or parquet'
        raise bad_value(name, None, None, Words(error.strerror.lower()), expected, "Correct the path.") from None
    # Parquet is read from its end, and the columns of JSONL are known only when all rows have been seen.
    if (kind == "parquet" or (kind == "jsonl" and keep_columns)) and not stream.seekable():
        spool = stack.enter_context(tempfile.TemporaryFile())
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
        stream = spool
    request = _Request(name, kind, field or "text", keep_columns, size, wanted, language_field)
    documents = (_open_parquet if kind == "parquet" else _open_lines)(stream, request)
    # The first chunk is read now, before a model is loaded: most mistakes show there.
    documents.chunks = itertools.chain(list(itertools.islice(documents.chunks, 1)), documents.chunks)
    return documents


def _blocks(stream: BinaryIO, request: _Request) -> Iterator[list[tuple[int, str]]]:
    """Yield numbered lines, as many as a chunk has. A blank line is a document only in text."""
    lines = read_lines(stream, request.name)
    if request.kind != "text":
        lines = ((number, line) for number, line in lines if line.strip())
    while block := list(itertools.islice(lines, request.size)):
        yield block


def _parse(request: _Request, number: int, line: str) -> dict:
    """Return the fields of a line."""
    if request.kind == "text":
        return {"text": line}
    if request.kind == "tsv":
        names = _NAMES["tsv"]
        return dict(zip(names, split_fields(line, names, request.name, number), strict=True))
    row = parse_json(line, request.name, number)
    for field in request.options:
        if field not in row:
            raise request.missing(number, field, row)
        check_text(row[field], request.name, number, field)
    return row


def _open_lines(stream: BinaryIO, request: _Request) -> Documents:
    schema, count, fields = None, None, _NAMES.get(request.kind, ())
    if request.keep_columns and fields:
        schema = pa.schema([(name, pa.string()) for name in fields if request.keeps(name)])
    elif request.keep_columns:
        schema, count, fields = _infer_schema(stream, request)
        stream.seek(0)

    def chunks() -> Iterator[Chunk]:
        for place, block in enumerate(_blocks(stream, request)):
            numbers = [number for number, _ in block]
            if not request.wanted(place):
                yield Chunk(numbers)
                continue
            rows = [_parse(request, number, line) for number, line in block]
            columns = languages = None
            if schema is not None:
                columns = pa.table({item.name: [row.get(item.name) for row in rows] for item in schema}, schema=schema)
            if request.language_field is not None:
                languages = [row[request.language_field] for row in rows]
            yield Chunk(numbers, [row[request.field] for row in rows], columns, languages)

    return Documents(request.name, chunks(), schema, count, fields)


def _infer_schema(stream: BinaryIO, request: _Request) -> tuple[pa.Schema, int, list[str]]:
    """Return the types of the JSONL fields that are kept, the number of rows, and the names of all fields."""
    schema, count, fields = pa.schema([(request.field, pa.string())]), 0, {}
    for block in _blocks(stream, request):
        rows = [_parse(request, number, line) for number, line in block]
        count += len(rows)
        there = dict.fromkeys(key for row in rows for key in row)
        fields |= there
        for key in filter(request.keeps, there):
            try:
                found = pa.schema([(key, pa.array([row.get(key) for row in rows]).type)])
                schema = pa.unify_schemas([schema, found], promote_options="permissive")
                pq.ParquetWriter(io.BytesIO(), schema).close()
            except (pa.ArrowException, ValueError, OverflowError) as error:
                found = Words(f"values that a parquet file can't hold ({error}) from here to row {block[-1][0]}")
                raise bad_value(request.name, block[0][0], key, found, "one type", "Correct the values.") from None
    return schema, count, list(fields)


def _open_parquet(stream: BinaryIO, request: _Request) -> Documents:
    name = request.name
    try:
        file = pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise bad_value(name, None, None, Words(f"no parquet ({error})"), "parquet", "See --format.") from None
    schema, names = file.schema_arrow, file.schema_arrow.names
    for column in request.options:
        if names.count(column) != 1:
            raise request.missing(None, column, names)
        kind = schema.field(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise bad_value(name, None, column, Words(f"type {kind}"), "strings", f"See {request.options[column]}.")

    def strings(table: pa.Table, column: str | None, numbers: range) -> list[str] | None:
        if column is None:
            return None
        values = column_values(table.column(column), name, numbers, column)
        if None in values:
            raise bad_value(name, numbers[values.index(None)], column, None, "a string", "Correct the row.")
        return values

    def chunks() -> Iterator[Chunk]:
        numbers = range(1, 1)
        try:
            batches = file.iter_batches(request.size, columns=[column for column in names if request.keeps(column)])
            for place, table in enumerate(_regrouped(batches, request.size)):
                numbers = range(numbers.stop, numbers.stop + len(table))
                if not request.wanted(place):
                    yield Chunk(numbers)
                    continue
                texts, languages = (
                    strings(table, field, numbers) for field in (request.field, request.language_field)
                )
                yield Chunk(numbers, texts, table if request.keep_columns else None, languages)
        except (pa.ArrowException, OSError) as error:
            found = Words(f"damaged data ({error})")
            raise bad_value(name, numbers.stop, None, found, "parquet", "Write the file again.") from None

    kept = pa.schema([item for item in schema if request.keeps(item.name)], schema.metadata)
    return Documents(name, chunks(), kept if request.keep_columns else None, file.metadata.num_rows, names)


def _regrouped(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield tables of `size` rows, the last one of the rest. pyarrow gives shorter ones where a row group ends."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= size:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, size)
            waiting = table.slice(size).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting)
