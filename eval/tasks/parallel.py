"""Retrieval among the rows of parallel text: any source, Europarl's matrix of languages, XSR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias

import datasets

from tmde.data import load_parallel
from tmde.data.checks import Unquoted, bad_value
from tmde.data.labeled_tables import choose_languages, is_dataset
from tmde.data.parts import language_pairs, pair_of, select_configs
from tmde.data.tables import config_names

from .base import Languages, Provenance, RetrievalData, Source, Task
from .sources import Row, aligned, check_count, provenance_of, source_of

AnyDataset: TypeAlias = datasets.Dataset | datasets.IterableDataset
Parts = dict[str | None, AnyDataset]
PIVOT = "en"  # Europarl's pairs on the Hub are joined on their English.
BLOCK_ROWS = 1000  # Rows that are read at a time.


def open_parts(
    source: str,
    languages: Languages,
    defaults: Sequence[str] = (),
    pivot: str | None = None,
    config: str | None = None,
    **options: Any,
) -> tuple[list[str], Parts]:
    """Open a parallel source.

    Args:
        source: As for [`load_parallel`](tmde.data.load_parallel).
        languages: None for the available ones of `defaults`; without defaults, for all.
        defaults: The languages of the task.
        pivot: Only pairs with this language are opened; None for all pairs.
        config: Config of a dataset to open instead of all pairs of the languages.
        **options: As for [`load_parallel`](tmde.data.load_parallel).

    Returns:
        The languages, and the rows of each config that is a pair of them (`de-en`); under None, all
        rows of a source without such configs.
    """
    configs: Sequence[str | None] = [config]
    if config is None and is_dataset(source):
        names = config_names(source)
        available: set[str] = set()
        for pair in language_pairs(names).values():
            if pivot is None or pivot in pair:
                available |= pair
        if available:
            languages = choose_languages(source, languages, sorted(available), defaults)
        pivots = None if pivot is None else [pivot]
        configs = select_configs(names, languages, pivots, source)
    parts: Parts = {}
    for name in configs:
        if name is not None and pair_of(name) is not None:
            parts[name] = load_parallel(source, config=name, **options)
        else:
            parts[None] = load_parallel(source, languages, config=name, **options)
    loaded_languages = []
    for part in parts.values():
        loaded_languages += part.features["translation"]
    return choose_languages(source, languages, loaded_languages, defaults), parts


def rows_of(part: AnyDataset, languages: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows, `{language: text or None}`, that have all of the languages.

    Args:
        part: Rows with the column `translation`.
        languages: Languages that a row must have.
    """
    for block in part.iter(BLOCK_ROWS):
        for row in block["translation"]:
            if all(row[language] is not None for language in languages):
                yield row


def take(place: str, rows: Iterable[Row], count: int, option: str) -> list[Row]:
    """Return the first `count` rows.

    Args:
        place: The source, for the error.
        rows: Rows.
        count: How many.
        option: The option that asks for so many, for the error.

    Raises:
        CorpusError: There are fewer.
    """
    first_rows = list(islice(rows, count))
    if len(first_rows) < count:
        raise bad_value(
            place,
            None,
            option,
            Unquoted(f"{len(first_rows)} rows with all their languages"),
            str(count),
            f"Pass a smaller {option}=.",
        )
    return first_rows


class SentenceRetrieval(Task):
    """Retrieval over the rows of a parallel source; a row may lack languages."""

    name = "sentence_retrieval"
    description = "translations of sentences among the rows of any parallel text"
    local_names = ("*_dev.parquet",)
    needs = "parallel text in any format that training reads"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_rows: int | None = None,
        split: str = "train",
        config: str | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> RetrievalData:
        """Load the rows with two or more of the languages.

        Args:
            source: A file, folder, glob, Moses prefix or Hub dataset, as
                [`load_parallel`](tmde.data.load_parallel) reads them. Of a Hub dataset with a
                config for each pair of languages, every pair of `languages` is taken.
            languages: None for all languages of the source.
            streaming: Read the Hub without downloading whole files first.
            max_rows: Read only the first `max_rows` rows; if the source has a config for each pair,
                of each pair.
            split: Split of a Hub dataset.
            config: Config of a Hub dataset.
            columns: The column of each language that has another name, `{de: Source, en: Target}`.

        Raises:
            CorpusError: No source, missing languages, or a source that can't be read.
        """
        source = source_of(
            self, source, "Pass source= with parallel text: a file, a folder, or a Hub dataset."
        )
        check_count(self, "max_rows", max_rows)
        # A stream is read no further than needed.
        streaming = streaming or max_rows is not None
        chosen, parts = open_parts(
            source,
            languages,
            self.languages,
            streaming=streaming,
            split=split,
            config=config,
            columns=columns,
        )
        rows = [(pair, islice(rows_of(part), max_rows)) for pair, part in parts.items()]
        has_splits = source == "sample" or is_dataset(source)
        return aligned(rows, chosen, provenance_of(self, source, split if has_splits else None))


class EuroparlMatrix(Task):
    """Sentences in all languages (Yu et al., 2018, section 4), for every pair of languages.

    Leave the sentences out of any training: Europarl is also what the models are trained on.
    """

    name = "europarl_matrix"
    description = "5,000 Europarl sentences, every language against every other"
    provenance = Provenance(
        citation="Koehn, Europarl: A Parallel Corpus for Statistical Machine Translation, 2005",
        license="proceedings of the European Parliament; no restriction known to its makers",
        url="https://www.statmt.org/europarl/",
    )
    languages = ("de", "en", "es", "fr", "it", "pt")
    default_source = "Helsinki-NLP/europarl"

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        rows: int = 5000,
        split: str = "train",
    ) -> RetrievalData:
        """Load the first `rows` rows that lack no language.

        Args:
            source: Any parallel source. If it has a config for each pair of languages, as Europarl
                on the Hub, pairs are joined on identical English sentences; of a repeated English
                sentence, the first row is taken.
            languages: Must include English if pairs are to be joined; None for the task's
                languages.
            streaming: Read only the beginning of each pair from the Hub.
            rows: Number of rows.
            split: Split of a Hub dataset.

        Raises:
            CorpusError: Missing languages, or fewer complete rows than `rows`.
        """
        source = source_of(self, source)
        check_count(self, "rows", rows)
        chosen, parts = open_parts(
            source, languages, self.languages, PIVOT, streaming=streaming, split=split
        )
        if None in parts:
            complete_rows = rows_of(parts[None], chosen)
        else:
            complete_rows = _join_pairs(parts.values(), len(chosen), rows)
        first_rows = take(source, complete_rows, rows, "rows")
        tested_split = split if is_dataset(source) else None
        return aligned([(None, first_rows)], chosen, provenance_of(self, source, tested_split))


def _join_pairs(parts: Iterable[AnyDataset], language_count: int, row_count: int) -> Iterator[Row]:
    """Join pairs with English on identical English sentences.

    The pairs are read a block at a time, in turn, until `row_count` English sentences have all
    languages.

    Yields:
        The complete rows in the order in which their English was read; the same whether streamed or
        not.
    """
    readers = [rows_of(part) for part in parts]
    joined: dict[str | None, Row] = {}  # by English sentence
    complete_count = 0
    while readers and complete_count < row_count:
        for reader in list(readers):
            block = list(islice(reader, BLOCK_ROWS))
            if len(block) < BLOCK_ROWS:
                readers.remove(reader)
            for row in block:
                entry = joined.setdefault(row[PIVOT], {})
                if _completes(entry, row, language_count):
                    complete_count += 1
    for entry in joined.values():
        if len(entry) == language_count:
            yield entry


def _completes(entry: Row, row: Row, language_count: int) -> bool:
    """Add the languages of a row to those of its English sentence.

    Of a repeated sentence, the first translation stays.

    Returns:
        Whether the sentence has all languages now, and had not before.
    """
    was_complete = len(entry) == language_count
    for language, text in row.items():
        entry.setdefault(language, text)
    return len(entry) == language_count and not was_complete


class XSR(Task):
    """Cross-lingual sentence retrieval between English and others (Mao et al., 2021, section 4.4).

    Precision at 1 of 2,000 queries among 200,000 candidates. Leave the sentences out of any
    training: Europarl is also what the models are trained on.
    """

    name = "xsr"
    description = "2,000 Europarl sentences among 200,000, English and another language"
    provenance = EuroparlMatrix.provenance
    languages = ("de", "en", "es", "fr", "it")
    default_source = EuroparlMatrix.default_source

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        queries: int = 2000,
        candidates: int = 200_000,
        split: str = "train",
    ) -> RetrievalData:
        """Load the first `candidates` rows.

        If the source keeps pairs of languages in configs, these are the first rows of each pair
        with English, else the first that lack none of the languages.

        Args:
            source: Any parallel source.
            languages: None for the task's languages.
            streaming: Read only the beginning of each pair from the Hub.
            queries: Number of rows of each pair that are queries, drawn with the evaluation's seed.
            candidates: Rows of each pair of languages, queries included.
            split: Split of a Hub dataset.

        Raises:
            CorpusError: Missing languages, fewer rows than `candidates`, or more `queries` than
                those.
        """
        source = source_of(self, source)
        check_count(self, "queries", queries)
        check_count(self, "candidates", candidates)
        if queries > candidates:
            expected = f"at most candidates={candidates}"
            raise bad_value(self.name, None, "queries", queries, expected, "Correct one.")
        chosen, parts = open_parts(
            source, languages, self.languages, PIVOT, streaming=streaming, split=split
        )
        rows = []
        for pair, part in parts.items():
            if pair is None:
                place = source
                complete_rows = rows_of(part, chosen)
            else:
                place = f"{source} (config {pair})"
                complete_rows = rows_of(part, pair.split("-"))
            rows.append((pair, take(place, complete_rows, candidates, "candidates")))
        tested_split = split if is_dataset(source) else None
        data = aligned(rows, chosen, provenance_of(self, source, tested_split))
        return replace(data, queries=queries)
