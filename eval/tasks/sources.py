"""Opens the sources of tasks (files, folders, Hub datasets), with the checks that tasks share."""

from __future__ import annotations

import glob
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import datasets
import pandas as pd

from tmde.data.checks import CorpusError, bad_value
from tmde.data.labeled_tables import is_dataset, read_columns, read_labels, split_of
from tmde.data.tables import Table, config_names, find_tables, named_format_of, open_split

from .base import (
    LawdrRank,
    LawdrSettings,
    Provenance,
    RetrievalData,
    Source,
    Split,
    Task,
)

logger = logging.getLogger("tmde.eval.tasks")

Item = TypeVar("Item")
Row = dict[str, str | None]
Splits = dict[str, dict[str, Split]]  # by language and name
SPLIT_ORDER = ("train", "dev", "test")
DEV_SHARE = 10  # Every tenth train row is for tuning if a task has no dev set.


def source_of(task: Task, source: Source, advice: str = "") -> str:
    """Return the given source, or the default of the task.

    Args:
        task: The task.
        source: A file, a folder or a Hub id, or None.
        advice: Where to get the data, for the error.

    Raises:
        CorpusError: There is neither.
    """
    source = source or task.default_source
    if source is None:
        raise bad_value(task.name, None, "source", source, "a path or a Hub id", advice)
    return os.path.expanduser(os.fspath(source))


def _open_file(path: str) -> Table:
    # A file of no known suffix is read as JSON Lines.
    return Table(named_format_of(path) or "jsonl", (path,))


def named_files(task: Task, folder: str) -> list[str]:
    """Return the files in a folder that match one of the task's `local_names`."""
    paths: set[str] = set()
    for name in task.local_names:
        paths.update(glob.glob(os.path.join(glob.escape(folder), name)))
    return sorted(paths)


def open_tables(task: Task, source: str, streaming: bool = False) -> list[Table]:
    """Open the tables of a file, a dataset or a folder.

    Args:
        task: The task. Of a folder, the files that match its `local_names` are opened; if none
            does, all files.
        source: A file, a folder or a Hub id.
        streaming: Read the Hub without downloading whole files first.
    """
    paths = named_files(task, source)
    if paths:
        return [_open_file(path) for path in paths]
    tables: list[Table] = []
    if is_dataset(source):
        for config in config_names(source):
            for split in datasets.get_dataset_split_names(source, config):
                tables.append(open_split(source, config, split, streaming))
        return tables
    files_of_source = find_tables(source)
    assert files_of_source is not None  # It is None for datasets alone, which were opened above.
    for files in files_of_source:
        for path in files.paths:
            tables.append(_open_file(path))
    return tables


def read_score(place: str, number: int, value: Any) -> float:
    """Return a score.

    Args:
        place: The file or the split, for the error.
        number: The row's number.
        value: A number, or a text of one.

    Raises:
        CorpusError: It is not a finite number.
    """
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if isinstance(value, bool) or not math.isfinite(score):
        raise bad_value(
            place, number, "score", value, "a finite number", "Correct or delete the row."
        )
    return score


def read_splits(
    tables: Mapping[str, Mapping[str, Table]],
    languages: Iterable[str],
    names: Iterable[str],
    read: Callable[[Table, str, str], Split],
) -> Splits:
    """Return the splits that a source has, by language and name.

    Args:
        tables: The tables by language and split.
        languages: The languages to read.
        names: The splits to read, in order.
        read: Reads a table, given its language and split.
    """
    splits: Splits = {}
    for language in languages:
        splits[language] = {}
        for name in names:
            if name in tables[language]:
                splits[language][name] = read(tables[language][name], language, name)
    return splits


def labeled_splits(
    task: Task, source: str, id_column: str, title: str | None = None, streaming: bool = False
) -> Splits:
    """Return splits by language and name, from rows with the columns language, split, text, label.

    A dataset with splits needs no column `split`.

    Args:
        task: The task.
        source: A file, a folder or a Hub id.
        id_column: The column of the ids.
        title: The column of titles, which are put before the texts with a blank line between.
        streaming: Read the Hub without downloading whole files first.

    Raises:
        CorpusError: A column is missing, or a value is bad.
    """
    frames = []
    for table in open_tables(task, source, streaming):
        frames.append(_labeled_frame(table, id_column, title))
    splits: Splits = {}
    groups = pd.concat(frames).groupby(["language", "split"], sort=False)
    for (language, name), rows in groups:
        splits.setdefault(language, {})[name] = Split(
            ids=rows["id"].tolist(),
            texts=rows["text"].tolist(),
            labels=rows["label"].tolist(),
            place=f"{source}, language {language}, split {name}",
        )
    for language, by_name in splits.items():
        splits[language] = _in_order(by_name)
    return splits


def _labeled_frame(table: Table, id_column: str, title: str | None) -> pd.DataFrame:
    """Read the columns language, split, id, text and label of a table."""
    text_columns = ["language", "text"]
    if title is not None:
        text_columns.append(title)
    if table.split is None:
        text_columns.append("split")
    numbers, rows = read_columns(table, text_columns, [id_column, "label"])
    frame = pd.DataFrame({"language": rows["language"], "text": rows["text"]})
    frame["split"] = rows.get("split", table.split)
    frame["split"] = frame["split"].map(split_of)
    if title is not None:
        frame["text"] = pd.Series(rows[title]) + "\n\n" + frame["text"]
    frame["id"] = list(map(str, rows[id_column]))
    frame["label"] = read_labels(table, "label", numbers, rows["label"])
    return frame


def _in_order(by_name: Mapping[str, Split]) -> dict[str, Split]:
    """Return train, dev and test first, and then the others."""
    names = dict.fromkeys((*SPLIT_ORDER, *by_name))
    return {name: by_name[name] for name in names if name in by_name}


def read_id(place: str, number: int, column: str, value: object) -> str:
    """Return an id as text.

    Raises:
        CorpusError: The row has none.
    """
    if value is None or value == "":
        raise bad_value(place, number, column, value, "an id", "Number the rows, or correct it.")
    return str(value)


def check_parallel(place: str, splits: Mapping[str, Mapping[str, Split]]) -> None:
    """Check that rows with one id, which are translations of each other, have one label.

    Args:
        place: The source, for the error.
        splits: By language and name.

    Raises:
        CorpusError: Two labels differ.
    """
    gold: dict[tuple[str, str], str] = {}
    for language, by_name in splits.items():
        for name, split in by_name.items():
            for row_id, label in zip(split.ids, split.labels, strict=True):
                expected_label = gold.setdefault((name, row_id), label)
                if label != expected_label:
                    raise bad_value(
                        f"{place}, language {language}, split {name}, id {row_id}",
                        None,
                        "label",
                        label,
                        f"the label of its translations, {expected_label!r}",
                        "Rows of one id must be translations: fetch the languages in one edition.",
                    )


def hold_out_dev(rows: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Return train and dev rows: every tenth row, from the first, is for tuning."""
    train_rows = list(rows)
    del train_rows[::DEV_SHARE]
    return train_rows, list(rows[::DEV_SHARE])


def check_count(task: Task, option: str, value: object) -> None:
    """Check that a number of rows is None or at least 1.

    Args:
        task: The task.
        option: The name of the option, for the error.
        value: Its value.

    Raises:
        CorpusError: It is neither.
    """
    if value is None:
        return
    if not isinstance(value, int) or value < 1:
        raise bad_value(task.name, None, option, value, "a whole number from 1", "Correct it.")


def lawdr_settings(task: Task, rank: LawdrRank, weighted: bool) -> LawdrSettings | None:
    """Return the settings of LAWDR, as the options `lawdr_rank` and `lawdr_weighted` name them.

    Args:
        task: The task.
        rank: A number of directions, or `"auto"`; None if LAWDR is not used.
        weighted: Whether sentences are weighted.

    Raises:
        CorpusError: One of them has another value, or sentences are not weighted where LAWDR is not
            used.
    """
    if not isinstance(weighted, bool):
        raise bad_value(task.name, None, "lawdr_weighted", weighted, "true or false", "Correct it.")
    if rank is None:
        if not weighted:
            advice = f"Pass --set {task.name}.lawdr_rank=auto, too."
            raise bad_value(task.name, None, "lawdr_rank", rank, "a rank", advice)
        return None
    is_number = isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0
    if not is_number and rank != "auto":
        expected = "a whole number from 0, or 'auto'"
        raise bad_value(task.name, None, "lawdr_rank", rank, expected, "Correct it.")
    return LawdrSettings(rank, weighted)


def provenance_of(task: Task, source: str, split: str | None, copy: bool = False) -> Provenance:
    """Return where loaded data come from.

    The benchmark's own provenance is claimed for its default source; others are "as given".

    Args:
        task: The task.
        source: What was loaded.
        split: The split that is tested on; None for files without splits.
        copy: Whether any source in this format is a copy of the benchmark.
    """
    provenance = Task.provenance
    if copy or source == task.default_source:
        provenance = task.provenance
    hub_id = None
    if not os.path.exists(source) and is_dataset(source):
        hub_id = source
    return replace(provenance, hub_id=hub_id, source=source, split=split)


def aligned(
    parts: Iterable[tuple[str | None, Iterable[Row]]],
    languages: Sequence[str],
    provenance: Provenance,
) -> RetrievalData:
    """Return rows as retrieval data.

    In a source that is kept by pairs of languages, a row is None in the languages of other pairs.

    Args:
        parts: Pair, or None, and rows. Ids are `"<pair>:<row>"`, or `"<row>"` without a pair,
            counted from 0.
        languages: Languages of the result; others are ignored.
        provenance: Where the data come from.

    Raises:
        CorpusError: There is no row.
    """
    rows: dict[str, Row] = {}
    for pair, part in parts:
        prefix = f"{pair}:" if pair else ""
        for number, row in enumerate(part):
            rows[f"{prefix}{number}"] = row
    if not rows:
        raise CorpusError(
            f"{provenance.source}: found no rows with two of the languages, expected some."
        )
    texts = {}
    for language in languages:
        texts[language] = [row.get(language) for row in rows.values()]
    return RetrievalData(list(rows), texts, provenance)
