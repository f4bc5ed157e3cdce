"""`tmde embed`: a file or a pipe of documents in, a `.npy` or `.parquet` file of vectors out."""

from __future__ import annotations

import codecs
import io
import itertools
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

# torch, transformers, pyarrow are imported where they are used: `tmde --help` must not wait for them.
if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from modeling_tmde.embedding import DocumentEmbedder

ROWS = 8192  # documents in memory at once, and rows of a parquet row group
VECTOR_COLUMN = "embedding"
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
_NO_TEXT = {".csv", ".tsv", ".gz", ".bz2", ".xz", ".zst", ".zip", ".arrow", ".npy", ".xml", ".html", ".pdf"}


class InputFormat(str, Enum):
    text = "text"
    jsonl = "jsonl"
    parquet = "parquet"


class Pooling(str, Enum):
    cls = "cls"
    mean = "mean"


class Dtype(str, Enum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


class EmbedError(Exception):
    """Something the user can set right; its text is all they need to see."""


def embed(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="File of documents, or - for stdin.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="File to write: .npy or .parquet.")],
    model: Annotated[str, typer.Option("--model", "-m", help="Folder of a saved model, or a Hub id.")],
    format: Annotated[InputFormat | None, typer.Option(help="Default: by INPUT's suffix; text for stdin.")] = None,
    field: Annotated[str | None, typer.Option(help="JSONL field or parquet column to embed. Default: text.")] = None,
    pooling: Annotated[Pooling | None, typer.Option(help="Default: cls for tmde models, mean for others.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens where documents are cut. Default: all a model takes; 750 if it is silent."),
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a batch; lower it if memory runs out.")] = 16384,
    dtype: Annotated[Dtype | None, typer.Option(help="Of the weights. Default: the checkpoint's.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to length 1.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps. Default: the best there is.")] = None,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the Hub model's code.")] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a Hub model.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
) -> None:
    """Embed documents: one vector a document, in the order of the input.

    Text input holds one document a line; an empty line is an empty document, so that row i is line i.
    Parquet output keeps the columns of the input and adds "embedding".

        tmde embed news.txt -o news.npy -m path/to/model

        zcat news.txt.gz | tmde embed - -o news.npy -m path/to/model
    """
    try:
        with ExitStack() as stack:
            target = _check_output(out, overwrite)
            documents = _open_input(stack, source, format, field, keep_columns=out.suffix == ".parquet")
            settings = {"pooling": pooling and pooling.value, "max_length": max_length, "device": device}
            settings |= {"dtype": dtype and dtype.value, "trust_remote_code": trust_remote_code, "revision": revision}
            embedder = _load(model, settings)
            start = time.perf_counter()
            _run(embedder, documents, target, {"batch_tokens": batch_tokens, "normalize": normalize})
    except EmbedError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    report, seconds = embedder.last_report, time.perf_counter() - start
    typer.echo(
        f"{report.texts:,} texts ({report.tokens:,} tokens, {report.truncated:,} truncated) in {seconds:.1f} s, "
        f"{report.texts / seconds:,.0f} texts/s -> {out} ({report.texts} x {embedder.dimension} float32)",
        err=True,
    )


def _check_output(out: Path, overwrite: bool) -> Path:
    if out.suffix not in (".npy", ".parquet"):
        raise EmbedError(f"--output {out}: found suffix {out.suffix!r}, expected .npy or .parquet")
    if out.is_dir():
        raise EmbedError(f"--output {out} is a folder, expected a file name")
    if out.exists() and not overwrite:
        raise EmbedError(f"--output {out} exists; give --overwrite to replace it")
    target = out.resolve()  # through a link, to replace what it points to and not the link
    if not target.parent.is_dir():
        raise EmbedError(f"--output {out}: folder {target.parent} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise EmbedError(f"--output {out}: folder {target.parent} is not writable")
    return target


def _load(model: str, settings: dict) -> DocumentEmbedder:
    from transformers.utils import logging

    from modeling_tmde.embedding import DocumentEmbedder

    bars = logging.is_progress_bar_enabled()
    if not sys.stderr.isatty():  # a bar in a log file is a line of rubbish
        logging.disable_progress_bar()
    try:
        return DocumentEmbedder.from_pretrained(model, **settings)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        where = "" if Path(model).expanduser().exists() else "no such folder, and as a Hub id: "
        where = "" if isinstance(error, FileNotFoundError) else where
        raise EmbedError(f"--model {model}: {where}{error}") from None
    finally:
        if bars:
            logging.enable_progress_bar()


def _run(embedder: DocumentEmbedder, documents: Documents, out: Path, settings: dict) -> None:
    """Reads, embeds and writes, `ROWS` documents at a time."""
    import torch

    try:
        with _replacing(out) as file:
            make_writer = _NpyWriter if out.suffix == ".npy" else _ParquetWriter
            with make_writer(file, embedder.dimension, documents.schema) as writer:

                def texts() -> Iterator[str]:
                    for texts, columns in documents.batches:
                        writer.add_columns(columns)
                        yield from texts

                settings |= {"show_progress_bar": sys.stderr.isatty(), "total": documents.rows}
                for vectors in embedder.encode_iter(texts(), ROWS, **settings):
                    writer.write(vectors)
    except torch.OutOfMemoryError as error:
        raise EmbedError(f"out of memory on {embedder.device}; lower --batch-tokens. {error}") from None
    except OSError as error:
        raise EmbedError(f"--output {out}: {error.strerror or error}") from None
    except ValueError as error:  # a tokenizer that is not the model's, a pooling that the model has no outputs for
        raise EmbedError(f"{documents.name} with model {embedder.model.name_or_path}: {error}") from None


# ---------------------------------------------------------------------------------------------------------- reading


@dataclass
class Documents:
    """An open input. `batches`: texts, and all their columns if the output keeps them; `rows`: how many, if known."""

    name: str
    batches: Iterator[tuple[list[str], pa.RecordBatch | None]]
    schema: pa.Schema | None = None  # of the columns to keep
    rows: int | None = None


def _open_input(
    stack: ExitStack, source: str, format: InputFormat | None, field: str | None, keep_columns: bool
) -> Documents:
    suffix = Path(source).suffix.lower()
    kind = format.value if format else _SUFFIXES.get(suffix, "text")
    name, stream = ("stdin", sys.stdin.buffer) if source == "-" else (source, None)
    if stream is None:
        if not format and suffix in _NO_TEXT:
            raise EmbedError(f"{name}: {suffix} is not an input format; give --format, or pipe text into -")
        try:
            stream = stack.enter_context(open(source, "rb"))
        except OSError as error:
            raise EmbedError(f"{name}: {error.strerror}") from None
    if kind == "text" and field is not None:
        raise EmbedError(f"--field {field}: {name} is read as text, which has no fields; see --format")
    # Parquet is read from its end, and the columns of JSONL are known only when all rows have been seen.
    if (kind == "parquet" or (kind == "jsonl" and keep_columns)) and not stream.seekable():
        spool = stack.enter_context(tempfile.TemporaryFile())
        shutil.copyfileobj(stream, spool)
        spool.seek(0)
        stream = spool
    read = {"text": _read_text, "jsonl": _read_jsonl, "parquet": _read_parquet}[kind]
    documents = read(name, stream, "text" if field is None else field, keep_columns)
    if keep_columns and VECTOR_COLUMN in documents.schema.names:
        raise EmbedError(f"{name} has a column {VECTOR_COLUMN!r} already; write to .npy, or rename the column")
    # The first documents are read now, before the model is loaded: most mistakes show there.
    documents.batches = itertools.chain(list(itertools.islice(documents.batches, 1)), documents.batches)
    return documents


def _chunks(items: Iterable) -> Iterator[list]:
    items = iter(items)
    while chunk := list(itertools.islice(items, ROWS)):
        yield chunk


def _lines(name: str, stream: BinaryIO) -> Iterator[str]:
    """Lines as editors count them: only a line feed, with or without a carriage return before it, ends one."""
    try:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.endswith(b"\n"):
                line = line[: -2 if line.endswith(b"\r\n") else -1]
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"0x{line[error.start]:02x} at byte {error.start + 1}"
                raise EmbedError(f"{name}, line {number}: found {found}, expected UTF-8") from None
    except OSError as error:  # a folder opens on some systems; a disk or a network share fails
        raise EmbedError(f"{name}: {error.strerror}") from None


def _read_text(name: str, stream: BinaryIO, field: str, keep_columns: bool) -> Documents:
    if not keep_columns:
        return Documents(name, ((texts, None) for texts in _chunks(_lines(name, stream))))
    import pyarrow as pa

    schema = pa.schema([(field, pa.string())])
    batches = ((texts, pa.record_batch([texts], schema=schema)) for texts in _chunks(_lines(name, stream)))
    return Documents(name, batches, schema)


def _json_rows(name: str, stream: BinaryIO, field: str) -> Iterator[tuple[int, dict]]:
    """Line number and object; blank lines are no rows."""
    for number, line in enumerate(_lines(name, stream), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EmbedError(f"{where}: found {_short(line)}, expected one JSON object a line ({error})") from None
        if not isinstance(row, dict):
            raise EmbedError(f"{where}: found {_short(line)}, expected a JSON object")
        if field not in row:
            raise EmbedError(f"{where}: field {field!r} is missing, found {list(row)}; see --field")
        if not isinstance(row[field], str):
            raise EmbedError(f"{where}, field {field!r}: found {_short(json.dumps(row[field]))}, expected a string")
        if not row[field].isascii() and any("\ud800" <= character <= "\udfff" for character in row[field]):
            raise EmbedError(f"{where}, field {field!r}: found a lone surrogate (\\ud800 to \\udfff), expected text")
        yield number, row


def _read_jsonl(name: str, stream: BinaryIO, field: str, keep_columns: bool) -> Documents:
    if not keep_columns:
        return Documents(
            name, (([row[field] for _, row in rows], None) for rows in _chunks(_json_rows(name, stream, field)))
        )
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = pa.schema([(field, pa.string())]), 0
    for rows in _chunks(_json_rows(name, stream, field)):
        keys = dict.fromkeys(key for _, row in rows for key in row)
        where = f"{name}, lines {rows[0][0]} to {rows[-1][0]}"
        columns = {}
        for key in keys:
            try:
                columns[key] = pa.array([row.get(key) for _, row in rows])
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise EmbedError(f"{where}, field {key!r}: not one type, as a parquet column is ({error})") from None
        try:
            schema = pa.unify_schemas([schema, pa.table(columns).schema], promote_options="permissive")
            pq.ParquetWriter(io.BytesIO(), schema).close()
        except pa.ArrowException as error:
            raise EmbedError(f"{where}: fields that a parquet file cannot hold ({error})") from None
        count += len(rows)
    stream.seek(0)

    def batches() -> Iterator[tuple[list[str], pa.RecordBatch]]:
        for rows in _chunks(_json_rows(name, stream, field)):
            columns = [pa.array([row.get(item.name) for _, row in rows], type=item.type) for item in schema]
            yield [row[field] for _, row in rows], pa.record_batch(columns, schema=schema)

    return Documents(name, batches(), schema, count)


def _read_parquet(name: str, stream: BinaryIO, field: str, keep_columns: bool) -> Documents:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        raise EmbedError(f"{name}: not a parquet file ({error})") from None
    schema = file.schema_arrow
    if schema.names.count(field) != 1:
        raise EmbedError(f"{name}: column {field!r} is missing, found {schema.names}; see --field")
    kind = schema.field(field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise EmbedError(f"{name}, column {field!r}: found type {kind}, expected strings")

    def batches() -> Iterator[tuple[list[str], pa.RecordBatch | None]]:
        done = 0
        try:
            for batch in file.iter_batches(ROWS, columns=None if keep_columns else [field]):
                texts = []
                for row, value in enumerate(batch.column(field), done + 1):
                    try:
                        texts.append(value.as_py())
                    except UnicodeDecodeError:
                        raise EmbedError(f"{name}, row {row}, column {field!r}: found bytes, expected UTF-8") from None
                    if texts[-1] is None:
                        raise EmbedError(f"{name}, row {row}, column {field!r}: found null, expected a string")
                done += len(texts)
                yield texts, batch if keep_columns else None
        except (pa.ArrowException, OSError) as error:
            raise EmbedError(f"{name}, after row {done}: damaged parquet file ({error})") from None

    return Documents(name, batches(), schema, file.metadata.num_rows)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------------------------------------------------- writing


@contextmanager
def _replacing(out: Path) -> Iterator[BinaryIO]:
    """A file that takes the name `out` when all went well, and is gone when not."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)


class _NpyWriter:
    """Rows after a reserved header, which gets their number at the end: the length of a pipe is not known before."""

    HEADER = 128  # bytes, room for any two numbers

    def __init__(self, file: BinaryIO, dimension: int, schema: pa.Schema | None) -> None:
        self.file, self.dimension, self.rows = file, dimension, 0

    def __enter__(self) -> _NpyWriter:
        self.file.write(bytes(self.HEADER))
        return self

    def __exit__(self, *_) -> None:
        shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({self.rows}, {self.dimension}), }}"
        text = shape.ljust(self.HEADER - 11) + "\n"
        self.file.seek(0)
        self.file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("ascii"))

    def add_columns(self, columns: None) -> None:
        """There are none to keep."""

    def write(self, vectors: np.ndarray) -> None:
        self.file.write(vectors.astype("<f4", copy=False).data)
        self.rows += len(vectors)


class _ParquetWriter:
    """The input's columns and their vectors, one row group a chunk."""

    def __init__(self, file: BinaryIO, dimension: int, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.schema = schema.append(pa.field(VECTOR_COLUMN, pa.list_(pa.float32(), dimension)))
        self.writer = pq.ParquetWriter(file, self.schema)
        self.waiting = schema.empty_table()  # columns read, vectors to come

    def __enter__(self) -> _ParquetWriter:
        return self

    def __exit__(self, *_) -> None:
        self.writer.close()

    def add_columns(self, columns: pa.RecordBatch) -> None:
        import pyarrow as pa

        self.waiting = pa.concat_tables([self.waiting, pa.Table.from_batches([columns], self.waiting.schema)])

    def write(self, vectors: np.ndarray) -> None:
        import pyarrow as pa

        table, self.waiting = self.waiting.slice(0, len(vectors)), self.waiting.slice(len(vectors))
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        self.writer.write_table(pa.Table.from_arrays([*table.columns, column], schema=self.schema))
