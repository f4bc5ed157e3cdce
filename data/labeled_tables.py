"""The labeled view of tables: splits of datasets, and the checks of their columns."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeGuard

import datasets
import numpy as np
import pyarrow as pa

from .checks import CorpusError, MissingFileError, Unquoted, bad_value, check_languages
from .columns import shown_fields
from .tables import (
    ROW,
    Table,
    config_names,
    fields_of,
    is_hub_layout,
    may_be_dataset_id,
    open_split,
    values_of,
)

logger = logging.getLogger("tmde.data")

# What datasets and files call splits, without dots, where we call them otherwise.
_SPLIT_NAMES = {
    "training": "train",
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
    "restval": "train",  # COCO's validation images that Karpathy trains on
    "train1000": "train",
    "train2000": "train_2k",
    "train5000": "train_5k",
    "train10000": "train_10k",
}


def split_of(name: str) -> str:
    """Return our name of a split, in lower case: `dev` for `validation`."""
    plain_name = name.strip().lower()
    return _SPLIT_NAMES.get(plain_name.replace(".", ""), plain_name)


def is_dataset(source: str) -> bool:
    """Return whether a source is a folder laid out like a dataset of the Hub, or may be a Hub id.

    Such a folder has a README.md that lists `configs`.
    """
    if os.path.exists(source):
        return is_hub_layout(source)
    return may_be_dataset_id(source)


class ConfigSplits(Mapping[str, Table]):
    """The splits of a config by our names. A split is opened when it is looked up.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        config: The name of the config.
        streaming: Read the Hub without downloading whole files first.
    """

    def __init__(self, source: str, config: str, streaming: bool) -> None:
        self._source = source
        self._config = config
        self._streaming = streaming

    @cached_property
    def _names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for name in datasets.get_dataset_split_names(self._source, self._config):
            our_name = split_of(name)
            if our_name not in names or name == our_name:
                names[our_name] = name
        return names

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Table:
        return open_split(self._source, self._config, self._names[name], self._streaming)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def open_configs(
    source: str, streaming: bool = False, language_of: Callable[[str], str] = str
) -> dict[str, Mapping[str, Table]]:
    """Return the splits of each config of a dataset, by the language that the config is named for.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        streaming: Read the Hub without downloading whole files first.
        language_of: Returns the language of the name of a config.

    Raises:
        MissingFileError: There is no such folder.
        CorpusError: The source is neither.
    """
    if not is_dataset(source):
        raise _no_dataset_error(source)
    splits: dict[str, Mapping[str, Table]] = {}
    for config in config_names(source):
        splits[language_of(config)] = ConfigSplits(source, config, streaming)
    return splits


def _no_dataset_error(source: str) -> CorpusError:
    """Return the error for a source that is no dataset."""
    kind = CorpusError
    if os.path.isdir(source):
        description = "no README.md that lists `configs`"
    elif os.path.isfile(source):
        description = "a file"
    else:
        description = "no such folder"
        kind = MissingFileError
    expected = "a Hub dataset, or a folder laid out like one"
    advice = "Download the dataset with its README.md."
    return bad_value(source, None, None, Unquoted(description), expected, advice, kind)


def read_columns(
    table: Table,
    texts: Sequence[str],
    values: Sequence[str] = (),
    empty_texts: bool = False,
    head: tuple[int, int] | None = None,
    batches: Iterable[pa.RecordBatch] | None = None,
) -> tuple[list[int], dict[str, list]]:
    """Read the columns of a table.

    Args:
        table: The table.
        texts: Columns that must hold texts.
        values: Columns that must be there, with values of any kind.
        empty_texts: Keep empty texts, with a warning that counts them, rather than raise.
        head: (n, seed): only the first n rows of a seeded shuffle of the table.
        batches: The rows to read; None for all.

    Returns:
        The rows' numbers, and lists of values by column.

    Raises:
        CorpusError: There are no rows, a column is missing, or a text is not one or is empty.
    """
    numbers: list[int] = []
    columns: dict[str, list] = {}
    for batch in table.batches() if batches is None else batches:
        columns = columns or {name: [] for name in fields_of(batch)}
        numbers += values_of(batch, ROW)
        for name, column in columns.items():
            column += values_of(batch, name)
    if not numbers:
        advice = "Fetch or write the file again."
        raise bad_value(table.place, None, None, Unquoted("no rows"), "some", advice)
    for name in (*texts, *values):
        if name not in columns:
            listed = Unquoted(f"the columns {shown_fields(list(columns))}")
            raise bad_value(
                table.place, None, name, listed, f"a column {name!r}", "Rename or add the column."
            )
    if head is not None:
        count, seed = head
        # The order depends on the seed and the number of rows alone.
        keys = np.random.default_rng(seed).random(len(numbers))
        first_rows = np.argsort(keys, kind="stable")[:count].tolist()
        numbers = [numbers[row] for row in first_rows]
        for name, column in columns.items():
            columns[name] = [column[row] for row in first_rows]
    for name in texts:
        _check_texts(table.place, name, numbers, columns[name], empty_texts)
    return numbers, columns


def _check_texts(
    place: str, name: str, numbers: Sequence[int], values: Sequence[object], empty_texts: bool
) -> None:
    """Raise CorpusError if a value is no text; warn of empty texts, or raise if they are errors."""
    empty_rows = []
    for number, value in zip(numbers, values, strict=True):
        if isinstance(value, str) and value.strip():
            continue
        if not isinstance(value, str) or not empty_texts:
            advice = (
                "Correct the row, or delete it (in every language, if the languages are parallel)."
            )
            raise bad_value(place, number, name, value, "a text", advice)
        empty_rows.append(number)
    if empty_rows:
        logger.warning(
            "%s: %d empty texts in '%s', the first in row %d",
            place,
            len(empty_rows),
            name,
            empty_rows[0],
        )


def read_labels(
    table: Table,
    column: str,
    numbers: Sequence[int],
    values: Sequence[object],
    labels: Sequence[str] = (),
) -> list[str]:
    """Return the class names of a column of names or of class numbers.

    Args:
        table: The table of the column.
        column: The name of the column.
        numbers: The rows' numbers.
        values: The rows' values.
        labels: Allowed labels, in the order of their class numbers. Empty: any text.

    Raises:
        CorpusError: A value is none of the labels.
    """
    class_names = table.class_names.get(column) or labels
    label_column: list[str] = []
    for number, value in zip(numbers, values, strict=True):
        label: object = value
        if isinstance(value, int) and 0 <= value < len(class_names):
            label = class_names[value]
        if not _is_label(label, labels):
            expected = "the name of a class"
            if labels:
                expected = f"one of {', '.join(labels)}"
            advice = "Correct or delete the row (in every language, if the languages are parallel)."
            raise bad_value(table.place, number, column, label, expected, advice)
        label_column.append(label)
    return label_column


def _is_label(value: object, labels: Sequence[str]) -> TypeGuard[str]:
    """Return whether a value is one of the labels; if there are none, whether it is a text."""
    if labels:
        return value in labels
    return isinstance(value, str) and value != ""


def choose_languages(
    place: str,
    requested: Sequence[str] | None,
    available: Iterable[str],
    defaults: Sequence[str] = (),
) -> list[str]:
    """Return the languages to load.

    Args:
        place: The source, for the error.
        requested: The languages that the user asks for; None or empty for `defaults`.
        available: The languages of the data.
        defaults: The languages of the task, of which the available ones are loaded; empty for all
            available ones.

    Raises:
        CorpusError: A requested language is not available, or no default one is.
    """
    available = list(dict.fromkeys(available))
    if requested:
        check_languages(requested, available, place)
        return list(dict.fromkeys(requested))
    chosen = [language for language in defaults or available if language in available]
    if not chosen:
        listed = ", ".join(available) or "none"
        raise bad_value(
            place,
            None,
            "languages",
            Unquoted(f"none of the default languages {', '.join(defaults)}"),
            f"languages of the data: {listed}",
            "Pass languages=[...].",
        )
    return chosen
