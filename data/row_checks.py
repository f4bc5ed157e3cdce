"""Check the rows of a corpus: texts are texts, a row has enough of them, and labels are known."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets.builder import Key

from .checks import CorpusError, Unquoted, bad_value, check_text
from .columns import ColumnPairs, Values, as_list, named_columns, texts_of
from .report import BAD_STATES, MAX_EXAMPLES, RowState
from .rows import CLASSES, DOCUMENT_ID, LABEL, SOURCE_FILE, SOURCE_ROW, TRANSLATION, features_of
from .tables import BAD, ROW, AnyDataset, Table, batch_of_rows, values_of

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
        numbers: The number of each row, (n,).
        texts: The texts of each language, (n,) each.
        present: Whether a row has a text of a language, (n, languages).
        empty: Whether that text is only whitespace, (n, languages).
        labels: The labels as the source writes them, (n,).
        unlabeled: Whether a row lacks the label that it needs, (n,).
        bad_reasons: Why a row cannot be read, by its position.
    """

    numbers: Sequence[int]
    texts: list[pa.Array]
    present: np.ndarray
    empty: np.ndarray
    labels: Sequence
    unlabeled: np.ndarray
    bad_reasons: dict[int, str]


@dataclass(frozen=True)
class RowChecker:
    """Checks the rows of one table.

    Attributes:
        languages: The requested languages, sorted.
        place: The table in messages.
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

    languages: tuple[str, ...]
    place: str = ""
    has_other_languages: bool = False
    raise_on_bad: bool = False
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

    def check(self, batch: pa.RecordBatch) -> pa.Table:
        """Check the rows of a batch.

        Returns:
            All rows, good and bad, with the columns of [`features_of`], the number of their
            `empty` texts, which are now None, their `state`, and an `example` of what is bad in
            the first few.

        Raises:
            CorpusError: A row is bad, and `raise_on_bad` is set.
        """
        numbers = values_of(batch, ROW)
        bad_reasons = {}
        for position, reason in enumerate(values_of(batch, BAD)):
            if reason is not None:
                bad_reasons[position] = reason
        missing = [None] * len(numbers)
        values_of_name = named_columns(
            texts_of(batch, bad_reasons), self.languages, self.columns, numbers, self.place
        )
        texts = []
        for language in self.languages:
            values = values_of_name.get(language, missing)
            texts.append(self._text_array(values, language, numbers, bad_reasons))
        others = named_columns(batch, (DOCUMENT_ID, LABEL), self.columns, numbers, self.place)
        labels = as_list(others.get(LABEL, missing))
        class_numbers = self._class_numbers(labels)
        rows = _CheckedRows(
            numbers=numbers,
            texts=texts,
            present=np.stack([column.is_valid() for column in texts], axis=1),
            empty=np.stack([_is_blank(column) for column in texts], axis=1),
            labels=labels,
            unlabeled=np.array([number is None for number in class_numbers], bool),
            bad_reasons=bad_reasons,
        )
        states = self._states(rows)
        filled_texts = []
        for column, is_empty in zip(texts, rows.empty.T, strict=True):
            filled_texts.append(pc.if_else(pa.array(is_empty), None, column))
        documents = as_list(others.get(DOCUMENT_ID, missing))
        documents = [None if id is None else str(id) for id in documents]
        checked = {
            TRANSLATION: pa.StructArray.from_arrays(filled_texts, self.languages),
            DOCUMENT_ID: pa.array(documents, pa.string()),
            LABEL: pa.array(class_numbers, pa.int64()),
        }
        if self.has_places:
            checked[SOURCE_FILE] = pa.array([self.place] * len(numbers), pa.string())
            checked[SOURCE_ROW] = pa.array(numbers, pa.int64())
        empty_counts = rows.empty.sum(axis=1)
        if self.has_cells:
            empty_counts[:] = 0
        checked["empty"] = pa.array(empty_counts)
        checked["state"] = pa.array(states)
        checked["example"] = pa.array(self._examples(rows, states), pa.string())
        return pa.table(checked)

    def _class_numbers(self, labels: Sequence) -> list[int | None]:
        """Return the position in `CLASSES` of each label: its name, or its number in the source."""
        known: dict[str, int] = {}
        for class_number, name in enumerate(CLASSES):
            if name in self.class_names:
                known[name] = class_number
                known[str(self.class_names.index(name))] = class_number
        return [known.get(str(label)) for label in labels]

    def _text_array(
        self,
        values: Values,
        language: str,
        numbers: Sequence[int],
        bad_reasons: dict[int, str],
    ) -> pa.Array:
        """Return the texts of a language; a value that is no text is None, and its row is bad."""
        if isinstance(values, pa.Array):
            return values
        try:
            return pa.array(values, pa.string())
        except (pa.ArrowException, UnicodeError):
            pass  # A value is to blame.
        texts: list[str | None] = []
        for position, (number, value) in enumerate(zip(numbers, values, strict=True)):
            try:
                if value is not None:
                    check_text(value, self.place, number, language)
                texts.append(value)
            except CorpusError as error:
                texts.append(None)
                bad_reasons[position] = str(error)
        return pa.array(texts, pa.string())

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
        if self.class_names:
            states[rows.unlabeled] = RowState.NO_LABEL
        states[list(rows.bad_reasons)] = RowState.UNREADABLE
        return states

    def _examples(self, rows: _CheckedRows, states: np.ndarray) -> list[str | None]:
        """Return messages about the first rows with something bad, None for all others.

        Raises:
            CorpusError: A row is bad, and `raise_on_bad` is set.
        """
        examples: list[str | None] = [None] * len(states)
        is_reported = np.isin(states, BAD_STATES)
        if not self.has_cells:
            is_reported |= rows.empty.any(axis=1)
        for row in np.flatnonzero(is_reported)[:MAX_EXAMPLES].tolist():
            is_unlabeled = states[row] == RowState.NO_LABEL
            error = self._error(rows, row, is_unlabeled)
            if self.raise_on_bad:
                raise error
            examples[row] = str(error).removesuffix(f". {_SKIP_ADVICE}")
        return examples

    def _error(self, rows: _CheckedRows, row: int, is_unlabeled: bool) -> CorpusError:
        """Return the error of a bad row: its label, its first missing text, or too few texts."""
        if row in rows.bad_reasons:
            return CorpusError(rows.bad_reasons[row])
        name = TRANSLATION
        value: object
        expected = "a text"
        missing_texts = []
        for needed in self.needed_texts:
            if not rows.present[row][self.languages.index(needed)]:
                missing_texts.append(needed)
        if is_unlabeled:
            name = LABEL
            value = rows.labels[row]
            expected = f"one of {', '.join(CLASSES)}, or its number"
        elif rows.empty[row].any():
            column = int(rows.empty[row].argmax())
            name = self.languages[column]
            value = rows.texts[column][row].as_py()
        elif missing_texts:
            name = missing_texts[0]
            value = None
        else:
            codes = [self.languages[column] for column in np.flatnonzero(rows.present[row])]
            value = Unquoted(f"{len(codes)} language(s) {codes}")
            if self.fewest_texts > 1:
                expected = "at least two languages"
        return bad_value(self.place, rows.numbers[row], name, value, expected, _SKIP_ADVICE)


def _is_blank(texts: pa.Array) -> pa.Array:
    """Return whether each text is there and only whitespace, (rows,)."""
    lengths = pc.binary_length(pc.utf8_trim_whitespace(texts))
    return pc.fill_null(pc.equal(lengths, 0), False)


# ---- The checked rows of a table


def check_rows(rows: pa.Table, indices: Sequence[int], checker: RowChecker) -> pa.Table:
    """Return the checked rows of a dataset, whose first row has the number `indices[0] + 1`."""
    return checker.check(batch_of_rows(rows, checker.place, np.array(indices) + 1))


@dataclass
class _CheckedFileConfig(datasets.BuilderConfig):
    """What decides the rows; `datasets` keeps a cache for each.

    Attributes:
        file: The file.
        limit: How many rows to read; None for all.
        checker: What checks the rows.
        stamps: The sizes and times of the files, so that one that has changed has another cache.
    """

    file: Table | None = None
    limit: int | None = None
    checker: RowChecker | None = None
    stamps: str = ""


class _CheckedFile(datasets.ArrowBasedBuilder):
    """Builds a dataset of the checked rows of a file."""

    BUILDER_CONFIG_CLASS = _CheckedFileConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=self.config.checker.features)

    def _split_generators(self, dl_manager: object) -> list[datasets.SplitGenerator]:
        # A list is a shard of a stream, which `DataLoader` workers and resumed runs share out.
        return [datasets.SplitGenerator("train", gen_kwargs={"files": [self.config.file]})]

    def _generate_tables(self, files: list[Table]) -> Iterator[tuple[Key, pa.Table]]:
        for file in files:
            count = 0
            for number, batch in enumerate(file.batches(BATCH_ROWS, keep_bad=True)):
                if self.config.limit is not None:
                    batch = batch.slice(0, self.config.limit - count)
                count += len(batch)
                if len(batch):
                    yield Key(0, number), self.config.checker.check(batch)
                if count == self.config.limit:
                    break


def open_checked(
    file: Table, limit: int | None, checker: RowChecker, streaming: bool
) -> AnyDataset:
    """Return the rows of a file, good and bad, with what the checks say about them.

    Args:
        file: The file.
        limit: How many rows to read; None for all.
        checker: What checks the rows.
        streaming: Return a stream.

    Raises:
        CorpusError: A row has no right form; of a stream when it is read.
    """
    stamps = []
    for path in file.paths:
        status = os.stat(path)
        stamps.append((status.st_size, status.st_mtime_ns))
    builder = _CheckedFile(
        cache_dir=str(datasets.config.HF_DATASETS_CACHE),
        file=file,
        limit=limit,
        checker=checker,
        stamps=str(stamps),
    )
    if streaming:
        return builder.as_streaming_dataset("train")
    try:
        builder.download_and_prepare()
    except datasets.exceptions.DatasetGenerationError as error:
        raise (error.__cause__ or error) from None
    return builder.as_dataset("train")
