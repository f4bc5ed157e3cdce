"""Chunks of documents, and the fields of a row that make a document."""

import difflib
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from .checks import CorpusError, Unquoted, bad_value, check_text
from .columns import shown_fields
from .rows import TRANSLATION
from .tables import FILE, LINE, ROW, Row, rows_of, values_of
from .usual_columns import find_column, same_name, usual_column

PART_SEPARATOR = "\n\n"  # between the fields that make one text


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Attributes:
        batches: Their rows, with the columns that are kept.
        texts: The text of each document.
        languages: The language of each text, if a field of the input holds it.
    """

    batches: Sequence[pa.RecordBatch]
    texts: list[str]
    languages: list[str] | None = None

    @property
    def files(self) -> list[str]:
        """The file of each document, in messages."""
        return self.values(FILE)

    @property
    def numbers(self) -> list[int]:
        """The row of each document in its file, as an editor counts lines, from 1."""
        return self.values(ROW)

    def values(self, column: str) -> list:
        """Return the values of a column; None for each document of a file that lacks it."""
        values = []
        for batch in self.batches:
            values += values_of(batch, column)
        return values

    def rows(self) -> list[Row]:
        """Return the columns of each document, as far as its file has them."""
        return list(chain.from_iterable(map(rows_of, self.batches)))

    def table(self, schema: pa.Schema) -> pa.Table:
        """Return the columns of a schema; those that a file lacks are null."""
        return pa.concat_tables(_with_schema(batch, schema) for batch in self.batches)

    def json_rows(self) -> list[str]:
        """Return the JSON of each document, as JSON Lines have it or as an object of its columns.

        Dates and the like are strings. NaN and infinities, which are no JSON, are null.
        """
        if all(LINE in batch.schema.names for batch in self.batches):
            return self.values(LINE)
        return [json.dumps(_finite(row), ensure_ascii=False, default=str) for row in self.rows()]

    def place(self, position: int, field: str) -> str:
        """Return where a value of a document of the chunk stands, for an error."""
        return f"{self.files[position]}, row {self.numbers[position]}, field '{field}'"


def _with_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema; those that a batch lacks are null."""
    columns = []
    for column in schema:
        if column.name not in batch.schema.names:
            columns.append(pa.nulls(len(batch), column.type))
        elif isinstance(batch[column.name].type, pa.JsonType):
            columns.append(pa.array(values_of(batch, column.name), column.type))
        else:
            columns.append(batch[column.name].cast(column.type))
    return pa.table(columns, schema=schema)


def _finite(value: Any) -> Any:
    """Return a value in which NaN and infinities are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(element) for element in value]
    if isinstance(value, dict):
        return {name: _finite(element) for name, element in value.items()}
    return value


@dataclass(frozen=True)
class FieldSelection:
    """The fields of a document that are read and kept.

    Attributes:
        texts: The fields of the text, which are joined in this order by a blank line.
        language: The field of its language; None if there is none.
        keep: Whether all columns are kept, or the names of those that are.
        required: Further fields that the input must have, each with the option that names it.
    """

    texts: tuple[str, ...]
    language: str | None
    keep: bool | Sequence[str]
    required: Mapping[str, str] = field(default_factory=dict)

    def keeps(self, column: str) -> bool:
        """Return whether a column is kept."""
        if column in (*self.texts, self.language):
            return True
        if isinstance(self.keep, bool):
            return self.keep
        return column in self.keep

    def find_columns(self, columns: Sequence[str], place: str, advice: str = "") -> dict[str, str]:
        """Find the fields among the columns of a file.

        Args:
            columns: All columns.
            place: The file in messages.
            advice: What else to do if a field is missing.

        Returns:
            The field of each column that differs from it by case alone: `{"Text": "text"}`.

        Raises:
            CorpusError: Fields are missing; the message names all of them. Or several columns
                differ from a field by case alone.
        """
        options = dict.fromkeys(self.texts, "--field")
        if self.language is not None:
            options[self.language] = "--language-field"
        options |= self.required
        missing = {}
        field_of_column = {}
        for name, option in options.items():
            column = find_column(name, columns, place, f"{option} ")
            if column is None:
                missing[name] = option
            elif column != name:
                field_of_column[column] = name
        if missing:
            raise missing_columns(place, missing, columns, advice)
        return field_of_column

    def texts_of(self, batch: pa.RecordBatch, place: str) -> list[str]:
        """Return the text of each row.

        Args:
            batch: The rows.
            place: The file in messages.

        Raises:
            CorpusError: A value is no text, or a row has none at all.
        """
        if len(self.texts) == 1:
            return _checked_texts(batch, self.texts[0], place)
        columns = {name: values_of(batch, name) for name in self.texts}
        texts = []
        for position, number in enumerate(values_of(batch, ROW)):
            parts = {name: columns[name][position] for name in self.texts}
            texts.append(_joined(parts, place, number))
        return texts

    def languages_of(self, batch: pa.RecordBatch, place: str) -> list[str] | None:
        """Return the language of each row; None if no field holds it.

        Raises:
            CorpusError: A value is no text.
        """
        if self.language is None:
            return None
        return _checked_texts(batch, self.language, place)


def _checked_texts(batch: pa.RecordBatch, name: str, place: str) -> list[str]:
    """Return the texts of a column.

    Raises:
        CorpusError: A value is no text.
    """
    values = values_of(batch, name)
    if all(type(value) is str for value in values):
        return values
    for number, value in zip(values_of(batch, ROW), values, strict=True):
        if name == TRANSLATION and isinstance(value, Mapping):
            languages = ", ".join(map(str, value))
            description = Unquoted(f"texts by language ({languages})")
            raise bad_value(place, number, name, description, "one text", _parallel_advice(place))
        check_text(value, place, number, name)
    return values


def _joined(parts: Mapping[str, object], place: str, number: int) -> str:
    """Return the parts of a text, joined by a blank line; those without text are left out."""
    texts: list[str] = []
    has_text_field = False
    for name, value in parts.items():
        if value is None:
            continue
        check_text(value, place, number, name)
        has_text_field = True
        text = str(value)
        if text.strip():
            texts.append(text)
    if not has_text_field:
        description = Unquoted("none of these fields")
        advice = "Correct or delete the row."
        raise bad_value(place, number, " + ".join(parts), description, "a text", advice)
    return PART_SEPARATOR.join(texts)


def _parallel_advice(place: str) -> str:
    """Return how a parallel corpus is read as documents."""
    return (
        "Write the rows as a table with a column for each language "
        f"(tmde clean {shlex.quote(place)} -o rows.tsv), and read one: rows.tsv --field de."
    )


def missing_columns(
    place: str, missing: Mapping[str, str], columns: Sequence[str], advice: str = ""
) -> CorpusError:
    """Return (not raise) the error of all columns that a file lacks.

    Args:
        place: The file in messages.
        missing: The columns, each with the option that names it.
        columns: The columns that the file has.
        advice: What else to do about it.
    """
    lacks = " and ".join(f"no column {name!r}" for name in missing)
    problem = f"{place}: found {lacks}; its columns are: {shown_fields(columns)}."
    if TRANSLATION in columns and "--field" in missing.values():
        return CorpusError(f"{problem} {_parallel_advice(place)}")
    proposals = []
    for name, option in missing.items():
        similar_column = _similar_column(name, columns)
        proposals.append(f"{option} {shlex.quote(similar_column)}")
    message = f"{problem} Name the right column: {' '.join(proposals)}."
    return CorpusError(f"{message} {advice}".strip())


def _similar_column(name: str, columns: Sequence[str]) -> str:
    """Return the column that is probably meant by a name; NAME if there is none."""
    column = same_name(name, columns)
    if column is None:
        column = usual_column(name, columns)
    if column is not None:
        return column
    similar = difflib.get_close_matches(name, columns, n=1)
    return similar[0] if similar else "NAME"
