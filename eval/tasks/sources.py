"""Opens the sources of tasks (files, folders, Hub datasets), with the checks that tasks share."""

from __future__ import annotations

import glob
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import datasets
import numpy as np
import pandas as pd

from tmde.data.checks import CorpusError, Words, bad_value, check_languages, is_code
from tmde.data.files import (
    FileSource,
    find_files,
    format_of,
    is_hub_layout,
    open_parquet,
    read_rows,
)

from .base import Languages, Provenance, RetrievalData, Source, Split, Task

logger = logging.getLogger("tmde.eval.tasks")

Row = dict[str, str | None]
Splits = dict[str, dict[str, Split]]  # by language and name


@dataclass(frozen=True)
class Table:
    """Rows of a file or of a split.

    Args:
        place: Its name in messages.
        rows: Numbers, from 1, and rows; read once.
        split: The split that all its rows belong to, if the source says so.
        class_names: By column, the names of its class numbers.
    """

    place: str
    rows: Iterable[tuple[int, Mapping[str, object]]]
    split: str | None = None
    class_names: dict[str, list[str]] = field(default_factory=dict)


def read_columns(
    table: Table,
    texts: Sequence[str],
    others: Sequence[str] = (),
    empty_texts: bool = False,
    head: tuple[int, int] | None = None,
) -> tuple[list[int], dict[str, list]]:
    """Reads the columns of a table.

    Args:
        texts: Columns that must hold texts.
        others: Columns that must be there.
        empty_texts: Keep empty texts, with a warning that counts them, rather than raise.
        head: (n, seed): only the first n rows of a seeded shuffle of the table.

    Returns:
        The rows' numbers, and lists of values by column.

    Raises:
        CorpusError: There are no rows, a column is missing, or a text is not one or is empty.
    """
    rows = list(table.rows)
    if not rows:
        raise bad_value(
            table.place, None, None, Words("no rows"), "some", "Fetch or write the file again."
        )
    names = list(rows[0][1])
    for name in (*texts, *others):
        if name not in names:
            found = Words(f"the columns {', '.join(names)}")
            raise bad_value(
                table.place, None, name, found, f"a column {name!r}", "Rename or add the column."
            )
    if head is not None:
        order = np.argsort(np.random.default_rng(head[1]).random(len(rows)), kind="stable")[
            : head[0]
        ]
        rows = [rows[index] for index in order]
    numbers = [number for number, _ in rows]
    columns = {name: [row.get(name) for _, row in rows] for name in names}
    for name in texts:
        empty = []
        for number, text in zip(numbers, columns[name], strict=True):
            if isinstance(text, str) and not text.strip() and empty_texts:
                empty.append(number)
            elif not isinstance(text, str) or not text.strip():
                advice = "Correct the row, or delete it (in every language, if the languages are parallel)."
                raise bad_value(table.place, number, name, text, "a text", advice)
        if empty:
            logger.warning(
                "%s: %d empty texts in '%s', first in row %d",
                table.place,
                len(empty),
                name,
                empty[0],
            )
    return numbers, columns


def source_of(task: Task, source: Source, advice: str = "") -> str:
    """The given source, or the default of the task.

    Raises:
        CorpusError: There is neither. `advice` says where to get the data.
    """
    source = source or task.default_source
    if source is None:
        raise bad_value(task.name, None, "source", source, "a path or a Hub id", advice)
    return os.path.expanduser(os.fspath(source))


def is_dataset(source: str) -> bool:
    """Whether a source is a Hub id, or a local copy of a Hub dataset: a folder with a README.md that lists `configs`.

    Raises:
        CorpusError: It is neither of them, and no such path exists.
    """
    if source == "sample" or os.path.exists(source):
        return is_hub_layout(source)
    return find_files(source) is None


def open_split(source: str, config: str, split: str, streaming: bool = False) -> Table:
    """Opens one split of a config of a dataset."""
    dataset = datasets.load_dataset(source, config, split=split, streaming=streaming)
    return _table_of(dataset, f"{source} (config {config}, split {split})", split)


def _table_of(
    dataset: datasets.Dataset | datasets.IterableDataset, place: str, split: str | None = None
) -> Table:
    kinds = (dataset.features or {}).items()
    names = {name: kind.names for name, kind in kinds if isinstance(kind, datasets.ClassLabel)}
    blocks = dataset.iter(1000)  # several times faster than row by row
    rows = (
        dict(zip(block, values, strict=True))
        for block in blocks
        for values in zip(*block.values(), strict=True)
    )
    return Table(place, enumerate(rows, 1), split, names)


def _open_file(path: str) -> Table:
    if format_of(path) == "parquet":
        return _table_of(open_parquet(path), path)
    return Table(path, read_rows(FileSource(format_of(path), (path,))))


def open_splits(
    source: str, config: str, names: Iterable[str], streaming: bool = False
) -> dict[str, Table]:
    """Opens the named splits that a config has; the Hub's `validation` is `dev`."""
    there = {
        {"validation": "dev"}.get(name, name): name
        for name in datasets.get_dataset_split_names(source, config)
    }
    return {
        name: open_split(source, config, there[name], streaming) for name in names if name in there
    }


def named_files(task: Task, folder: str) -> list[str]:
    """The files in a folder that match one of the task's `local_names`."""
    return sorted(
        {
            path
            for name in task.local_names
            for path in glob.glob(os.path.join(glob.escape(folder), name))
        }
    )


def open_tables(task: Task, source: str, streaming: bool = False) -> list[Table]:
    """Opens the tables of a file, a dataset, or a folder (the files that match `local_names`, or else all files)."""
    files = named_files(task, source)
    if not files and is_dataset(source):
        splits = {
            name: datasets.get_dataset_split_names(source, name) for name in config_names(source)
        }
        return [
            open_split(source, config, name, streaming)
            for config, names in splits.items()
            for name in names
        ]
    return [
        _open_file(path)
        for path in files or [path for file in find_files(source) for path in file.paths]
    ]


def config_names(dataset: str) -> list[str]:
    """The configs of a Hub dataset, or of a local copy of one."""
    return list(datasets.get_dataset_config_names(dataset))


def read_labels(
    table: Table,
    column: str,
    numbers: Sequence[int],
    values: Sequence[object],
    labels: Sequence[str] = (),
) -> list[str]:
    """Class names of a column of names or of class numbers.

    Args:
        labels: Allowed labels, in the order of their class numbers. Empty: any text.

    Raises:
        CorpusError: A value is none of the labels.
    """
    names = table.class_names.get(column) or labels
    found = [
        names[value] if isinstance(value, int) and 0 <= value < len(names) else value
        for value in values
    ]
    for number, name in zip(numbers, found, strict=True):
        if not isinstance(name, str) or not name or (labels and name not in labels):
            expected = f"one of {', '.join(labels)}" if labels else "the name of a class"
            advice = "Correct or delete the row (in every language, if the languages are parallel)."
            raise bad_value(table.place, number, column, name, expected, advice)
    return found


def read_score(place: str, number: int, value: object) -> float:
    """A score. Raises CorpusError if it is not a finite number."""
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise bad_value(
            place, number, "score", value, "a finite number", "Correct or delete the row."
        )
    return score


def labeled_splits(
    task: Task, source: str, id_column: str, title: str | None = None, streaming: bool = False
) -> Splits:
    """Splits by language and name, from rows with the columns language, split, text, label and an id.

    Args:
        id_column: Column of the ids.
        title: Column of titles, which are put before the texts with a blank line between.

    Raises:
        CorpusError: A missing column, or a bad value. A dataset with splits needs no column `split`.
    """
    frames = []
    for table in open_tables(task, source, streaming):
        texts = [
            "language",
            "text",
            *([title] if title else []),
            *(["split"] if table.split is None else []),
        ]
        numbers, rows = read_columns(table, texts, [id_column, "label"])
        frame = pd.DataFrame(
            {
                "language": rows["language"],
                "text": rows["text"],
                "split": rows.get("split", table.split),
            }
        )
        if title:
            frame["text"] = pd.Series(rows[title]) + "\n\n" + frame["text"]
        frame["id"] = [str(name) for name in rows[id_column]]
        frame["label"] = read_labels(table, "label", numbers, rows["label"])
        frames.append(frame.replace({"split": {"validation": "dev"}}))
    splits: Splits = {}
    for (language, name), part in pd.concat(frames).groupby(["language", "split"], sort=False):
        columns = (part[column].tolist() for column in ("id", "text", "label"))
        splits.setdefault(language, {})[name] = Split(
            *columns, place=f"{source}, language {language}, split {name}"
        )
    order = ("train", "dev", "test")
    return {
        language: {
            name: by_name[name] for name in dict.fromkeys((*order, *by_name)) if name in by_name
        }
        for language, by_name in splits.items()
    }


def choose_languages(
    place: str, requested: Languages, available: Iterable[str], defaults: Sequence[str] = ()
) -> list[str]:
    """The languages to load: the requested ones, or the available ones of `defaults`, or all available ones.

    Raises:
        CorpusError: A requested language is not available, or no default one is.
    """
    there = list(dict.fromkeys(available))
    if requested:
        check_languages(requested, there, place)
        return list(dict.fromkeys(requested))
    chosen = [language for language in defaults or there if language in there]
    if not chosen:
        found, listed = (
            Words(f"none of the default languages {', '.join(defaults)}"),
            ", ".join(there) or "none",
        )
        raise bad_value(
            place,
            None,
            "languages",
            found,
            f"languages of the data: {listed}",
            "Pass languages=[...].",
        )
    return chosen


def check_parallel(place: str, splits: Mapping[str, Mapping[str, Split]]) -> None:
    """Raises CorpusError if rows with one id, which are translations of each other, have different labels."""
    gold: dict[tuple[str, str], str] = {}
    for language, by_name in splits.items():
        for name, split in by_name.items():
            for row_id, label in zip(split.ids, split.labels, strict=True):
                if gold.setdefault((name, row_id), label) != label:
                    where = f"{place}, language {language}, split {name}, id {row_id}"
                    expected = f"the label of its translations, {gold[name, row_id]!r}"
                    advice = (
                        "Rows of one id must be translations: fetch the languages in one edition."
                    )
                    raise bad_value(where, None, "label", label, expected, advice)


def check_count(task: Task, option: str, value: object) -> None:
    """Raises CorpusError if a number of rows is neither None nor at least 1."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise bad_value(task.name, None, option, value, "a whole number from 1", "Correct it.")


def provenance_of(task: Task, source: str, split: str | None, copy: bool = False) -> Provenance:
    """Where loaded data come from: the benchmark's provenance for its default source, "as given" for others.

    Args:
        split: The split that is tested on; None for files without splits.
        copy: Any source in this format is a copy of the benchmark.
    """
    known = task.provenance if copy or source == task.default_source else Task.provenance
    hub_id = source if not os.path.exists(source) and is_dataset(source) else None
    return replace(known, hub_id=hub_id, source=source, split=split)


def pair_of(name: str) -> tuple[str, str] | None:
    """The languages of a name such as `de-en`, or None if it is no pair of codes."""
    codes = tuple(name.split("-"))
    return codes if len(codes) == 2 and all(map(is_code, codes)) else None


def aligned(
    parts: Iterable[tuple[str | None, Iterable[Row]]],
    languages: Sequence[str],
    provenance: Provenance,
) -> RetrievalData:
    """Rows as retrieval data. In a source kept by language pairs, a row is None in the languages of other pairs.

    Args:
        parts: Pair, or None, and rows. Ids are `"<pair>:<row>"`, or `"<row>"` without a pair, counted from 0.
        languages: Languages of the result; others are ignored.

    Raises:
        CorpusError: No row.
    """
    rows = {
        f"{pair}:{n}" if pair else str(n): row for pair, part in parts for n, row in enumerate(part)
    }
    if not rows:
        raise CorpusError(
            f"{provenance.source}: found no rows with two of the languages, expected some."
        )
    texts = {language: [row.get(language) for row in rows.values()] for language in languages}
    return RetrievalData(list(rows), texts, provenance)
