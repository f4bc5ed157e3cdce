"""The files of a run's training data, recorded so that a resumed run can tell whether they changed.

Training goes on at a position in the data. A path says nothing of what the file holds today.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tmde.data.io import digests
from tmde.data.tables import find_tables

SAMPLE = "sample"


def record_files(train: Any, is_streamed: bool) -> list[dict[str, Any]]:
    """Return what `run.json` keeps of the files of the training data.

    Args:
        train: The value of `data.train`, see `data_paths`.
        is_streamed: Whether the data are streamed: such files are too large to be read twice, so
            their digests are left out.

    Returns:
        For each file its `bytes`, the time of its last change as `modified`, in nanoseconds since
        the epoch, and its `sha256`.
    """
    records = []
    for path in data_paths(train):
        status = path.stat()
        record: dict[str, Any] = {"bytes": status.st_size, "modified": status.st_mtime_ns}
        if not is_streamed:
            record["sha256"] = _digest(path)
        records.append(record)
    return records


def describe_change(records: Sequence[Mapping[str, Any]], train: Any) -> str | None:
    """Return how the files differ from those of a record, as a clause; None if they do not.

    A file of another time with the same content has not changed: it may have been copied.

    Args:
        records: What `record_files` returned when the run began.
        train: The value of `data.train` today.
    """
    paths = data_paths(train)
    if len(paths) != len(records):
        return f"data.train has {len(paths):,} files, and had {len(records):,}"
    for path, record in zip(paths, records, strict=True):
        status = path.stat()
        if status.st_size != record["bytes"]:
            return f"{path} has {status.st_size:,} bytes, and had {record['bytes']:,}"
        if status.st_mtime_ns != record["modified"] and _has_other_content(path, record):
            return f"{path} has been written again since"
    return None


def _has_other_content(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a file has changed, as far as is known: without a digest it has."""
    return "sha256" not in record or _digest(path) != record["sha256"]


def _digest(path: Path) -> str:
    return digests([path], path.parent).partition(" ")[0]


def data_paths(train: Any) -> list[Path]:
    """Return the files of the training data in a fixed order; data of the Hub have none.

    Args:
        train: A source, a list of sources, Moses files by language, or the sections `new` and
            `replay` of a run that adds languages.
    """
    paths: list[Path] = []
    for source in _sources(train):
        for file in find_tables(source) or ():
            paths.extend(Path(path) for path in file.paths)
    return paths


def _sources(train: Any) -> Iterator[str | os.PathLike | Mapping[str, str]]:
    """Yield the single sources of `data.train`, without the sample."""
    if isinstance(train, Mapping) and "new_languages" in train:
        yield from _sources(train["new"])
        yield from _sources(train.get("replay"))
    elif isinstance(train, list | tuple):
        for source in train:
            yield from _sources(source)
    elif train is not None and train != SAMPLE:
        yield train
