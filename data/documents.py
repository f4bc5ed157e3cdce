"""Documents of one file or of stdin, in chunks: text, TSV, JSONL or parquet."""

import itertools
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError

from .checks import Words, bad_value
from .files import FileSource, Row, blocks_of, check_text, read_rows

VECTOR_COLUMN = "embedding"
InputFormat = Literal["text", "jsonl", "tsv", "parquet"]
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
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
_NAMES = {"text": ("text",), "tsv": ("id", "text")}  # the fields of a line


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Args:
        numbers: Their rows in the file, as an editor counts lines, from 1.
        columns: The columns that are kept.
        texts: One a document.
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
        format: None for that of the suffix, text for stdin. A line of text is a document; one of TSV is an id, a tab
            and the text.
        field: JSONL field or parquet column of the text; None is "text".
        keep_columns: Chunks hold all columns (True), or the text and the language and those of these names that there
            are.
        size: Documents in a chunk.
        language_field: JSONL field or parquet column of each text's language.

    Attributes:
        name: The file in messages.
        chunks: Its documents, read as they are asked for.
        schema: Of the columns that are kept.
        rows: How many documents there are, if that is known.
        fields: The names of all columns, kept or not.

    Raises:
        ValueError: The input can't be read; while iterating over `chunks`, also a bad row.
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
        suffix = Path(source).suffix.lower()
        self.kind = format or _SUFFIXES.get(suffix, "text")
        if not format and suffix in _NO_TEXT:
            raise TmdeError(
                f"{source}: {suffix} is not an input format; give --format, or pipe text into -"
            )
        for option, value in (("--field", field), ("--language-field", language_field)):
            if self.kind in _NAMES and value is not None:
                names = " and ".join(_NAMES[self.kind])
                raise TmdeError(
                    f"{option} {value}: {self.kind} has the fields {names}; see --format"
                )
        self.name, self.path = "stdin" if source == "-" else source, source
        if source == "-" or not Path(source).is_file():  # parquet and JSONL are read twice
            spool = stack.enter_context(tempfile.NamedTemporaryFile())
            stream = sys.stdin.buffer if source == "-" else stack.enter_context(open(source, "rb"))
            shutil.copyfileobj(stream, spool)
            spool.flush()
            self.path = spool.name
        # The fields of strings: that of the text, perhaps that of the language; with the options that name them.
        self.options = {field or "text": "--field"} | (
            {language_field: "--language-field"} if language_field else {}
        )
        self.keep_columns, self.size = keep_columns, size
        self.fields, self.rows = _NAMES.get(self.kind, ()), None
        self.schema = pa.schema([(column, pa.string()) for column in self.options])
        if keep_columns and self.kind != "parquet":
            self._infer_schema()
        chunks = self._parquet_chunks() if self.kind == "parquet" else self._line_chunks()
        # The first chunk is read now, before a model is loaded: most mistakes show there.
        self.chunks: Iterator[Chunk] = itertools.chain(list(itertools.islice(chunks, 1)), chunks)

    def place(self, number: int, field: str) -> str:
        """Return where a value stands, for an error."""
        return f"{self.name}, row {number}, field '{field}'"

    def _keeps(self, column: str) -> bool:
        return (
            self.keep_columns is True
            or column in self.options
            or column in (self.keep_columns or ())
        )

    def _check_there(self, found: Iterable[str], number: int | None) -> None:
        for column, option in self.options.items():
            if column not in found:
                found = Words(f"no such field among {list(found)}")
                raise bad_value(self.name, number, column, found, "strings", f"See {option}.")

    def _chunk(
        self, numbers: Sequence[int], values: list[list], columns: pa.Table | list[Row]
    ) -> Chunk:
        for column, texts in zip(self.options, values, strict=True):
            for number, text in zip(numbers, texts, strict=True):
                check_text(text, self.name, number, column)
        if not isinstance(columns, pa.Table):
            columns = pa.Table.from_pylist(columns, self.schema)
        return Chunk(numbers, columns, *values)

    def _blocks(self) -> Iterator[tuple[list[int], list[Row]]]:
        source = FileSource(self.kind, (self.path,))
        return blocks_of(read_rows(source, self.name, _NAMES.get(self.kind, ())), self.size)

    def _line_chunks(self) -> Iterator[Chunk]:
        for numbers, rows in self._blocks():
            for number, row in zip(numbers, rows, strict=True):
                self._check_there(row, number)
            yield self._chunk(
                numbers, [[row[column] for row in rows] for column in self.options], rows
            )

    def _infer_schema(self) -> None:
        """Find the types of the fields that are kept, the number of rows, and the names of all fields."""
        self.rows, fields = 0, {}
        for numbers, rows in self._blocks():
            self.rows += len(rows)
            fields |= dict.fromkeys(itertools.chain.from_iterable(rows))
            for key in fields:
                if key in self.options or not self._keeps(key):
                    continue
                try:
                    found = pa.schema([(key, pa.array([row.get(key) for row in rows]).type)])
                    self.schema = pa.unify_schemas(
                        [self.schema, found], promote_options="permissive"
                    )
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    found = Words(
                        f"values that a parquet file can't hold ({error}) from here to row {numbers[-1]}"
                    )
                    raise bad_value(
                        self.name, numbers[0], key, found, "one type", "Correct the values."
                    ) from None
        self.fields = list(fields)

    def _parquet_chunks(self) -> Iterator[Chunk]:
        """Yield chunks of `size` rows: a batch of pyarrow may end where a row group or a dictionary ends."""
        done = 1
        try:
            file = pq.ParquetFile(self.path, memory_map=True)
            self.rows, self.fields = file.metadata.num_rows, file.schema_arrow.names
            self._check_there(self.fields, None)
            kept = [field for field in file.schema_arrow if self._keeps(field.name)]
            self.schema = pa.schema(kept, file.schema_arrow.metadata)
            waiting = self.schema.empty_table()
            for batch in itertools.chain(
                file.iter_batches(self.size, columns=self.schema.names), [None]
            ):
                waiting = (
                    pa.concat_tables([waiting, pa.Table.from_batches([batch])])
                    if batch
                    else waiting
                )
                while len(waiting) >= self.size or (batch is None and len(waiting)):
                    table, waiting = waiting[: self.size], waiting[self.size :]
                    texts = [table[column].to_pylist() for column in self.options]
                    yield self._chunk(range(done, done + len(table)), texts, table)
                    done += len(table)
        except (pa.ArrowException, OSError) as error:
            found, advice = (
                Words(f"no parquet, or damaged data ({error})"),
                "See --format, or write the file again.",
            )
            raise bad_value(self.name, done, None, found, "parquet", advice) from None
