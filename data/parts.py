"""Open the sources of a corpus: the sample, configs of Hub datasets, and files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import datasets

from .checks import CorpusError, Unquoted, bad_value, check_languages, is_code
from .columns import SEEN_ROWS, ColumnPairs, column_pairs, header_of, one_of_each
from .labeled_tables import split_of
from .languages import names_a_language
from .sample import LANGUAGES, sample_parallel
from .tables import (
    AnyDataset,
    DatasetTable,
    Quoting,
    Table,
    config_names,
    find_tables,
    open_split,
)

Source = str | os.PathLike | Mapping[str, str | os.PathLike]
RowSource = Source | AnyDataset

SAMPLE_ROWS = 20_000
FIRST_ROWS = 1000  # rows of a file that are read for languages that not every row has


@dataclass(frozen=True)
class Part:
    """What temperature mixes: a file, or a config of a Hub dataset.

    Attributes:
        table: Its rows, with `translation` or one column per language.
        languages: The languages it holds; of a JSONL file at least the requested ones.
        fields: Its fields; empty if they are not looked at.
        rows: The number of its rows; None if it is not known.
        is_config: Whether it is a config of a Hub dataset.
    """

    table: Table
    languages: Sequence[str]
    fields: Sequence[str] = ()
    rows: int | None = None
    is_config: bool = False


@dataclass(frozen=True)
class PartOpener:
    """Opens sources. The arguments without a description are those of `load_parallel`.

    Attributes:
        text_names: The fields that hold texts, whatever they look like; None for all fields that
            are named by language codes.
        languages: The requested languages, sorted; None for all.
        columns: Names, and the fields that the user says hold them.
        pivot_languages: See `load_parallel`, as the following ones.
        split: The split of a Hub dataset or of the sample.
        streaming: Whether to return streams.
        seed: The seed of the sample.
        config: The config or configs of a Hub dataset.
        revision: The revision of a Hub dataset.
        token: The token for private Hub datasets.
        max_rows: How many rows of the sample to make.
        quoting: What the quotes of CSV and TSV are; None to find out.
    """

    text_names: tuple[str, ...] | None
    languages: tuple[str, ...] | None
    columns: ColumnPairs
    pivot_languages: Sequence[str] | None
    split: str
    streaming: bool
    seed: int
    config: str | Sequence[str] | None
    revision: str | None
    token: str | bool | None
    max_rows: int | None
    quoting: Quoting | None

    def open(self, source: RowSource, place: str) -> list[Part]:
        """Return the parts of one source.

        Args:
            source: The source.
            place: The name of a loaded dataset in messages.

        Raises:
            CorpusError: No file is there, a file has no languages, or an option does not fit it.
        """
        if isinstance(source, datasets.Dataset | datasets.IterableDataset):
            self._check_file_options(place)
            # Nobody knows what a row of a stream costs.
            seen_rows = SEEN_ROWS if isinstance(source, datasets.Dataset) else 1
            return [self._part(self._dataset_table(source, place), seen_rows)]
        if source == "sample":
            count = self.max_rows or SAMPLE_ROWS
            rows = sample_parallel(count, split=split_of(self.split), seed=self.seed)
            table = self._dataset_table(rows, f"sample (split {self.split})")
            return [Part(table, LANGUAGES, rows=len(rows))]
        tables = find_tables(source, self.quoting)
        if tables is None:
            return self._config_parts(os.path.expanduser(str(source)))
        self._check_file_options(str(source))
        return list(map(self._part, tables))

    def _dataset_table(self, rows: AnyDataset, place: str) -> DatasetTable:
        if self.streaming and isinstance(rows, datasets.Dataset):
            rows = rows.to_iterable_dataset()
        return DatasetTable("dataset", (), name=place, dataset=rows)

    def _part(self, table: Table, seen_rows: int = SEEN_ROWS) -> Part:
        count = table.row_count()
        batches = table.batches(keep_bad=True)
        if not table.has_different_rows:
            batches = islice(table.batches(seen_rows, keep_bad=True), 1)
        header = header_of(
            batches, table.place, self.text_names, self.columns, table.format == "moses"
        )
        return Part(table, header.languages, header.fields, count)

    def _config_parts(self, path: str) -> list[Part]:
        """Return a part for each config of a Hub dataset."""
        if self.config is None:
            names = config_names(path, self.revision, self.token)
            configs = select_configs(names, self.languages, self.pivot_languages, path)
        else:
            configs = [self.config] if isinstance(self.config, str) else list(self.config)
        parts = []
        for config in configs:
            table = open_split(path, config, self.split, self.streaming, self.revision, self.token)
            part = self._part(table)
            count = part.rows or self._stated_count(table.dataset)
            parts.append(replace(part, rows=count, is_config=True))
        return parts

    def _stated_count(self, rows: AnyDataset) -> int | None:
        """Return the number of rows that the card of a dataset states, if it does."""
        split_info = (rows.info.splits or {}).get(self.split)
        if split_info is None:
            return None
        return split_info.num_examples or None

    def _check_file_options(self, place: str) -> None:
        is_slice = "[" in self.split
        if self.config is None and self.revision is None and not is_slice:
            return
        options = Unquoted(
            f"config={self.config!r}, revision={self.revision!r}, split={self.split!r}"
        )
        expected = "no config, revision or slice of a split"
        advice = (
            "Files and loaded datasets have none of these; "
            "a folder laid out like a Hub dataset lists `configs` in its README.md."
        )
        raise bad_value(place, None, "config", options, expected, advice)


def select_configs(
    names: Sequence[str],
    languages: Sequence[str] | None,
    pivot_languages: Sequence[str] | None,
    place: str,
) -> list[str]:
    """Return the configs to load, given the names of all configs of a dataset.

    Args:
        names: The names of all configs.
        languages: The requested languages; None for any.
        pivot_languages: The languages of which a pair must have one; None for any.
        place: The name of the dataset in messages.

    Returns:
        The pairs, such as `de-en`, that fit the languages. If there is none: the configs that are
        named by a language, or the only config.

    Raises:
        CorpusError: A language is in no pair, or no config fits.
    """
    pairs = language_pairs(names)
    available = set().union(*pairs.values())
    wanted = set(languages or available)
    pivots = set(pivot_languages or available)
    if pairs:
        check_languages(sorted(wanted | pivots), available, place)
    chosen = []
    for name, pair in sorted(pairs.items()):
        if pair <= wanted and pair & pivots:
            chosen.append(name)
    if chosen:
        return chosen
    if wanted.intersection(names):
        return sorted(wanted.intersection(names))
    if len(names) == 1:
        return list(names)
    raise _no_config_error(names, wanted, pivots, place)


def language_pairs(names: Sequence[str]) -> dict[str, set[str]]:
    """Return both languages of each config that is named by two codes, such as `de-en`."""
    pairs = {}
    for name in names:
        pair = pair_of(name)
        if pair is not None:
            pairs[name] = set(pair)
    return pairs


def pair_of(name: str) -> tuple[str, str] | None:
    """Return the languages of a name such as `de-en`, or None if it is no pair of codes."""
    codes = tuple(name.split("-"))
    if len(codes) == 2 and all(map(is_code, codes)):
        return codes
    return None


def _no_config_error(
    names: Sequence[str], wanted: set[str], pivots: set[str], place: str
) -> CorpusError:
    description = Unquoted(f"the configs {sorted(names)}")
    expected = f"a pair such as 'de-en' of {sorted(wanted)} with a pivot of {sorted(pivots)}"
    advice = "Change the languages, or pass config='...' with the one (or a list of those) to load."
    return bad_value(place, None, "config", description, expected, advice)


def languages_of(
    sources: Source | Sequence[Source],
    columns: Mapping[str, str] | None = None,
    split: str = "train",
    quoting: Quoting | None = None,
) -> list[str]:
    """Return the languages of sources of parallel text, in order of appearance.

    Only schemas, headers, names of files and configs, or the first rows are read. A locale such as
    `de-DE` is its language. Beside a column `en`, one of `en-US` is left out.

    Args:
        sources: One of, or a list of, what `load_parallel` takes.
        columns: The column of each language whose column is not named by its code,
            `{"de": "Source"}`.
        split: The split of a Hub dataset.
        quoting: What the quotes of CSV and TSV are; None to find out.

    Raises:
        CorpusError: No file is there, its columns are no languages, or two of them, such as
            `en-US` and `en-GB`, are one language.
        OSError: A Hub dataset can't be reached.

    Example:
        >>> languages_of("sample")
        ['de', 'en', 'es', 'fr', 'it']
    """
    pairs = column_pairs(columns)
    if isinstance(sources, str | os.PathLike | Mapping):
        sources = [sources]
    languages: dict[str, None] = {}
    for source in sources:
        languages |= dict.fromkeys(_languages_of_source(source, pairs, split, quoting))
    return list(languages)


def _languages_of_source(
    source: Source, columns: ColumnPairs, split: str, quoting: Quoting | None
) -> list[str]:
    if source == "sample":
        return list(LANGUAGES)
    tables = find_tables(source, quoting)
    if tables is None:
        path = os.path.expanduser(str(source))
        configs = config_names(path)
        codes = dict.fromkeys(code for name in language_pairs(configs) for code in name.split("-"))
        if not codes and len(configs) > 1:
            codes = dict.fromkeys(filter(names_a_language, configs))
        if codes:
            return list(codes)
        tables = [open_split(path, configs[0], split, streaming=True)]
    languages: dict[str, None] = {}
    for table in tables:
        batches = islice(table.batches(FIRST_ROWS, keep_bad=True), 1)
        header = header_of(batches, table.place, None, columns, table.format == "moses")
        languages |= dict.fromkeys(one_of_each(header.languages, table.place))
    return list(languages)
