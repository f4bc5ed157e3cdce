"""Rows of datasets and of parquet, JSONL and TSV files: one reader, which checks what tasks need of their columns."""

from __future__ import annotations

import glob
import gzip
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import datasets
import numpy as np
import pyarrow as pa

from modeling_tmde.data.checks import CorpusError
from modeling_tmde.data.parallel import _as_text as as_text

from .base import Task, TaskError
from .checks import Words, bad_data
from .hub import AnyDataset, check_source, config_names, is_dataset, load_dataset, place_of, split_names

logger = logging.getLogger("modeling_tmde.eval.tasks")

BLOCK_ROWS = 1000
SUFFIXES = (".parquet", ".jsonl", ".jsonl.gz", ".tsv", ".tsv.gz")
Block = tuple[Sequence[int], dict[str, list]]  # row numbers as an editor counts them, and values by column


@dataclass(frozen=True)
class Table:
    """Rows with named columns, read in blocks.

    Args:
        place: Its name in messages.
        blocks: Reads the rows, from the first, each time it is called.
        split: The split that all its rows belong to, if the source says so.
        class_names: By column, the names of its class numbers.
    """

    place: str
    blocks: Callable[[], Iterator[Block]]
    split: str | None = None
    class_names: dict[str, list[str]] = field(default_factory=dict)


def table_of(task: str, dataset: AnyDataset, place: str, split: str | None = None) -> Table:
    """Return a dataset, map-style or streamed, as a table."""
    features = dataset.features or {}
    names = {name: kind.names for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)}
    return Table(place, lambda: _dataset_blocks(task, dataset, place), split, names)


def named_files(task: Task, folder: str) -> list[str]:
    """Return the files in a folder that match one of the task's `local_names`."""
    pattern = os.path.join(glob.escape(folder), "")
    return sorted({path for name in task.local_names for path in glob.glob(pattern + name)})


def load_tables(task: Task, source: str, streaming: bool = False) -> list[Table]:
    """Open a source whose rows carry everything in columns: a file, a folder of files, or a dataset.

    Args:
        source: A parquet, JSONL or TSV file (the latter two also gzipped); a folder, of which the files with one of
            the task's `local_names` are taken, or else all such files; a dataset of the Hub or a folder laid out like
            one, of which all configs and splits are taken.

    Raises:
        TaskError: There is no such source, or no such file in it.
    """
    check_source(task.name, source)
    if is_dataset(source) and not named_files(task, source):
        pairs = [(c, s) for c in config_names(task.name, source) for s in split_names(task.name, source, c)]
        opened = [(load_dataset(task.name, source, *pair, streaming), pair) for pair in pairs]
        return [table_of(task.name, dataset, place_of(source, *pair), pair[1]) for dataset, pair in opened]
    return [_file_table(task.name, path, streaming) for path in _table_files(task, source)]


def read_columns(
    task: str,
    table: Table,
    texts: Sequence[str],
    others: Sequence[str] = (),
    optional: Sequence[str] = (),
    empty_texts: bool = False,
    head: tuple[int, int] | None = None,
) -> tuple[list[int], dict[str, list]]:
    """Read columns of a table.

    Args:
        texts: Columns that must hold texts.
        others: Columns that must be there.
        optional: Columns that are read where they are there.
        empty_texts: Keep empty texts, with a warning that counts them, rather than raise.
        head: (n, seed): only the first n rows of the table shuffled with that seed.

    Returns:
        The rows' numbers, from 1 (in a TSV file from 2: its header is line 1), and lists of values by column.

    Raises:
        TaskError: A column lacks, or a text is not one or is empty.
    """
    numbers: list[int] = []
    columns: dict[str, list] = {}
    blocks = table.blocks() if head is None else _shuffled_head(table.blocks(), *head)
    for block_numbers, block in blocks:
        if not block_numbers:
            continue
        for name in (*texts, *others):
            if name not in block:
                found, advice = Words(f"the columns {', '.join(block)}"), "Rename or add the column."
                raise bad_data(task, table.place, None, name, found, f"a column {name!r}", advice)
        for name in (*texts, *others, *(name for name in optional if name in block)):
            columns.setdefault(name, []).extend(block[name])
        numbers.extend(block_numbers)
    if not numbers:
        raise bad_data(task, table.place, None, None, Words("no rows"), "some", "Fetch or write the file again.")
    for name in texts:
        _check_texts(task, table.place, name, numbers, columns[name], empty_texts)
    return numbers, columns


def read_labels(
    task: str,
    table: Table,
    column: str,
    numbers: Sequence[int],
    values: Sequence[object],
    labels: Sequence[str] = (),
    numbered: Sequence[str] = (),
) -> list[str]:
    """Return class names for a column of names or of class numbers.

    Args:
        labels: The only ones that may occur; none of them: any text.
        numbered: The classes in the order of their numbers, for a table that has numbers without names.

    Raises:
        TaskError: A value is none of the labels.
    """
    names = table.class_names.get(column, numbered)
    found = []
    for number, value in zip(numbers, values, strict=True):
        name = value
        if isinstance(value, int) and 0 <= value < len(names):
            name = names[value]
        if not isinstance(name, str) or not name or (labels and name not in labels):
            expected = f"one of {', '.join(labels)}" if labels else "the name of a class"
            advice = "Correct or delete the row (in every language, if the languages are parallel)."
            raise bad_data(task, table.place, number, column, value, expected, advice)
        found.append(name)
    return found


def read_lines(task: str, path: str) -> Iterator[tuple[int, str]]:
    """Yield line numbers, from 1, and lines without their ends. Only \\n (or \\r\\n) ends a line: U+2028 and the like
    may stand inside a text.

    Raises:
        TaskError: Bytes that are not UTF-8, or a damaged gzip file.
    """
    number = 0
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8").removesuffix("\n").removesuffix("\r")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        found = Words(f"the bytes {error.object[max(error.start - 10, 0) : error.end + 10]!r}")
        raise bad_data(task, path, number, None, found, "UTF-8", "Convert the file to UTF-8 (iconv).") from error
    except (EOFError, gzip.BadGzipFile) as error:
        found = Words(f"a damaged gzip file ({error})")
        raise bad_data(task, path, number, None, found, "gzip", "Fetch the file again.") from error


def _check_texts(
    task: str, place: str, name: str, numbers: Sequence[int], texts: Sequence[object], empty_texts: bool
) -> None:
    empty = []
    for number, text in zip(numbers, texts, strict=True):
        if isinstance(text, str) and text.strip():
            continue
        if not isinstance(text, str) or not empty_texts:
            advice = "Correct the row, or delete it (in every language, if the languages are parallel)."
            raise bad_data(task, place, number, name, text, "a text", advice)
        empty.append(number)
    if empty:
        logger.warning("%s: %s: %d empty texts in '%s', first in row %d", task, place, len(empty), name, empty[0])


def _shuffled_head(blocks: Iterator[Block], size: int, seed: int) -> Iterator[Block]:
    """Yield the first `size` rows of a seeded shuffle in one pass, so that a stream gives the same rows as a file.

    Every row gets a random number; those with the smallest ones, in their order, are the head of the shuffle.
    """
    rng = np.random.default_rng(seed)
    keys, numbers, columns = np.empty(0), [], {}

    def keep_smallest() -> None:
        nonlocal keys
        order = np.argsort(keys, kind="stable")[:size]
        keys = keys[order]
        for values in (numbers, *columns.values()):
            values[:] = [values[index] for index in order]

    for block_numbers, block in blocks:
        keys = np.concatenate([keys, rng.random(len(block_numbers))])
        numbers.extend(block_numbers)
        for name, values in block.items():
            columns.setdefault(name, []).extend(values)
        if len(keys) > 2 * size + BLOCK_ROWS:
            keep_smallest()
    keep_smallest()
    yield numbers, columns


def _dataset_blocks(task: str, dataset: AnyDataset, place: str) -> Iterator[Block]:
    done = 0
    try:
        for table in dataset.with_format("arrow").iter(batch_size=BLOCK_ROWS):
            numbers = range(done + 1, done + 1 + table.num_rows)
            yield numbers, {name: _values(table.column(name), place, numbers, name) for name in table.column_names}
            done += table.num_rows
    except CorpusError as error:
        raise TaskError(f"{task}: {error}") from error
    except pa.ArrowInvalid as error:  # a stream meets a damaged file only here
        found = Words(f"a file that can't be read ({error})")
        raise bad_data(task, place, None, None, found, "parquet", "Fetch the file again.") from error


def _values(column: pa.ChunkedArray, place: str, numbers: Sequence[int], name: str) -> list:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # parquet readers take the bytes of a string column on trust
        return as_text(column.combine_chunks(), place, numbers, name).to_pylist()


def _table_files(task: Task, source: str) -> list[str]:
    if os.path.isfile(source):
        if not source.endswith(SUFFIXES):
            advice = "Convert it, or pass another source."
            raise bad_data(task.name, source, None, "source", Words("this file"), f"one of {SUFFIXES}", advice)
        return [source]
    files = named_files(task, source) or sorted(
        path for path in glob.glob(os.path.join(glob.escape(source), "*")) if path.endswith(SUFFIXES)
    )
    if not files:
        found = Words("a folder without them")
        expected = f"files ending in {', '.join(SUFFIXES)}, or a Hub dataset's folders"
        raise bad_data(task.name, source, None, "source", found, expected, "Correct the path.")
    return files


def _file_table(task: str, path: str, streaming: bool) -> Table:
    if path.endswith(".parquet"):
        try:
            files = {"train": [path]}
            dataset = datasets.load_dataset("parquet", data_files=files, split="train", streaming=streaming)
        except (datasets.exceptions.DatasetGenerationError, pa.ArrowInvalid) as error:
            found = Words(f"no parquet file ({error.__cause__ or error})")
            raise bad_data(task, path, None, None, found, "parquet", "Fetch the file again.") from error
        return table_of(task, dataset, path)
    read = _read_jsonl if ".jsonl" in os.path.basename(path) else _read_tsv
    return Table(path, lambda: read(task, path))


def _read_jsonl(task: str, path: str) -> Iterator[Block]:
    """Yield the whole file as one block; evaluation files are small."""
    numbers, rows = [], []
    for number, line in read_lines(task, path):
        try:
            row = json.loads(line)
        except ValueError as error:
            found, advice = Words(f"invalid JSON ({error})"), "Correct or delete the line."
            raise bad_data(task, path, number, None, found, "one JSON object a line", advice) from error
        if not isinstance(row, dict):
            raise bad_data(task, path, number, None, row, "a JSON object", "Correct or delete the line.")
        if rows and row.keys() != rows[0].keys():
            expected = f"those of row 1: {', '.join(rows[0])}"
            found = Words(f"the fields {', '.join(row)}")
            raise bad_data(task, path, number, None, found, expected, "Give every row the same fields.")
        numbers.append(number)
        rows.append(row)
    yield numbers, {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _read_tsv(task: str, path: str) -> Iterator[Block]:
    """Yield the whole file as one block. A quote is just a character, as in the other readers of TSV."""
    names: list[str] = []
    numbers, rows = [], []
    for number, line in read_lines(task, path):
        fields = line.split("\t")
        if number == 1:
            names = fields
            if len(set(names)) < len(names):
                raise bad_data(task, path, 1, "header", names, "different names", "Rename or take out columns.")
            continue
        if len(fields) != len(names):
            found, expected = Words(f"{len(fields)} field(s)"), f"{len(names)} ({', '.join(names)})"
            raise bad_data(task, path, number, None, found, expected, "Correct the tabs of the row, or delete it.")
        numbers.append(number)
        rows.append(fields)
    yield numbers, {name: [row[index] for row in rows] for index, name in enumerate(names)}
