"""Write a parallel corpus row by row, in the formats that `tmde train` reads."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tmde.cli.document_sets import tsv_field
from tmde.data import DOCUMENT_ID
from tmde.data.io import replacing

_PARQUET_ROWS = 4096  # that are written at once

WriteRow = Callable[[Mapping[str, str], str | None], None]


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
