"""Whole files of documents in memory, for the commands that align, mine and show them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
import typer

from modeling_tmde.data.checks import is_code
from modeling_tmde.data.documents import Documents, InputFormat, open_documents
from modeling_tmde.embedding import DocumentEmbedder

_INPUT = "Input"  # a heading of the help

LanguageAOption = Annotated[str | None, typer.Option(help="Code of A's language, such as de.", rich_help_panel=_INPUT)]
LanguageBOption = Annotated[str | None, typer.Option(help="Code of B's language.", rich_help_panel=_INPUT)]
Scoring = Literal["ratio", "distance", "cosine"]


@dataclass(frozen=True)
class DocumentSet:
    """The n documents of one file. numbers: the row of each; columns: the other columns that were read."""

    documents: Documents
    texts: list[str]
    ids: list[str]
    numbers: list[int]
    columns: pa.Table

    @property
    def name(self) -> str:
        return self.documents.name

    def __len__(self) -> int:
        return len(self.texts)

    def filled(self) -> list[int]:
        """Rows of the documents that are not empty.

        Raises:
            ValueError: All are.
        """
        rows = [row for row, text in enumerate(self.texts) if text.strip()]
        if not rows:
            raise ValueError(f"{self.name}: found no document that is not empty, expected at least one")
        return rows

    def values(self, column: str, option: str) -> list:
        """A column that `option` names."""
        if column not in self.columns.column_names:
            found = list(self.documents.fields)
            raise ValueError(f"{self.name}: no field {column!r}, found {found}; see {option}")
        return self.columns.column(column).to_pylist()


def read_document_set(
    source: str,
    format: InputFormat | None = None,
    field: str | None = None,
    id_field: str | None = None,
    columns: Sequence[str] = (),
) -> DocumentSet:
    """Reads text (one document a line), TSV (id, tab, text), JSONL or parquet; `-` is stdin.

    Args:
        format: None: that of the suffix, text for stdin.
        field: JSONL field or parquet column of the text; None: "text".
        id_field: That of the ids; None: "id" if there is such a column, else documents are numbered.
        columns: Others to read, if they are there.

    Raises:
        ValueError: The file cannot be read, a column is missing, an id occurs twice.
    """
    texts, numbers, tables = [], [], []
    with ExitStack() as stack:
        documents = open_documents(stack, source, format, field, (id_field or "id", *columns), 8192)
        for chunk in documents.chunks:
            texts.extend(chunk.texts)
            numbers.extend(chunk.numbers)
            tables.append(chunk.columns)
    table = pa.concat_tables(tables) if tables else pa.schema(documents.schema).empty_table()
    found = DocumentSet(documents, texts, [str(number) for number in numbers], numbers, table)
    if id_field is None and "id" not in table.column_names:
        return found
    ids = checked_ids(documents, id_field or "id", found.values(id_field or "id", "--id-field"), numbers, {})
    return DocumentSet(documents, texts, ids, numbers, table)


def checked_ids(
    documents: Documents, id_field: str, values: Sequence, numbers: Sequence[int], seen: dict[str, int]
) -> list[str]:
    """The ids as strings, noted with their row in `seen`.

    Raises:
        ValueError: An id that is not a string or an integer, or occurs twice.
    """
    ids = []
    for number, value in zip(numbers, values, strict=True):
        where = documents.place(number, id_field)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ValueError(f"{where}: found {value!r}, expected a string or an integer")
        if str(value) in seen:
            raise ValueError(f"{where}: found {value!r}, which row {seen[str(value)]} has too; expected unique ids")
        seen[str(value)] = number
        ids.append(str(value))
    return ids


def check_sides(a: str, b: str, languages: tuple[str | None, str | None]) -> None:
    """Raises ValueError if both files are stdin, or a language is no code or that of the other side."""
    if a == b == "-":
        raise ValueError("A and B are both -, but there is one stdin; give a file for one of them")
    for option, code in zip(("--language-a", "--language-b"), languages, strict=True):
        if code is not None and not is_code(code):
            raise ValueError(f"{option}: found {code!r}, expected a language code such as de or pt-BR")
    if languages[0] is not None and languages[0] == languages[1]:
        raise ValueError(f"--language-b: found {languages[1]!r}, that of --language-a too; expected another one")


def check_model_language(embedder: DocumentEmbedder, option: str, code: str | None) -> None:
    """Raises ValueError if the model has an encoder for each language, and none for this one."""
    if embedder.needs_language and code not in embedder.model.config.languages:
        known = ", ".join(embedder.model.config.languages)
        raise ValueError(f"{option}: found {code!r}, expected one of {known}: the model has an encoder for each one")
