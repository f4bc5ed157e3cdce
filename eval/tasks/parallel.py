"""Retrieval among the rows of parallel text: any source, the matrix of Europarl's languages, and XSR."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import datasets

from tmde.data import load_parallel
from tmde.data.checks import Words, bad_value
from tmde.data.parallel import select_configs

from .base import Languages, Provenance, RetrievalData, Source, Task
from .sources import (
    Row,
    aligned,
    check_count,
    choose_languages,
    config_names,
    is_dataset,
    pair_of,
    provenance_of,
    source_of,
)

Parts = dict[str | None, datasets.Dataset | datasets.IterableDataset]
PIVOT = "en"  # of Europarl
BLOCK_ROWS = 1000


def open_parts(
    source: str,
    languages: Languages,
    defaults: Sequence[str] = (),
    pivot: str | None = None,
    config: str | None = None,
    **options: object,
) -> tuple[list[str], Parts]:
    """Opens a parallel source.

    Args:
        source, **options: As for [`load_parallel`](tmde.data.load_parallel).
        languages: None for the available ones of `defaults`; without defaults, for all.
        pivot: Only pairs with this language.
        config: Config of a dataset to open instead of all pairs of the languages.

    Returns:
        The languages, and the rows of each config that is a pair of them (`de-en`); under None, all rows of a source
        without such configs.
    """
    configs = [config]
    if config is None and is_dataset(source):
        names = config_names(source)
        pairs = [
            pair for name in names if (pair := pair_of(name)) and (pivot is None or pivot in pair)
        ]
        if pairs:
            languages = choose_languages(
                source, languages, sorted({c for pair in pairs for c in pair}), defaults
            )
        configs = select_configs(names, languages, pivot and [pivot], source)
    parts: Parts = {}
    for name in configs:
        pair = pair_of(name or "") and name
        parts[pair] = load_parallel(source, None if pair else languages, config=name, **options)
    there = [code for part in parts.values() for code in part.features["translation"]]
    return choose_languages(source, languages, there, defaults), parts


def rows_of(
    part: datasets.Dataset | datasets.IterableDataset, languages: Sequence[str] = ()
) -> Iterator[Row]:
    """Yields the rows, `{language: text or None}`, that have all of `languages`."""
    for block in part.iter(BLOCK_ROWS):
        yield from (
            row for row in block["translation"] if all(row[code] is not None for code in languages)
        )


def take(place: str, rows: Iterable[Row], count: int, option: str) -> list[Row]:
    """The first `count` rows.

    Raises:
        CorpusError: There are fewer.
    """
    chosen = list(islice(rows, count))
    if len(chosen) < count:
        found, advice = (
            Words(f"{len(chosen)} rows with all their languages"),
            f"Pass a smaller {option}=.",
        )
        raise bad_value(place, None, option, found, str(count), advice)
    return chosen


class SentenceRetrieval(Task):
    """Retrieval over the rows of a parallel source; a row may lack languages."""

    name = "sentence_retrieval"
    description = "translations among the rows of any parallel source"
    local_names = ("*_dev.parquet",)

    def load(
        self,
        source: Source = None,
        languages: Languages = None,
        streaming: bool = False,
        max_rows: int | None = None,
        split: str = "train",
        config: str | None = None,
    ) -> RetrievalData:
        """The rows with two or more of the languages (None: all languages of the source).

        Args:
            source: A file, folder, glob, Moses prefix or Hub dataset, as
                [`load_parallel`](tmde.data.load_parallel) reads them. Of a Hub dataset with a config
                for each pair of languages, every pair of `languages` is taken.
            max_rows: Read only the first `max_rows` rows; if the source has a config for each pair, of each pair.
            split, config: Of a Hub dataset.

        Raises:
            CorpusError: No source, missing languages, or a source that can't be read.
        """
        source = source_of(
            self, source, "Pass source= with parallel text: a file, a folder, or a Hub dataset."
        )
        check_count(self, "max_rows", max_rows)
        streaming = streaming or max_rows is not None  # read no further than needed
        chosen, parts = open_parts(
            source, languages, self.languages, streaming=streaming, split=split, config=config
        )
        rows = ((pair, islice(rows_of(part), max_rows)) for pair, part in parts.items())
        tested = split if source == "sample" or is_dataset(source) else None
        return aligned(rows, chosen, provenance_of(self, source, tested))


class EuroparlMatrix(Task):
    """Sentences that all languages have (001, section 4, table 2), every language against every other.

    Leave the sentences out of any training: Europarl is also what the models are trained on.
    """

    name = "europarl_matrix"
    description = "5,000 Europarl sentences, every language against every other"
    provenance = Provenance(
        citation="Koehn, Europarl: A Parallel Corpus for Statistical Machine Translation, 2005",
        licence="proceedings of the European Parliament; no restriction known to its makers",
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
        """The first `rows` rows that lack no language.

        Args:
            source: Any parallel source. If it has a config for each pair of languages, as Europarl on the Hub, pairs
                are joined on identical English sentences; of a repeated English sentence, the first row is taken.
            languages: Must include English if pairs are to be joined; None for the task's languages.
            streaming: Read only the beginning of each pair from the Hub.
            rows: Number of rows.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages, or fewer complete rows than `rows`.
        """
        source = source_of(self, source)
        check_count(self, "rows", rows)
        options = {"streaming": streaming, "split": split}
        chosen, parts = open_parts(source, languages, self.languages, PIVOT, **options)
        complete = (
            rows_of(parts[None], chosen) if None in parts else _join(parts, len(chosen), rows)
        )
        found = take(source, complete, rows, "rows")
        return aligned(
            [(None, found)],
            chosen,
            provenance_of(self, source, split if is_dataset(source) else None),
        )


def _join(
    parts: Mapping[str, datasets.Dataset | datasets.IterableDataset], size: int, rows: int
) -> Iterator[Row]:
    """Reads pairs with English a block at a time, in turn, until `rows` English sentences have `size` languages.

    Yields:
        The complete rows in the order in which their English was read; the same whether streamed or not.
    """
    readers = {pair: rows_of(part) for pair, part in parts.items()}
    joined: dict[str, Row] = {}
    complete = 0
    while readers and complete < rows:
        for pair, reader in list(readers.items()):
            block = list(islice(reader, BLOCK_ROWS))
            if len(block) < BLOCK_ROWS:
                del readers[pair]
            for row in block:
                entry = joined.setdefault(row[PIVOT], {})
                before = len(entry)
                entry |= row | entry  # of a repeated English sentence, the first translation stays
                complete += before < size == len(entry)
    return (entry for entry in joined.values() if len(entry) == size)


class XSR(Task):
    """Cross-lingual sentence retrieval (002, section 4.4): P@1 of 2,000 queries among 200,000 candidates, between
    English and each other language.

    Leave the sentences out of any training: Europarl is also what the models are trained on.
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
        """The first `candidates` rows: of each pair with English, where the source keeps pairs of languages in
        configs, else those that lack none of the languages.

        Args:
            source: Any parallel source.
            queries: Number of rows of each pair that are queries, drawn with the evaluation's seed.
            candidates: Rows of each pair of languages, queries included.
            split: Of a Hub dataset.

        Raises:
            CorpusError: Missing languages, fewer rows than `candidates`, or more `queries` than those.
        """
        source = source_of(self, source)
        check_count(self, "queries", queries)
        check_count(self, "candidates", candidates)
        if queries > candidates:
            raise bad_value(
                self.name,
                None,
                "queries",
                queries,
                f"at most candidates={candidates}",
                "Correct one.",
            )
        options = {"streaming": streaming, "split": split}
        chosen, parts = open_parts(source, languages, self.languages, PIVOT, **options)
        rows = []
        for pair, part in parts.items():
            complete = rows_of(part, pair_of(pair) if pair else chosen)
            place = f"{source} (config {pair})" if pair else source
            rows.append((pair, take(place, complete, candidates, "candidates")))
        provenance = provenance_of(self, source, split if is_dataset(source) else None)
        return replace(aligned(rows, chosen, provenance), queries=queries)
