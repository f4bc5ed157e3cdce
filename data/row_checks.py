"""Check the rows of a corpus: texts are texts, a row has enough of them, and labels are known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .checks import CorpusError, Unquoted, bad_value, check_text
from .columns import ColumnPairs, fields_by_name, texts_of
from .report import BAD_STATES, MAX_EXAMPLES, RowState
from .rows import CLASSES, DOCUMENT_ID, LABEL, SOURCE_FILE, SOURCE_ROW, features_of
from .tables import ROW, Row, Table, blocks_of, fields_of, values_of

Columns = Mapping[str, list | pa.Array]

BATCH_ROWS = 500  # rows that a stream reads and checks ahead of the one it yields
FEWEST_TEXTS = 2  # texts that a row of parallel text needs

# The columns that the checks add to each row, for the counts of the report.
COUNTED_FEATURES = {
    "empty": datasets.Value("int64"),
    "state": datasets.Value("int64"),
    "example": datasets.Value("string"),
}
_SKIP_ADVICE = 'Delete the row, or pass bad_rows="report" to skip it.'


@dataclass
class _CheckedRows:
    """What the checks say about n rows.

    Attributes:
        texts: The texts of each language, (n,) each.
        present: Whether a row has a text of a language, (n, languages).
        empty: Whether that text is only whitespace, (n, languages).
        raw_labels: The labels as the source writes them, (n,).
        unlabeled: Whether a row lacks the label that it needs, (n,).
        states: The [`RowState`] of each row, (n,).
    """

    texts: list[pa.Array]
    present: np.ndarray
    empty: np.ndarray
    raw_labels: Sequence
    unlabeled: np.ndarray
    states: np.ndarray


@dataclass(frozen=True)
class RowChecker:
    """Checks the rows of one file or data set.

    Attributes:
        place: Its name in messages.
        languages: The requested languages, sorted.
        has_other_languages: Whether the source has further languages. A row without two of the
            requested ones is not bad then.
        raise_on_bad: Whether a bad row raises an error; otherwise it is counted.
        class_names: The classes that the numbers of labels mean, in lower case; () where rows
            need no label.
        columns: Names, and the fields that the user says hold them.
        has_cells: Whether rows are lines or cells of a table, where an empty one is how a row says
            that it lacks a language. It is not bad if the row has two texts.
        has_places: Whether checked rows say where they stand in the source.
        fewest_texts: How many texts a row needs.
        needed_texts: The texts that every row needs, whatever its other texts are.
    """

    place: str
    languages: tuple[str, ...]
    has_other_languages: bool
    raise_on_bad: bool
    class_names: tuple[str, ...] = ()
    columns: ColumnPairs = ()
    has_cells: bool = False
    has_places: bool = False
    fewest_texts: int = FEWEST_TEXTS
    needed_texts: tuple[str, ...] = ()

    @property
    def features(self) -> datasets.Features:
        """The columns of checked rows."""
        columns = features_of(
            self.languages, document_ids=True, labels=True, places=self.has_places
        )
        return datasets.Features(columns | COUNTED_FEATURES)

    def check(self, columns: Columns, numbers: Sequence[int]) -> pa.Table:
        """Check some rows.

        Args:
            columns: The texts by language, and perhaps `doc_id` and `label`.
            numbers: The number of each row in its file.

        Returns:
            All rows, good and bad, with the columns of [`features_of`], the number of their
            `empty` texts, which are now None, their `state`, and an `example` of what is bad in
            the first few.

        Raises:
            CorpusError: A value is not a text; with `raise_on_bad` also a bad row.
        """
        missing = [None] * len(numbers)
        texts = []
        present = []
        blank = []
        for language in self.languages:
            values = columns.get(language, missing)
            column = self._text_array(values, language, numbers)
            texts.append(column)
            present.append(column.is_valid())
            blank.append(_is_blank(column))
        raw_labels = columns.get(LABEL, missing)
        class_numbers = self._class_numbers(raw_labels)
        rows = _CheckedRows(
            texts=texts,
            present=np.stack(present, axis=1),
            empty=np.stack(blank, axis=1),
            raw_labels=raw_labels,
            unlabeled=self._unlabeled(class_numbers),
            states=np.empty(len(numbers), np.int64),
        )
        rows.states[:] = self._states(rows)
        examples = self._examples(rows, numbers)
        empty_counts = rows.empty.sum(axis=1)
        if self.has_cells:
            empty_counts[:] = 0
        documents = _as_strings(columns.get(DOCUMENT_ID, missing))
        filled_texts = []
        for column, is_blank in zip(texts, blank, strict=True):
            filled_texts.append(pc.if_else(is_blank, pa.scalar(None, pa.string()), column))
        checked: dict[str, Any] = {
            "translation": pa.StructArray.from_arrays(filled_texts, self.languages),
            DOCUMENT_ID: pa.array(documents, pa.string()),
            LABEL: pa.array(class_numbers, pa.int64()),
        }
        if self.has_places:
            checked[SOURCE_FILE] = pa.array([self.place] * len(numbers), pa.string())
            checked[SOURCE_ROW] = pa.array(numbers, pa.int64())
        checked["empty"] = empty_counts
        checked["state"] = rows.states
        checked["example"] = pa.array(examples, pa.string())
        return pa.table(checked)

    def _text_array(
        self, values: list | pa.Array, language: str, numbers: Sequence[int]
    ) -> pa.Array:
        """Return the texts of a language, or raise the error of the first that is not a text."""
        if isinstance(values, pa.Array):
            return values
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowException, UnicodeError):
            for number, value in zip(numbers, values, strict=True):
                if value is not None:
                    check_text(value, self.place, number, language)
            raise

    def _class_numbers(self, raw_labels: Sequence) -> list[int | None]:
        """Return the position in CLASSES of each label: its name, or its number in the source."""
        known: dict[str, int] = {}
        for class_number, name in enumerate(CLASSES):
            if name in self.class_names:
                known[name] = class_number
                known[str(self.class_names.index(name))] = class_number
        return [known.get(str(label)) for label in raw_labels]

    def _unlabeled(self, class_numbers: list[int | None]) -> np.ndarray:
        """Return whether each row lacks a label that it needs, (rows,)."""
        if not self.class_names:
            return np.zeros(len(class_numbers), bool)
        return np.array([number is None for number in class_numbers], bool)

    def _states(self, rows: _CheckedRows) -> np.ndarray:
        """Return the state of each row, (rows,)."""
        filled = rows.present & ~rows.empty
        enough = filled.sum(axis=1) >= self.fewest_texts
        states = np.where(enough, RowState.KEPT, RowState.TOO_FEW_TEXTS)
        states[~enough & rows.empty.any(axis=1)] = RowState.EMPTY_TEXT
        if self.has_other_languages:
            present = filled if self.has_cells else rows.present
            states[present.sum(axis=1) < self.fewest_texts] = RowState.OTHER_LANGUAGES
        for name in self.needed_texts:
            has_text = filled[:, self.languages.index(name)]
            states[~has_text] = RowState.NO_NEEDED_TEXT
        states[rows.unlabeled] = RowState.NO_LABEL
        return states

    def _examples(self, rows: _CheckedRows, numbers: Sequence[int]) -> list[str | None]:
        """Return messages about the first rows with something bad, None for all others.

        Raises:
            CorpusError: A row is bad, and `raise_on_bad` is set.
        """
        examples: list[str | None] = [None] * len(numbers)
        is_reported = np.isin(rows.states, BAD_STATES)
        if not self.has_cells:
            is_reported |= rows.empty.any(axis=1)
        for row in np.flatnonzero(is_reported)[:MAX_EXAMPLES]:
            error = self._error(rows, int(row), numbers[row])
            if self.raise_on_bad:
                raise error
            examples[row] = str(error).removesuffix(f". {_SKIP_ADVICE}")
        return examples

    def _error(self, rows: _CheckedRows, row: int, number: int) -> CorpusError:
        """Return the error of a bad row: its label, its first missing text, or too few texts."""
        if rows.unlabeled[row]:
            expected = f"one of {', '.join(CLASSES)}, or its number"
            label = rows.raw_labels[row]
            return bad_value(self.place, number, LABEL, label, expected, _SKIP_ADVICE)
        if rows.empty[row].any():
            column = int(rows.empty[row].argmax())
            text = rows.texts[column][row].as_py()
            return bad_value(
                self.place, number, self.languages[column], text, "a text", _SKIP_ADVICE
            )
        for name in self.needed_texts:
            if not rows.present[row][self.languages.index(name)]:
                return bad_value(self.place, number, name, None, "a text", _SKIP_ADVICE)
        codes = [self.languages[column] for column in np.flatnonzero(rows.present[row])]
        description = Unquoted(f"{len(codes)} language(s) {codes}")
        expected = "at least two languages" if self.fewest_texts > 1 else "a text"
        return bad_value(self.place, number, "translation", description, expected, _SKIP_ADVICE)


def _is_blank(texts: pa.Array) -> pa.Array:
    """Return whether each text is there and only whitespace, (rows,)."""
    lengths = pc.binary_length(pc.utf8_trim_whitespace(texts))
    return pc.fill_null(pc.equal(lengths, 0), False)


def _as_strings(values: Sequence) -> list[str | None]:
    return [None if value is None else str(value) for value in values]


def check_file(file: Table, limit: int | None, checker: RowChecker) -> Iterator[pa.Table]:
    """Yield the checked rows of a file.

    Args:
        file: The file.
        limit: How many rows to read; None for all.
        checker: What checks the rows.
    """
    if file.has_different_rows:
        for numbers, rows in blocks_of(islice(file.rows(), limit), BATCH_ROWS):
            yield checker.check(_columns_of_rows(rows, numbers, checker), numbers)
        return
    left = limit
    for batch in file.batches(BATCH_ROWS):
        if left is not None:
            batch = batch.slice(0, left)
            left -= len(batch)
        numbers = batch.column(ROW).to_pylist()
        if numbers:
            yield checker.check(_columns_of_batch(batch, checker), numbers)
        if left == 0:
            return


def check_table(table: pa.Table, indices: Sequence[int], checker: RowChecker) -> pa.Table:
    """Return the checked rows of a table, whose first row has the number `indices[0] + 1`."""
    (batch,) = table.combine_chunks().to_batches()
    return checker.check(_columns_of_batch(batch, checker), [index + 1 for index in indices])


# ---- The columns of a corpus


def _columns_of_rows(
    rows: Sequence[Row], numbers: Sequence[int], checker: RowChecker
) -> dict[str, list | pa.Array]:
    """Return the values of each language, of `doc_id` and `label` in rows with their own fields."""
    columns: dict[str, list | pa.Array] = {}
    values: dict[str, list] = {name: [] for name in (*checker.languages, DOCUMENT_ID, LABEL)}
    for number, row in zip(numbers, rows, strict=True):
        texts = _checked_texts(row, checker.place, number)
        _add_values(values, texts, checker.languages, checker)
        _add_values(values, row, (DOCUMENT_ID, LABEL), checker)
    return columns | values


def _add_values(
    values: Mapping[str, list], row: Row, names: tuple[str, ...], checker: RowChecker
) -> None:
    """Append what a row has of each name, or None, to the values."""
    field_of = fields_by_name(tuple(row), names, checker.columns, checker.place)
    for name in names:
        value = None
        if name in field_of:
            value = row[field_of[name]]
        values[name].append(value)


def _checked_texts(row: Row, place: str, number: int) -> dict[str, Any]:
    """Return the texts of a row, or raise the error of texts that are no object."""
    texts = texts_of(row)
    if not texts:
        return {}
    if not isinstance(texts, dict):
        expected = "an object of texts by language, or null"
        advice = "Correct or delete the row."
        raise bad_value(place, number, "translation", texts, expected, advice)
    return texts


def _columns_of_batch(batch: pa.RecordBatch, checker: RowChecker) -> dict[str, list | pa.Array]:
    """Return the values of each language, of `doc_id` and `label` in a batch."""
    text_fields = fields_of(batch)
    texts = batch
    if "translation" in text_fields:
        translations = batch["translation"]
        texts = pa.RecordBatch.from_arrays(
            translations.flatten(), [field.name for field in translations.type]
        )
        text_fields = texts.schema.names
    columns: dict[str, list | pa.Array] = {}
    text_field_of = fields_by_name(
        tuple(text_fields), checker.languages, checker.columns, checker.place
    )
    for language, field in text_field_of.items():
        if language in checker.languages:
            columns[language] = _text_values(texts, field)
    names = (DOCUMENT_ID, LABEL)
    field_of = fields_by_name(tuple(fields_of(batch)), names, checker.columns, checker.place)
    for name in names:
        if name in field_of:
            columns[name] = values_of(batch, field_of[name])
    return columns


def _text_values(batch: pa.RecordBatch, field: str) -> list | pa.Array:
    """Return the texts of a column: in Arrow's memory, as Python objects take twice the time."""
    column = batch[field]
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_large_string(column.type) or pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    return values_of(batch, field)
