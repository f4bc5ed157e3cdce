"""The languages of a source of parallel text, without reading it whole."""

import os
from collections.abc import Mapping, Sequence
from itertools import islice

import datasets

from .columns import SEEN_ROWS, ColumnPairs, column_pairs, header_of_rows, languages_in, one_of_each
from .locales import language_of_locale, names_a_language
from .parts import AnyDataset, Source, language_pairs
from .sample import LANGUAGES
from .tables import Table, find_tables

__all__ = ["language_of_locale", "languages_of"]

FIRST_ROWS = 1000  # rows of a file that are read for languages that not every row has


def languages_of(
    sources: Source | Sequence[Source],
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> list[str]:
    """Return the languages of sources of parallel text, in order of appearance.

    Only schemas, headers, names of files and configs, or the first rows are read. A locale such as
    `de-DE` is its language. Beside a column `en`, one of `en-US` is left out.

    Args:
        sources: One of, or a list of, what `load_parallel` takes.
        columns: The column of each language whose column is not named by its code,
            `{"de": "Source"}`.
        split: The split of a Hub dataset.

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
        languages |= dict.fromkeys(_languages_of_source(source, pairs, split))
    return list(languages)


def _languages_of_source(source: Source, columns: ColumnPairs, split: str) -> list[str]:
    if source == "sample":
        return list(LANGUAGES)
    if isinstance(source, Mapping):
        return _languages_of_files(find_tables(source), columns)
    path = os.path.expanduser(os.fspath(source))
    files = find_tables(path)
    if files is None:
        return _languages_of_dataset(path, columns, split)
    return _languages_of_files(files, columns)


def _languages_of_files(files: Sequence[Table], columns: ColumnPairs) -> list[str]:
    languages: dict[str, None] = {}
    for file in files:
        languages |= dict.fromkeys(_languages_of_file(file, columns))
    return list(languages)


def _languages_of_file(file: Table, columns: ColumnPairs) -> list[str]:
    if file.format == "moses":
        return one_of_each(languages_in(file.languages, columns), file.place)
    numbered_rows = islice(file.rows(FIRST_ROWS), FIRST_ROWS)
    texts = (row for _, row in numbered_rows)
    header = header_of_rows(texts, file.place, None, columns, file.has_different_rows)
    return one_of_each(header.languages, file.place)


def _languages_of_dataset(path: str, columns: ColumnPairs, split: str) -> list[str]:
    """Return the languages of the configs of a Hub dataset: by their names, or by a first row."""
    configs = datasets.get_dataset_config_names(path)
    languages: dict[str, None] = {}
    for name in language_pairs(configs):
        languages |= dict.fromkeys(name.split("-"))
    if not languages and len(configs) > 1:
        languages = dict.fromkeys(name for name in configs if names_a_language(name))
    if languages:
        return list(languages)
    rows: AnyDataset = datasets.load_dataset(path, configs[0], split=split, streaming=True)
    header = header_of_rows(rows.take(SEEN_ROWS), path, None, columns)
    return one_of_each(header.languages, path)
