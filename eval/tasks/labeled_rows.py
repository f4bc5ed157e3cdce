"""Read the rows of labeled documents, and check their values."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tmde.data.checks import CorpusError, Unquoted, bad_value, is_code
from tmde.data.columns import shown_fields
from tmde.data.document_files import without_side_files
from tmde.data.labeled_tables import is_dataset, split_of
from tmde.data.languages import known_code, language_of_locale
from tmde.data.tables import Quoting, Table, files_in, named_format_of
from tmde.data.usual_columns import find_column, usual_column

from .base import Task
from .sources import SPLIT_ORDER, open_tables

logger = logging.getLogger("tmde.eval.tasks")

REQUIRED_FIELDS = ("text", "label")
FIELDS = (*REQUIRED_FIELDS, "language", "split", "id", "title")
# Stands for the language of documents whose file names none, in tables: "all → all".
ONE_LANGUAGE = "all"


class LabeledRow(NamedTuple):
    """A labeled document.

    Attributes:
        place: Its file, for messages.
        number: Its row in the file, from 1.
        item_id: Its id, which translations share.
        language: The code of its language; `ONE_LANGUAGE` if the file has no such column.
        split: `train`, `dev` or `test`; None if the source names none.
        label: The name of its class.
        text: The title, a blank line and the text; or the text alone.
    """

    place: str
    number: int
    item_id: str
    language: str
    split: str | None
    label: str
    text: str


# ---- Opening


def open_labeled(
    task: Task, source: str, streaming: bool = False, quoting: Quoting | None = None
) -> list[Table]:
    """Open the tables of a file, a folder of files, or a dataset of the Hub.

    The rows of a file in a folder belong to the split that its name says (`train.csv`), if any.

    Args:
        task: The task that reads them, for messages.
        source: The file, the folder or the Hub id.
        streaming: Read the Hub without downloading whole files first.
        quoting: What the quotes of CSV and TSV are; None to find out.

    Raises:
        CorpusError: There is no such file, or its format is unknown.
    """
    if is_dataset(source):
        return open_tables(task, source, streaming)
    if os.path.isdir(source):
        paths = without_side_files(list(filter(named_format_of, files_in(source))))
        description = "a folder without such a file"
    elif os.path.isfile(source):
        paths = [source]
        description = "a file of unknown format"
    else:
        paths = sorted(glob.glob(source, recursive=True))
        description = "no such file"
    tables = []
    for path in paths:
        format = named_format_of(path)
        if format is None:
            continue
        split: str | None = split_of(os.path.basename(path).partition(".")[0])
        if path == source or split not in SPLIT_ORDER:
            split = None
        tables.append(Table(format, (path,), quoting=quoting, split=split))
    if not tables:
        raise bad_value(
            source,
            None,
            None,
            Unquoted(description),
            "a file that ends in .csv, .tsv, .jsonl, .ndjson (or one of these and .gz), or "
            ".parquet",
            "Correct the path, or save the documents in one of these formats.",
        )
    return tables


# ---- Columns


def read_labeled(
    tables: Iterable[Table],
    columns: Mapping[str, str],
    known_languages: Collection[str] = (),
    warn: bool = True,
) -> list[LabeledRow]:
    """Return the checked rows of all tables.

    Args:
        tables: The tables.
        columns: The names of columns by field, where they differ.
        known_languages: Languages that keep their names, even if they are locales.
        warn: Warn of columns that are not read, though their names suggest a field.

    Raises:
        CorpusError: Columns are missing, a value is bad, or an id occurs twice in a language.
    """
    _check_fields(columns)
    rows: list[LabeledRow] = []
    for table in tables:
        numbered_values = list(table.rows())
        if not numbered_values:
            raise bad_value(
                table.place, None, None, Unquoted("no rows"), "some", "Write the file again."
            )
        header = _header_of(numbered_values)
        column_of = _find_columns(table.place, header, columns)
        if warn:
            _tell_other_case(table.place, columns, column_of)
            _warn_of_usual_columns(table, header, column_of)
        reader = _RowReader(table, column_of, known_languages)
        for number, values in numbered_values:
            # Without ids, a document is known by its place in the order of all.
            rows.append(reader.read(number, values, default_id=len(rows) + 1))
    rows = _with_ids_by_split(rows)
    _check_ids(rows)
    _check_languages_named(rows)
    return rows


def _check_fields(columns: Mapping[str, str]) -> None:
    """Raise CorpusError if a column is named for a field that does not exist."""
    if not isinstance(columns, Mapping):
        raise bad_value(
            "columns", None, None, columns, "names of columns by field", "Such as {label: topic}."
        )
    for field in columns:
        if field not in FIELDS:
            advice = "Write FIELD=COLUMN, such as label=topic."
            raise bad_value(
                "--columns", None, None, field, f"one of the fields {', '.join(FIELDS)}", advice
            )


def _header_of(rows: Sequence[tuple[int, Mapping[str, object]]]) -> list[str]:
    """Return the names of all columns; lines of JSONL may have different ones."""
    names: dict[str, None] = {}
    for _, values in rows:
        names.update(dict.fromkeys(values))
    return list(names)


def _find_columns(place: str, header: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of the fields that a table has.

    A column is the one that the user names, else the one of the field's name. It may differ from
    the name by case.

    Raises:
        CorpusError: A required column, or one that the user names, is missing. The message tells
            all of them. Or several columns differ from a name by case alone.
    """
    column_of = {}
    missing = []
    for field in FIELDS:
        name = columns.get(field, field)
        column = find_column(name, header, place, f"--columns {field}=")
        if column is not None:
            column_of[field] = column
        elif field in columns:
            missing.append(f"{columns[field]!r} ({field})")
        elif field in REQUIRED_FIELDS:
            missing.append(f"{field!r}")
    if not missing:
        return column_of
    proposals = _propose_columns(header, column_of)
    raise bad_value(
        place,
        None,
        None,
        Unquoted(f"the columns {shown_fields(header)}"),
        f"{' and '.join(missing)} among them",
        f"Rename columns, or name yours: --columns {','.join(proposals)}",
    )


def _tell_other_case(place: str, columns: Mapping[str, str], column_of: Mapping[str, str]) -> None:
    """Log the columns that are taken for a field although they differ from its name by case."""
    for field, column in column_of.items():
        name = columns.get(field, field)
        if column != name:
            logger.warning("%s: the column %r is read as %r", place, column, name)


def _propose_columns(header: Sequence[str], column_of: Mapping[str, str]) -> list[str]:
    """Return `field=column` for fields that are not found, as their usual names suggest.

    A required field for which no column suggests itself is proposed with a word in its place.
    """
    proposals = []
    for field in FIELDS:
        if field in column_of:
            if column_of[field].strip().lower() != field:
                proposals.append(f"{field}={column_of[field]}")
            continue
        column = usual_column(field, header)
        if column is not None:
            proposals.append(f"{field}={column}")
        elif field in REQUIRED_FIELDS:
            proposals.append(f"{field}=COLUMN")
    return proposals


def _warn_of_usual_columns(
    table: Table, header: Sequence[str], column_of: Mapping[str, str]
) -> None:
    """Warn of columns that seem to hold a field which the table lacks, but for the title."""
    for field in ("language", "split", "id"):
        column = usual_column(field, header)
        is_known = field in column_of or (field == "split" and table.split is not None)
        if column is not None and not is_known and column not in column_of.values():
            logger.warning(
                "%s: the column %r is not read; if it is the %s, name it: --columns %s=%s",
                table.place,
                column,
                field,
                field,
                column,
            )


# ---- Values


@dataclass(frozen=True)
class _RowReader:
    """Reads the rows of a table.

    Attributes:
        table: The table.
        column_of: The columns by field.
        known_languages: Languages that keep their names, even if they are locales.
    """

    table: Table
    column_of: Mapping[str, str]
    known_languages: Collection[str]

    def read(self, number: int, values: Mapping[str, object], default_id: int) -> LabeledRow:
        """Return a row.

        Args:
            number: Its number.
            values: Its values by column.
            default_id: Its id if the table has no column of ids.

        Raises:
            CorpusError: A value is bad.
        """
        fields = {field: values.get(column) for field, column in self.column_of.items()}
        text = fields["text"]
        if not isinstance(text, str) or not text.strip():
            raise self._error(number, "text", text, "a text")
        title = fields.get("title")
        if title is not None and not isinstance(title, str):
            raise self._error(number, "title", title, "a text")
        if title is not None and title.strip():
            text = f"{title}\n\n{text}"
        label = fields["label"]
        class_names = self.table.class_names.get(self.column_of["label"], [])
        if isinstance(label, int) and 0 <= label < len(class_names):
            label = class_names[label]
        language = ONE_LANGUAGE
        if "language" in fields:
            language = self._language_of(number, fields["language"])
        return LabeledRow(
            place=self.table.place,
            number=number,
            item_id=self._name_of(number, "id", fields.get("id", default_id), "an id"),
            language=language,
            split=self._split_of(number, fields.get("split", self.table.split)),
            label=self._name_of(number, "label", label, "the name of a class"),
            text=text,
        )

    def _name_of(self, number: int, field: str, value: object, expected: str) -> str:
        """Return a string, a whole number or a truth value as a string."""
        if isinstance(value, str | int) and str(value).strip():
            return str(value).strip()
        raise self._error(number, field, value, expected)

    def _language_of(self, number: int, value: object) -> str:
        """Return the language of a code or a locale, as in parallel text: `de` for `de-AT`."""
        code = ""
        if isinstance(value, str):
            code = known_code(value, self.known_languages) or language_of_locale(value)
        if not is_code(code):
            expected = "the code of a language, such as de"
            raise self._error(number, "language", value, expected)
        return code

    def _split_of(self, number: int, value: object) -> str | None:
        """Return the name of the split; None if the source names none."""
        if value is None or value == "":
            return None
        name = split_of(value) if isinstance(value, str) else None
        if name not in SPLIT_ORDER:
            raise self._error(number, "split", value, "train, dev (or validation) or test")
        return name

    def _error(self, number: int, field: str, value: object, expected: str) -> CorpusError:
        column = self.column_of.get(field, field)
        advice = "Correct or delete the row."
        return bad_value(self.table.place, number, column, value, expected, advice)


def _with_ids_by_split(rows: list[LabeledRow]) -> list[LabeledRow]:
    """Return the rows with ids such as `test-0` if the files of train and test both count from 0.

    They do so if an id stands for different texts of one language in files of two splits.
    """
    first_rows: dict[tuple[str, str], LabeledRow] = {}
    for row in rows:
        first = first_rows.setdefault((row.item_id, row.language), row)
        is_of_another_file = row.place != first.place and row.split != first.split
        if is_of_another_file and row.text != first.text:
            return [row._replace(item_id=f"{row.split}-{row.item_id}") for row in rows]
    return rows


def _place_of(first: LabeledRow, row: LabeledRow) -> str:
    """Return where a first row stands, as seen from a later one."""
    if first.place == row.place:
        return f"row {first.number}"
    return f"row {first.number} of {first.place}"


def _check_ids(rows: Iterable[LabeledRow]) -> None:
    """Check that an id occurs once in a language, and that translations have one label.

    Raises:
        CorpusError: They do not.
    """
    first_rows: dict[tuple[str, str], LabeledRow] = {}
    first_labels: dict[str, LabeledRow] = {}
    for row in rows:
        first = first_rows.setdefault((row.item_id, row.language), row)
        if first is not row:
            advice = "Rows of one language need different ids; translations share theirs."
            raise bad_value(
                row.place,
                row.number,
                "id",
                row.item_id,
                f"an id other than that of {_place_of(first, row)} in the same language",
                advice,
            )
        original = first_labels.setdefault(row.item_id, row)
        if original.label != row.label:
            advice = "Rows of one id are translations of each other and have one label."
            raise bad_value(
                row.place,
                row.number,
                "label",
                row.label,
                f"{original.label!r} as in {_place_of(original, row)}, which has the same id "
                f"{row.item_id!r}",
                advice,
            )


def _check_languages_named(rows: Sequence[LabeledRow]) -> None:
    """Raise CorpusError if some tables name languages and others do not."""
    unnamed = [row for row in rows if row.language == ONE_LANGUAGE]
    if unnamed and len(unnamed) < len(rows):
        raise bad_value(
            unnamed[0].place,
            None,
            "language",
            Unquoted("no such column"),
            "one, as in the other files",
            "Add the column, or name it: --columns language=COLUMN",
        )
