"""Translation retrieval: is the nearest vector of the other language the translation?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from modeling_tmde.documents.neighbours import SCORINGS, Matrix, target_ranks
from modeling_tmde.eval.metrics.translation_retrieval.translation_retrieval import rank_scores
from modeling_tmde.eval.results import Cell
from modeling_tmde.eval.systems import System
from modeling_tmde.eval.tasks import RetrievalData, TaskError


@dataclass(frozen=True)
class RetrievalPool:
    """Texts of two languages, translations at equal positions, none of them twice."""

    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]


def retrieval_pool(rows: list[dict[str, str | None]], source: str, target: str, size: int = 1000) -> RetrievalPool:
    """Up to `size` of the first rows that have both languages and repeat no text of either.

    Repeated texts are left out because their vectors are equal, and which of them comes first says nothing.
    """
    pairs = [(row.get(source), row.get(target)) for row in rows]
    kept = [pairs[position] for position in _unrepeated(pairs, size)]
    return RetrievalPool(source, target, [pair[0] for pair in kept], [pair[1] for pair in kept])


def _unrepeated(pairs: Iterable[tuple[str | None, str | None]], size: int | None) -> list[int]:
    """Positions of up to `size` of the first pairs that are complete and repeat no text of a pair chosen before."""
    seen: tuple[set[str], set[str]] = (set(), set())
    kept: list[int] = []
    for position, pair in enumerate(pairs):
        if size is not None and len(kept) >= size:
            break
        if not all(pair) or any(text in known for text, known in zip(pair, seen, strict=True)):
            continue
        for text, known in zip(pair, seen, strict=True):
            known.add(text)
        kept.append(position)
    return kept


def precision_at_1(sources: np.ndarray, targets: np.ndarray) -> float:
    """Share of vectors whose nearest of the other side, by cosine, is the one at the same position.

    Args:
        sources, targets: (n, d), translations at equal rows.

    Returns:
        The mean of both search directions, between 0 and 1; 0 for an empty pool.

    Raises:
        ValueError: If the shapes differ.
    """
    if sources.shape != targets.shape:
        raise ValueError(
            f"Retrieval needs as many sources as targets, found shapes {sources.shape} and {targets.shape}"
        )
    if not len(sources):
        return 0.0
    right = np.arange(len(sources))
    found = [target_ranks(*sides, right) == 1 for sides in ((sources, targets), (targets, sources))]
    return float(np.mean(found))


def evaluate_retrieval(
    data: RetrievalData,
    system: System,
    pairs: Sequence[tuple[str, str]] | None = None,
    scoring: str = "cosine",
    margin: str | None = "ratio",
    k: int = 4,
    max_size: int | None = None,
    progress: Callable[[str], None] | None = None,
    max_queries: int | None = None,
    seed: int = 0,
) -> list[Cell]:
    """Precision at 1 of finding each text's translation, for ordered pairs of languages.

    The pool of a pair is the rows that have both languages and repeat no text of either. Its source texts are the
    queries; the candidates are its target texts and the distractors of the target language, but for those equal to a
    text of the pool. A candidate that ties with the right one counts as before it (see
    [`~modeling_tmde.documents.neighbours.target_ranks`]). Each text is represented once, however many pairs it is in.

    Args:
        data: Aligned texts, and distractors if there are any.
        system: What represents texts; it may be fitted on both sides of a pair's pool.
        pairs: Pairs (source, target) of languages; None for all of different languages, but those with fewer than two
            rows in common.
        scoring: `cosine`, or a margin: `ratio`, `distance`, `absolute`.
        margin: Scoring of the error rate (the xsim of Artetxe & Schwenk 2019, arXiv 1811.01136); None leaves it out.
        k: Neighbours of a margin.
        max_size: Rows of a pool at most, the first ones; None for all.
        progress: Called with a line before each pair.
        max_queries: Rows of a pool whose sources are queries, drawn at random; all its targets stay candidates. With
            2,000 and a pool of 200,000 this is the protocol of XSR (paper 002).
        seed: Of that draw. Rows of a file often stand in the order of their sources.

    Returns:
        One cell a pair. `value` is precision at 1 by `scoring`; `extra` holds `mrr` and `recall_at_10` by `scoring`,
        `error_rate` and `precision_at_1_margin` by `margin`, `size` (queries), `candidates`, and `left_out`: rows that
        have both languages, but repeat a text of an earlier one (equal texts have equal vectors, and which of them
        comes first says nothing).

    Raises:
        TaskError: Unknown languages in `pairs`, one of them with fewer than two usable rows, or no usable pair at all.
        ValueError: Unknown scoring or margin; `k`, `max_queries` below 1, `max_size` below 2; vectors that are not
            finite.
    """
    for name, choice in (("scoring", scoring), ("margin", margin)):
        if choice not in SCORINGS and not (name == "margin" and choice is None):
            raise ValueError(f"{name}: found {choice!r}, expected one of {', '.join(SCORINGS)}")
    for name, number, least in (("k", k, 1), ("max_queries", max_queries, 1), ("max_size", max_size, 2)):
        if number is not None and number < least:
            raise ValueError(f"{name}: found {number}, expected at least {least}")
    pools = _pair_pools(data, pairs, max_size)
    pools = {pair: _queries_first(rows, max_queries, seed) for pair, rows in pools.items()}
    texts = _texts_of_pools(data, pools, max_queries)
    cells = []
    for (source, target), rows in pools.items():
        if progress is not None:
            progress(f"{source} -> {target}: {len(rows)} rows")
        queries, candidates = _represent_pair(data, system, texts, source, target, rows, max_queries)
        right = np.arange(queries.shape[0])
        ranks = target_ranks(queries, candidates, right, scoring, k)
        extra = rank_scores(ranks)
        value = extra.pop("precision_at_1")
        complete = sum(all(both) for both in zip(data.texts[source], data.texts[target], strict=True))
        if max_size is None:
            extra["left_out"] = complete - len(rows)
        if margin is not None:
            by_margin = ranks if margin == scoring else target_ranks(queries, candidates, right, margin, k)
            precision = rank_scores(by_margin)["precision_at_1"]
            extra |= {"precision_at_1_margin": precision, "error_rate": 1 - precision}
        cells.append(
            Cell(
                source=source,
                target=target,
                metric="precision_at_1",
                value=value,
                ids=[data.ids[row] for row in rows[: len(right)]],
                outcomes=(ranks == 1).astype(float),
                chance=1 / candidates.shape[0],
                extra=extra | {"size": len(right), "candidates": candidates.shape[0]},
            )
        )
    return cells


def _pair_pools(
    data: RetrievalData, pairs: Sequence[tuple[str, str]] | None, max_size: int | None
) -> dict[tuple[str, str], list[int]]:
    """Row numbers of each pair's pool."""
    chosen = list(itertools.permutations(data.languages, 2)) if pairs is None else [tuple(pair) for pair in pairs]
    pools = {}
    for source, target in chosen:
        unknown = [language for language in (source, target) if language not in data.texts]
        if unknown or source == target:
            raise TaskError(
                f"pairs: found {source}-{target}, expected two different languages of {', '.join(data.languages)}"
            )
        rows = _unrepeated(zip(data.texts[source], data.texts[target], strict=True), max_size)
        if len(rows) >= 2:
            pools[source, target] = rows
        elif pairs is not None:
            raise TaskError(
                f"pairs: {source}-{target} has {len(rows)} rows with both languages and no repeated text of "
                f"{len(data.ids)} rows in all, expected at least 2; leave the pair out, or add rows"
            )
    if not pools:
        raise TaskError(
            f"Found no pair with 2 rows in common among the languages {', '.join(data.languages) or '(none)'}, "
            "expected at least one"
        )
    return pools


def _queries_first(rows: list[int], max_queries: int | None, seed: int) -> list[int]:
    """The rows with those that are drawn as queries in front; both parts in order."""
    if max_queries is None or max_queries >= len(rows):
        return rows
    drawn = set(np.random.default_rng(seed).choice(rows, max_queries, replace=False).tolist())
    return sorted(rows, key=lambda row: (row not in drawn, row))


def _texts_of_pools(
    data: RetrievalData, pools: dict[tuple[str, str], list[int]], max_queries: int | None
) -> dict[str, dict[int, str]]:
    """By language, row number and text of every row that is a query or a candidate of some pair, in order of rows."""
    used: dict[str, set[int]] = {}
    for (source, target), rows in pools.items():
        used.setdefault(source, set()).update(rows[:max_queries])
        used.setdefault(target, set()).update(rows)
    return {language: {row: data.texts[language][row] for row in sorted(rows)} for language, rows in used.items()}


def _represent_pair(
    data: RetrievalData,
    system: System,
    texts: dict[str, dict[int, str]],
    source: str,
    target: str,
    rows: list[int],
    max_queries: int | None,
) -> tuple[Matrix, Matrix]:
    """Queries and candidates, whose first rows are the queries' translations.

    The system gets the same list of a language's texts for every pair, because it keeps what it knows by list.
    """
    pool = [data.texts[target][row] for row in rows]
    fit_on = [data.texts[source][row] for row in rows] + pool

    def of_rows(language: str, chosen: list[int]) -> Matrix:
        position = {row: number for number, row in enumerate(texts[language])}
        vectors = system.represent(list(texts[language].values()), fit_on, language)
        return vectors[[position[row] for row in chosen]]

    queries, candidates = of_rows(source, rows[:max_queries]), of_rows(target, rows)
    known = set(pool)
    distractors = list(data.distractors.get(target, []))
    kept = [number for number, text in enumerate(distractors) if text not in known]
    if kept:
        further = system.represent(distractors, fit_on, target)[kept]
        stack = scipy.sparse.vstack if scipy.sparse.issparse(further) else np.vstack
        candidates = stack([candidates, further])
    return queries, candidates
