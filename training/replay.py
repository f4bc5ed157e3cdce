"""Training data of a run that adds languages: their pairs, and a stated share of rows of the old languages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from modeling_tmde.data import DOCUMENT_ID, CorpusError, CorpusReport, load_parallel
from modeling_tmde.data.checks import check_languages, features_of
from modeling_tmde.training.dev_documents import hold_out

if TYPE_CHECKING:
    from modeling_tmde.data.token_store import Tokens
    from modeling_tmde.training.batching import ParallelBatches
    from modeling_tmde.training.recipe import Recipe

logger = logging.get_logger("modeling_tmde.training")

MAP_ROWS = 10_000
MOST_PAIRS = 250_000  # rows made of the new ones: all are tokenised before training
DEV_NAME = "dev"


@dataclass(frozen=True)
class ReplayedSources:
    """
    `data.train` of a recipe that adds languages, a mapping with these keys.

    Args:
        new: Source or sources with rows in the new languages.
        new_languages: Codes of these.
        replay: Source or sources of the old languages; None takes what `new` holds of them.
        replay_share: Share of the training rows that are of old languages alone.
    """

    new: Any
    new_languages: list[str]
    replay: Any = None
    replay_share: float = 0.5

    def __post_init__(self):
        if not 0 <= self.replay_share < 1:
            raise ValueError(
                f"replay_share={self.replay_share} is a share of the training rows, expected at least 0 and below 1"
            )


def replayed_sources(train: Any) -> ReplayedSources | None:
    """What `data.train` says of a replay; None if it is an ordinary source.

    Raises:
        ValueError: An unknown key, or one that is missing.
    """
    if not isinstance(train, Mapping) or "new" not in train:
        return None
    known = [field.name for field in fields(ReplayedSources)]
    unknown = [key for key in train if key not in known]
    if unknown or "new_languages" not in train:
        raise ValueError(f"data.train: found the keys {list(train)}, expected new, new_languages and some of {known}")
    return ReplayedSources(**train)


def load_replayed(recipe: Recipe) -> tuple[datasets.Dataset, dict[str, datasets.Dataset], CorpusReport]:
    """
    Training rows, dev sets by name and the count of bad training rows, as `load_data` gives them.

    A row of the `new` sources gives pairs of a new language and another one, each a row of its own, so that no draw of
    languages changes the share: all its pairs in small data, one of them in turn where they would be more than
    `MOST_PAIRS` rows (with `languages_per_row=null`, the row as it is). A replayed row has no new language. The
    smaller side is repeated, by whole copies and a part, until `replay_share` of all rows are replayed ones.

    Without `data.dev`, `data.dev_rows` rows are held out of both sides in the same share, before any is repeated.

    Raises:
        ValueError: Streaming data, or no row for a new language that training could use.
        CorpusError: As `load_parallel`.
    """
    data, report = recipe.data, CorpusReport()
    sources = replayed_sources(data.train)
    if data.streaming:
        raise ValueError("data.streaming=true: rows of a stream can't be replayed in a stated share; set it to false")
    pivots = data.pivot_languages if needs_pivot(recipe) else None
    old = [language for language in data.languages if language not in sources.new_languages]
    seed = recipe.sections["training"].get("seed", 42)
    options = {"bad_rows": data.bad_rows, "seed": seed, "document_ids": True}
    reading = options | {"temperature": data.temperature, "max_rows": data.max_rows, "report": report}
    rows = _load_present(sources.new, data.languages, data.pivot_languages, needed=sources.new_languages, **reading)
    with_new = _map(rows, _new_rows, data.languages, sources.new_languages)
    check_new_rows(with_new, sources.new_languages, old, pivots)
    replayed = rows if sources.replay is None else _load_present(sources.replay, old, data.pivot_languages, **reading)
    replayed = _map(replayed, _old_rows, data.languages, sources.new_languages, pivots)
    dev = {}
    for name, source in data.dev.items() if isinstance(data.dev, Mapping) else [(DEV_NAME, data.dev)] * bool(data.dev):
        split, most = ("dev", 2000) if source == "sample" else ("train", None)
        dev[name] = _load_present(source, data.languages, data.pivot_languages, split=split, max_rows=most, **options)
    if not dev and data.dev_rows:
        with_new, replayed, dev = _hold_out(with_new, replayed, sources.replay_share, data.dev_rows, seed)
    whole = recipe.sections["training"].get("languages_per_row", 2) is None
    if not whole:
        copies = max(MOST_PAIRS // max(len(with_new), 1), 1)
        with_new = _map(with_new, _new_pairs, data.languages, sources.new_languages, pivots, copies)
    return mix_rows(with_new, replayed, sources.replay_share, seed), dev, report


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
        begin = int(rng.integers(len(rows)))  # of the part: not always the first rows are repeated once more
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
    languages = sorted({*new_languages, *old})
    available = _available(rows, languages)  # (rows, languages)
    for language in new_languages:
        own = available[available[:, languages.index(language)]]
        if not len(own):
            raise ValueError(f"{language}: found no text in the new training data, expected rows with that language")
        partners = [other for place, other in enumerate(languages) if other != language and own[:, place].any()]
        if not set(partners) & set(old):
            raise ValueError(
                f"{language}: found it in rows with {partners or 'no other language'} alone, expected rows that pair "
                f"it with a language of the checkpoint ({', '.join(old)})"
            )
        if pivots is not None and language not in pivots and not set(partners) & set(pivots):
            raise ValueError(
                f"{language}: found it in rows with {', '.join(partners)}, none of them a pivot, expected rows that "
                f"pair it with one of {', '.join(pivots)}, which the objectives need; or make it a pivot (--pivot)"
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
    """The two without the rows held out and all that share a text with one of these, which may be in both; and the
    rows held out."""
    held, rest = [], [new, old]
    for side, wanted in enumerate(((1 - share) * number, share * number)):
        if size := min(round(wanted), len(rest[side]) // 10):
            rest[side], taken = hold_out(rest[side], size, seed)
            held.append(taken)
            rest = [_without_texts_of(taken, rows) for rows in rest]
    if not held:
        raise ValueError(
            f"dev_rows={number}: found {len(new):,} rows with a new language and {len(old):,} to replay, which are "
            "too few to hold any out; give --dev"
        )
    if not len(rest[0]):
        raise ValueError(
            f"dev_rows={number}: each of the {len(new):,} rows with a new language shares a text with one that is "
            "held out, so none is left to train; give --dev"
        )
    left_out = len(new) + len(old) - sum(map(len, [*held, *rest]))
    if left_out:
        logger.warning(f"{left_out:,} rows share a text with one that is held out, and are not trained")
    return *rest, {DEV_NAME: datasets.concatenate_datasets(held)}


def _without_texts_of(held: datasets.Dataset, rows: datasets.Dataset) -> datasets.Dataset:
    """The rows that have no text of `held` in the same language."""
    languages = list(held.features["translation"])
    known = {name: text.drop_null() for name, text in _texts(held.with_format("arrow")[:], languages).items()}
    shared = [np.zeros(0, dtype=bool)]
    for table in rows.with_format("arrow").iter(MAP_ROWS):
        found = [pc.is_in(text, known[name]) for name, text in _texts(table, languages).items()]
        shared.append(np.any([mask.to_numpy(zero_copy_only=False) for mask in found], axis=0))
    return rows.select(np.flatnonzero(~np.concatenate(shared)))


def count_drawn(batches: ParallelBatches, tokens: Tokens, new_languages: Sequence[str]) -> dict[str, dict[str, int]]:
    """What the first chunk of a run's batches trains on: `rows` and `words` of `new` pairs, those with a new language,
    and of `old` ones.

    Args:
        batches: As the run makes them; they are planned, not made.
        tokens: Of their rows.
    """
    order = np.random.default_rng([batches.seed, 0]).permutation(batches.num_rows)[: batches.buffer_rows]
    plans, _ = batches.planner.plan(tokens, order, np.random.default_rng([batches.seed, 0, 0]))
    counts = {kind: {"rows": 0, "words": 0} for kind in ("new", "old")}
    for plan in plans:
        codes = {batches.languages[number] for number in plan.languages}
        found = counts["new" if codes & set(new_languages) else "old"]
        found["rows"] += plan.rows.shape[-1]
        numbers = np.broadcast_to(np.array(plan.languages)[:, None, None], plan.rows.shape)
        there = plan.rows >= 0
        found["words"] += int(tokens.cells(plan.rows[there], numbers[there]).words.sum())
    return counts


# ---- Rows of one kind


def _map(rows: datasets.Dataset, function: Any, languages: Sequence[str], *arguments: Any) -> datasets.Dataset:
    options = {"languages": sorted(languages), "arguments": arguments}
    features = features_of(languages, document_ids=True)
    mapped = rows.with_format("arrow").map(
        function, batched=True, batch_size=MAP_ROWS, fn_kwargs=options, features=features
    )
    return mapped.with_format(None)


def _texts(table: pa.Table, languages: list[str]) -> dict[str, pa.Array]:
    structs = table["translation"].combine_chunks()
    there = {field.name for field in structs.type}
    missing = pa.nulls(len(structs), pa.string())
    return {name: pc.struct_field(structs, name) if name in there else missing for name in languages}


def _select(table: pa.Table, texts: dict[str, pa.Array], kept: Sequence[str], mask: np.ndarray) -> pa.Table:
    """The rows of a mask, in some of the languages."""
    missing = pa.nulls(table.num_rows, pa.string())
    columns = [text if name in kept else missing for name, text in texts.items()]
    struct = pa.StructArray.from_arrays(columns, names=list(texts))
    ids = table[DOCUMENT_ID].combine_chunks() if DOCUMENT_ID in table.column_names else missing
    return pa.table({"translation": struct, DOCUMENT_ID: ids}).filter(pa.array(mask))


def _valid(texts: dict[str, pa.Array]) -> dict[str, np.ndarray]:
    return {name: text.is_valid().to_numpy(zero_copy_only=False) for name, text in texts.items()}


def _any(masks: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return np.any([masks[name] for name in names], axis=0)


def _new_rows(table: pa.Table, languages: list[str], arguments: tuple) -> pa.Table:
    """Rows with a new language, in all their languages."""
    (new,) = arguments
    texts = _texts(table, languages)
    return _select(table, texts, languages, _any(_valid(texts), new))


def _old_rows(table: pa.Table, languages: list[str], arguments: tuple) -> pa.Table:
    """Rows with two old languages, a pivot among them if there must be one, without the new languages."""
    new, pivots = arguments
    texts = _texts(table, languages)
    old = [name for name in languages if name not in new]
    valid = _valid(texts)
    mask = np.sum([valid[name] for name in old], axis=0) >= 2
    if pivots is not None:
        mask &= _any(valid, [name for name in old if name in pivots] or new)
    return _select(table, texts, old, mask)


def _new_pairs(table: pa.Table, languages: list[str], arguments: tuple) -> pa.Table:
    """So many pairs of each row, all if there are no more, of a new language with another one: each a row."""
    new, pivots, copies = arguments
    texts = _texts(table, languages)
    valid = _valid(texts)
    pairs = [pair for pair in itertools.combinations(languages, 2) if set(pair) & set(new)]
    pairs = [pair for pair in pairs if pivots is None or set(pair) & set(pivots)]
    there = np.stack([valid[one] & valid[other] for one, other in pairs])  # (pairs, rows)
    number = np.cumsum(there, axis=0) - 1  # of each pair among its row's
    turn = (number - np.arange(table.num_rows)) % np.maximum(there.sum(axis=0), 1)  # begins elsewhere in each row
    taken = there & (turn < copies)
    return pa.concat_tables([_select(table, texts, pair, mask) for pair, mask in zip(pairs, taken, strict=True)])


def _available(rows: datasets.Dataset, languages: Sequence[str]) -> np.ndarray:
    """(rows, languages), whether there is a text."""
    found = [np.zeros((0, len(languages)), dtype=bool)]
    for table in rows.with_format("arrow").iter(MAP_ROWS):
        valid = _valid(_texts(table, list(languages)))
        found.append(np.stack([valid[name] for name in languages], axis=1))
    return np.concatenate(found)
