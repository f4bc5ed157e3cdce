"""Training data of a run that adds languages: their pairs, and rows of the old languages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, Value, concatenate_datasets
from transformers.utils import logging

from modeling_tmde import TmdeError
from tmde.data import DOCUMENT_ID, CorpusError, CorpusReport, load_parallel
from tmde.data.checks import check_languages
from tmde.data.rows import READING_ORDER, features_of, with_reading_order, with_reading_orders
from tmde.training.dev_rows import hold_out
from tmde.training.recipe.building import build_objectives
from tmde.training.recipe.schema import Recipe
from tmde.training.recipe.sections import ReplaySources

logger = logging.get_logger("tmde.training")

Row = dict[str, str]  # Texts by language.
ROWS_PER_HELD_OUT = 10  # At most one of so many rows is held out.


@dataclass(frozen=True)
class _LanguageSides:
    """The languages of a run that adds some.

    Attributes:
        all: All languages of the run.
        new: The languages that are added.
        old: The languages of the checkpoint.
        pivots: The languages of which every pair must have one.
    """

    all: Sequence[str]
    new: frozenset[str]
    old: Sequence[str]
    pivots: frozenset[str]

    def with_new(self, row: Row) -> list[Row]:
        """Return the row if it has a new language."""
        if row.keys() & self.new:
            return [row]
        return []

    def without_new(self, row: Row) -> list[Row]:
        """Return the old languages of the row, if they are a pair to train."""
        old = {language: text for language, text in row.items() if language not in self.new}
        if len(old) >= 2 and old.keys() & self.pivots:
            return [old]
        return []

    def new_pairs(self, row: Row) -> list[Row]:
        """Return the pairs of the row that have a new language, each as a row."""
        rows = []
        for first, second in itertools.combinations(row, 2):
            pair = {first, second}
            if pair & self.new and pair & self.pivots:
                rows.append({first: row[first], second: row[second]})
        return rows


def replay_sources(recipe: Recipe) -> ReplaySources:
    """Return the sources of a recipe that adds languages."""
    sources = recipe.data.replay
    assert sources is not None  # Only recipes that add languages come here.
    return sources


def load_replayed(
    recipe: Recipe, dev: dict[str, Dataset], report: CorpusReport
) -> tuple[Dataset, dict[str, Dataset]]:
    """Return the training rows of a recipe with `ReplaySources`, and its dev sets by name.

    Of a row with a new language, every pair with that language becomes a row of its own, so that
    drawing languages does not change the share (with `languages_per_row=null`, the row stays as it
    is). A replayed row has no new language. The smaller side is repeated until `replay_share` of
    all rows are replayed ones.

    Args:
        recipe: The recipe.
        dev: The dev sets of `data.dev`. Without any, `data.dev_rows` rows are held out of both
            sides in the same share, before any is repeated.
        report: Counts bad training rows.

    Raises:
        TmdeError: Training could not use a single row of a new language.
        CorpusError: As `load_parallel`.
    """
    data = recipe.data
    sources = replay_sources(recipe)
    languages = _language_sides(recipe)
    options: dict[str, Any] = {
        "pivot_languages": data.pivot_languages,
        "bad_rows": data.bad_rows,
        "temperature": data.temperature,
        "max_rows": data.max_rows,
        "document_ids": True,
        "seed": recipe.seed,
        "report": report,
        "columns": data.columns,
        "quoting": data.quoting,
    }
    rows = load_present(sources.new, languages.all, needed=languages.new, **options)
    rows = with_reading_order(rows)
    new_rows = _map(rows, languages.with_new, languages.all)
    _check_new_rows(new_rows, languages)
    if sources.replay is not None:
        rows = load_present(sources.replay, languages.old, **options)
        rows = with_reading_order(rows)
    old_rows = _map(rows, languages.without_new, languages.all)
    if not len(old_rows) or not sources.replay_share:
        logger.warning(
            f"Without --replay, the model may forget its old languages ({', '.join(languages.old)})"
        )
    if not dev and data.dev_rows:
        held_out = _hold_out(new_rows, old_rows, sources.replay_share, data.dev_rows, recipe.seed)
        new_rows = held_out.new
        old_rows = held_out.old
        dev = {"dev": held_out.dev}
    if recipe.training.languages_per_row is not None:
        new_rows = _map(new_rows, languages.new_pairs, languages.all)
    return mix_rows(new_rows, old_rows, sources.replay_share), dev


def _language_sides(recipe: Recipe) -> _LanguageSides:
    data = recipe.data
    new = frozenset(replay_sources(recipe).new_languages)
    old = [language for language in data.languages if language not in new]
    return _LanguageSides(data.languages, new, old, _pivots(recipe))


def _pivots(recipe: Recipe) -> frozenset[str]:
    """Return the languages of which every pair must have one; all if any pair is trained."""
    pivot_pairs = recipe.training.pivot_pairs
    if isinstance(pivot_pairs, list) and pivot_pairs:
        return frozenset(pivot_pairs)
    objectives = build_objectives(recipe).values()
    if pivot_pairs or any(objective.requirements.pivot for objective in objectives):
        return frozenset(recipe.data.pivot_languages)
    return frozenset(recipe.data.languages)


def mix_rows(new: Dataset, old: Dataset, share: float) -> Dataset:
    """Return all rows of both sides, of which `share` are of `old`.

    The smaller side is repeated.

    Rows of a document stay together. Without old rows, or with a share of 0, these are the new
    rows.
    """
    if not len(old) or not share:
        return new
    odds = share / (1 - share)
    new_number = max(len(new), round(len(old) / odds))
    old_number = max(len(old), round(odds * len(new)))
    new, old = with_reading_orders([new, old])
    return concatenate_datasets([_repeated(new, new_number), _repeated(old, old_number)])


def _repeated(rows: Dataset, number: int) -> Dataset:
    """Return so many rows, from the first to the last and again."""
    return rows.select(np.resize(np.arange(len(rows)), number))


def _check_new_rows(rows: Dataset, languages: _LanguageSides) -> None:
    """Refuse new languages that training could not tie to the old ones."""
    language_sets = set()
    for row in rows["translation"][:]:
        language_sets.add(frozenset(language for language, text in row.items() if text))
    for language in sorted(languages.new):
        partners: set[str] = set()
        for language_set in language_sets:
            if language in language_set:
                partners |= language_set
        partners.discard(language)
        expected = set(languages.old) if language in languages.pivots else languages.pivots
        if not partners & expected:
            raise TmdeError(
                f"{language}: found it in rows with "
                f"{', '.join(sorted(partners)) or 'nothing'}, expected rows that pair it with "
                f"{' or '.join(sorted(expected))}; add such rows, or make it a pivot "
                "(--pivot)"
            )


def load_present(
    source: Any, languages: Sequence[str], needed: Collection[str] = (), **options: Any
) -> Dataset:
    """Return what `load_parallel` reads of those languages that a source has.

    Sources of new pairs seldom have all the old languages.

    Args:
        source: The source, as `load_parallel` takes it.
        languages: The languages to read.
        needed: The languages that the source must have.
        options: Options of `load_parallel`.
    """
    try:
        return load_parallel(source, languages=languages, **options)
    except CorpusError:
        split = options.get("split", "train")
        rows = load_parallel(
            source,
            streaming=True,
            split=split,
            columns=options.get("columns"),
            quoting=options.get("quoting"),
        )
        available = rows.features["translation"]
        check_languages(needed, available, str(source))
        present = [language for language in languages if language in available]
        if len(present) < 2 or len(present) == len(languages):
            raise
    pivots = [language for language in options["pivot_languages"] if language in available]
    options["pivot_languages"] = pivots
    return load_parallel(source, languages=present, **options)


@dataclass(frozen=True)
class _HeldOut:
    """Both sides after rows are held out.

    Attributes:
        new: The new rows that share no text with those held out.
        old: The old rows that share no text with those held out.
        dev: The rows held out.
    """

    new: Dataset
    old: Dataset
    dev: Dataset


def _hold_out(
    new_rows: Dataset, old_rows: Dataset, share: float, number: int, seed: int
) -> _HeldOut:
    """Hold rows out of both sides.

    Args:
        new_rows: Rows with a new language.
        old_rows: Rows to replay.
        share: The share of the rows held out that are of `old_rows`.
        number: The number of rows to hold out.
        seed: The seed of the choice.

    Raises:
        TmdeError: There are too few rows.
    """
    new_rest, new_held = _hold_out_side(new_rows, (1 - share) * number, seed)
    old_rest, old_held = _hold_out_side(old_rows, share * number, seed)
    held = [rows for rows in (new_held, old_held) if rows is not None]
    texts: set[tuple[str, str]] = set()
    for rows in held:
        for row in rows["translation"][:]:
            texts.update(_texts_of(row))
    new_rest = _without_texts(new_rest, texts)
    old_rest = _without_texts(old_rest, texts)
    if not held or not len(new_rest):
        raise TmdeError(
            f"dev_rows={number}: found {len(new_rows):,} rows with a new language and "
            f"{len(old_rows):,} to replay, too few to hold any out without sharing text with "
            "the rest; give --dev"
        )
    return _HeldOut(new_rest, old_rest, concatenate_datasets(held))


def _hold_out_side(rows: Dataset, wanted: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Return the rows that stay and those held out; None if too few are there to hold out any."""
    number = min(round(wanted), len(rows) // ROWS_PER_HELD_OUT)
    if not number:
        return rows, None
    return hold_out(rows, number, seed)


def _without_texts(rows: Dataset, texts: set[tuple[str, str]]) -> Dataset:
    """Return the rows that have none of the texts, which are pairs of a language and a text."""

    def is_other(row: Row) -> bool:
        return texts.isdisjoint(row.items())

    return rows.filter(is_other, input_columns="translation")


def _texts_of(row: dict[str, str | None]) -> Iterable[tuple[str, str]]:
    return [(language, text) for language, text in row.items() if text]


def _map(rows: Dataset, function: Callable[[Row], list[Row]], languages: Sequence[str]) -> Dataset:
    """Replace every row by the rows that `function` returns for it, with its `reading_order`."""

    def apply(batch: dict[str, list]) -> dict[str, list]:
        made: dict[str, list] = {"translation": [], DOCUMENT_ID: [], READING_ORDER: []}
        for number, translation in enumerate(batch["translation"]):
            for row in function(dict(_texts_of(translation))):
                made["translation"].append({language: row.get(language) for language in languages})
                made[DOCUMENT_ID].append(batch[DOCUMENT_ID][number])
                made[READING_ORDER].append(batch[READING_ORDER][number])
        return made

    features = features_of(languages, document_ids=True)
    features[READING_ORDER] = Value("int64")
    return rows.map(apply, batched=True, remove_columns=rows.column_names, features=features)
