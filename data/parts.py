"""Open the sources of a corpus: the sample, configs of Hub datasets, and files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import datasets

from tmde.embedding.hub_names import check_repository

from .checks import CorpusError, Unquoted, bad_value, check_languages, is_code
from .columns import SEEN_ROWS, ColumnPairs, header_of_rows
from .sample import LANGUAGES, sample_parallel
from .tables import Quoting, Table, find_tables

AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset
Source = str | os.PathLike | Mapping[str, str | os.PathLike]
RowSource = Source | AnyDataset

SAMPLE_ROWS = 20_000
SAMPLE_SPLITS = {"validation": "dev"}  # other names of its splits


@dataclass
class Part:
    """What temperature mixes: a file, or a config of a Hub dataset.

    Attributes:
        source: A file, or rows with `translation` or one column per language.
        place: Its name in messages.
        languages: The languages it holds; of a JSONL file at least the requested ones.
        fields: Its fields; empty if they are not looked at.
        rows: The number of its rows; None if it is not known.
        is_config: Whether it is a config of a Hub dataset.
    """

    source: Table | AnyDataset
    place: str
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
        pivot_languages: See `load_parallel`, as the following ones.
        split: The split of a Hub dataset or of the sample.
        streaming: Whether to return streams.
        seed: The seed of the sample.
        config: The config or configs of a Hub dataset.
        revision: The revision of a Hub dataset.
        token: The token for private Hub datasets.
        max_rows: How many rows of the sample to make.
        columns: Names, and the fields that the user says hold them.
        quoting: What the quotes of CSV and TSV are; None to find out.
    """

    text_names: tuple[str, ...] | None
    languages: tuple[str, ...] | None
    pivot_languages: Sequence[str] | None
    split: str
    streaming: bool
    seed: int
    config: str | Sequence[str] | None
    revision: str | None
    token: str | bool | None
    max_rows: int | None
    columns: ColumnPairs = ()
    quoting: Quoting | None = None

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
            return [self._dataset_part(source, place)]
        if source == "sample":
            return [self._sample_part()]
        tables: list[Table] | None
        if isinstance(source, Mapping):
            tables = find_tables(source)
        else:
            source = os.path.expanduser(os.fspath(source))
            tables = find_tables(source, self.quoting)
            if tables is None:
                return self._config_parts(source)
        self._check_file_options(str(source))
        return [self._file_part(table) for table in tables]

    def _sample_part(self) -> Part:
        split = SAMPLE_SPLITS.get(self.split, self.split)
        rows = sample_parallel(self.max_rows or SAMPLE_ROWS, split=split, seed=self.seed)
        place = f"sample (split {self.split})"
        if self.streaming:
            return Part(rows.to_iterable_dataset(), place, LANGUAGES, rows=len(rows))
        return Part(rows, place, LANGUAGES, rows=len(rows))

    def _dataset_part(self, rows: AnyDataset, place: str) -> Part:
        count = None
        seen_rows = 1  # Nobody knows what a row of a stream costs.
        if isinstance(rows, datasets.Dataset):
            count = len(rows)
            seen_rows = SEEN_ROWS
            if self.streaming:
                rows = rows.to_iterable_dataset()
        first_rows = islice(rows.with_format(None), seen_rows)
        header = header_of_rows(first_rows, place, self.text_names, self.columns)
        return Part(rows, place, header.languages, header.fields, count)

    # ---- Hub datasets

    def _config_parts(self, path: str) -> list[Part]:
        check_repository(path, "dataset", self.token)
        if self.config is None:
            names = datasets.get_dataset_config_names(
                path, revision=self.revision, token=self.token
            )
            configs = select_configs(names, self.languages, self.pivot_languages, path)
        elif isinstance(self.config, str):
            configs = [self.config]
        else:
            configs = list(self.config)
        return [self._config_part(path, config) for config in configs]

    def _config_part(self, path: str, config: str) -> Part:
        rows = datasets.load_dataset(
            path,
            config,
            split=self.split,
            streaming=self.streaming,
            revision=self.revision,
            token=self.token,
        )
        place = f"{path} (config {config}, split {self.split})"
        count = self._row_count(rows)
        first_rows = islice(rows, SEEN_ROWS)
        header = header_of_rows(first_rows, place, self.text_names, self.columns)
        return Part(rows, place, header.languages, header.fields, count, is_config=True)

    def _row_count(self, rows: AnyDataset) -> int | None:
        """Return the number of rows; of a stream the one that its card states, if it does."""
        if isinstance(rows, datasets.Dataset):
            return len(rows)
        split_info = (rows.info.splits or {}).get(self.split)
        if split_info is None:
            return None
        return split_info.num_examples or None

    # ---- Files

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

    def _file_part(self, table: Table) -> Part:
        count = table.row_count()
        rows = (row for _, row in table.rows(SEEN_ROWS))
        header = header_of_rows(
            rows, table.place, self.text_names, self.columns, table.has_different_rows
        )
        return Part(table, table.place, header.languages, header.fields, count)


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
        codes = name.split("-")
        if len(codes) == 2 and all(map(is_code, codes)):
            pairs[name] = set(codes)
    return pairs


def _no_config_error(
    names: Sequence[str], wanted: set[str], pivots: set[str], place: str
) -> CorpusError:
    description = Unquoted(f"the configs {sorted(names)}")
    expected = f"a pair such as 'de-en' of {sorted(wanted)} with a pivot of {sorted(pivots)}"
    advice = "Change the languages, or pass config='...' with the one (or a list of those) to load."
    return bad_value(place, None, "config", description, expected, advice)
