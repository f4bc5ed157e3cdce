"""Training data of a run that adds languages: their pairs, and a stated share of rows of the old languages."""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from modeling_tmde import TmdeError
from tmde.data import DOCUMENT_ID, CorpusError, CorpusReport, load_parallel
from tmde.data.checks import check_languages
from tmde.data.dev_rows import hold_out
from tmde.data.parallel import features_of
from tmde.training.recipe import Recipe

Row = dict[str, str]  # text by language


def load_replayed(
    recipe: Recipe, dev: dict[str, Dataset], report: CorpusReport
) -> tuple[Dataset, dict[str, Dataset]]:
    """Training rows of a recipe with `ReplaySources`, and its dev sets by name.

    Of a row with a new language, every pair with that language becomes a row of its own, so that drawing languages
    does not change the share (with `languages_per_row=null`, the row stays as it is). A replayed row has no new
    language. The smaller side is repeated until `replay_share` of all rows are replayed ones.

    Args:
        dev: The dev sets of `data.dev`. Without any, `data.dev_rows` rows are held out of both sides in the same
            share, before any is repeated.
        report: Counts bad training rows.

    Raises:
        ValueError: Training could not use a single row of a new language.
        CorpusError: As `load_parallel`.
    """
    data, sources, new = recipe.data, recipe.data.replay, set(recipe.data.replay.new_languages)
    needs_pivot = any(objective.needs_pivot for objective in recipe.build_objectives().values())
    pairs = recipe.sections["training"].get("pivot_pairs") or needs_pivot
    pivots = set(
        pairs if isinstance(pairs, list) else data.pivot_languages if pairs else data.languages
    )
    old = [language for language in data.languages if language not in new]

    def with_new(row: Row) -> list[Row]:
        return [row] if row.keys() & new else []

    def without_new(row: Row) -> list[Row]:
        kept = {language: text for language, text in row.items() if language not in new}
        return [kept] if len(kept) >= 2 and kept.keys() & pivots else []

    def new_pairs(row: Row) -> list[Row]:
        pairs = [set(pair) for pair in itertools.combinations(row, 2)]
        return [
            {language: row[language] for language in pair}
            for pair in pairs
            if pair & new and pair & pivots
        ]

    options = {
        name: getattr(data, name)
        for name in ("pivot_languages", "bad_rows", "temperature", "max_rows")
    }
    options |= {"document_ids": True, "seed": recipe.seed, "report": report}
    rows = load_present(sources.new, data.languages, needed=new, **options)
    new_rows = _map(rows, with_new, data.languages)
    _check_new_rows(new_rows, new, set(old), pivots)
    if sources.replay is not None:
        rows = load_present(sources.replay, old, **options)
    sides = [new_rows, _map(rows, without_new, data.languages)]
    if not dev and data.dev_rows:
        sides, held = _hold_out(sides, sources.replay_share, data.dev_rows, recipe.seed)
        dev = {"dev": held}
    if recipe.sections["training"].get("languages_per_row", 2) is not None:
        sides[0] = _map(sides[0], new_pairs, data.languages)
    return mix_rows(*sides, sources.replay_share), dev


def mix_rows(new: Dataset, old: Dataset, share: float) -> Dataset:
    """All rows of both, the smaller side repeated so that `share` of them are of `old`; rows of a document stay
    together. Without old rows, or with a share of 0, the new ones.
    """
    if not len(old) or not share:
        return new
    odds = share / (1 - share)
    numbers = [max(len(new), round(len(old) / odds)), max(len(old), round(odds * len(new)))]
    places = [
        np.resize(np.arange(len(rows)), number)
        for rows, number in zip((new, old), numbers, strict=True)
    ]
    return concatenate_datasets([new.select(places[0]), old.select(places[1])])


def _check_new_rows(rows: Dataset, new: Collection[str], old: set[str], pivots: set[str]) -> None:
    """Refuses new languages that training could not tie to the old ones."""
    found = {
        frozenset(language for language, text in row.items() if text)
        for row in rows["translation"][:]
    }
    for language in sorted(new):
        partners = set().union(*(languages for languages in found if language in languages)) - {
            language
        }
        expected = old if language in pivots else pivots
        if not partners & expected:
            raise TmdeError(
                f"{language}: found it in rows with {', '.join(sorted(partners)) or 'nothing'}, expected rows that "
                f"pair it with {' or '.join(sorted(expected))}; or make it a pivot (--pivot)"
            )


def load_present(
    source: Any, languages: Sequence[str], needed: Collection[str] = (), **options: Any
) -> Dataset:
    """`load_parallel` in those of the languages that the source has: new pairs seldom have all the old ones."""
    try:
        return load_parallel(source, languages=languages, **options)
    except CorpusError:
        found = load_parallel(source, streaming=True, split=options.get("split", "train")).features[
            "translation"
        ]
        check_languages(needed, found, str(source))
        present = [language for language in languages if language in found]
        if len(present) < 2 or len(present) == len(languages):
            raise
    options["pivot_languages"] = [
        language for language in options["pivot_languages"] if language in found
    ]
    return load_parallel(source, languages=present, **options)


def _hold_out(
    sides: list[Dataset], share: float, number: int, seed: int
) -> tuple[list[Dataset], Dataset]:
    """The rows without those held out and all that share a text with one of these; and the rows held out."""
    held, rest = [], list(sides)
    for side, wanted in enumerate(((1 - share) * number, share * number)):
        if size := min(round(wanted), len(rest[side]) // 10):
            rest[side], taken = hold_out(rest[side], size, seed)
            held.append(taken)
    texts = {
        item for rows in held for row in rows["translation"][:] for item in row.items() if item[1]
    }
    kept = [
        rows.filter(lambda row: texts.isdisjoint(row.items()), input_columns="translation")
        for rows in rest
    ]
    if not held or not len(kept[0]):
        raise TmdeError(
            f"dev_rows={number}: found {len(sides[0]):,} rows with a new language and {len(sides[1]):,} to replay, "
            "which are too few to hold any out that share no text with the rest; give --dev"
        )
    return kept, concatenate_datasets(held)


def _map(rows: Dataset, function: Callable[[Row], list[Row]], languages: Sequence[str]) -> Dataset:
    """Every row becomes the rows that `function` makes of its texts."""

    def apply(batch: dict[str, list]) -> dict[str, list]:
        found: dict[str, list] = {"translation": [], DOCUMENT_ID: []}
        for translation, document in zip(batch["translation"], batch[DOCUMENT_ID], strict=True):
            for row in function({language: text for language, text in translation.items() if text}):
                found["translation"].append({language: row.get(language) for language in languages})
                found[DOCUMENT_ID].append(document)
        return found

    features = features_of(languages, document_ids=True)
    return rows.map(apply, batched=True, remove_columns=rows.column_names, features=features)
