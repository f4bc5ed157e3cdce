"""Reads the sources of tasks (files, folders, Hub datasets, parallel corpora), with the checks that tasks share.

A folder counts as a dataset if it has a README.md whose front matter lists `configs` (a copy of a Hub repository), or
holds `<config>/<split>.parquet` or `<config>/<split>-00000-of-00002.parquet` files.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import datasets

from modeling_tmde.data import load_parallel
from modeling_tmde.data.checks import CorpusError, Words, bad_value, is_code
from modeling_tmde.data.files import (
    FORMATS,
    Table,
    find_files,
    is_hub_layout,
    open_table,
    read_columns,
    select_configs,
)

from .base import Provenance, RetrievalData, Split, Task

Result = TypeVar("Result")
Row = dict[str, str | None]

AS_GIVEN = "as given by the source"
EUROPARL = "Helsinki-NLP/europarl"
EUROPARL_PROVENANCE = Provenance(
    citation="Koehn, Europarl: A Parallel Corpus for Statistical Machine Translation, 2005",
    licence="proceedings of the European Parliament; no restriction known to its makers",
    url="https://www.statmt.org/europarl/",
)
BLOCK_ROWS = 1000
_HUB_NAMES = {"dev": ("dev", "validation"), "train_10k": ("train_10k", "train_10000")}  # of splits
_SHARD = re.compile(r"(?P<split>.+?)(-\d+(-of-\d+)?)?\.parquet")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)


def source_of(task: Task, source: str | os.PathLike | None, advice: str = "") -> str:
    """The stated source, or the task's default one.

    Raises:
        CorpusError: There is neither (`advice` says where to get the data), or no such path.
    """
    if source is None and task.default_source is None:
        raise bad_value(task.name, None, "source", source, "a path or a Hub id", advice)
    source = os.path.expanduser(os.fspath(task.default_source if source is None else source))
    if not os.path.exists(source) and source != task.default_source and not _may_be_hub_id(source):
        found = find_files(source) if glob.glob(source) or glob.glob(f"{glob.escape(source)}.*") else None
        if found is None:
            expected = "a path that exists, or a Hub id"
            raise bad_value(source, None, "source", Words("no such file or folder"), expected, "Correct the path.")
    return source


def _may_be_hub_id(source: str) -> bool:
    return _HUB_ID.fullmatch(source) is not None and not os.path.isdir(source.split("/")[0])


def is_dataset(source: str) -> bool:
    """Whether a source is a folder with configs or, if no such path exists, looks like a Hub id."""
    if os.path.isdir(source):
        return is_hub_layout(source) or bool(_config_folders(source))
    return not os.path.exists(source) and _may_be_hub_id(source)


def _config_folders(folder: str) -> dict[str, dict[str, list[str]]]:
    """The parquet files of a folder by config and split."""
    configs: dict[str, dict[str, list[str]]] = {}
    for path in sorted(Path(folder).glob("*/*.parquet")):
        shard = _SHARD.fullmatch(path.name)
        if shard and not path.parent.name.startswith("."):
            configs.setdefault(path.parent.name, {}).setdefault(shard["split"], []).append(str(path))
    return configs


def _reach(source: str, call: Callable[..., Result], *args: object, **options: object) -> Result:
    try:
        return call(*args, **options)
    except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
        found = Words(f"a dataset that cannot be read ({error.__cause__ or error})")
        advice = "Correct the path; of the Hub, go online, or log in if the dataset is private."
        raise bad_value(source, None, "source", found, "a dataset of the Hub or a copy of it", advice) from error


def config_names(source: str) -> list[str]:
    """The configs of a dataset."""
    if os.path.isdir(source) and not is_hub_layout(source):
        return sorted(_config_folders(source))
    return list(_reach(source, datasets.get_dataset_config_names, source))


def split_names(source: str, config: str) -> list[str]:
    """The splits of a config."""
    if os.path.isdir(source) and not is_hub_layout(source):
        return sorted(_config_folders(source).get(config, {}))
    return list(_reach(source, datasets.get_dataset_split_names, source, config))


def open_splits(
    source: str, config: str, wanted: Sequence[str], optional: Sequence[str] = (), streaming: bool = False
) -> dict[str, Table]:
    """Opens splits of a config; `dev` is also found as `validation`.

    Raises:
        CorpusError: A wanted split is missing, or cannot be read.
    """
    there = split_names(source, config)
    tables = {}
    for name in (*wanted, *optional):
        spelling = next((other for other in _HUB_NAMES.get(name, (name,)) if other in there), None)
        if spelling is None and name in wanted:
            expected = f"one of its splits: {', '.join(there) or 'none'}"
            advice = "Add the missing split, or pass another source."
            raise bad_value(f"{source} (config {config})", None, "split", name, expected, advice)
        if spelling is not None:
            arguments, options = (source, config), {"split": spelling, "streaming": streaming}
            if os.path.isdir(source) and not is_hub_layout(source):
                arguments = ("parquet",)
                options["data_files"] = {spelling: _config_folders(source)[config][spelling]}
            dataset = _reach(source, datasets.load_dataset, *arguments, **options)
            tables[name] = open_table(dataset, f"{source} (config {config}, split {spelling})", spelling)
    return tables


def named_files(task: Task, folder: str) -> list[str]:
    """The files in a folder that match one of the task's `local_names`."""
    pattern = os.path.join(glob.escape(folder), "")
    return sorted({path for name in task.local_names for path in glob.glob(pattern + name)})


def open_tables(task: Task, source: str, streaming: bool = False) -> list[Table]:
    """Opens a table source: a file, a folder of files, or a dataset.

    A folder gives the files that match the task's `local_names`, or else all parquet, JSONL and TSV files. A dataset
    gives all configs and splits.
    """
    if is_dataset(source) and not named_files(task, source):
        configs = {config: split_names(source, config) for config in config_names(source)}
        return [
            table
            for config, names in configs.items()
            for table in open_splits(source, config, names, streaming=streaming).values()
        ]
    files = [source] if os.path.isfile(source) else named_files(task, source)
    if not files:
        files = sorted(
            path for path in glob.glob(os.path.join(glob.escape(source), "*")) if path.endswith(tuple(FORMATS))
        )
    if not files or not files[0].endswith(tuple(FORMATS)):
        expected = f"files ending in {', '.join(FORMATS)}, or a dataset's folders"
        raise bad_value(source, None, "source", Words("no such file"), expected, "Convert it, or correct the path.")
    return [open_table(path) for path in files]


def read_labels(
    table: Table,
    column: str,
    numbers: Sequence[int],
    values: Sequence[object],
    labels: Sequence[str] = (),
    numbered: Sequence[str] = (),
) -> list[str]:
    """Class names of a column of names or of class numbers.

    Args:
        labels: The only ones that may occur; none of them: any text.
        numbered: The classes in the order of their numbers, for a table that has numbers without names.

    Raises:
        CorpusError: A value is none of the labels.
    """
    names = table.class_names.get(column, numbered)
    found = []
    for number, value in zip(numbers, values, strict=True):
        name = names[value] if isinstance(value, int) and 0 <= value < len(names) else value
        if not isinstance(name, str) or not name or (labels and name not in labels):
            expected = f"one of {', '.join(labels)}" if labels else "the name of a class"
            advice = "Correct or delete the row (in every language, if the languages are parallel)."
            raise bad_value(table.place, number, column, value, expected, advice)
        found.append(name)
    return found


def labelled_splits(
    task: Task, source: str, id_column: str, title: str | None = None, streaming: bool = False
) -> dict[str, dict[str, Split]]:
    """Splits by language and name, from rows with the columns language, split, text, label and an id.

    Args:
        id_column: Column of the ids.
        title: Column of titles, which are put before the texts with a blank line between.

    Raises:
        CorpusError: A missing column, or a bad value. The column split is not needed where the source has splits.
    """
    groups: dict[str, dict[str, list[tuple[str, str, str]]]] = {}
    for table in open_tables(task, source, streaming):
        texts = ["language", "text", *([title] if title else [])]
        numbers, rows = read_columns(table, texts, [id_column, "label"], optional=["split"])
        if "split" not in rows and table.split is None:
            found = Words(f"the columns {', '.join(rows)}")
            raise bad_value(table.place, None, "split", found, "also a column 'split'", "Add it.")
        if None in rows[id_column]:
            number = numbers[rows[id_column].index(None)]
            raise bad_value(table.place, number, id_column, None, "an id", "Correct or delete the row.")
        labels = read_labels(table, "label", numbers, rows["label"])
        names = rows.get("split") or [table.split] * len(labels)
        bodies = (
            [f"{head}\n\n{text}" for head, text in zip(rows[title], rows["text"], strict=True)]
            if title
            else rows["text"]
        )
        for language, name, *row in zip(rows["language"], names, rows[id_column], bodies, labels, strict=True):
            name = "dev" if name == "validation" else name
            groups.setdefault(language, {}).setdefault(name, []).append((str(row[0]), *row[1:]))
    return {
        language: {
            name: Split(*map(list, zip(*rows, strict=True)), place=f"{source}, language {language}, split {name}")
            for name, rows in by_name.items()
        }
        for language, by_name in groups.items()
    }


def require_splits(
    source: str, splits: Mapping[str, Mapping[str, Split]], languages: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Split]]:
    """The named splits of each language.

    Raises:
        CorpusError: A split is missing.
    """
    for language in languages:
        for name in names:
            if name not in splits[language]:
                place, found = (
                    f"{source}, language {language}",
                    Words(f"the splits {', '.join(map(str, splits[language]))}"),
                )
                raise bad_value(place, None, "split", found, f"also {name!r}", "Add the missing split.")
    return {language: {name: splits[language][name] for name in names} for language in languages}


def provenance_of(task: Task, source: str, benchmark: Provenance, split: str | None, copy: bool = False) -> Provenance:
    """Where loaded data come from: the benchmark's provenance for its default source, "as given" for others.

    Args:
        split: Which is tested on; None for files that have none.
        copy: Any source in this format is a copy of the benchmark.
    """
    known = benchmark if copy or source == task.default_source else Provenance(AS_GIVEN, AS_GIVEN)
    hub_id = source if not os.path.exists(source) and _may_be_hub_id(source) else None
    return replace(known, hub_id=hub_id, source=source, split=split)


def check_count(task: Task, option: str, value: object) -> None:
    """Raises CorpusError if a number of rows is neither None nor at least 1."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise bad_value(task.name, None, option, value, "a whole number from 1", "Correct it.")


def choose_languages(
    place: str, requested: Sequence[str] | None, available: Iterable[str], defaults: Sequence[str] = ()
) -> list[str]:
    """The languages to load, without repeats: the requested ones, or those of `defaults` (or all) that are there.

    Raises:
        CorpusError: A requested language is not there, or no default one is.
    """
    there = list(dict.fromkeys(available))
    listed = f"languages of the data: {', '.join(sorted(there)) or 'none'}"
    if requested is None:
        chosen = [language for language in defaults if language in there] if defaults else there
        if not chosen:
            found = Words(f"none of the default languages {', '.join(defaults)}")
            raise bad_value(place, None, "languages", found, listed, "Pass languages=[...] or another source.")
        return chosen
    if isinstance(requested, str) or not requested:
        raise bad_value(place, None, "languages", requested, "a list of language codes", "Pass e.g. ['de', 'en'].")
    for language in requested:
        if language not in there:
            raise bad_value(place, None, "languages", language, listed, "Request only languages that are there.")
    return list(dict.fromkeys(requested))


def check_parallel(place: str, splits: Mapping[str, Mapping[str, Split]], names: Iterable[str]) -> None:
    """Raises CorpusError if rows with one id, which are translations of each other, have different labels."""
    for name in names:
        gold: dict[str, tuple[str, str]] = {}
        for language, by_name in splits.items():
            split = by_name.get(name)
            for row_id, label in zip(split.ids, split.labels, strict=True) if split else ():
                first_language, first_label = gold.setdefault(row_id, (language, label))
                if label != first_label:
                    where = f"{place}, language {language}, split {name}, id {row_id}"
                    expected = f"the label of its translation in {first_language}, {first_label!r}"
                    advice = "Rows of one id must be translations: fetch the languages in one edition."
                    raise bad_value(where, None, "label", label, expected, advice)


@dataclass(frozen=True)
class ParallelPart:
    """Rows of [`load_parallel`]: one pair of languages of a Hub dataset, or a whole source.

    Args:
        place: Source and config, for messages.
        pair: The config, such as `de-en`; None for a source without a config per pair.
        languages: Languages of the rows. A text may be None.
        dataset: Map-style or streamed.
    """

    place: str
    pair: str | None
    languages: list[str]
    dataset: datasets.Dataset | datasets.IterableDataset

    def rows(self) -> Iterator[Row]:
        """Yields the rows, each `{language: text or None}` with at least two texts."""
        for block in self.dataset.iter(batch_size=BLOCK_ROWS):
            yield from block["translation"]

    def complete_rows(self, languages: Sequence[str]) -> Iterator[Row]:
        """Yields the rows that have all of the languages, reduced to those languages."""
        for row in self.rows():
            if all(row[language] is not None for language in languages):
                yield {language: row[language] for language in languages}

    def exactly(self, rows: Iterable[Row], count: int, option: str) -> Iterator[Row]:
        """Yields the first `count` rows.

        Raises:
            CorpusError: There are fewer.
        """
        chosen = list(islice(rows, count))
        if len(chosen) < count:
            found, advice = Words(f"{len(chosen)} rows with all their languages"), f"Pass a smaller {option}=."
            raise bad_value(self.place, None, option, found, str(count), advice)
        return iter(chosen)


def parallel_parts(
    source: str,
    languages: Sequence[str] | None,
    defaults: Sequence[str] = (),
    streaming: bool = False,
    split: str = "train",
    config: str | None = None,
    pivot: str | None = None,
) -> tuple[list[str], list[ParallelPart]]:
    """Opens a parallel source.

    Args:
        source: Whatever [`load_parallel`] reads.
        languages: None for those of `defaults` that are there (no defaults: for all).
        config: Of a Hub dataset, instead of all pairs of the languages.
        pivot: Only pairs with this language.

    Returns:
        The languages, and either the pairs of them or one part with the whole source.

    Raises:
        CorpusError: What [`load_parallel`] and the Hub complain of.
    """

    def open_part(config: str | None, codes: Sequence[str] | None) -> ParallelPart:
        dataset = load_parallel(source, languages=codes, streaming=streaming, split=split, config=config)
        place = f"{source} (config {config})" if config else source
        return ParallelPart(place, config if config and pair_of(config) else None, _languages(dataset), dataset)

    if source == "sample" or (not is_hub_layout(source) and find_files(source) is not None):
        parts = [open_part(None, languages)]
    elif config is not None:
        parts = [open_part(config, languages)]
    else:
        names = config_names(source)
        pairs = [pair for name in names if (pair := pair_of(name)) and (pivot is None or pivot in pair)]
        there = sorted({code for pair in pairs for code in pair})
        chosen = choose_languages(source, languages, there, defaults) if pairs else languages
        names = select_configs(names, chosen, pivot and [pivot], source)
        parts = [open_part(name, None if pair_of(name) else chosen) for name in names]
    there = dict.fromkeys(code for part in parts for code in part.languages)
    return choose_languages(source, languages, there, defaults), parts


def _languages(dataset: datasets.Dataset | datasets.IterableDataset) -> list[str]:
    return list(dataset.features["translation"])


def pair_of(name: str) -> tuple[str, str] | None:
    """The languages of a name such as `de-en`, or None if it is no pair of codes."""
    codes = tuple(name.split("-"))
    return codes if len(codes) == 2 and all(map(is_code, codes)) else None


def aligned(
    parts: Iterable[tuple[str | None, Iterable[Row]]], languages: Sequence[str], provenance: Provenance
) -> RetrievalData:
    """Rows as retrieval data. In a source kept by language pairs, a row is None in the languages of other pairs.

    Args:
        parts: Pair, or None, and rows. Ids are `"<pair>:<row>"`, or `"<row>"` without a pair, counted from 0.
        languages: Languages of the result; others are ignored.

    Raises:
        CorpusError: No row.
    """
    ids: list[str] = []
    texts: dict[str, list[str | None]] = {language: [] for language in languages}
    for pair, rows in parts:
        for number, row in enumerate(rows):
            ids.append(str(number) if pair is None else f"{pair}:{number}")
            for language, column in texts.items():
                column.append(row.get(language))
    if not ids:
        raise CorpusError(f"{provenance.source}: found no rows with two of the languages, expected some.")
    return RetrievalData(ids, texts, provenance)
