"""Write tables and parallel corpora row by row, in the formats that `tmde train` reads."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from modeling_tmde import TmdeError
from tmde.data import DOCUMENT_ID
from tmde.data.io import replacing
from tmde.documents.memory_writer import memory_writer

CORPUS_SUFFIXES = (".jsonl", ".parquet", ".tsv", ".tmx")
_NEEDS_QUOTES = re.compile(r'[\t\n\r"]')
_PARQUET_ROWS = 4096  # that are written at once


def checked_output(
    path: str | os.PathLike[str],
    suffixes: Sequence[str],
    argument: str = "output",
    other: Path | None = None,
    inputs: Iterable[str | os.PathLike[str]] = (),
) -> Path:
    """Check a file that will be written, before the work begins.

    Args:
        path: The file. It is replaced if it exists.
        suffixes: Those that it may have.
        argument: The name of the argument that holds it.
        other: Another file that will be written, by this function; None without one.
        inputs: The files and folders that are read.

    Returns:
        The file with symlinks resolved, so that the file is replaced and not the link.

    Raises:
        TmdeError: Its suffix or its folder is wrong, or it is the other file or an input.
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
        raise TmdeError(
            f"{argument}: found {path}, which is another output; expected a different file"
        )
    for source in inputs:
        read = Path(source).resolve()
        if target == read or (target.exists() and read in target.parents):
            raise TmdeError(
                f"{argument}: found {path}, which is an input; expected a different file"
            )
    return target


def checked_output_or_none(
    path: str | os.PathLike[str] | None, suffixes: Sequence[str], argument: str, **others: Any
) -> Path | None:
    """Check a file that is written if somebody asks for it; see `checked_output`."""
    if path is None:
        return None
    return checked_output(path, suffixes, argument, **others)


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


def tsv_field(value: str | float | int) -> str:
    """Return a field of TSV, quoted if it holds a tab, a line end or a quote, as pandas does."""
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, int):
        return str(value)
    if _NEEDS_QUOTES.search(value) is None:
        return value
    doubled = value.replace('"', '""')
    return f'"{doubled}"'


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


def write_corpus(
    target: Path,
    languages: Sequence[str],
    has_documents: bool,
    rows: Iterable[tuple[Mapping[str, str], str | None]],
) -> None:
    """Write a parallel corpus in the format of the suffix.

    TSV has a column for each language and no ids; fields that hold a tab, a line end or a quote are
    quoted.

    Args:
        target: The file: .jsonl, .parquet, .tsv or .tmx. It appears when all rows are written.
        languages: The languages of the corpus.
        has_documents: Whether rows have the id of a document.
        rows: The texts of each row by language, and the id of its document.
    """
    if target.suffix == ".tmx":
        with memory_writer(target, languages) as write:
            for texts, doc_id in rows:
                write(texts, {DOCUMENT_ID: doc_id})
        return
    if target.suffix == ".tsv":
        cells = ([texts.get(language, "") for language in languages] for texts, _ in rows)
        write_rows(target, languages, cells)
        return
    if target.suffix == ".jsonl":
        if has_documents:
            write_rows(target, ["translation", DOCUMENT_ID], rows)
        else:
            write_rows(target, ["translation"], ([texts] for texts, _ in rows))
        return
    texts_type = pa.struct([(language, pa.string()) for language in languages])
    fields = [("translation", texts_type)]
    if has_documents:
        fields.append((DOCUMENT_ID, pa.string()))
    schema = pa.schema(fields)
    waiting = iter(rows)
    with replacing(target) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        while block := list(islice(waiting, _PARQUET_ROWS)):
            dicts = [{"translation": dict(texts), DOCUMENT_ID: doc_id} for texts, doc_id in block]
            writer.write_table(pa.Table.from_pylist(dicts, schema))
