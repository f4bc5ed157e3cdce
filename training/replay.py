"""Training data of a run that adds languages: their pairs, and a stated share of rows of the old languages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from transformers.utils import logging

from modeling_tmde.data import DOCUMENT_ID, CorpusError, CorpusReport, load_parallel
from modeling_tmde.data.checks import check_languages
from modeling_tmde.data.dev_rows import hold_out
from modeling_tmde.training.recipe import Recipe

logger = logging.get_logger("modeling_tmde.training")

MOST_PAIRS = 250_000  # rows made of the new ones: all are tokenized before training

Row = dict[str, str | None]  # text by language


def load_replayed(recipe: Recipe) -> tuple[datasets.Dataset, dict[str, datasets.Dataset], CorpusReport]:
    """
    Training rows, dev sets by name and the count of bad training rows of a recipe with `ReplaySources`.

    A row with a new language gives pairs of it and another language, each a row of its own, so that the draw of
    languages does not change the share: all pairs in small data, some of them in turn where they would be more than
    `MOST_PAIRS` rows (with `languages_per_row=null`, the row as it is). A replayed row has no new language. The
    smaller side is repeated until `replay_share` of all rows are replayed ones.

    Without `data.dev`, `data.dev_rows` rows are held out of both sides in the same share, before any is repeated.

    Raises:
        ValueError: Training could not use a single row of a new language.
        CorpusError: As `load_parallel`.
    """
    data, sources, report = recipe.data, recipe.data.replay, CorpusReport()
    new, pivots = sources.new_languages, data.pivot_languages if needs_pivot(recipe) else None
    old = [language for language in data.languages if language not in new]
    options = {"bad_rows": data.bad_rows, "seed": recipe.seed, "document_ids": True}
    reading = {**options, "temperature": data.temperature, "max_rows": data.max_rows, "report": report}
    rows = _load_present(sources.new, data.languages, data.pivot_languages, needed=new, **reading)
    with_new = _map(rows, _with_new, data.languages, new)
    check_new_rows(with_new, new, old, pivots)
    if sources.replay is not None:
        rows = _load_present(sources.replay, old, data.pivot_languages, **reading)
    replayed = _map(rows, _without_new, data.languages, new, pivots)
    dev = {}
    for name, source in data.dev.items() if isinstance(data.dev, Mapping) else [("dev", data.dev)] * bool(data.dev):
        split = {"split": "dev", "max_rows": 2000} if source == "sample" else {"split": "train"}
        dev[name] = _load_present(source, data.languages, data.pivot_languages, **split, **options)
    if not dev and data.dev_rows:
        with_new, replayed, dev = _hold_out(with_new, replayed, sources.replay_share, data.dev_rows, recipe.seed)
    if recipe.sections["training"].get("languages_per_row", 2) is not None:
        copies = max(MOST_PAIRS // max(len(with_new), 1), 1)
        with_new = _map(with_new, _pairs, data.languages, new, pivots, copies)
    return mix_rows(with_new, replayed, sources.replay_share, recipe.seed), dev, report


def mix_rows(new: datasets.Dataset, old: datasets.Dataset, share: float, seed: int) -> datasets.Dataset:
    """All rows of both, the smaller side repeated so that `share` of them are of `old`; rows of a document stay
    together. Without old rows, or with a share of 0, the new ones."""
    if not len(old) or not share:
        return new
    numbers = [len(new), round(share / (1 - share) * len(new))]
    if numbers[1] < len(old):
        numbers = [round((1 - share) / share * len(old)), len(old)]
    rng = np.random.default_rng(seed)
    parts = []
    for rows, number in zip((new, old), numbers, strict=True):
        begin = int(rng.integers(len(rows)))  # of the last, partial copy
        whole = np.tile(np.arange(len(rows)), number // len(rows))
        parts.append(rows.select(np.concatenate([whole, (begin + np.arange(number % len(rows))) % len(rows)])))
    return datasets.concatenate_datasets(parts)


def check_new_rows(
    rows: datasets.Dataset, new_languages: Sequence[str], old: Sequence[str], pivots: Sequence[str] | None
) -> None:
    """Refuses new languages that training could not tie to the old ones.

    Args:
        pivots: The pivot languages, if every pair must hold one; else None.

    Raises:
        ValueError: Names the language, what it was found with, and what was expected.
    """
    found = {frozenset(_present(row)) for row in rows["translation"][:]}
    for language in new_languages:
        partners = set().union(*(languages for languages in found if language in languages)) - {language}
        if not partners & set(old):
            with_what = f"in rows with {', '.join(sorted(partners)) or 'nothing'}"
            raise ValueError(
                f"{language}: found it {with_what}, expected rows that pair it with a language of the checkpoint "
                f"({', '.join(old)})"
            )
        if pivots is not None and language not in pivots and not partners & set(pivots):
            raise ValueError(
                f"{language}: found it in rows with {', '.join(sorted(partners))}, none of them a pivot, expected "
                f"rows that pair it with one of {', '.join(pivots)}, which the objectives need; or make it a pivot "
                "(--pivot)"
            )


def needs_pivot(recipe: Recipe) -> bool:
    """Whether every pair that is trained must hold a pivot language."""
    objectives = recipe.build_objectives().values()
    translates = any(objective.needs_decoder or objective.needs_pivot for objective in objectives)
    return translates or bool(recipe.sections["training"].get("pivot_pairs"))


def _load_present(
    source: Any, languages: Sequence[str], pivots: Sequence[str], needed: Sequence[str] = (), **options: Any
) -> datasets.Dataset:
    """`load_parallel` in those of the languages that the source has: new pairs seldom have all the old ones.

    Raises:
        CorpusError: It lacks one that is needed, or has fewer than two.
    """
    try:
        return load_parallel(source, languages=languages, pivot_languages=pivots, **options)
    except CorpusError as error:
        found = load_parallel(source, streaming=True, split=options.get("split", "train")).features["translation"]
        check_languages(needed, found, str(source))
        present = [language for language in languages if language in found]
        if len(present) < 2 or len(present) == len(languages):
            raise error
    return load_parallel(source, languages=present, **options)


def _hold_out(
    new: datasets.Dataset, old: datasets.Dataset, share: float, number: int, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset, dict[str, datasets.Dataset]]:
    """The two without the rows held out and all that share a text with one of these; and the rows held out."""
    held, rest = [], [new, old]
    for side, wanted in enumerate(((1 - share) * number, share * number)):
        if size := min(round(wanted), len(rest[side]) // 10):
            rest[side], taken = hold_out(rest[side], size, seed)
            held.append(taken)
    texts = sorted({item for rows in held for row in rows["translation"][:] for item in row.items() if item[1]})
    kept = [rows.filter(_has_none, input_columns="translation", fn_kwargs={"texts": set(texts)}) for rows in rest]
    if not held or not len(kept[0]):
        raise ValueError(
            f"dev_rows={number}: found {len(new):,} rows with a new language and {len(old):,} to replay, which are "
            "too few to hold any out that share no text with the rest; give --dev"
        )
    if left_out := sum(map(len, rest)) - sum(map(len, kept)):
        logger.warning(f"{left_out:,} rows share a text with one that is held out, and are not trained")
    return *kept, {"dev": datasets.concatenate_datasets(held)}


# ---- Rows. Functions of this module, so that `datasets` finds what it mapped before.


def _map(rows: datasets.Dataset, function: Callable, languages: Sequence[str], *arguments: Any) -> datasets.Dataset:
    """Every row becomes the rows that `function` makes of its translation."""
    texts = {language: datasets.Value("string") for language in sorted(languages)}
    return rows.map(
        _apply,
        batched=True,
        remove_columns=rows.column_names,
        features=datasets.Features({"translation": texts, DOCUMENT_ID: datasets.Value("string")}),
        fn_kwargs={"function": function, "languages": sorted(languages), "arguments": arguments},
    )


def _apply(batch: Mapping[str, list], function: Callable, languages: Sequence[str], arguments: tuple) -> dict:
    ids = batch.get(DOCUMENT_ID) or [None] * len(batch["translation"])
    found: dict[str, list] = {"translation": [], DOCUMENT_ID: []}
    for number, (translation, document) in enumerate(zip(batch["translation"], ids, strict=True)):
        for row in function(_present(translation), number, *arguments):
            found["translation"].append({language: row.get(language) for language in languages})
            found[DOCUMENT_ID].append(document)
    return found


def _present(translation: Row) -> Row:
    return {language: text for language, text in translation.items() if text}


def _has_none(translation: Row, texts: set[tuple[str, str]]) -> bool:
    return texts.isdisjoint(_present(translation).items())


def _with_new(row: Row, number: int, new: Sequence[str]) -> list[Row]:
    return [row] if row.keys() & set(new) else []


def _without_new(row: Row, number: int, new: Sequence[str], pivots: Sequence[str] | None) -> list[Row]:
    """The old languages of a row, if there are two with a pivot among them where there must be one."""
    old = {language: text for language, text in row.items() if language not in new}
    return [old] if len(old) >= 2 and (pivots is None or old.keys() & set(pivots)) else []


def _pairs(row: Row, number: int, new: Sequence[str], pivots: Sequence[str] | None, copies: int) -> list[Row]:
    """`copies` pairs of a new language with another one, beginning with another pair in each row."""
    pairs = [set(pair) for pair in itertools.combinations(row, 2) if set(pair) & set(new)]
    pairs = [pair for pair in pairs if pivots is None or pair & set(pivots)]
    taken = [pairs[(number + turn) % len(pairs)] for turn in range(min(copies, len(pairs)))]
    return [{language: row[language] for language in pair} for pair in taken]
