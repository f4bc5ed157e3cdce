"""Training data of a run that adds languages: their pairs, and a stated share of rows of the old languages."""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from transformers.utils import logging

from modeling_tmde.data import DOCUMENT_ID, CorpusError, CorpusReport, load_parallel
from modeling_tmde.data.checks import check_languages
from modeling_tmde.data.dev_rows import hold_out
from modeling_tmde.data.parallel import features_of
from modeling_tmde.training.recipe import Recipe

logger = logging.get_logger("modeling_tmde.training")

Row = dict[str, str]  # text by language


def load_replayed(recipe: Recipe) -> tuple[datasets.Dataset, dict[str, datasets.Dataset], CorpusReport]:
    """
    Training rows, dev sets by name and the count of bad training rows of a recipe with `ReplaySources`.

    Of a row with a new language, every pair with that language becomes a row of its own, so that drawing languages
    does not change the share (with `languages_per_row=null`, the row stays as it is). A replayed row has no new
    language. The smaller side is repeated until `replay_share` of all rows are replayed ones.

    Without `data.dev`, `data.dev_rows` rows are held out of both sides in the same share, before any is repeated.

    Raises:
        ValueError: Training could not use a single row of a new language.
        CorpusError: As `load_parallel`.
    """
    data, sources, report = recipe.data, recipe.data.replay, CorpusReport()
    training, new = recipe.sections["training"], set(sources.new_languages)
    needs_pivot = any(objective.needs_pivot for objective in recipe.build_objectives().values())
    pivots = set(data.pivot_languages if needs_pivot or training.get("pivot_pairs") else data.languages)
    old = [language for language in data.languages if language not in new]

    def with_new(row: Row) -> list[Row]:
        return [row] if row.keys() & new else []

    def without_new(row: Row) -> list[Row]:
        kept = {language: text for language, text in row.items() if language not in new}
        return [kept] if len(kept) >= 2 and kept.keys() & pivots else []

    def new_pairs(row: Row) -> list[Row]:
        pairs = [set(pair) for pair in itertools.combinations(row, 2)]
        return [{language: row[language] for language in pair} for pair in pairs if pair & new and pair & pivots]

    options = {"pivot_languages": data.pivot_languages, "bad_rows": data.bad_rows, "seed": recipe.seed}
    reading = {**options, "temperature": data.temperature, "max_rows": data.max_rows, "report": report}
    rows = _load(sources.new, data.languages, needed=new, **reading)
    new_rows = _map(rows, with_new, data.languages)
    _check_new_rows(new_rows, new, set(old), pivots)
    if sources.replay is not None:
        rows = _load(sources.replay, old, **reading)
    sides, dev = [new_rows, _map(rows, without_new, data.languages)], {}
    for name, source in data.dev.items() if isinstance(data.dev, Mapping) else [("dev", data.dev)] * bool(data.dev):
        split = {"split": "dev", "max_rows": 2000} if source == "sample" else {}
        dev[name] = _load(source, data.languages, **split, **options)
    if not dev and data.dev_rows:
        sides, dev["dev"] = _hold_out(sides, sources.replay_share, data.dev_rows, recipe.seed)
    if training.get("languages_per_row", 2) is not None:
        sides[0] = _map(sides[0], new_pairs, data.languages)
    return mix_rows(*sides, sources.replay_share), dev, report


def mix_rows(new: datasets.Dataset, old: datasets.Dataset, share: float) -> datasets.Dataset:
    """All rows of both, the smaller side repeated so that `share` of them are of `old`; rows of a document stay
    together. Without old rows, or with a share of 0, the new ones."""
    if not len(old) or not share:
        return new
    odds = share / (1 - share)
    numbers = [max(len(new), round(len(old) / odds)), max(len(old), round(odds * len(new)))]
    parts = zip((new, old), numbers, strict=True)
    return datasets.concatenate_datasets(
        [rows.select(np.resize(np.arange(len(rows)), number)) for rows, number in parts]
    )


def _check_new_rows(rows: datasets.Dataset, new: Collection[str], old: set[str], pivots: set[str]) -> None:
    """Refuses new languages that training could not tie to the old ones."""
    found = {frozenset(language for language, text in row.items() if text) for row in rows["translation"][:]}
    for language in sorted(new):
        partners = set().union(*(languages for languages in found if language in languages)) - {language}
        expected = old if language in pivots else pivots
        if not partners & expected:
            raise ValueError(
                f"{language}: found it in rows with {', '.join(sorted(partners)) or 'nothing'}, expected rows that "
                f"pair it with {' or '.join(sorted(expected))}; or make it a pivot (--pivot)"
            )


def _load(source: Any, languages: Sequence[str], needed: Collection[str] = (), **options: Any) -> datasets.Dataset:
    """`load_parallel` in those of the languages that the source has: new pairs seldom have all the old ones."""
    try:
        return load_parallel(source, languages=languages, document_ids=True, **options)
    except CorpusError:
        found = load_parallel(source, streaming=True, split=options.get("split", "train")).features["translation"]
        check_languages(needed, found, str(source))
        present = [language for language in languages if language in found]
        if len(present) < 2 or len(present) == len(languages):
            raise
    options["pivot_languages"] = [language for language in options["pivot_languages"] if language in found]
    return load_parallel(source, languages=present, document_ids=True, **options)


def _hold_out(
    sides: list[datasets.Dataset], share: float, number: int, seed: int
) -> tuple[list[datasets.Dataset], datasets.Dataset]:
    """The rows without those held out and all that share a text with one of these; and the rows held out."""
    held, rest = [], list(sides)
    for side, wanted in enumerate(((1 - share) * number, share * number)):
        if size := min(round(wanted), len(rest[side]) // 10):
            rest[side], taken = hold_out(rest[side], size, seed)
            held.append(taken)
    texts = {item for rows in held for row in rows["translation"][:] for item in row.items() if item[1]}
    kept = [rows.filter(lambda row: texts.isdisjoint(row.items()), input_columns="translation") for rows in rest]
    if not held or not len(kept[0]):
        raise ValueError(
            f"dev_rows={number}: found {len(sides[0]):,} rows with a new language and {len(sides[1]):,} to replay, "
            "which are too few to hold any out that share no text with the rest; give --dev"
        )
    if left_out := sum(map(len, rest)) - sum(map(len, kept)):
        logger.warning(f"{left_out:,} rows share a text with one that is held out, and are not trained")
    return kept, datasets.concatenate_datasets(held)


def _map(rows: datasets.Dataset, function: Callable[[Row], list[Row]], languages: Sequence[str]) -> datasets.Dataset:
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
