"""Reading documents for `tmde embed`: text, TSV, JSONL or parquet, in chunks; errors name file, row and field."""

from __future__ import annotations

import codecs
import io
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

# pyarrow is imported where it is used: `tmde --help` must not wait for it.
if TYPE_CHECKING:
    import pyarrow as pa

VECTOR_COLUMN = "embedding"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_LINES = {"text": "which has no fields", "tsv": "whose columns are id and text"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_TEXT = {".csv", ".tsv", ".gz", ".bz2", ".xz", ".zst", ".zip", ".arrow", ".npy", ".xml", ".html", ".pdf"}


class InputFormat(str, Enum):
    text = "text"
    jsonl = "jsonl"
    tsv = "tsv"
    parquet = "parquet"


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents, as many as asked for (the last chunk: the rest).

    texts: None where the chunk was not wanted; columns: those of the input that are kept, if any; languages: of each
    text, if a field of the input holds them, with the numbers of their lines or rows.
    """

    rows: int
    texts: list[str] | None
    columns: pa.Table | None = None
    languages: list[str] | None = None
    numbers: Sequence[int] = ()


@dataclass
class Documents:
    """An open input; `schema`: of the columns to keep; `rows`: how many documents, if known; `fields`: names of all
    columns, kept or not, where some are."""

    name: str
    chunks: Iterator[Chunk]
    schema: pa.Schema | None = None
    rows: int | None = None
    words: tuple[str, str] = ("line", "field")  # what errors call the place of a document, and of a value in it
    fields: Sequence[str] = ()

    def place(self, number: int, field: str) -> str:
        """Where a value stands, for an error."""
        return f"{self.name}, {self.words[0]} {number}, {self.words[1]} {field!r}"


@dataclass(frozen=True)
class _Request:
    """What is read of an input, and how.

    wanted: is asked once for every chunk, by its number from 0 and in order; the others are counted but not parsed.
    """

    name: str
    field: str
    keep_columns: bool | Sequence[str]
    size: int
    wanted: Callable[[int], bool]
    language_field: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The fields that hold strings, and the options that name them."""
        named = {self.field: "--field"}
        return named if self.language_field is None else named | {self.language_field: "--language-field"}

    def keeps(self, column: str) -> bool:
        return self.keep_columns is True or column in self.options or column in (self.keep_columns or ())


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
    """Opens a file, or stdin as `-`; it is closed with `stack`.

    Args:
        format: None for that of the suffix, text for stdin.
        field: JSONL field or parquet column of the text; None is "text".
        keep_columns: Chunks hold all columns, or the text and those of these names that there are; the others may be
            of any types.
        size: Documents of a chunk.
        wanted: Which chunks are parsed, by number; asked once a chunk, in order.
        language_field: JSONL field or parquet column of each text's language.

    Raises:
        ValueError: What cannot be read; also later, from `chunks`.
    """
    suffix = Path(source).suffix.lower()
    kind = format.value if format else _SUFFIXES.get(suffix, "text")
    name, stream = ("stdin", sys.stdin.buffer) if source == "-" else (source, None)
    if stream is None:
        if not format and suffix in _NO_TEXT:
            raise ValueError(f"{name}: {suffix} is not an input format; give --format, or pipe text into -")
        try:
            stream = stack.enter_context(open(source, "rb"))
        except IsADirectoryError:
            raise ValueError(
                f"{name}: found a folder, expected one file: text with a document a line, JSONL or parquet; write the "
                'documents of a folder into one file of lines {"id": ..., "text": ...}'
            ) from None
        except OSError as error:
            raise ValueError(f"{name or repr(name)}: {error.strerror}") from None
    for option, value in (("--field", field), ("--language-field", language_field)):
        if kind in _LINES and value is not None:
            raise ValueError(f"{option} {value}: {name} is read as {kind}, {_LINES[kind]}; see --format")
    # Parquet is read from its end, and the columns of JSONL are known only when all rows have been seen.
    if (kind == "parquet" or (kind == "jsonl" and keep_columns)) and not stream.seekable():
        spool = stack.enter_context(tempfile.TemporaryFile())
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
        stream = spool
    read = {"text": _read_text, "tsv": _read_tsv, "jsonl": _read_jsonl, "parquet": _read_parquet}[kind]
    request = _Request(name, "text" if field is None else field, keep_columns, size, wanted, language_field)
    documents = read(stream, request)
    # The first documents are read now, before the model is loaded: most mistakes show there.
    documents.chunks = itertools.chain(list(itertools.islice(documents.chunks, 1)), documents.chunks)
    return documents


def _parsed(items: Iterable, request: _Request, parse: Callable[[list], Chunk]) -> Iterator[Chunk]:
    items = iter(items)
    for number in itertools.count():
        if not (chunk := list(itertools.islice(items, request.size))):
            return
        yield parse(chunk) if request.wanted(number) else Chunk(len(chunk), None)


def _lines(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines as editors count them: only a line feed, with or without a carriage return before, ends one."""
    try:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.endswith(b"\n"):
                line = line[: -2 if line.endswith(b"\r\n") else -1]
            yield number, line
    except OSError as error:  # a folder opens on some systems; a disk or a network share fails
        raise ValueError(f"{name}: {error.strerror}") from None


def _decoded(name: str, number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"0x{line[error.start]:02x} at byte {error.start + 1}"
        raise ValueError(f"{name}, line {number}: found {found}, expected UTF-8") from None


def _read_text(stream: BinaryIO, request: _Request) -> Documents:
    schema = None
    if request.keep_columns:
        import pyarrow as pa

        schema = pa.schema([(request.field, pa.string())])

    def parse(lines: list[tuple[int, bytes]]) -> Chunk:
        texts = [_decoded(request.name, number, line) for number, line in lines]
        return Chunk(len(texts), texts, pa.table([texts], schema=schema) if request.keep_columns else None)

    return Documents(request.name, _parsed(_lines(request.name, stream), request, parse), schema, fields=["text"])


def _read_tsv(stream: BinaryIO, request: _Request) -> Documents:
    """Lines of an id, a tab and the text, as BUCC's are."""
    names, schema = ("id", "text"), None
    if request.keep_columns:
        import pyarrow as pa

        schema = pa.schema([(name, pa.string()) for name in names if request.keeps(name)])

    def parse(lines: list[tuple[int, bytes]]) -> Chunk:
        rows = []
        for number, raw in lines:
            row = _decoded(request.name, number, raw).split("\t")
            if len(row) != len(names):
                raise ValueError(
                    f"{request.name}, line {number}: found {len(row)} field(s), {_short(chr(9).join(row))!r}, "
                    "expected two: an id, a tab and the text"
                )
            rows.append(row)
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        kept = None
        if request.keep_columns:
            kept = pa.table([list(columns[name]) for name in schema.names], schema=schema)
        return Chunk(len(rows), list(columns["text"]), kept, numbers=[number for number, _ in lines])

    return Documents(request.name, _parsed(_filled_lines(request.name, stream), request, parse), schema, fields=names)


def _json_row(number: int, raw: bytes, request: _Request) -> dict:
    line, where = _decoded(request.name, number, raw), f"{request.name}, line {number}"
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: found {_short(line)}, expected one JSON object a line ({error})") from None
    if not isinstance(row, dict):
        raise ValueError(f"{where}: found {_short(line)}, expected a JSON object")
    for field, option in request.options.items():
        if field not in row:
            raise ValueError(f"{where}: field {field!r} is missing, found {list(row)}; see {option}")
        if not isinstance(row[field], str):
            raise ValueError(f"{where}, field {field!r}: found {_short(json.dumps(row[field]))}, expected a string")
        if not row[field].isascii() and _SURROGATE.search(row[field]):
            raise ValueError(f"{where}, field {field!r}: found a lone surrogate (\\ud800 to \\udfff), expected text")
    return row


def _read_jsonl(stream: BinaryIO, request: _Request) -> Documents:
    name, language, schema, count, fields = request.name, request.language_field, None, None, ()
    if request.keep_columns:
        import pyarrow as pa

        schema, count, fields = _jsonl_schema(stream, request)
        stream.seek(0)

    def parse(lines: list[tuple[int, bytes]]) -> Chunk:
        rows = [_json_row(number, line, request) for number, line in lines]
        columns = None
        if request.keep_columns:
            arrays = [pa.array([row.get(item.name) for row in rows], type=item.type) for item in schema]
            columns = pa.table(arrays, schema=schema)
        languages = None if language is None else [row[language] for row in rows]
        numbers = [number for number, _ in lines]
        return Chunk(len(rows), [row[request.field] for row in rows], columns, languages, numbers)

    return Documents(name, _parsed(_filled_lines(name, stream), request, parse), schema, count, fields=fields)


def _filled_lines(name: str, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in _lines(name, stream) if line.strip())  # blank lines are no rows


def _jsonl_schema(stream: BinaryIO, request: _Request) -> tuple[pa.Schema, int, list[str]]:
    """Types of the fields that are kept of all rows, the number of rows, and the names of all fields."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name, field, lines = request.name, request.field, _filled_lines(request.name, stream)
    schema, count, fields = pa.schema([(field, pa.string())]), 0, {}
    while chunk := list(itertools.islice(lines, request.size)):
        rows = [_json_row(number, line, request) for number, line in chunk]
        where = f"{name}, lines {chunk[0][0]} to {chunk[-1][0]}"
        columns = {}
        fields |= dict.fromkeys(key for row in rows for key in row)
        for key in filter(request.keeps, dict.fromkeys(key for row in rows for key in row)):
            try:
                columns[key] = pa.array([row.get(key) for row in rows])
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise ValueError(f"{where}, field {key!r}: not one type, as a parquet column is ({error})") from None
        try:
            schema = pa.unify_schemas([schema, pa.table(columns).schema], promote_options="permissive")
            pq.ParquetWriter(io.BytesIO(), schema).close()
        except pa.ArrowException as error:
            raise ValueError(f"{where}: fields that a parquet file cannot hold ({error})") from None
        count += len(rows)
    return schema, count, list(fields)


def _read_parquet(stream: BinaryIO, request: _Request) -> Documents:
    import pyarrow as pa
    import pyarrow.parquet as pq

    name, field, language = request.name, request.field, request.language_field
    try:
        file = pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name}: not a parquet file ({error})") from None
    schema, names = file.schema_arrow, file.schema_arrow.names
    kept = [column for column in names if request.keeps(column)]
    for column, option in request.options.items():
        if names.count(column) != 1:
            raise ValueError(f"{name}: column {column!r} is missing, found {names}; see {option}")
        kind = schema.field(column).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
            raise ValueError(f"{name}, column {column!r}: found type {kind}, expected strings")

    def chunks() -> Iterator[Chunk]:
        done = 0
        try:
            batches = file.iter_batches(request.size, columns=None if kept == names else kept)
            for number, table in enumerate(_regrouped(batches, request.size)):
                texts = languages = None
                if request.wanted(number):
                    texts = _strings(table.column(field), name, field, done)
                    if language is not None:
                        languages = _strings(table.column(language), name, language, done)
                numbers = range(done + 1, done + 1 + len(table))
                yield Chunk(len(table), texts, table if request.keep_columns else None, languages, numbers)
                done += len(table)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{name}, after row {done}: damaged parquet file ({error})") from None

    if request.keep_columns:
        schema = pa.schema([item for item in schema if request.keeps(item.name)], schema.metadata)
    return Documents(name, chunks(), schema, file.metadata.num_rows, ("row", "column"), names)


def _regrouped(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Tables of `size` rows, the last one of the rest; pyarrow may give shorter batches where a row group ends."""
    import pyarrow as pa

    waiting: pa.Table | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        waiting = table if waiting is None else pa.concat_tables([waiting, table])
        while len(waiting) >= size:
            yield waiting.slice(0, size)
            waiting = waiting.slice(size)
    if waiting is not None and len(waiting):
        yield waiting


def _strings(column: pa.ChunkedArray, name: str, field: str, done: int) -> list[str]:
    texts = []
    for row, value in enumerate(column, done + 1):
        try:
            texts.append(value.as_py())
        except UnicodeDecodeError:
            raise ValueError(f"{name}, row {row}, column {field!r}: found bytes, expected UTF-8") from None
        if texts[-1] is None:
            raise ValueError(f"{name}, row {row}, column {field!r}: found null, expected a string")
    return texts


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
