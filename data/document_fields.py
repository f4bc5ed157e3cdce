"""Chunks of documents, and the fields of a row that make a document."""

import difflib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from .checks import CorpusError, Unquoted, bad_value
from .columns import shown_fields
from .files import check_text
from .rows import TRANSLATION
from .usual_columns import find_column, same_name, usual_column

PART_SEPARATOR = "\n\n"  # between the fields that make one text


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents.

    Attributes:
        files: The file of each document, in messages.
        numbers: Their rows in the file, as an editor counts lines, from 1.
        columns: The columns that are kept.
        texts: The text of each document.
        languages: The language of each text, if a field of the input holds it.
    """

    files: Sequence[str]
    numbers: Sequence[int]
    columns: pa.Table
    texts: list[str]
    languages: list[str] | None = None

    def place(self, position: int, field: str) -> str:
        """Return where a value of a document of the chunk stands, for an error."""
        return f"{self.files[position]}, row {self.numbers[position]}, field '{field}'"


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

    @property
    def strings(self) -> tuple[str, ...]:
        """The fields that must hold strings: those of the text, then that of the language."""
        if self.language is None:
            return self.texts
        return (*self.texts, self.language)

    def keeps(self, column: str) -> bool:
        """Return whether a column is kept."""
        if column in self.strings:
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

    def check_row(self, row: Iterable[str], place: str, number: int) -> None:
        """Raise [`CorpusError`] if a row lacks a field that every row must have.

        A row may lack some of several fields of the text: `texts_of` leaves them out.
        """
        needed = self.strings
        if len(self.texts) > 1:
            needed = self.strings[len(self.texts) :]
        for name in needed:
            if name not in row:
                description = Unquoted(f"no such field among {list(row)}")
                advice = "Correct or delete the row."
                raise bad_value(place, number, name, description, "a text", advice)

    def texts_of(
        self, columns: Mapping[str, list], place: str, numbers: Sequence[int]
    ) -> list[str]:
        """Return the text of each row.

        Args:
            columns: The values of each field of `texts`.
            place: The file in messages.
            numbers: The rows of the values.

        Raises:
            CorpusError: A value is no text, or a row has none at all.
        """
        if len(self.texts) == 1:
            values = columns[self.texts[0]]
            for number, value in zip(numbers, values, strict=True):
                _check_no_texts_by_language(value, place, number, self.texts[0])
                check_text(value, place, number, self.texts[0])
            return values
        texts = []
        for position, number in enumerate(numbers):
            parts = {name: columns[name][position] for name in self.texts}
            texts.append(_joined(parts, place, number))
        return texts

    def languages_of(
        self, columns: Mapping[str, list], place: str, numbers: Sequence[int]
    ) -> list[str] | None:
        """Return the language of each row; None if no field holds it.

        Raises:
            CorpusError: A value is no text.
        """
        if self.language is None:
            return None
        values = columns[self.language]
        for number, value in zip(numbers, values, strict=True):
            check_text(value, place, number, self.language)
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


def _check_no_texts_by_language(value: object, place: str, number: int, name: str) -> None:
    """Raise [`CorpusError`] if a value holds the texts of a parallel corpus by language."""
    if name == TRANSLATION and isinstance(value, Mapping):
        languages = ", ".join(map(str, value))
        description = Unquoted(f"texts by language ({languages})")
        raise bad_value(place, number, name, description, "one text", _parallel_advice(place))


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
