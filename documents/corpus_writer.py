"""Write tables and parallel corpora row by row, in the formats that `tmde train` reads."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError
from tmde.data import DOCUMENT_ID
from tmde.data.io import replacing

_NEEDS_QUOTES = re.compile(r'[\t\n\r"]')
_PARQUET_ROWS = 4096  # that are written at once

WriteRow = Callable[[Mapping[str, str], str | None], None]


def checked_output(
    path: str | os.PathLike[str],
    suffixes: Sequence[str],
    argument: str = "output",
    other: Path | None = None,
) -> Path:
    """Check a file that will be written, before the work begins.

    Args:
        path: The file. It is replaced if it exists.
        suffixes: Those that it may have.
        argument: The name of the argument that holds it.
        other: Another file that will be written, by this function; None without one.

    Returns:
        The file with symlinks resolved, so that the file is replaced and not the link.

    Raises:
        TmdeError: Its suffix or its folder is wrong, or it is the other file.
    """
    target = Path(path).resolve()
    if Path(path).suffix not in suffixes or target.is_dir():
        raise TmdeError(
            f"{argument}: found {path}, expected a file that ends in {' or '.join(suffixes)}"
        )
    if not os.access(target.parent, os.W_OK):
        raise TmdeError(
            f"{argument}: found {path}, expected a file in a folder that exists and is writable"
        )
    if target == other:
        raise TmdeError(f"{argument}: found {path}, the file of another output; expected a new one")
    return target


def write_rows(target: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write rows as JSONL, or as TSV with a header, by the suffix of the file.

    Args:
        target: The file.
        columns: The names of the fields.
        rows: The values of each row, in the order of `columns`.
    """
    if target.suffix == ".jsonl":
        with json_lines_writer(target) as write:
            for row in rows:
                write(dict(zip(columns, row, strict=True)))
        return
    with replacing(target) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write("\t".join(columns) + "\n")
        for row in rows:
            file.write("\t".join(tsv_field(value) for value in row) + "\n")


def tsv_field(value: str | float) -> str:
    """Return a field of TSV, quoted if it holds a tab, a line end or a quote, as pandas does."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if _NEEDS_QUOTES.search(value) is None:
        return value
    doubled = value.replace('"', '""')
    return f'"{doubled}"'


@contextmanager
def corpus_writer(
    target: Path, languages: Sequence[str], has_documents: bool
) -> Iterator[WriteRow]:
    """Yield a function that writes a row: its texts by language, and the id of its document.

    The format is that of the suffix. TSV has a column for each language and no ids; fields that
    hold a tab, a line end or a quote are quoted.

    Args:
        target: The file: .jsonl, .parquet or .tsv. It appears when all rows are written.
        languages: The languages of the corpus.
        has_documents: Whether rows have the id of a document.
    """
    if target.suffix == ".parquet":
        writer = _parquet_rows(target, languages, has_documents)
    elif target.suffix == ".tsv":
        writer = _tsv_rows(target, languages)
    else:
        writer = _json_rows(target, has_documents)
    with writer as write:
        yield write


@contextmanager
def json_lines_writer(target: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that writes an object as a line of JSON, dates and the like as strings."""
    with (
        replacing(target) as temporary,
        open(temporary, "w", encoding="utf-8") as file,
    ):

        def write(row: Mapping[str, Any]) -> None:
            print(json.dumps(row, ensure_ascii=False, default=str), file=file)

        yield write


@contextmanager
def _json_rows(target: Path, has_documents: bool) -> Iterator[WriteRow]:
    with json_lines_writer(target) as write_line:

        def write(texts: Mapping[str, str], doc_id: str | None) -> None:
            row: dict[str, Any] = {"translation": dict(texts)}
            if has_documents:
                row[DOCUMENT_ID] = doc_id
            write_line(row)

        yield write


@contextmanager
def _tsv_rows(target: Path, languages: Sequence[str]) -> Iterator[WriteRow]:
    with (
        replacing(target) as temporary,
        open(temporary, "w", encoding="utf-8") as file,
    ):
        print("\t".join(languages), file=file)

        def write(texts: Mapping[str, str], doc_id: str | None) -> None:
            cells = [tsv_field(texts.get(language, "")) for language in languages]
            print("\t".join(cells), file=file)

        yield write


@contextmanager
def _parquet_rows(
    target: Path, languages: Sequence[str], has_documents: bool
) -> Iterator[WriteRow]:
    texts_type = pa.struct([(language, pa.string()) for language in languages])
    fields = [("translation", texts_type)]
    if has_documents:
        fields.append((DOCUMENT_ID, pa.string()))
    schema = pa.schema(fields)
    rows: list[dict[str, Any]] = []
    with replacing(target) as temporary, pq.ParquetWriter(temporary, schema) as writer:

        def write_rows() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        def write(texts: Mapping[str, str], doc_id: str | None) -> None:
            rows.append({"translation": dict(texts), DOCUMENT_ID: doc_id})
            if len(rows) == _PARQUET_ROWS:
                write_rows()

        yield write
        write_rows()
