"""Whole collections of documents in memory, with their ids and other columns: what is aligned, mined and indexed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modeling_tmde.cli.documents import VECTOR_COLUMN, EmbedError, InputFormat, open_documents

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 8192


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one file.

    name: of the file; texts: (n,); ids: (n,) strings, the line or row number (from 1) where the file has none;
    numbers: (n,) line or row of each, for messages; columns: all of the file's, of n rows.
    """

    name: str
    texts: list[str]
    ids: list[str]
    numbers: list[int]
    columns: pa.Table

    def __len__(self) -> int:
        return len(self.texts)

    def strings(self, column: str, option: str) -> list[str]:
        """A column as strings.

        Raises:
            EmbedError: It is not there (`option` named it), or holds nulls or anything but strings and numbers.
        """
        return _strings(self.columns, column, option, self.name, self.numbers)


def read_document_set(
    source: str, format: InputFormat | None = None, field: str | None = None, id_field: str | None = None
) -> DocumentSet:
    """Reads text (one document a line), JSONL or parquet; `-` is stdin.

    Args:
        format: None for that of the suffix, text for stdin.
        field: JSONL field or parquet column of the text; None is "text".
        id_field: That of the document's id; None is "id" where there is such a column, else documents are numbered.

    Raises:
        EmbedError: What cannot be read, a missing column, an id that occurs twice.
    """
    import pyarrow as pa

    texts: list[str] = []
    numbers: list[int] = []
    tables: list[pa.Table] = []
    with ExitStack() as stack:
        documents = open_documents(stack, source, format, field, True, _CHUNK)
        for chunk in documents.chunks:
            first = len(texts) + 1
            texts.extend(chunk.texts)
            numbers.extend(chunk.numbers or range(first, first + chunk.rows))
            tables.append(chunk.columns)
        columns = pa.concat_tables(tables) if tables else pa.schema(documents.schema).empty_table()
        name, word = documents.name, documents.words[0]
    if VECTOR_COLUMN in columns.column_names:  # of `tmde embed`
        columns = columns.drop_columns([VECTOR_COLUMN])
    if id_field is None and "id" in columns.column_names:
        id_field = "id"
    if id_field is None:
        return DocumentSet(name, texts, [str(number) for number in numbers], numbers, columns)
    ids = _strings(columns, id_field, "--id-field", name, numbers)
    _check_unique(ids, id_field, name, word, numbers)
    return DocumentSet(name, texts, ids, numbers, columns)


def _strings(columns: pa.Table, column: str, option: str, name: str, numbers: Sequence[int]) -> list[str]:
    if column not in columns.column_names:
        raise EmbedError(f"{name}: no column {column!r}, found {columns.column_names}; see {option}")
    strings = []
    for number, value in zip(numbers, columns.column(column).to_pylist(), strict=True):
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise EmbedError(f"{name}, row {number}, {column!r}: found {value!r}, expected a string")
        strings.append(str(value))
    return strings


def _check_unique(ids: list[str], id_field: str, name: str, word: str, numbers: Sequence[int]) -> None:
    seen: dict[str, int] = {}
    for number, id in zip(numbers, ids, strict=True):
        if id in seen:
            raise EmbedError(
                f"{name}, {word} {number}, {id_field!r}: found {id!r}, which {word} {seen[id]} has too; expected ids "
                "that occur once"
            )
        seen[id] = number
