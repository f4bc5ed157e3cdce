"""Parallel sources as retrieval data: rows of many languages, or pair by pair as the Hub keeps Europarl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import datasets

from modeling_tmde.data import CorpusError, load_parallel
from modeling_tmde.data.checks import is_code
from modeling_tmde.data.files import find_files, is_hub_layout, select_configs

from .base import Provenance, RetrievalData, TaskError
from .checks import Words, bad_data, choose_languages
from .hub import config_names

BLOCK_ROWS = 1000
Row = dict[str, str | None]

EUROPARL = "Helsinki-NLP/europarl"
EUROPARL_PROVENANCE = Provenance(
    citation="Koehn, Europarl: A Parallel Corpus for Statistical Machine Translation, 2005",
    licence="proceedings of the European Parliament; no restriction known to its makers",
    url="https://www.statmt.org/europarl/",
)


@dataclass(frozen=True)
class ParallelPart:
    """Rows that [`load_parallel`] has checked: one pair of languages of a Hub dataset, or a whole source.

    Args:
        task: Name of the task, for messages.
        place: Source and config, for messages.
        pair: The config, such as `de-en`; None for a source that is not kept pair by pair.
        languages: Those of its rows, which may be None there.
        split: Which split was read; None for files, which have none.
    """

    task: str
    place: str
    pair: str | None
    languages: list[str]
    dataset: datasets.Dataset | datasets.IterableDataset
    split: str | None

    def rows(self) -> Iterator[Row]:
        """Yield the rows, each `{language: text or None}` with at least two texts.

        Raises:
            TaskError: What a stream meets only when it is read.
        """
        try:
            for block in self.dataset.iter(batch_size=BLOCK_ROWS):
                yield from block["translation"]
        except CorpusError as error:
            raise TaskError(f"{self.task}: {error}") from error

    def complete_rows(self, languages: Sequence[str]) -> Iterator[Row]:
        """Yield the rows that hold every one of the languages, and only those languages."""
        for row in self.rows():
            if all(row[language] is not None for language in languages):
                yield {language: row[language] for language in languages}


def parallel_parts(
    task: str,
    source: str,
    languages: Sequence[str] | None,
    defaults: Sequence[str] = (),
    streaming: bool = False,
    split: str = "train",
    config: str | None = None,
    pivot: str | None = None,
    max_rows: int | None = None,
) -> tuple[list[str], list[ParallelPart]]:
    """Open a parallel source.

    Args:
        source: Whatever [`load_parallel`] reads.
        languages: None for those of `defaults` that are there (no defaults: for all).
        config: Of a Hub dataset, instead of all pairs of the languages.
        pivot: Only pairs with this language.
        max_rows: Files are read no further than that many good rows. (Of a Hub dataset, take as many as you want:
            cutting it before the checks would give a stream other rows.)

    Returns:
        The languages, and either the pairs of them or one part with the whole source.

    Raises:
        TaskError: What [`load_parallel`] and the Hub complain of.
    """
    try:
        if source == "sample" or (not is_hub_layout(source) and find_files(source) is not None):
            files_split = split if source == "sample" else None
            parts = [_open(task, source, None, languages, streaming, files_split, max_rows)]
        elif config is not None:
            parts = [_open(task, source, config, languages, streaming, split, None)]
        else:
            names = config_names(task, source)
            pairs = [pair for name in names if (pair := _pair(name)) and (pivot is None or pivot in pair)]
            there = sorted({code for pair in pairs for code in pair})
            chosen = choose_languages(task, source, languages, there, defaults) if pairs else languages
            names = select_configs(names, chosen, pivot and [pivot], source)
            parts = [
                _open(task, source, name, None if _pair(name) else chosen, streaming, split, None) for name in names
            ]
    except CorpusError as error:
        raise TaskError(f"{task}: {error}") from error
    there = dict.fromkeys(code for part in parts for code in part.languages)
    return choose_languages(task, source, languages, there, defaults), parts


def _pair(config: str) -> tuple[str, ...] | None:
    """Return the languages of a config such as `de-en`, or None if it is no such pair."""
    codes = tuple(config.split("-"))
    return codes if len(codes) == 2 and all(map(is_code, codes)) else None


def _open(
    task: str,
    source: str,
    config: str | None,
    languages: Sequence[str] | None,
    streaming: bool,
    split: str | None,
    max_rows: int | None,
) -> ParallelPart:
    dataset = load_parallel(
        source, languages=languages, streaming=streaming, split=split or "train", config=config, max_rows=max_rows
    )
    there = list(dataset.features["translation"])
    pair = config if config is not None and _pair(config) else None
    place = f"{source} (config {config})" if config else source
    return ParallelPart(task, place, pair, there, dataset, split)


def exactly(part: ParallelPart, rows: Iterable[Row], count: int, option: str) -> Iterator[Row]:
    """Yield the first `count` rows.

    Raises:
        TaskError: There are fewer.
    """
    found = 0
    for found, row in enumerate(islice(rows, count), 1):  # noqa: B007
        yield row
    if found < count:
        words, advice = Words(f"{found} rows that have all their languages"), f"Pass {option}= with a smaller number."
        raise bad_data(part.task, part.place, None, option, words, str(count), advice)


def aligned(
    task: str, parts: Iterable[tuple[str | None, Iterable[Row]]], languages: Sequence[str], provenance: Provenance
) -> RetrievalData:
    """Return rows as retrieval data; where they come pair by pair, a row is None in the languages of other pairs.

    Args:
        parts: Pair, or None, and rows. Ids are `"<pair>:<row>"`, or `"<row>"` without a pair, counted from 0.
        languages: Those of the result; others are left aside.

    Raises:
        TaskError: No row.
    """
    ids: list[str] = []
    texts: dict[str, list[str | None]] = {language: [] for language in languages}
    for pair, rows in parts:
        for number, row in enumerate(rows):
            ids.append(str(number) if pair is None else f"{pair}:{number}")
            for language, column in texts.items():
                column.append(row.get(language))
    if not ids:
        raise TaskError(f"{task}: {provenance.source}: found no rows with two of the languages, expected some.")
    return RetrievalData(ids, texts, provenance)
