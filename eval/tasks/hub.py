"""Datasets of the Hub, or local folders laid out like them: configs, splits and rows, with errors that name the task.

A local folder counts as such if it has a README.md whose front matter lists `configs` (a clone or copy of the Hub's
repository), or holds `<config>/<split>.parquet` or `<config>/<split>-00000-of-00002.parquet` files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import datasets

from modeling_tmde.data.files import is_hub_layout

from .base import Provenance, Task, TaskError
from .checks import Words, bad_data

AnyDataset = datasets.Dataset | datasets.IterableDataset
Result = TypeVar("Result")

AS_GIVEN = "as given by the source"

# What the splits of this package are called on the Hub.
SPLIT_NAMES = {"dev": ("dev", "validation"), "train_10k": ("train_10k", "train_10000")}
_SHARD = re.compile(r"(?P<split>.+?)(-\d+(-of-\d+)?)?\.parquet")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
LAYOUT = "a folder laid out like it (a README.md with `configs`, or <config>/<split>.parquet files)"


def is_dataset(source: str) -> bool:
    """Return whether a source is a local folder with configs, or (where there is no such path) reads as a Hub id."""
    if os.path.isdir(source):
        return is_hub_layout(source) or bool(_config_folders(source))
    return not os.path.exists(source) and _may_be_hub_id(source)


def config_names(task: str, source: str) -> list[str]:
    """Return the configs of a dataset.

    Raises:
        TaskError: It is not here and the Hub does not give it.
    """
    if os.path.isdir(source) and not is_hub_layout(source):
        return sorted(_config_folders(source))
    return list(_reach(task, source, partial(datasets.get_dataset_config_names, source)))


def split_names(task: str, source: str, config: str) -> list[str]:
    """Return the splits of a config.

    Raises:
        TaskError: There is no such config, or the dataset can't be reached.
    """
    if os.path.isdir(source) and not is_hub_layout(source):
        _check_config(task, source, config)
        return sorted(_config_folders(source)[config])
    read = partial(datasets.get_dataset_split_names, source, config)
    return list(_reach(task, source, read, partial(_check_config, task, source, config)))


def load_dataset(task: str, source: str, config: str, split: str, streaming: bool = False) -> AnyDataset:
    """Open one split of one config.

    Args:
        task: Name of the task, for messages.
        source: Hub id or local folder.
        split: As it is called there.
        streaming: Return an `IterableDataset` that reads as it goes.

    Raises:
        TaskError: Unknown config or split (with those that there are), files that can't be read, or a dataset that is
            not here and that the Hub does not give.
    """
    args: tuple[str, ...] = (source, config)
    options: dict[str, object] = {"split": split, "streaming": streaming}
    if os.path.isdir(source) and not is_hub_layout(source):
        _check_split(task, source, config, split)
        args, options["data_files"] = ("parquet",), {split: _config_folders(source)[config][split]}
    read = partial(datasets.load_dataset, *args, **options)
    return _reach(task, source, read, partial(_check_split, task, source, config, split))


def load_splits(
    task: str,
    source: str,
    config: str,
    wanted: Sequence[str],
    optional: Sequence[str] = (),
    streaming: bool = False,
) -> dict[str, AnyDataset]:
    """Open splits by the names of this package; `dev` is also found as `validation`.

    Raises:
        TaskError: As [`load_dataset`]; an `optional` split may lack.
    """
    there = split_names(task, source, config)
    opened = {}
    for name in (*wanted, *optional):
        spelling = next((other for other in SPLIT_NAMES.get(name, (name,)) if other in there), None)
        if spelling is not None:
            opened[name] = load_dataset(task, source, config, spelling, streaming)
        elif name in wanted:
            raise _no_split(task, source, config, name, there)
    return opened


def place_of(source: str, config: str, split: str) -> str:
    """Return a split's name in messages."""
    return f"{source} (config {config}, split {split})"


def provenance_of(
    task: Task, source: str, benchmark: Provenance, split: str | None, always: bool = False
) -> Provenance:
    """Return where loaded data come from, claiming nothing that is not known of the source.

    Args:
        benchmark: Of the task's default source.
        split: Which is tested on; None for files that have none.
        always: The task's format is that of the benchmark alone, so that any source of it is a copy.

    Returns:
        The benchmark's citation, licence and page for its default source or a copy, "as given by the source" for
        others. `hub_id` is the id that was loaded, None for files and folders.
    """
    known = benchmark if always or source == task.default_source else Provenance(AS_GIVEN, AS_GIVEN)
    hub_id = source if not os.path.exists(source) and _may_be_hub_id(source) else None
    return replace(known, hub_id=hub_id, source=source, split=split)


def check_source(task: str, source: str) -> None:
    """Raise [`TaskError`] if a source is neither a path that exists nor reads as a Hub id (without asking the Hub)."""
    if not os.path.exists(source) and not _may_be_hub_id(source):
        found = Words("no such file or folder")
        raise bad_data(task, source, None, "source", found, "a path that exists, or a Hub id", "Correct the path.")


def _may_be_hub_id(source: str) -> bool:
    """Return whether a path that does not exist reads as `owner/name` and not as a mistyped local path."""
    return _HUB_ID.fullmatch(source) is not None and not os.path.isdir(source.split("/")[0])


def _config_folders(folder: str) -> dict[str, dict[str, list[str]]]:
    """Return the parquet files of a folder by config and split."""
    configs: dict[str, dict[str, list[str]]] = {}
    for path in sorted(Path(folder).glob("*/*.parquet")):
        shard = _SHARD.fullmatch(path.name)
        if shard and not path.parent.name.startswith("."):
            configs.setdefault(path.parent.name, {}).setdefault(shard["split"], []).append(str(path))
    return configs


def _check_config(task: str, source: str, config: str) -> None:
    there = config_names(task, source)
    if config not in there:
        expected = f"one of its configs: {', '.join(there) or 'none'}"
        raise bad_data(task, source, None, "config", config, expected, "Correct the languages or the source.")


def _check_split(task: str, source: str, config: str, split: str) -> None:
    there = split_names(task, source, config)
    if split not in there:
        raise _no_split(task, source, config, split, there)


def _no_split(task: str, source: str, config: str, split: str, there: Sequence[str]) -> TaskError:
    place, expected = f"{source} (config {config})", f"one of its splits: {', '.join(there) or 'none'}"
    return bad_data(task, place, None, "split", split, expected, "Add the missing split, or pass another source.")


def _unreadable(task: str, source: str, error: BaseException) -> TaskError:
    found = Words(f"files that can't be read ({error.__cause__ or error})")
    return bad_data(task, source, None, None, found, "files of one schema", "Copy the dataset again.")


def _reach(task: str, source: str, call: Callable[[], Result], check: Callable[[], None] | None = None) -> Result:
    """Return what `call` loads; what keeps it from that becomes one [`TaskError`], that of `check` if it has one."""
    check_source(task, source)
    try:
        return call()
    except (FileNotFoundError, ConnectionError) as error:
        if os.path.exists(source):
            found, expected = Words(f"files missing ({error})"), "those that its README.md lists"
            raise bad_data(task, source, None, "source", found, expected, "Copy the dataset again.") from error
        found = Words(f"no such path, and a Hub that does not give that dataset ({error})")
        advice = f"Go online, log in if the dataset is private, or pass source= with {LAYOUT}."
        raise bad_data(task, source, None, "source", found, "a dataset", advice) from error
    except datasets.exceptions.DatasetGenerationError as error:
        raise _unreadable(task, source, error) from error
    except ValueError as error:  # an unknown config or split, most often
        if check is not None:
            check()
        raise _unreadable(task, source, error) from error
