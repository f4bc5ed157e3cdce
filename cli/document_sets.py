"""Whole collections of documents in memory, with their ids and other columns: what is aligned, mined and indexed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modeling_tmde.data.documents import EmbedError, InputFormat, open_documents

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 8192


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one file.

    name: of the file; texts: (n,); ids: (n,) strings, the line or row number (from 1) where the file has none;
    numbers: (n,) line or row of each, for messages; columns: those that were read, of n rows; words: what the file
    calls a document's place and a value in it; fields: names of all of the file's columns, read or not.
    """

    name: str
    texts: list[str]
    ids: list[str]
    numbers: list[int]
    columns: pa.Table
    words: tuple[str, str] = ("line", "field")
    fields: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def strings(self, column: str, option: str) -> list[str]:
        """A column as strings.

        Raises:
            EmbedError: It is not there (`option` named it), or holds nulls or anything but strings and integers.
        """
        if column not in self.columns.column_names:
            found = list(self.fields or self.columns.column_names)
            raise EmbedError(f"{self.name}: no {self.words[1]} {column!r}, found {found}; see {option}")
        place, value_word = self.words
        strings = []
        for number, value in zip(self.numbers, self.columns.column(column).to_pylist(), strict=True):
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise EmbedError(
                    f"{self.name}, {place} {number}, {value_word} {column!r}: found {value!r}, expected a string or "
                    "an integer"
                )
            strings.append(str(value))
        return strings


def read_document_set(
    source: str,
    format: InputFormat | None = None,
    field: str | None = None,
    id_field: str | None = None,
    columns: Sequence[str] = (),
) -> DocumentSet:
    """Reads text (one document a line), TSV (id, tab, text), JSONL or parquet; `-` is stdin.

    Args:
        format: None for that of the suffix, text for stdin.
        field: JSONL field or parquet column of the text; None is "text".
        id_field: That of the document's id; None is "id" where there is such a column, else documents are numbered.
        columns: Others to read, where they are there. Of what is not read the types do not matter.

    Raises:
        EmbedError: What cannot be read, a missing column, an id that occurs twice.
    """
    import pyarrow as pa

    texts: list[str] = []
    numbers: list[int] = []
    tables: list[pa.Table] = []
    with ExitStack() as stack:
        documents = open_documents(stack, source, format, field, (id_field or "id", *columns), _CHUNK)
        for chunk in documents.chunks:
            first = len(texts) + 1
            texts.extend(chunk.texts)
            numbers.extend(chunk.numbers or range(first, first + chunk.rows))
            tables.append(chunk.columns)
        table = pa.concat_tables(tables) if tables else pa.schema(documents.schema).empty_table()
    numbered = [str(number) for number in numbers]
    found = DocumentSet(documents.name, texts, numbered, numbers, table, documents.words, documents.fields)
    if id_field is None and "id" not in table.column_names:
        return found
    ids = found.strings(id_field or "id", "--id-field")
    _check_unique(ids, id_field or "id", documents.name, documents.words[0], numbers)
    return replace(found, ids=ids)


def check_languages(language_a: str | None, language_b: str | None) -> None:
    """
    Raises:
        EmbedError: --language-a or --language-b is no code, or they are the same.
    """
    from modeling_tmde.data.checks import is_code

    for option, code in (("--language-a", language_a), ("--language-b", language_b)):
        if code is not None and not is_code(code):
            raise EmbedError(f"{option}: found {code!r}, expected a language code such as de or pt-BR")
    if language_a is not None and language_a == language_b:
        raise EmbedError(f"--language-b: found {language_b!r}, that of --language-a too; expected another one")


def _check_unique(ids: list[str], id_field: str, name: str, word: str, numbers: Sequence[int]) -> None:
    seen: dict[str, int] = {}
    for number, id in zip(numbers, ids, strict=True):
        if id in seen:
            raise EmbedError(
                f"{name}, {word} {number}, {id_field!r}: found {id!r}, which {word} {seen[id]} has too; expected ids "
                "that occur once"
            )
        seen[id] = number
