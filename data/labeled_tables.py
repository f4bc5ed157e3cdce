"""The labeled view of tables: splits of datasets, and the checks of their columns."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import datasets
import numpy as np
import pyarrow as pa

from tmde.embedding.hub_names import check_repository, is_possible_hub_id

from .checks import Unquoted, bad_value, check_languages
from .columns import shown_fields
from .tables import (
    ROW,
    DatasetTable,
    Table,
    fields_of,
    find_tables,
    is_hub_layout,
    values_of,
)

logger = logging.getLogger("tmde.data")

SPLIT_NAMES = {"validation": "dev"}  # names of the Hub, and ours


def is_dataset(source: str) -> bool:
    """Return whether a source is a Hub dataset or a local copy of one.

    A local copy is a folder with a README.md that lists `configs`.

    Raises:
        CorpusError: It is neither, and no such path exists.
    """
    if source == "sample" or os.path.exists(source):
        return is_hub_layout(source)
    return find_tables(source) is None


def is_hub_source(source: str) -> bool:
    """Return whether a source is a folder laid out like a dataset of the Hub, or may be a Hub id.

    Unlike `is_dataset`, raises nothing: the caller says which files it reads.
    """
    if os.path.exists(source):
        return is_hub_layout(source)
    return is_possible_hub_id(source, needs_owner=True)


def config_names(dataset: str) -> list[str]:
    """Return the configs of a Hub dataset, or of a local copy of one."""
    check_repository(dataset, "dataset")
    return list(datasets.get_dataset_config_names(dataset))


def open_splits(
    source: str, config: str, names: Iterable[str], streaming: bool = False
) -> dict[str, Table]:
    """Open the named splits that a config has; the Hub's `validation` is `dev`.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        config: The name of the config.
        names: Our names of the splits.
        streaming: Read the Hub without downloading whole files first.
    """
    hub_names = {}
    for hub_name in datasets.get_dataset_split_names(source, config):
        hub_names[SPLIT_NAMES.get(hub_name, hub_name)] = hub_name
    tables = {}
    for name in names:
        if name in hub_names:
            tables[name] = open_split(source, config, hub_names[name], streaming)
    return tables


def open_split(source: str, config: str, split: str, streaming: bool = False) -> Table:
    """Open one split of a config of a dataset.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        config: The name of the config.
        split: The name of the split in the dataset.
        streaming: Read the Hub without downloading whole files first.
    """
    check_repository(source, "dataset")
    dataset = datasets.load_dataset(source, config, split=split, streaming=streaming)
    place = f"{source} (config {config}, split {split})"
    return DatasetTable("dataset", (), name=place, split=split, dataset=dataset)


def open_named_split(source: str, config: str, split: str, streaming: bool = False) -> Table:
    """Open a split that the user names, by the name of the dataset or by ours.

    Args:
        source: A Hub id, or a folder laid out like a dataset of the Hub.
        config: The name of the config.
        split: The name of the split.
        streaming: Read the Hub without downloading whole files first.

    Raises:
        CorpusError: The config has no such split.
    """
    name = SPLIT_NAMES.get(split, split)
    tables = open_splits(source, config, [name], streaming)
    if name not in tables:
        available = ", ".join(datasets.get_dataset_split_names(source, config))
        place = f"{source} (config {config})"
        raise bad_value(place, None, "split", split, f"one of {available}", "Correct the name.")
    return tables[name]


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
            "%s: %d empty texts in '%s', first in row %d",
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
